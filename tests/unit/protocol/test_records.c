/* SPDX-License-Identifier: Apache-2.0 */
/* The small records: entry request, cancel, facts over a pipe, egress token. */
#include <string.h>

#include "base/error.h"
#include "format/error.h"
#include "protocol/cancel.h"
#include "protocol/egress_token.h"
#include "protocol/entry_request.h"
#include "protocol/envelope.h"
#include "protocol/record.h"
#include "support.h"

static const guint8 stream_key[QV_STREAM_KEY_BYTES] = "0123456789abcdef0123456789abcde";

/* The line as the contract has it, member by member. */
static void test_request(void)
{
  g_autoptr(QvJob) job = t_job();
  GError *error = NULL;
  g_autoptr(QvSecret) line = qv_entry_request_format(job, stream_key, NULL, FALSE, &error);
  g_assert_no_error(error);
  const char *text = (const char *)qv_secret_bytes(line);
  gsize n = qv_secret_len(line);
  g_assert_cmpint(text[n - 1], ==, '\n');
  g_assert_null(memchr(text, '\n', n - 1));
  json_t *got = qv_json_load(text, n - 1, n, QV_JSON_SIGNED, "line", &error);
  g_assert_no_error(error);
  json_t *want = t_json(
      "{'v':1,'streamKey':'MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZQA=','base':{'size':2097153},'overlay':{'size':1},"
      "'deletes':['old','src/gone.c'],'setup':{'name':'setup','argv':['make','deps'],'timeoutMs':60000},'proxy':null,"
      "'run':[{'name':'lint','argv':['make','lint'],'cwd':'src','env':{'B':'2','A':''},'continueOnFailure':true},"
      "{'name':'test','argv':['make','test']}],'artefacts':['build/**','*.log'],'limits':{'wallMs':120000,"
      "'memoryMiB':2048,'milliCpus':2000,'pids':512,'workMiB':1024,'logBytes':1000,'artefactBytes':5000,"
      "'artefactCount':3}}");
  g_assert_true(json_equal(got, want));
  json_decref(got);
  json_decref(want);
}

static void test_request_options(void)
{
  g_autoptr(QvJob) job = t_job();
  GError *error = NULL;
  g_clear_pointer(&job->overlay, g_free);
  const QvEntryProxy proxy = { .token = "tok", .socket = "/run/quavon/egress.sock", .ca_pem = "-----\nx\n" };
  g_autoptr(QvSecret) line = qv_entry_request_format(job, stream_key, &proxy, TRUE, &error);
  g_assert_no_error(error);
  json_t *got = json_loadb((const char *)qv_secret_bytes(line), qv_secret_len(line), 0, NULL);
  g_assert_null(memchr(qv_secret_bytes(line), '\n', qv_secret_len(line) - 1));
  json_t *want = t_json("{'token':'tok','address':null,'socket':'/run/quavon/egress.sock','caPem':'-----\\nx\\n'}");
  g_assert_true(json_equal(json_object_get(got, "proxy"), want));
  g_assert_true(json_is_true(json_object_get(got, "live")));
  g_assert_true(json_is_null(json_object_get(got, "overlay")));
  json_decref(got);
  json_decref(want);
}

static void test_request_cap(void)
{
  g_autoptr(QvJob) job = t_job();
  GError *error = NULL;
  g_autoptr(QvSecret) line = qv_entry_request_format(job, stream_key, NULL, FALSE, &error);
  gsize n = qv_secret_len(line);
  g_free(job->run[1].argv[1]);
  job->run[1].argv[1] = g_strnfill(QV_REQUEST_LINE_BYTES_MAX - n + 4, 'x'); /* "test" made room */
  g_autoptr(QvSecret) full = qv_entry_request_format(job, stream_key, NULL, FALSE, &error);
  g_assert_no_error(error);
  g_assert_cmpuint(qv_secret_len(full), ==, QV_REQUEST_LINE_BYTES_MAX);
  g_free(job->run[1].argv[1]);
  job->run[1].argv[1] = g_strnfill(QV_REQUEST_LINE_BYTES_MAX - n + 5, 'x');
  g_assert_null(qv_entry_request_format(job, stream_key, NULL, FALSE, &error));
  t_assert_error(&error, QV_ERROR_LIMIT, "cap");
}

static void test_cancel(void)
{
  g_autoptr(QvJob) job = t_job();
  g_autoptr(QvKey) key = t_key(1);
  g_autoptr(QvKey) other = t_key(2);
  gsize n = 0;
  GError *error = NULL;
  g_autofree char *text = qv_cancel_sign(job, T_NOW, key, &n, &error);
  g_assert_no_error(error);
  g_assert_true(qv_cancel_verify(text, n, job, key, &error));
  g_assert_false(qv_cancel_verify(text, n, job, other, &error));
  t_assert_error(&error, QV_ERROR_AUTH, "no key");
  static const struct {
    const char *path, *value;
  } rows[] = {
    { "jobId", "'00000000-0000-4000-8000-000000000002'" }, { "tenantId", "'other'" }, { "pool", "'other'" },
    { "v", "2" }, { "at", "-1" }, { "at", "'x'" }, { "more", "1" },
  };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    json_t *body = t_json("{'v':1,'jobId':'" T_JOB_ID "','tenantId':'acme','pool':'default','at':5}");
    g_autofree char *good = qv_envelope_sign(QV_ENVELOPE_CANCEL, key, body, &n, NULL);
    g_assert_true(qv_cancel_verify(good, n, job, key, NULL));
    t_edit(body, rows[i].path, t_json(rows[i].value));
    g_autofree char *bad = qv_envelope_sign(QV_ENVELOPE_CANCEL, key, body, &n, NULL);
    g_assert_false(qv_cancel_verify(bad, n, job, key, &error));
    g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
    g_clear_error(&error);
    json_decref(body);
  }
  g_assert_false(qv_cancel_verify("x", 1, job, key, NULL));
  g_assert_cmpint(qv_cancel_ttl_ms(job, T_NOW), ==, 600000 + 120000 + 120000);
  g_assert_cmpint(qv_cancel_ttl_ms(job, T_NOW + 10000000), ==, 1);
}

static void test_facts(void)
{
  static const char *const texts[] = {
    "{'setup':null,'steps':[],'artefacts':[],'artefactsDropped':0,'refused':true,'code':'disk','forkFailed':false}",
    "{'setup':null,'steps':[{'name':'a','exitCode':null,'signal':9,'timedOut':true,'startedMs':1,'durationMs':2,"
    "'logTotalBytes':3,'logTruncated':true}],'artefacts':[{'path':'x','size':5,'sha256':'" T_HEX64 "'}],"
    "'artefactsDropped':7,'refused':false,'code':null,'forkFailed':true}",
  };
  for (gsize i = 0; i < G_N_ELEMENTS(texts); i++) {
    gsize n = 0;
    GError *error = NULL;
    g_autofree char *text = g_strdelimit(g_strdup(texts[i]), "'", '"');
    g_autoptr(QvEntryFacts) facts = qv_entry_facts_parse(text, strlen(text), &error);
    g_assert_no_error(error);
    g_autofree char *again = qv_entry_facts_format(facts, &n);
    json_t *a = json_loads(text, 0, NULL), *b = json_loadb(again, n, 0, NULL);
    g_assert_true(json_equal(a, b));
    json_decref(a);
    json_decref(b);
  }
  static const char *const bad[] = {
    "{}", "[]", "", "{'setup':null,'steps':[],'artefacts':[],'artefactsDropped':0,'refused':true,'code':null,'forkFailed':false}",
    "{'setup':null,'steps':[1],'artefacts':[],'artefactsDropped':0,'refused':false,'code':null,'forkFailed':false}",
    "{'setup':null,'steps':[],'artefacts':[{'path':'../x','size':5,'sha256':'" T_HEX64 "'}],'artefactsDropped':0,"
    "'refused':false,'code':null,'forkFailed':false}",
    "{'setup':null,'steps':[],'artefacts':[],'artefactsDropped':0,'refused':false,'code':null,'forkFailed':false}x",
  };
  for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
    g_autofree char *text = g_strdelimit(g_strdup(bad[i]), "'", '"');
    g_assert_null(qv_entry_facts_parse(text, strlen(text), NULL));
  }
}

static void test_token(void)
{
  guint8 bytes[QV_TOKEN_BYTES];
  char token[QV_TOKEN_LEN + 1], hash[65];
  memset(bytes, 0xfb, sizeof bytes);
  qv_token_format(bytes, token);
  /* node: Buffer.alloc(32, 0xfb).toString("base64url"), and the digest of that text */
  g_assert_cmpstr(token, ==, "-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_s");
  qv_token_hash(token, hash);
  g_assert_cmpstr(hash, ==, "d11835ca7edbd11d612c89ccda97f8054dde4f78485ff5b589336e8bd9e35315");
  g_assert_true(qv_token_valid(token, QV_TOKEN_LEN));
  g_assert_false(qv_token_valid(token, QV_TOKEN_LEN - 1));
  token[3] = '+';
  g_assert_false(qv_token_valid(token, QV_TOKEN_LEN));
  token[3] = '\0';
  g_assert_false(qv_token_valid(token, QV_TOKEN_LEN));
  token[3] = '_';
  token[42] = 't'; /* unused bits set */
  g_assert_false(qv_token_valid(token, QV_TOKEN_LEN));
}

static void test_token_times(void)
{
  g_autoptr(QvJob) job = t_job();
  g_assert_cmpint(qv_token_expires_at(job, T_NOW, T_NOW + 1000000), ==, T_NOW + 180000);
  g_assert_cmpint(qv_token_expires_at(job, T_NOW, T_NOW + 179999), ==, T_NOW + 179999);
}

static void test_token_record(void)
{
  gsize n = 0;
  GError *error = NULL;
  char *hosts[] = { (char *)"registry.example.org:443", NULL };
  QvTokenRecord record = { .job_id = T_JOB_ID, .hosts = hosts, .source = (char *)"10.0.0.9", .expires_at = T_NOW };
  g_autofree char *text = qv_token_record_format(&record, &n);
  g_autoptr(QvTokenRecord) read = qv_token_record_parse(text, n, &error);
  g_assert_no_error(error);
  g_assert_cmpstr(read->job_id, ==, T_JOB_ID);
  g_assert_cmpstr(read->hosts[0], ==, hosts[0]);
  g_assert_cmpstr(read->source, ==, "10.0.0.9");
  g_assert_cmpint(read->expires_at, ==, T_NOW);
  static const struct {
    const char *path, *value;
    gboolean good;
  } rows[] = {
    { "source", "null", TRUE },       { "source", "'::1'", FALSE }, { "source", "'010.0.0.1'", FALSE },
    { "hosts", "[]", FALSE },         { "hosts", "['x']", FALSE },  { "jobId", "'x'", FALSE },
    { "expiresAt", "-1", FALSE },     { "v", "2", FALSE },          { "more", "1", FALSE },
  };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    json_t *json = json_loadb(text, n, 0, NULL);
    t_edit(json, rows[i].path, t_json(rows[i].value));
    char *edited = json_dumps(json, 0);
    g_autoptr(QvTokenRecord) again = qv_token_record_parse(edited, strlen(edited), NULL);
    g_assert_cmpint(again != NULL, ==, rows[i].good);
    free(edited);
    json_decref(json);
  }
}

static void test_usage(void)
{
  g_autoptr(QvJob) job = t_job();
  g_autoptr(QvResult) result = qv_result_new(job, T_HEX64, "r", "runsc");
  static const char good[] = "{\"v\":1,\"token\":\"" T_HEX64 "\",\"hosts\":[{\"host\":\"a.example.org\",\"connections\":1,"
                             "\"bytesUp\":2,\"bytesDown\":3,\"refused\":0}]}";
  g_assert_true(qv_token_usage_parse(good, strlen(good), T_HEX64, result, NULL));
  g_assert_true(result->has_egress);
  g_assert_cmpuint(result->egress_n, ==, 1);
  g_assert_cmpint(result->egress[0].bytes_down, ==, 3);
  /* Another token's message, and a bad one, leave what is there. */
  g_assert_false(qv_token_usage_parse(good, strlen(good), T_DIGEST, result, NULL));
  static const char bad[] = "{\"v\":1,\"token\":\"" T_HEX64 "\",\"hosts\":[{\"host\":\"a.example.org\",\"connections\":1,"
                            "\"bytesUp\":2,\"bytesDown\":3,\"refused\":0},{\"host\":\"\"}]}";
  g_assert_false(qv_token_usage_parse(bad, strlen(bad), T_HEX64, result, NULL));
  g_assert_cmpuint(result->egress_n, ==, 1);
  g_assert_true(qv_token_usage_parse(good, strlen(good), T_HEX64, result, NULL));
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/records/request", test_request);
  g_test_add_func("/records/request-options", test_request_options);
  g_test_add_func("/records/request-cap", test_request_cap);
  g_test_add_func("/records/cancel", test_cancel);
  g_test_add_func("/records/facts", test_facts);
  g_test_add_func("/records/token", test_token);
  g_test_add_func("/records/token-times", test_token_times);
  g_test_add_func("/records/token-record", test_token_record);
  g_test_add_func("/records/usage", test_usage);
  return g_test_run();
}
