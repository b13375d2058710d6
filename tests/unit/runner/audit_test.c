/* SPDX-License-Identifier: Apache-2.0 */
/* The audit line: every field in every line, of its type, whatever was known; hostile texts do not break out; and the page
 * is the table (QUAVON_TEST_WRITE_DOCS=1 writes that instead). */
#include <glib.h>
#include <jansson.h>
#include <string.h>

#include "base/fd.h"
#include "runner/audit.h"

#define BEGIN "<!-- Written from src/runner/audit.def: QUAVON_TEST_WRITE_DOCS=1 meson test runner/audit -->\n"
#define END "<!-- end -->\n"

static const struct {
  const char *name, *type;
} table[] = {
#define QV_AUDIT(name, type, doc) {#name, #type},
#include "runner/audit.def"
#undef QV_AUDIT
};

static json_t *line_of(const QvAudit *audit)
{
  g_autofree char *text = qv_audit_format(audit);
  json_error_t why;
  g_assert_cmpuint(strlen(text), <, 8000);
  json_t *line = json_loads(text, JSON_REJECT_DUPLICATES, &why);
  if (line == NULL)
    g_error("no JSON (%s): %s", why.text, text);
  for (gsize i = 0; i < G_N_ELEMENTS(table); i++) {
    const json_t *value = json_object_get(line, table[i].name);
    gboolean fits = json_is_null(value) || (strcmp(table[i].type, "TEXT") == 0     ? json_is_string(value)
                                            : strcmp(table[i].type, "NUMBER") == 0 ? json_is_integer(value)
                                            : strcmp(table[i].type, "BOOL") == 0   ? json_is_boolean(value)
                                                                                   : json_is_array(value));
    if (!fits)
      g_error("%s is missing, or is no %s: %s", table[i].name, table[i].type, text);
  }
  g_assert_cmpuint(json_object_size(line), ==, 4 + G_N_ELEMENTS(table)); /* time, level, program, message */
  return line;
}

static void expect(const json_t *line, const char *name, const char *want)
{
  g_autofree char *is = json_dumps(json_object_get(line, name), JSON_ENCODE_ANY | JSON_COMPACT);
  if (strcmp(is, want) != 0)
    g_error("%s is %s, not %s", name, is, want);
}

static void test_rejected(void)
{
  QvAdmission admission = {.detail = (char *)"a detail\n\"with\"\x1b[2J quotes"};
  g_autofree char *long_id = g_strnfill(5000, '"');
  QvAudit audit = {.job_id = long_id, .admission = &admission, .pool = "default", .runner_id = "r", .backend = "runsc",
                   .status = "rejected", .code = "malformed", .finished_at = 1700000000000, .wall_ms = -1};
  json_t *line = line_of(&audit);
  expect(line, "status", "\"rejected\"");
  expect(line, "tenantId", "null");
  expect(line, "wallMs", "null");
  expect(line, "waitMs", "null");
  expect(line, "oom", "null");
  expect(line, "egress", "null");
  g_assert_cmpuint(json_string_length(json_object_get(line, "jobId")), ==, 128);
  json_decref(line);
}

static void test_everything(void)
{
  g_autoptr(QvJob) job = qv_job_new();
  guint8 bytes[32] = {4};
  g_autoptr(QvKey) key = qv_key_new(bytes, sizeof bytes);
  QvAdmission admission = {.job = job, .key = key};
  g_autofree char *id = g_strnfill(128, 'i');
  job->tenant_id = g_strdup(id);
  job->kind = g_strdup("check");
  job->image.name = g_strdup(id);
  job->image.digest = g_strdup("sha256:00");
  job->base.size = 10;
  job->overlay = g_new0(QvBlobDescriptor, 1);
  job->overlay->size = 5;
  g_strlcpy(admission.job_sha256, "ab", sizeof admission.job_sha256);
  g_autofree char *host = g_strnfill(260, 'h');
  QvEgressUsage egress[256];
  for (gsize i = 0; i < G_N_ELEMENTS(egress); i++)
    egress[i] = (QvEgressUsage){host, 1, 2, 3, 4};
  QvHostReport seen = {.user_ms = 1, .sys_ms = 2, .max_memory_bytes = 3, .oom = TRUE, .payload_bytes = 4};
  QvAudit audit = {.job_id = "j", .admission = &admission, .pool = id, .runner_id = id, .backend = "runsc", .status = "failed",
                   .code = "memory", .added_at = 1000, .taken_at = 3500, .started_at = 3600, .finished_at = 9000, .wall_ms = 5400,
                   .host = &seen, .has_egress = TRUE, .egress = egress, .egress_n = G_N_ELEMENTS(egress)};
  json_t *line = line_of(&audit);
  g_autofree char *key_id = g_strdup_printf("\"%s\"", qv_key_id(key));
  const char *const want[] = {"event", "\"job\"", "keyId", key_id, "waitMs", "2500", "wallMs", "5400", "bytesIn", "15", "bytesOut",
                              "4", "oom", "true", "userMs", "1", "egressBytes", "1280", "jobSha256", "\"ab\""};
  for (gsize i = 0; i < G_N_ELEMENTS(want); i += 2)
    expect(line, want[i], want[i + 1]);
  g_assert_cmpuint(json_array_size(json_object_get(line, "egress")), ==, 8);
  json_decref(line);
  /* A producer's clock that is ahead of ours makes no wait of less than nothing. */
  audit.added_at = 4000;
  line = line_of(&audit);
  expect(line, "waitMs", "null");
  json_decref(line);
}

static void test_page(void)
{
  g_autofree char *path = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "docs", "LOGGING.md", NULL);
  g_autofree char *page = NULL, *rows = qv_audit_table(), *want = g_strconcat(BEGIN "\n", rows, "\n" END, NULL);
  g_autoptr(GError) error = NULL;
  g_file_get_contents(path, &page, NULL, &error);
  g_assert_no_error(error);
  char *begin = strstr(page, BEGIN), *end = strstr(page, END);
  g_assert_true(begin != NULL && end > begin);
  if (g_getenv("QUAVON_TEST_WRITE_DOCS") != NULL) {
    g_autofree char *before = g_strndup(page, (gsize)(begin - page));
    g_autofree char *text = g_strconcat(before, want, end + strlen(END), NULL);
    g_assert_true(g_file_set_contents(path, text, -1, NULL));
    return;
  }
  g_autofree char *is = g_strndup(begin, (gsize)(end - begin) + strlen(END));
  g_assert_cmpstr(is, ==, want);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/audit/rejected", test_rejected);
  g_test_add_func("/audit/everything", test_everything);
  g_test_add_func("/audit/page", test_page);
  return g_test_run();
}
