/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a job against every row of section 2's tables: each bound at its
 * edge and one past it. */
#include <string.h>

#include "base/error.h"
#include "protocol/envelope.h"
#include "protocol/fields.h"
#include "protocol/job.h"
#include "support.h"

/* Parses a body with VALUE (stolen) at PATH; PART NULL: it must be accepted. */
static void check_value(const char *path, json_t *value, const char *part)
{
  QvLimitsPolicy policy;
  GError *error = NULL;
  json_t *body = t_job_body();
  t_policy(&policy);
  t_edit(body, path, value);
  g_autoptr(QvJob) job = qv_job_parse(body, &policy, &error);
  if (part == NULL && error != NULL)
    g_error("%s: %s", path, error->message);
  if (part != NULL && job != NULL) {
    char *shown = json_dumps(body, JSON_COMPACT);
    g_error("%s was accepted: %.2000s", path, shown);
  }
  if (part != NULL)
    t_assert_error(&error, QV_ERROR_FORMAT, part);
  json_decref(body);
}

static void check(const char *path, const char *text, const char *part)
{
  check_value(path, text != NULL ? t_json(text) : NULL, part);
}

typedef struct {
  const char *path;
  const char *value; /* JSON with ' for "; NULL: removed */
  const char *part;  /* of the error; NULL: accepted */
} Row;

static const Row rows[] = {
  /* Shape of the body. */
  { "v", NULL, "v: " }, { "v", "2", "v: " }, { "v", "0", "v: " }, { "v", "'1'", "v: " }, { "v", "true", "v: " },
  { "jobId", NULL, "jobId: " }, { "tenantId", NULL, "tenantId: " }, { "pool", NULL, "pool: " },
  { "kind", NULL, "kind: " }, { "backends", NULL, "backends: " }, { "image", NULL, "image: " },
  { "base", NULL, "base: " }, { "overlay", NULL, "overlay: " }, { "deletes", NULL, "deletes: " },
  { "setup", NULL, "setup: " }, { "egress", NULL, "egress: " }, { "run", NULL, "run: " },
  { "artefacts", NULL, "artefacts: " }, { "limits", NULL, "limits: " }, { "issuedAt", NULL, "issuedAt: " },
  { "notAfter", NULL, "notAfter: " }, { "extra", "1", "not known" }, { "V", "1", "not known" },
  /* Names. */
  { "jobId", "'" T_JOB_ID "0'", "jobId" }, { "jobId", "'00000000-0000-4000-8000-00000000000'", "jobId" },
  { "jobId", "'00000000-0000-4000-8000-00000000000A'", "jobId" }, { "jobId", "'00000000x0000-4000-8000-000000000001'", "jobId" },
  { "jobId", "'000000000000-4000-8000-0000-00000001'", "jobId" }, { "jobId", "''", "jobId" }, { "jobId", "1", "jobId" },
  { "tenantId", "'a'", NULL }, { "tenantId", "'A.b_c-9'", NULL }, { "tenantId", "''", "tenantId" },
  { "tenantId", "'.a'", "tenantId" }, { "tenantId", "'-a'", "tenantId" }, { "tenantId", "'_a'", "tenantId" },
  { "tenantId", "'a b'", "tenantId" }, { "tenantId", "'a/b'", "tenantId" }, { "tenantId", "'a:b'", "tenantId" },
  { "tenantId", "'a\\nb'", "tenantId" }, { "tenantId", "'\\u00e4'", "tenantId" }, { "tenantId", "null", "tenantId" },
  { "pool", "'other'", NULL }, { "pool", "'a*'", "pool" },
  { "kind", "'scan'", NULL }, { "kind", "'check'", NULL }, { "kind", "'build'", "kind" }, { "kind", "'SCAN'", "kind" },
  { "backends", "['docker-runsc','runsc','firecracker','kubernetes-runsc','docker-runc-insecure']", NULL },
  { "backends", "[]", "backends" }, { "backends", "['runsc','runsc','runsc','runsc','runsc','runsc']", "backends" },
  { "backends", "['runc']", "backends" }, { "backends", "[1]", "backends" }, { "backends", "'runsc'", "backends" },
  { "image.name", NULL, "image.name" }, { "image.digest", NULL, "image.digest" }, { "image.tag", "'x'", "image: " },
  { "image.name", "'a/b'", "image.name" }, { "image.digest", "'" T_HEX64 "'", "image.digest" },
  { "image.digest", "'sha256:" T_HEX64 "0'", "image.digest" }, { "image.digest", "'sha256:'", "image.digest" },
  { "image.digest", "'sha512:" T_HEX64 "'", "image.digest" },
  { "image.digest", "'sha256:ABababababababababababababababababababababababababababababababab'", "image.digest" },
  /* Blobs. */
  { "base", "null", "base" }, { "overlay", "null", NULL }, { "base.blobId", "'x.base'", "base.blobId" },
  { "base.blobId", "'" T_JOB_ID ".overlay'", "base.blobId" }, { "overlay.blobId", "'" T_JOB_ID ".base'", "overlay.blobId" },
  { "base.blobId", "'00000000-0000-4000-8000-000000000002.base'", "base.blobId" },
  { "base.size", "0", "base.size" }, { "base.size", "-1", "base.size" }, { "base.size", "2097152", "base.chunks" },
  { "base.chunks", "2", "base.chunks" }, { "base.chunks", "4", "base.chunks" }, { "base.chunks", "0", "base.chunks" },
  { "base.sha256", "'AB'", "base.sha256" }, { "base.salt", "''", "base.salt" },
  { "base.salt", "'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=='", "base.salt" },
  { "base.salt", "'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'", "base.salt" },
  { "base.salt", "'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB='", "base.salt" },
  { "base.treeSha256", "''", "base.treeSha256" }, { "base.treeSha256", NULL, "base.treeSha256" },
  { "base.more", "1", "base: " },
  /* Paths. */
  { "deletes", "[]", NULL }, { "deletes", "['a/b/c']", NULL }, { "deletes", "['/a']", "deletes" },
  { "deletes", "['a','../b']", "entry 1" }, { "deletes", "['a/./b']", "deletes" }, { "deletes", "['']", "deletes" },
  { "deletes", "['a//b']", "deletes" }, { "deletes", "['a/']", "deletes" }, { "deletes", "['a\\u0000b']", "deletes" },
  { "deletes", "['a\\nb']", "deletes" }, { "deletes", "[1]", "deletes" }, { "deletes", "null", "deletes" },
  /* Steps. */
  { "setup", "null", "egress" }, { "setup", "[]", "setup" }, { "setup.name", "'lint'", "another step" },
  { "run[1].name", "'lint'", "another step" }, { "run", "[]", "run" }, { "run", "{}", "run" }, { "run[0]", "1", "run[0]" },
  { "run[0].name", NULL, "run[0].name" }, { "run[1].argv", NULL, "run[1].argv" }, { "run[0].more", "1", "run[0]: " },
  { "run[0].name", "'a b'", "run[0].name" }, { "run[0].argv", "[]", "run[0].argv" }, { "run[0].argv", "'make'", "run[0].argv" },
  { "run[0].argv", "['']", NULL }, { "run[0].argv", "['a\\u0000']", "run[0].argv" }, { "run[0].argv", "[null]", "run[0].argv" },
  { "run[0].cwd", NULL, NULL }, { "run[0].cwd", "'.'", NULL }, { "run[0].cwd", "'a/b'", NULL }, { "run[0].cwd", "''", "cwd" },
  { "run[0].cwd", "'/'", "cwd" }, { "run[0].cwd", "'..'", "cwd" }, { "run[0].cwd", "'a/..'", "cwd" }, { "run[0].cwd", "null", "cwd" },
  { "run[0].timeoutMs", "1", NULL }, { "run[0].timeoutMs", "120000", NULL }, { "run[0].timeoutMs", "120001", "timeoutMs" },
  { "run[0].timeoutMs", "0", "timeoutMs" }, { "run[0].timeoutMs", "-1", "timeoutMs" }, { "run[0].timeoutMs", "null", "timeoutMs" },
  { "run[0].env", "{}", NULL }, { "run[0].env", "{'_a9':'x'}", NULL }, { "run[0].env", "{'9a':'x'}", "env" },
  { "run[0].env", "{'':'x'}", "env" }, { "run[0].env", "{'A=B':'x'}", "env" }, { "run[0].env", "{'A-B':'x'}", "env" },
  { "run[0].env", "{'A':1}", "env" }, { "run[0].env", "{'A':null}", "env" }, { "run[0].env", "{'A':'x\\u0000y'}", "env" },
  { "run[0].env", "[]", "env" }, { "run[0].env", "null", "env" },
  { "run[0].continueOnFailure", "false", NULL }, { "run[0].continueOnFailure", "1", "continueOnFailure" },
  /* Egress. */
  { "egress", "[]", NULL }, { "egress", "['a:1','b.c-d.e:65535']", NULL }, { "egress", "['Registry.example:443']", "egress" },
  { "egress", "['example.org']", "egress" }, { "egress", "['example.org:']", "egress" }, { "egress", "['example.org:0']", "egress" },
  { "egress", "['example.org:65536']", "egress" }, { "egress", "['example.org:0443']", "egress" },
  { "egress", "['example.org:443x']", "egress" }, { "egress", "[':443']", "egress" }, { "egress", "['.a:1']", "egress" },
  { "egress", "['a.:1']", "egress" }, { "egress", "['a..b:1']", "egress" }, { "egress", "['-a:1']", "egress" },
  { "egress", "['a-:1']", "egress" }, { "egress", "['a_b:1']", "egress" }, { "egress", "['10.0.0.1:443']", "egress" },
  { "egress", "['a.0x7f:1']", "egress" }, { "egress", "['2130706433:80']", "egress" }, { "egress", "['[::1]:80']", "egress" },
  { "egress", "['a:1:2']", "egress" }, { "egress", "['a b:1']", "egress" }, { "egress", "['*:443']", "egress" },
  { "egress", "['a.3com:1']", NULL },
  /* Artefacts. */
  { "artefacts", "[]", NULL }, { "artefacts", "['**']", NULL }, { "artefacts", "['/etc/*']", "artefacts" },
  { "artefacts", "['']", "artefacts" }, { "artefacts", "['a/../b']", "artefacts" }, { "artefacts", "['..']", "artefacts" },
  { "artefacts", "['a..b']", NULL }, { "artefacts", "['[']", "artefacts" },
  /* Limits and times. */
  { "limits", "{}", NULL }, { "limits.more", "1", "limits: " }, { "limits.pids", "0", "limits.pids" },
  { "limits.pids", "-1", "limits.pids" }, { "limits.pids", "null", "limits.pids" }, { "limits.pids", "9007199254740991", NULL },
  { "limits.artefactCount", "0", "limits.artefactCount" }, { "limits", "null", "limits" },
  { "issuedAt", "-1", "issuedAt" }, { "issuedAt", "0", NULL }, { "notAfter", "'x'", "notAfter" }, { "notAfter", "-1", "notAfter" },
};

static void test_rows(void)
{
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++)
    check(rows[i].path, rows[i].value, rows[i].part);
}

static void test_bounds(void)
{
  check_value("tenantId", t_text(128, 'a'), NULL);
  check_value("tenantId", t_text(129, 'a'), "tenantId");
  check_value("deletes", t_repeat(10000, json_string("a")), NULL);
  check_value("deletes", t_repeat(10001, json_string("a")), "deletes");
  check_value("egress", t_repeat(32, json_string("a:1")), NULL);
  check_value("egress", t_repeat(33, json_string("a:1")), "egress");
  check_value("artefacts", t_repeat(64, json_string("*")), NULL);
  check_value("artefacts", t_repeat(65, json_string("*")), "artefacts");
  check_value("artefacts", t_repeat(1, t_text(1024, 'a')), NULL);
  check_value("artefacts", t_repeat(1, t_text(1025, 'a')), "artefacts");
  check_value("run[0].argv", t_repeat(256, json_string("a")), NULL);
  check_value("run[0].argv", t_repeat(257, json_string("a")), "argv");
  check_value("run[0].argv", t_repeat(1, t_text(128 * 1024, 'a')), NULL);
  check_value("run[0].argv", t_repeat(1, t_text(128 * 1024 + 1, 'a')), "argv");
  check_value("run[0].argv", t_repeat(2, t_text(64 * 1024, 'a')), NULL);
  check_value("run[0].argv", t_repeat(2, t_text(64 * 1024 + 1, 'a')), "argv");
  g_autofree char *name = g_strnfill(128, 'A');
  g_autofree char *long_name = g_strnfill(129, 'A');
  for (int over = 0; over < 2; over++) {
    json_t *env = json_object();
    json_object_set_new(env, over ? long_name : name, json_string(""));
    check_value("run[0].env", env, over ? "env" : NULL);
    json_t *value = json_object();
    json_object_set_new(value, "A", t_text(32 * 1024 + (gsize)over, 'x'));
    check_value("run[0].env", value, over ? "env" : NULL);
    json_t *many = json_object();
    for (int i = 0; i < 64 + over; i++) {
      g_autofree char *key = g_strdup_printf("V%d", i);
      json_object_set_new(many, key, json_string("x"));
    }
    check_value("run[0].env", many, over ? "env" : NULL);
    json_t *run = json_array();
    for (int i = 0; i < 16 + over; i++) {
      g_autofree char *step = g_strdup_printf("{'name':'s%d','argv':['a']}", i);
      json_array_append_new(run, t_json(step));
    }
    check_value("run", run, over ? "run" : NULL);
  }
}

/* base and overlay together, and the operator's bound. */
static void test_blob_bound(void)
{
  static const struct {
    gint64 base, overlay, max;
    gboolean good;
  } sizes[] = {
    { 134217727, 1, 134217728, TRUE },  { 134217728, 1, 134217728, FALSE }, { 134217728, 0, 134217728, TRUE },
    { 134217729, 0, 134217728, FALSE }, { 1, 134217727, 134217728, TRUE },  { 1, 134217728, 134217728, FALSE },
    { 1048576, 0, 1048576, TRUE },      { 1048577, 0, 1048576, FALSE },
  };
  for (gsize i = 0; i < G_N_ELEMENTS(sizes); i++) {
    QvLimitsPolicy policy;
    json_t *body = t_job_body();
    t_policy(&policy);
    policy.max_blob_bytes = sizes[i].max;
    t_edit(body, "base.size", json_integer(sizes[i].base));
    t_edit(body, "base.chunks", json_integer(qv_blob_chunks(sizes[i].base)));
    if (sizes[i].overlay == 0) {
      t_edit(body, "overlay", json_null());
    } else {
      t_edit(body, "overlay.size", json_integer(sizes[i].overlay));
      t_edit(body, "overlay.chunks", json_integer(qv_blob_chunks(sizes[i].overlay)));
    }
    g_autoptr(QvJob) job = qv_job_parse(body, &policy, NULL);
    g_assert_cmpint(job != NULL, ==, sizes[i].good);
    json_decref(body);
  }
}

static void test_values(void)
{
  g_autoptr(QvJob) job = t_job();
  g_assert_cmpstr(job->job_id, ==, T_JOB_ID);
  g_assert_cmpstr(job->tenant_id, ==, "acme");
  g_assert_cmpstr(job->kind, ==, "check");
  g_assert_cmpstr(job->backends[0], ==, "runsc");
  g_assert_cmpstr(job->image.digest, ==, T_DIGEST);
  g_assert_cmpstr(job->base.blob_id, ==, T_JOB_ID ".base");
  g_assert_cmpint(job->base.chunks, ==, 3);
  g_assert_cmpint(job->overlay->salt[31], ==, 1);
  g_assert_cmpstr(job->deletes[1], ==, "src/gone.c");
  g_assert_cmpstr(job->setup->argv[1], ==, "deps");
  g_assert_cmpint(qv_job_step_timeout_ms(job, job->setup), ==, 60000);
  g_assert_cmpint(qv_job_step_timeout_ms(job, &job->run[0]), ==, 120000);
  g_assert_cmpuint(job->run_n, ==, 2);
  g_assert_cmpstr(job->run[0].cwd, ==, "src");
  g_assert_cmpuint(job->run[0].env_n, ==, 2);
  g_assert_cmpstr(job->run[0].env[0].name, ==, "A");
  g_assert_cmpstr(job->run[0].env[1].value, ==, "2");
  g_assert_true(job->run[0].continue_on_failure);
  g_assert_false(job->run[1].continue_on_failure);
  g_assert_cmpint(job->given.pids, ==, 0);
  g_assert_cmpint(job->limits.pids, ==, 512);
  g_assert_cmpint(job->limits.wall_ms, ==, 120000);
  g_assert_cmpint(job->limits.milli_cpus, ==, 2000);
  g_assert_cmpint(job->not_after - job->issued_at, ==, 600000);
}

/* The contract's table, and an operator's overrides. */
static void test_limits(void)
{
  QvLimitsPolicy policy;
  QvLimits none = { 0 };
  QvLimits got;
  qv_limits_policy_standard(&policy, 1);
  qv_limits_resolve(&policy, &none, &got);
  g_assert_cmpint(got.wall_ms, ==, 600000);
  g_assert_cmpint(got.memory_mib, ==, 2048);
  g_assert_cmpint(got.milli_cpus, ==, 1000); /* the ceiling of one core is below the default */
  g_assert_cmpint(got.pids, ==, 512);
  g_assert_cmpint(got.work_mib, ==, 1024);
  g_assert_cmpint(got.log_bytes, ==, 65536);
  g_assert_cmpint(got.artefact_bytes, ==, 8388608);
  g_assert_cmpint(got.artefact_count, ==, 64);
  g_assert_null(qv_limits_over(&policy, &got));
  static const QvLimits ceilings = { 1800000, 8192, 4000, 4096, 4096, 1048576, 67108864, 256 };
  qv_limits_policy_standard(&policy, 4);
  got = ceilings;
  g_assert_null(qv_limits_over(&policy, &got));
#define OVER(field, name)                                \
  got = ceilings;                                        \
  got.field++;                                           \
  g_assert_cmpstr(qv_limits_over(&policy, &got), ==, name);
  QV_LIMITS_TABLE(OVER)
#undef OVER
  policy.defaults.pids = 100;
  policy.ceilings.pids = 50;
  qv_limits_resolve(&policy, &none, &got);
  g_assert_cmpint(got.pids, ==, 50);
  /* A step's time-out is held against the wallMs that will be in force. */
  json_t *body = t_job_body();
  t_edit(body, "limits", json_object());
  t_edit(body, "run[0].timeoutMs", json_integer(600000));
  g_autoptr(QvJob) fits = qv_job_parse(body, &policy, NULL);
  g_assert_nonnull(fits);
  t_edit(body, "run[0].timeoutMs", json_integer(600001));
  g_assert_null(qv_job_parse(body, &policy, NULL));
  json_decref(body);
}

/* Build gives what was parsed, and the signed text verifies to the same digest. */
static void test_build(void)
{
  QvLimitsPolicy policy;
  GError *error = NULL;
  gsize n = 0;
  char digest[65], again[65];
  t_policy(&policy);
  g_autoptr(QvJob) job = t_job();
  json_t *want = t_job_body();
  json_t *got = qv_job_build(job);
  g_assert_true(json_equal(want, got));
  json_decref(got);
  g_autoptr(QvKey) key = t_key(1);
  g_autofree char *text = qv_job_sign(job, &policy, key, &n, digest, &error);
  g_assert_no_error(error);
  json_t *body = NULL;
  g_assert_cmpint(qv_envelope_verify_key(QV_ENVELOPE_JOB, key, text, n, &body, NULL), ==, QV_ENVELOPE_OK);
  g_assert_true(json_equal(want, body));
  g_assert_true(qv_envelope_body_sha256(body, again, NULL));
  g_assert_cmpstr(digest, ==, again);
  json_decref(body);
  json_decref(want);
}

/* A producer's mistakes are refused by the reader's rules, never left out in silence. */
static void test_sign_refuses(void)
{
  QvLimitsPolicy policy;
  gsize n = 0;
  GError *error = NULL;
  g_autoptr(QvKey) key = t_key(1);
  t_policy(&policy);
  g_autoptr(QvJob) job = t_job();
  g_free(job->run[1].argv[1]);
  job->run[1].argv[1] = g_strdup("not \xff utf-8");
  g_assert_null(qv_job_sign(job, &policy, key, &n, NULL, &error));
  t_assert_error(&error, QV_ERROR_FORMAT, "run[1].argv");
  g_free(job->run[1].argv[1]);
  job->run[1].argv[1] = g_strdup("fine");
  g_free(job->run[0].env[0].value);
  job->run[0].env[0].value = g_strdup("\xc3");
  g_assert_null(qv_job_sign(job, &policy, key, &n, NULL, &error));
  t_assert_error(&error, QV_ERROR_FORMAT, "env.A");
  g_free(job->run[0].env[0].value);
  job->run[0].env[0].value = g_strdup("x");
  g_free(job->run[0].cwd);
  job->run[0].cwd = g_strdup("\xff");
  g_assert_null(qv_job_sign(job, &policy, key, &n, NULL, &error));
  t_assert_error(&error, QV_ERROR_FORMAT, "cwd");
  g_autoptr(QvJob) empty = qv_job_new();
  g_assert_null(qv_job_sign(empty, &policy, key, &n, NULL, &error));
  t_assert_error(&error, QV_ERROR_FORMAT, "tenantId");
}

/* A job over the cap of job data is refused when it is signed. */
static void test_sign_cap(void)
{
  QvLimitsPolicy policy;
  gsize n = 0;
  GError *error = NULL;
  g_autoptr(QvKey) key = t_key(1);
  g_autoptr(QvJob) job = t_job();
  t_policy(&policy);
  g_strfreev(job->deletes);
  job->deletes = g_new0(char *, 10001);
  for (int i = 0; i < 10000; i++)
    job->deletes[i] = g_strnfill(200, 'd');
  g_assert_null(qv_job_sign(job, &policy, key, &n, NULL, &error));
  t_assert_error(&error, QV_ERROR_LIMIT, "cap");
}

static void test_ipv4(void)
{
  g_assert_true(qv_ipv4_valid("10.0.0.1"));
  g_assert_true(qv_ipv4_valid("255.255.255.255"));
  static const char *const bad[] = { "", "10.0.0", "10.0.0.1.", "10.0.0.1.2", "010.0.0.1", "256.0.0.1", "a.b.c.d", "10..0.1", "1.2.3.4 " };
  for (gsize i = 0; i < G_N_ELEMENTS(bad); i++)
    g_assert_false(qv_ipv4_valid(bad[i]));
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/job/rows", test_rows);
  g_test_add_func("/job/bounds", test_bounds);
  g_test_add_func("/job/blob-bound", test_blob_bound);
  g_test_add_func("/job/values", test_values);
  g_test_add_func("/job/limits", test_limits);
  g_test_add_func("/job/build", test_build);
  g_test_add_func("/job/sign-refuses", test_sign_refuses);
  g_test_add_func("/job/sign-cap", test_sign_cap);
  g_test_add_func("/job/ipv4", test_ipv4);
  return g_test_run();
}
