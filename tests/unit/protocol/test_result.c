/* SPDX-License-Identifier: Apache-2.0 */
/* Results: each row of the status table, blame, and each of the worker's checks. */
#include <string.h>

#include "base/error.h"
#include "protocol/envelope.h"
#include "protocol/result.h"
#include "support.h"

#define JOB_SHA "cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd"

/* "0" exit code 0, "7" exit code 7, "s" signal 9, "t" timed out; the first is
 * setup's, '-' where there is none. */
static QvEntryFacts *facts_of(const QvJob *job, const char *outcomes)
{
  QvEntryFacts *facts = qv_entry_facts_new();
  facts->steps = g_new0(QvStepRecord, 16);
  for (gsize i = 0; outcomes[i] != '\0'; i++) {
    char outcome = outcomes[i];
    QvStepRecord *record = i == 0 ? &facts->setup : &facts->steps[i - 1];
    if (i == 0 && outcome == '-')
      continue;
    facts->has_setup |= i == 0;
    facts->steps_n += i > 0;
    record->name = g_strdup(i == 0 ? job->setup->name : job->run[i - 1].name);
    record->has_exit_code = g_ascii_isdigit(outcome) || outcome == 't';
    record->exit_code = g_ascii_isdigit(outcome) ? outcome - '0' : 0;
    record->has_signal = outcome == 's';
    record->signal = outcome == 's' ? 9 : 0;
    record->timed_out = outcome == 't';
  }
  return facts;
}

/* The run's end, the records ("setup lint test", where lint may fail), and what else is known. */
static const struct {
  QvRunEnd end;
  const char *outcomes;
  const char *exit_code; /* of exit.json; "r:" before it: refused */
  gboolean fork_failed, oom, pids;
  const char *status, *code;
} decisions[] = {
  { QV_RUN_COMPLETE, "000", NULL, 0, 0, 0, "succeeded", NULL },
  { QV_RUN_COMPLETE, "070", NULL, 0, 0, 0, "succeeded", NULL },
  { QV_RUN_COMPLETE, "0s0", NULL, 0, 0, 0, "succeeded", NULL },
  { QV_RUN_COMPLETE, "0t0", NULL, 0, 0, 0, "succeeded", NULL },
  { QV_RUN_COMPLETE, "000", "disk", 1, 0, 1, "succeeded", NULL },
  { QV_RUN_COMPLETE, "7", NULL, 0, 0, 0, "failed", "setup_failed" },
  { QV_RUN_COMPLETE, "s", NULL, 0, 0, 0, "failed", "setup_failed" },
  { QV_RUN_COMPLETE, "t", NULL, 0, 0, 0, "timed_out", "timeout" },
  { QV_RUN_COMPLETE, "7", "disk", 0, 0, 0, "failed", "disk" },
  { QV_RUN_COMPLETE, "7", NULL, 1, 0, 0, "failed", "processes" },
  { QV_RUN_COMPLETE, "007", NULL, 0, 0, 0, "failed", "step_failed" },
  { QV_RUN_COMPLETE, "00s", NULL, 0, 0, 0, "failed", "step_failed" },
  { QV_RUN_COMPLETE, "077", NULL, 0, 0, 0, "failed", "step_failed" },
  { QV_RUN_COMPLETE, "00t", NULL, 0, 0, 0, "timed_out", "timeout" },
  { QV_RUN_COMPLETE, "007", "disk", 0, 0, 0, "failed", "disk" },
  { QV_RUN_COMPLETE, "007", NULL, 1, 0, 0, "failed", "processes" },
  { QV_RUN_COMPLETE, "007", NULL, 0, 0, 1, "failed", "processes" },
  { QV_RUN_COMPLETE, "007", "disk", 1, 0, 0, "failed", "processes" },
  { QV_RUN_COMPLETE, "00t", "disk", 1, 0, 1, "timed_out", "timeout" },
  { QV_RUN_COMPLETE, "007", "disk", 1, 1, 1, "failed", "memory" },
  { QV_RUN_COMPLETE, "000", NULL, 0, 1, 0, "failed", "memory" },
  { QV_RUN_COMPLETE, "-", "r:snapshot_refused", 0, 0, 0, "error", "snapshot_refused" },
  { QV_RUN_COMPLETE, "-", "r:disk", 0, 0, 0, "failed", "disk" },
  { QV_RUN_CANCELLED, NULL, NULL, 0, 0, 0, "cancelled", "cancelled" },
  { QV_RUN_CANCELLED, NULL, NULL, 0, 1, 1, "cancelled", "cancelled" },
  { QV_RUN_WALL, NULL, NULL, 0, 0, 0, "timed_out", "wall" },
  { QV_RUN_WALL, NULL, NULL, 0, 1, 0, "failed", "memory" },
  { QV_RUN_SHUTDOWN, NULL, NULL, 0, 1, 1, "error", "shutdown" },
  { QV_RUN_BLOB_MISSING, NULL, NULL, 0, 0, 0, "error", "blob_missing" },
  { QV_RUN_BLOB_CORRUPT, NULL, NULL, 0, 0, 0, "error", "blob_corrupt" },
  { QV_RUN_BAD_OUTPUT, NULL, NULL, 0, 0, 0, "error", "bad_output" },
  { QV_RUN_BAD_OUTPUT, NULL, NULL, 0, 1, 0, "failed", "memory" },
  { QV_RUN_IMAGE_FAILED, NULL, NULL, 0, 0, 0, "error", "image_failed" },
  { QV_RUN_SANDBOX_FAILED, NULL, NULL, 0, 0, 0, "error", "sandbox_failed" },
  { QV_RUN_SANDBOX_LOST, NULL, NULL, 0, 0, 0, "error", "sandbox_lost" },
  { QV_RUN_SANDBOX_LOST, NULL, NULL, 0, 1, 0, "failed", "memory" },
  { QV_RUN_SANDBOX_LOST, NULL, NULL, 0, 0, 1, "failed", "processes" },
  { QV_RUN_OOM, NULL, NULL, 0, 0, 0, "failed", "memory" },
};

static QvResult *result_of(const QvJob *job, gsize row)
{
  const char *code = decisions[row].exit_code;
  g_autoptr(QvEntryFacts) facts = decisions[row].outcomes ? facts_of(job, decisions[row].outcomes) : NULL;
  if (facts != NULL) {
    facts->refused = code != NULL && g_str_has_prefix(code, "r:");
    facts->code = g_strdup(facts->refused ? code + 2 : code);
    facts->fork_failed = decisions[row].fork_failed;
  }
  QvRunFacts run = { .end = decisions[row].end, .facts = facts, .oom = decisions[row].oom, .pids = decisions[row].pids };
  QvResult *result = qv_result_new(job, JOB_SHA, "runner-1", "runsc");
  qv_result_apply(result, job, &run);
  result->started_at = T_NOW;
  result->finished_at = T_NOW + 5;
  return result;
}

/* Every row decides as the table says, and its signed result passes the worker's checks. */
static void test_decide(void)
{
  g_autoptr(QvJob) job = t_job();
  g_autoptr(QvKey) key = t_key(1);
  for (gsize i = 0; i < G_N_ELEMENTS(decisions); i++) {
    GError *error = NULL;
    gsize n = 0;
    g_autoptr(QvResult) result = result_of(job, i);
    if (g_strcmp0(qv_code_text(result->code), decisions[i].code) != 0)
      g_error("row %zu: %s", i, qv_code_text(result->code));
    g_assert_cmpstr(qv_status_text(result->status), ==, decisions[i].status);
    g_autofree char *text = qv_result_sign(result, job, key, &n, &error);
    if (error != NULL)
      g_error("row %zu: %s", i, error->message);
    g_autoptr(QvResult) again = qv_result_verify(text, n, job, JOB_SHA, key, &error);
    g_assert_no_error(error);
    g_assert_cmpint(again->code, ==, result->code);
    g_assert_cmpuint(again->facts.steps_n, ==, result->facts.steps_n);
  }
}

/* Every code of the contract has its status, and some row above. `output` has no cause in this version. */
static void test_codes(void)
{
  static const char *const table[] = {
    "failed setup_failed step_failed memory processes disk output", "timed_out timeout wall", "cancelled cancelled",
    "error blob_missing blob_corrupt snapshot_refused bad_output image_failed sandbox_failed sandbox_lost shutdown" };
  gsize seen = 0;
  for (gsize i = 0; i < G_N_ELEMENTS(table); i++) {
    g_auto(GStrv) words = g_strsplit(table[i], " ", -1);
    for (gsize k = 1; words[k] != NULL; k++, seen++) {
      gboolean found = FALSE, decided = FALSE;
      for (QvCode code = QV_CODE_NONE + 1; code <= QV_CODE_SHUTDOWN; code++) {
        if (strcmp(qv_code_text(code), words[k]) != 0)
          continue;
        found = TRUE;
        g_assert_cmpstr(qv_status_text(qv_code_status(code)), ==, words[0]);
      }
      for (gsize row = 0; row < G_N_ELEMENTS(decisions); row++)
        decided |= g_strcmp0(decisions[row].code, words[k]) == 0;
      g_assert_true(found);
      g_assert_true(decided || strcmp(words[k], "output") == 0);
    }
  }
  g_assert_cmpuint(seen, ==, QV_CODE_SHUTDOWN);
  g_assert_null(qv_code_text(QV_CODE_NONE));
}

/* A full result of a success as JSON, to be edited. */
static json_t *good_body(const QvJob *job)
{
  g_autoptr(QvResult) result = result_of(job, 1);
  QvEntryFacts *facts = &result->facts;
  g_free(facts->artefacts);
  facts->artefacts = g_new0(QvArtefact, 3);
  facts->artefacts_n = 2;
  facts->artefacts[0] = (QvArtefact){ .path = g_strdup("build/a"), .size = 3000, .sha256 = T_HEX64 };
  facts->artefacts[1] = (QvArtefact){ .path = g_strdup("build/b"), .size = 2000, .sha256 = T_HEX64 };
  result->has_egress = TRUE;
  result->egress = g_new0(QvEgressUsage, 1);
  result->egress_n = 1;
  result->egress[0] = (QvEgressUsage){ .host = g_strdup("registry.example.org:443"), .connections = 2 };
  result->payload = g_new0(QvBlobDescriptor, 1);
  *result->payload = (QvBlobDescriptor){ .blob_id = T_JOB_ID ".result", .size = 10, .chunks = 1, .sha256 = T_HEX64,
                                         .tree_sha256 = T_HEX64 };
  return qv_result_build(result);
}

static const struct {
  const char *path, *value, *part; /* part NULL: accepted; value NULL: removed */
} edits[] = {
  { "v", "1", NULL }, { "v", "2", "v: " }, { "extra", "1", "not known" },
  { "jobId", "'00000000-0000-4000-8000-000000000002'", "jobId" }, { "jobSha256", "'" T_HEX64 "'", "jobSha256" },
  { "tenantId", "'other'", "tenantId" }, { "pool", "'other'", "pool" }, { "runnerId", "'r2'", NULL },
  { "runnerId", "''", "runnerId" }, { "runnerId", "'a b'", "runnerId" },
  { "backend", "'docker-runsc'", "none of the job's" }, { "backend", "'runc'", "backend" },
  { "image.name", "'other'", "image.name" }, { "image.digest", "'sha256:" JOB_SHA "'", "image.digest" },
  { "status", "'failed'", "status" }, { "status", "'succeeded!'", "status" }, { "code", "'step_failed'", "status" },
  { "code", "'new_code'", "code" }, { "code", "''", "code" }, { "code", "1", "code" },
  { "startedAt", "1700000000005", NULL }, { "startedAt", "1700000000006", "finishedAt" }, { "startedAt", "-1", "startedAt" },
  { "finishedAt", "1e3", "finishedAt" },
  { "setup", "null", "contradicts" }, { "setup.name", "'other'", "setup" }, { "setup.exitCode", "1", "contradicts" },
  { "setup.timedOut", "true", "contradicts" }, { "setup.more", "1", "setup" },
  { "steps[1].name", "'other'", "steps" }, { "steps[0].name", "'test'", "steps" }, { "steps[1].exitCode", "1", "contradicts" },
  { "steps[0].exitCode", "1", NULL }, { "steps[1]", NULL, "contradicts" }, { "steps", "[]", "contradicts" },
  { "steps", "[{'name':'lint','exitCode':0,'signal':null,'timedOut':false,'startedMs':0,'durationMs':0,'logTotalBytes':0,"
             "'logTruncated':false},{'name':'test','exitCode':0,'signal':null,'timedOut':false,'startedMs':0,'durationMs':0,"
             "'logTotalBytes':0,'logTruncated':false},{'name':'more','exitCode':0,'signal':null,'timedOut':false,'startedMs':0,"
             "'durationMs':0,'logTotalBytes':0,'logTruncated':false}]", "more entries than the job" },
  { "steps[1].signal", "9", "one of the two" }, { "steps[0].startedMs", "-1", "startedMs" },
  { "artefacts", "[]", NULL }, { "artefacts[0].path", "'../x'", "path" }, { "artefacts[0].path", "'/x'", "path" },
  { "artefacts[0].path", "'build/.git/x'", "path" }, { "artefacts[0].path", "'build/b'", "path order" },
  { "artefacts[0].path", "'build/c'", "path order" }, { "artefacts[0].path", "'a\\\\b'", "path" },
  { "artefacts[0].size", "3001", "more bytes" }, { "artefacts[0].size", "9007199254740991", "more bytes" },
  { "artefacts[0].size", "-1", "size" }, { "artefacts[0].sha256", "'x'", "sha256" }, { "artefactsDropped", "-1", "artefactsDropped" },
  { "artefactsDropped", "5", NULL },
  { "usage.userMs", "-1", "usage" }, { "usage.oom", "1", "usage" }, { "usage.oom", "true", NULL }, { "usage.more", "1", "usage" },
  { "egress", "null", NULL }, { "egress", "[]", NULL }, { "egress[0].host", "'A\\u001b[31m'", "host" },
  { "egress[0].bytesUp", "-1", "bytesUp" }, { "egress[0].more", "1", "egress[0]" },
  { "payload", "null", NULL }, { "payload.blobId", "'" T_JOB_ID ".base'", "payload.blobId" }, { "payload.size", "0", "payload.size" },
  { "payload.chunks", "2", "payload.chunks" }, { "payload.size", "90000000", "payload.size" },
};

static QvResult *verify_body(const json_t *body, const QvJob *job, const char *sha, QvKey *signer, QvKey *key, GError **error)
{
  gsize n = 0;
  g_autofree char *text = qv_envelope_sign(QV_ENVELOPE_RESULT, signer, body, &n, NULL);
  g_assert_nonnull(text);
  return qv_result_verify(text, n, job, sha, key, error);
}

static void test_edits(void)
{
  g_autoptr(QvJob) job = t_job();
  g_autoptr(QvKey) key = t_key(1);
  for (gsize i = 0; i < G_N_ELEMENTS(edits); i++) {
    GError *error = NULL;
    json_t *body = good_body(job);
    t_edit(body, edits[i].path, edits[i].value != NULL ? t_json(edits[i].value) : NULL);
    g_autoptr(QvResult) result = verify_body(body, job, JOB_SHA, key, key, &error);
    if ((result != NULL) != (edits[i].part == NULL))
      g_error("%s: %s", edits[i].path, error != NULL ? error->message : "accepted");
    if (edits[i].part != NULL && strstr(error->message, edits[i].part) == NULL)
      g_error("%s: %s", edits[i].path, error->message);
    g_clear_error(&error);
    json_decref(body);
  }
  /* Every member is required. */
  json_t *body = good_body(job);
  const char *name;
  json_t *value;
  void *next;
  json_object_foreach_safe (body, next, name, value) {
    json_t *copy = json_deep_copy(body);
    json_object_del(copy, name);
    g_assert_null(verify_body(copy, job, JOB_SHA, key, key, NULL));
    json_decref(copy);
  }
  json_decref(body);
}

static void test_values(void)
{
  g_autoptr(QvJob) job = t_job();
  g_autoptr(QvKey) key = t_key(1);
  json_t *body = good_body(job);
  g_autoptr(QvResult) result = verify_body(body, job, JOB_SHA, key, key, NULL);
  g_assert_nonnull(result);
  json_t *again = qv_result_build(result);
  g_assert_true(json_equal(body, again));
  json_decref(again);
  json_decref(body);
}

/* Signed by another key of the pool, about another job, or with another digest. */
static void test_keys(void)
{
  g_autoptr(QvJob) job = t_job();
  g_autoptr(QvKey) key = t_key(1);
  g_autoptr(QvKey) other = t_key(2);
  json_t *body = good_body(job);
  GError *error = NULL;
  g_assert_null(verify_body(body, job, JOB_SHA, other, key, &error));
  t_assert_error(&error, QV_ERROR_AUTH, "no key");
  g_assert_null(verify_body(body, job, T_HEX64, key, key, &error));
  t_assert_error(&error, QV_ERROR_FORMAT, "jobSha256");
  g_assert_null(qv_result_verify("", 0, job, JOB_SHA, key, &error));
  g_clear_error(&error);
  json_decref(body);
}

/* The verdict against the records, both ways. */
static void test_contradictions(void)
{
  static const struct {
    const char *outcomes, *status, *code;
    gboolean oom, good;
  } rows[] = {
    { "007", "failed", "step_failed", FALSE, TRUE },   { "007", "timed_out", "timeout", FALSE, FALSE },
    { "00t", "timed_out", "timeout", FALSE, TRUE },    { "000", "failed", "step_failed", FALSE, FALSE },
    { "070", "failed", "step_failed", FALSE, FALSE },  { "07", "failed", "step_failed", FALSE, FALSE },
    { "7", "failed", "step_failed", FALSE, FALSE },    { "7", "failed", "setup_failed", FALSE, TRUE },
    { "0", "failed", "setup_failed", FALSE, FALSE },   { "007", "failed", "setup_failed", FALSE, FALSE },
    { "t", "timed_out", "timeout", FALSE, TRUE },      { "000", "failed", "memory", FALSE, FALSE },
    { "000", "failed", "memory", TRUE, TRUE },         { "-", "failed", "memory", TRUE, TRUE },
    { "-", "failed", "output", FALSE, TRUE },          { "-", "error", "bad_output", FALSE, TRUE },
    { "0", "error", "bad_output", FALSE, FALSE },      { "000", "cancelled", "cancelled", FALSE, FALSE },
    { "-", "cancelled", "cancelled", FALSE, TRUE },    { "-", "timed_out", "wall", FALSE, TRUE },
    { "-", "succeeded", NULL, FALSE, FALSE },          { "00", "succeeded", NULL, FALSE, FALSE },
    { "-00", "succeeded", NULL, FALSE, FALSE },
  };
  g_autoptr(QvJob) job = t_job();
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autoptr(QvKey) key = t_key(1);
    g_autoptr(QvResult) base = result_of(job, 0);
    qv_entry_facts_clear(&base->facts);
    QvEntryFacts *facts = facts_of(job, rows[i].outcomes);
    base->facts = *facts;
    g_free(facts);
    base->usage.oom = rows[i].oom;
    json_t *body = qv_result_build(base);
    json_object_set_new(body, "status", json_string(rows[i].status));
    json_object_set_new(body, "code", rows[i].code != NULL ? json_string(rows[i].code) : json_null());
    g_autoptr(QvResult) result = verify_body(body, job, JOB_SHA, key, key, NULL);
    if ((result != NULL) != rows[i].good)
      g_error("row %zu", i);
    json_decref(body);
  }
}

static void test_bounds(void)
{
  g_autoptr(QvJob) job = t_job();
  g_autoptr(QvKey) key = t_key(1);
  for (int over = 0; over < 2; over++) {
    json_t *body = good_body(job);
    json_t *artefacts = json_array();
    for (int i = 0; i < 3 + over; i++) {
      g_autofree char *text = g_strdup_printf("{'path':'build/%d','size':0,'sha256':'" T_HEX64 "'}", i);
      json_array_append_new(artefacts, t_json(text));
    }
    json_object_set_new(body, "artefacts", artefacts);
    g_autoptr(QvResult) result = verify_body(body, job, JOB_SHA, key, key, NULL);
    g_assert_cmpint(result != NULL, ==, !over);
    json_object_set_new(body, "artefacts", json_array());
    json_object_set_new(body, "egress", t_repeat(256 + (gsize)over, t_json("{'host':'a','connections':0,'bytesUp':0,'bytesDown':0,'refused':0}")));
    g_autoptr(QvResult) egress = verify_body(body, job, JOB_SHA, key, key, NULL);
    g_assert_cmpint(egress != NULL, ==, !over);
    json_decref(body);
  }
  /* The largest that a job can ask for stays below the cap of results. */
  job->given.artefact_count = 256;
  job->given.artefact_bytes = 67108864;
  json_t *body = good_body(job);
  json_t *artefacts = json_array();
  for (int i = 0; i < 256; i++) {
    json_t *artefact = json_object();
    g_autofree char *fill = g_strnfill(237, '"');
    g_autofree char *path = g_strdup_printf("%03d/%s/%s/%s/%s", i, fill, fill, fill, fill);
    json_object_set_new(artefact, "path", json_string(path));
    json_object_set_new(artefact, "size", json_integer(262144));
    json_object_set_new(artefact, "sha256", json_string(T_HEX64));
    json_array_append_new(artefacts, artefact);
  }
  json_object_set_new(body, "artefacts", artefacts);
  g_autoptr(QvResult) result = verify_body(body, job, JOB_SHA, key, key, NULL);
  g_assert_nonnull(result);
  json_decref(body);
}

/* The facts are copied whole, and a payload goes with them or not at all. */
static void test_apply(void)
{
  g_autoptr(QvJob) job = t_job();
  g_autoptr(QvEntryFacts) facts = facts_of(job, "000");
  facts->artefacts = g_new0(QvArtefact, 1);
  facts->artefacts_n = 1;
  facts->artefacts[0] = (QvArtefact){ .path = g_strdup("build/a"), .size = 5, .sha256 = T_HEX64 };
  g_autoptr(QvResult) result = qv_result_new(job, JOB_SHA, "r", "runsc");
  result->payload = g_new0(QvBlobDescriptor, 1);
  QvRunFacts run = { .end = QV_RUN_COMPLETE, .facts = facts };
  qv_result_apply(result, job, &run);
  g_assert_cmpstr(result->facts.artefacts[0].path, ==, "build/a");
  g_assert_true(result->facts.artefacts[0].path != facts->artefacts[0].path);
  g_assert_cmpstr(result->facts.artefacts[0].sha256, ==, T_HEX64);
  g_assert_nonnull(result->payload);
  run = (QvRunFacts){ .end = QV_RUN_CANCELLED };
  qv_result_apply(result, job, &run);
  g_assert_cmpuint(result->facts.artefacts_n, ==, 0);
  g_assert_null(result->payload);
}

/* What our own code would get wrong is refused before it is signed. */
static void test_sign_refuses(void)
{
  g_autoptr(QvJob) job = t_job();
  g_autoptr(QvKey) key = t_key(1);
  gsize n = 0;
  GError *error = NULL;
  g_autoptr(QvResult) result = result_of(job, 0);
  result->status = QV_STATUS_ERROR;
  result->code = QV_CODE_BAD_OUTPUT;
  g_assert_null(qv_result_sign(result, job, key, &n, &error));
  t_assert_error(&error, QV_ERROR_FORMAT, "contradicts");
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/result/decide", test_decide);
  g_test_add_func("/result/codes", test_codes);
  g_test_add_func("/result/edits", test_edits);
  g_test_add_func("/result/values", test_values);
  g_test_add_func("/result/keys", test_keys);
  g_test_add_func("/result/contradictions", test_contradictions);
  g_test_add_func("/result/bounds", test_bounds);
  g_test_add_func("/result/apply", test_apply);
  g_test_add_func("/result/sign-refuses", test_sign_refuses);
  return g_test_run();
}
