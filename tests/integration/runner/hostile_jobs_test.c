/* SPDX-License-Identifier: Apache-2.0 */
/* Hostile jobs against the whole runner on a real Valkey: damaged envelopes, bodies that break one row of the
 * tables (signed with the right key, since a producer may be the attacker), and a queue that holds what no
 * producer wrote. Each is refused with its one reason; good jobs between them are answered. */
#include <glib.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "protocol/envelope.h"
#include "world.h"

#define PREFIX "quavon-sandbox"

static World *world;

typedef struct {
  const char *name;
  const char *path;  /* members and indices, separated by '.'; the last one is replaced */
  const char *value; /* JSON; NULL: removed */
} Body;

#define UUID "00000000-0000-4000-8000-000000000000"
#define TEN "\"aaaaaaaaaa\""

/* All of them: rejected: malformed. */
static const Body bodies[] = {
  {"version", "v", "2"},
  {"version-as-text", "v", "\"1\""},
  {"version-missing", "v", NULL},
  {"member-more", "uid", "0"},
  {"job-id-upper-case", "jobId", "\"ABCDEF00-0000-4000-8000-000000000000\""},
  {"job-id-with-a-path", "jobId", "\"../../../../etc/passwd/aaaaaaaaaaaaaa\""},
  {"job-id-null", "jobId", "null"},
  {"tenant-with-a-slash", "tenantId", "\"a/b\""},
  {"tenant-empty", "tenantId", "\"\""},
  {"tenant-with-a-line-feed", "tenantId", "\"a\\nb\""},
  {"tenant-glob", "tenantId", "\"*\""},
  {"pool-with-a-colon", "pool", "\"a:b\""},
  {"kind-unknown", "kind", "\"root\""},
  {"backends-empty", "backends", "[]"},
  {"backends-unknown", "backends", "[\"host\"]"},
  {"backends-too-many", "backends", "[\"runsc\",\"runsc\",\"runsc\",\"runsc\",\"runsc\",\"runsc\"]"},
  {"backends-an-object", "backends", "{\"runsc\":true}"},
  {"image-by-tag", "image.digest", "\"latest\""},
  {"image-digest-short", "image.digest", "\"sha256:00\""},
  {"image-digest-other-algorithm", "image.digest",
   "\"md5:0000000000000000000000000000000000000000000000000000000000000000\""},
  {"image-name-with-a-path", "image.name", "\"../base\""},
  {"base-null", "base", "null"},
  {"base-of-another-job", "base.blobId", "\"" UUID ".base\""},
  {"base-chunks-too-few", "base.chunks", "0"},
  {"base-chunks-too-many", "base.chunks", "1000000"},
  {"base-size-negative", "base.size", "-1"},
  {"base-size-huge", "base.size", "9007199254740991"},
  {"base-size-beyond-2-53", "base.size", "9007199254740993"},
  {"base-size-float", "base.size", "1.5"},
  {"base-salt-short", "base.salt", "\"AAAA\""},
  {"base-sha-upper-case", "base.sha256", "\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\""},
  {"overlay-as-text", "overlay", "\"none\""},
  {"deletes-parent", "deletes", "[\"../etc\"]"},
  {"deletes-absolute", "deletes", "[\"/etc\"]"},
  {"deletes-empty-path", "deletes", "[\"\"]"},
  {"deletes-null", "deletes", "null"},
  {"egress-without-setup", "egress", "[\"registry.example:443\"]"},
  {"egress-without-a-port", "egress", "[\"registry.example\"]"},
  {"egress-upper-case", "egress", "[\"Registry.Example:443\"]"},
  {"run-empty", "run", "[]"},
  {"run-17-steps", "run", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]"},
  {"step-without-a-name", "run.0.name", NULL},
  {"step-name-with-a-slash", "run.0.name", "\"../x\""},
  {"step-argv-empty", "run.0.argv", "[]"},
  {"step-argv-text", "run.0.argv", "\"rm -rf /\""},
  {"step-argv-nul", "run.0.argv", "[\"a\\u0000b\"]"},
  {"step-cwd-parent", "run.0.cwd", "\"../..\""},
  {"step-cwd-absolute", "run.0.cwd", "\"/\""},
  {"step-timeout-zero", "run.0.timeoutMs", "0"},
  {"step-timeout-negative", "run.0.timeoutMs", "-5"},
  {"step-env-name-with-equals", "run.0.env", "{\"A=B\":\"c\"}"},
  {"step-env-name-empty", "run.0.env", "{\"\":\"c\"}"},
  {"step-env-value-number", "run.0.env", "{\"A\":1}"},
  {"step-env-nul", "run.0.env", "{\"A\":\"x\\u0000y\"}"},
  {"step-continue-as-text", "run.0.continueOnFailure", "\"yes\""},
  {"step-member-more", "run.0.uid", "0"},
  {"setup-an-array", "setup", "[]"},
  {"artefacts-65", "artefacts",
   "[" TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN
   "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN
   "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN
   "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "]"},
  {"limits-zero", "limits.pids", "0"},
  {"limits-negative", "limits.memoryMiB", "-1"},
  {"limits-float", "limits.workMiB", "1.5"},
  {"limits-unknown", "limits.gpus", "1"},
  {"limits-text", "limits.wallMs", "\"1000\""},
  {"issued-at-text", "issuedAt", "\"now\""},
  {"not-after-negative", "notAfter", "-1"},
};

static json_t *value_of(const char *text)
{
  json_t *json = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
  g_assert_nonnull(json);
  return json;
}

static json_t *child_of(json_t *json, const char *name)
{
  return json_is_array(json) ? json_array_get(json, (gsize)g_ascii_strtoull(name, NULL, 10)) : json_object_get(json, name);
}

static void break_body(json_t *body, const Body *how)
{
  g_auto(GStrv) parts = g_strsplit(how->path, ".", -1);
  json_t *at = body;
  gsize last = g_strv_length(parts) - 1;
  for (gsize i = 0; i < last; i++) {
    at = child_of(at, parts[i]);
    g_assert_nonnull(at);
  }
  if (how->value == NULL)
    json_object_del(at, parts[last]);
  else
    json_object_set_new(at, parts[last], value_of(how->value));
}

static void expect_raw(const char *name, const char *id, const char *data, gsize n, const char *reason)
{
  world_add_raw(world, id, data, n);
  g_autofree char *text = NULL;
  if (world_wait(world, id, &text) != QV_JOB_FAILED || strcmp(text, reason) != 0)
    g_error("%s: expected %s, ended with %s", name, reason, text);
}

static void test_bodies(void)
{
  for (gsize i = 0; i < G_N_ELEMENTS(bodies); i++) {
    g_autoptr(QvJob) job = world_job(world, "true");
    g_autoptr(GError) error = NULL;
    json_t *body = qv_job_build(job);
    gsize n;
    break_body(body, &bodies[i]);
    g_autofree char *data = qv_envelope_sign(QV_ENVELOPE_JOB, world->key, body, &n, &error);
    json_decref(body);
    g_assert_no_error(error);
    expect_raw(bodies[i].name, job->job_id, data, n, "rejected: malformed");
  }
  g_test_message("%zu bodies", G_N_ELEMENTS(bodies));
}

/* A good envelope, with FIND replaced once. */
typedef struct {
  const char *name, *find, *replace, *reason;
} Text;

static const Text texts[] = {
  {"empty", NULL, "", "rejected: malformed"},
  {"null", NULL, "null", "rejected: malformed"},
  {"array", NULL, "[]", "rejected: malformed"},
  {"number", NULL, "1e999", "rejected: malformed"},
  {"two-values", "{\"", "{}{\"", "rejected: malformed"},
  {"bom", "{\"", "\xef\xbb\xbf{\"", "rejected: malformed"},
  {"no-utf8", "\"kind\":\"check\"", "\"kind\":\"\xff\xfe\"", "rejected: malformed"},
  {"lone-surrogate", "\"kind\":\"check\"", "\"kind\":\"\\ud800\"", "rejected: malformed"},
  {"key-twice", "\"keyId\":", "\"keyId\":\"0000000000000000\",\"keyId\":", "rejected: malformed"},
  {"body-member-twice", "\"kind\":", "\"kind\":\"scan\",\"kind\":", "rejected: malformed"},
  {"envelope-of-a-result", "\"job\":{", "\"result\":{", "rejected: malformed"},
  {"envelope-of-a-cancel", "\"job\":{", "\"cancel\":{", "rejected: malformed"},
  {"envelope-with-more", "\"job\":{", "\"x\":1,\"job\":{", "rejected: malformed"},
  {"key-id-of-nobody", "\"keyId\":\"", "\"keyId\":\"0000000000000000\",\"y\":\"", "rejected: malformed"},
  {"signature-short", "\"sig\":\"", "\"sig\":\"AAAA\",\"y\":\"", "rejected: malformed"},
  {"argument-changed", "\"true\"", "\"evil\"", "rejected: bad_signature"},
  {"kind-changed", "\"kind\":\"check\"", "\"kind\":\"scan\"", "rejected: bad_signature"},
  {"deep", "\"kind\":", "\"kind\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]],\"x\":", "rejected: malformed"},
  {"cut", "\"sig\":", "\"si", "rejected: malformed"},
};

static char *replaced(const char *text, const Text *how)
{
  if (how->find == NULL)
    return g_strdup(how->replace);
  const char *at = strstr(text, how->find);
  if (at == NULL)
    g_error("%s: the data do not hold %s: %s", how->name, how->find, text);
  g_autofree char *before = g_strndup(text, (gsize)(at - text));
  return g_strconcat(before, how->replace, at + strlen(how->find), NULL);
}

static void test_texts(void)
{
  for (gsize i = 0; i < G_N_ELEMENTS(texts); i++) {
    g_autoptr(QvJob) job = world_job(world, "true");
    gsize n;
    g_autofree char *good = qv_job_sign(job, &world->policy, world->key, &n, NULL, NULL);
    g_autofree char *bad = replaced(good, &texts[i]);
    expect_raw(texts[i].name, job->job_id, bad, strlen(bad), texts[i].reason);
  }
  g_test_message("%zu envelopes", G_N_ELEMENTS(texts));
}

/* ---- what no producer writes */

static void command(const char *verb, const char *key, const char *a, const char *b)
{
  g_free(qv_test_valkey_cli(world->valkey, verb, key, a, b, NULL));
}

static void good_job(void)
{
  g_autoptr(QvJob) job = world_job(world, "true");
  world_expect(world, job, NULL);
}

static void test_queue(void)
{
  static const char *const ids[] = {UUID, "", "0", "../../x", "not-a-uuid", "0:marker", "x\ny", "%s%n"};
  guint n = 0;
  /* Ids without a job. */
  for (gsize i = 0; i < G_N_ELEMENTS(ids); i++, n++)
    command("LPUSH", PREFIX ":sandbox:wait", ids[i], NULL);
  command("ZADD", PREFIX ":sandbox:marker", "0", "0");
  good_job();
  /* A job whose hash is no hash. */
  command("SET", PREFIX ":sandbox:" UUID, "text", NULL);
  command("LPUSH", PREFIX ":sandbox:wait", UUID, NULL);
  command("ZADD", PREFIX ":sandbox:marker", "0", "0");
  good_job();
  command("DEL", PREFIX ":sandbox:" UUID, NULL, NULL);
  n++;
  /* A job without data, with numbers that are none. */
  command("HSET", PREFIX ":sandbox:" UUID, "timestamp", "never");
  command("HSET", PREFIX ":sandbox:" UUID, "atm", "-1e99");
  command("HSET", PREFIX ":sandbox:" UUID, "opts", "{{{");
  command("LPUSH", PREFIX ":sandbox:wait", UUID, NULL);
  command("ZADD", PREFIX ":sandbox:marker", "0", "0");
  good_job();
  n++;
  /* The queue's own keys of the wrong type: it stands still until they are gone, and goes on then. */
  static const char *const keys[] = {PREFIX ":sandbox:wait", PREFIX ":sandbox:active", PREFIX ":sandbox:stalled",
                                     PREFIX ":sandbox:meta", PREFIX ":sandbox:limiter"};
  for (gsize i = 0; i < G_N_ELEMENTS(keys); i++, n++) {
    command("DEL", keys[i], NULL, NULL);
    command("SET", keys[i], "wrong", NULL);
    command("ZADD", PREFIX ":sandbox:marker", "0", "0");
    g_usleep(200000);
    command("DEL", keys[i], NULL, NULL);
    good_job();
  }
  g_test_message("%u queues", n);
}

static void test_cancels(void)
{
  static const char *const messages[] = {"", "x", UUID, "../../etc/passwd", "\n\n", "00000000-0000-4000-8000-00000000000"};
  for (gsize i = 0; i < G_N_ELEMENTS(messages); i++)
    command("PUBLISH", PREFIX ":cancel", messages[i], NULL);
  g_autofree char *big = g_strnfill(100000, 'x');
  command("PUBLISH", PREFIX ":cancel", big, NULL);
  good_job();
  g_test_message("%zu messages", G_N_ELEMENTS(messages) + 1);
}

static void test_it_lives_on(void)
{
  good_job();
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  world_expect_clean(world);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  world = world_new(QV_TEST_VALKEY_PLAIN);
  if (world == NULL)
    return 77;
  world->keeps_input = TRUE;
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_CONCURRENCY=1", NULL});
  g_test_add_func("/runner/hostile-jobs/bodies", test_bodies);
  g_test_add_func("/runner/hostile-jobs/texts", test_texts);
  g_test_add_func("/runner/hostile-jobs/queue", test_queue);
  g_test_add_func("/runner/hostile-jobs/cancels", test_cancels);
  g_test_add_func("/runner/hostile-jobs/it-lives-on", test_it_lives_on);
  int status = g_test_run();
  world_free(world);
  return status;
}
