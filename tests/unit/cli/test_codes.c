/* SPDX-License-Identifier: Apache-2.0 */
/* The table of codes: complete, each once, and equal to its section of docs/TROUBLESHOOTING.md
 * (QUAVON_TEST_WRITE_DOCS=1 writes that instead). */
#include <string.h>

#include "base/fd.h"
#include "cli/codes.h"
#include "protocol/admission.h"
#include "protocol/result.h"

#define BEGIN "<!-- Written from src/cli/codes.def: QUAVON_TEST_WRITE_DOCS=1 meson test cli/codes -->\n"
#define END "<!-- end of the written part -->\n"

static void expect(QvCodeKind kind, const char *code)
{
  const QvCodeRow *row = qv_code_row_find(code);
  if (row == NULL || row->kind != kind)
    g_error("%s is not in codes.def", code);
}

static void test_complete(void)
{
  static const char *const rejects[] = {
#define X(name, text) text,
    QV_REJECT_TABLE(X)
#undef X
  };
  static const char *const results[] = {
#define X(name, text, status) text,
    QV_CODE_TABLE(X)
#undef X
  };
  for (gsize i = 0; i < G_N_ELEMENTS(rejects); i++)
    expect(QV_CODE_REJECT, rejects[i]);
  for (gsize i = 0; i < G_N_ELEMENTS(results); i++)
    expect(QV_CODE_RESULT, results[i]);
  for (guint n = 950; n <= 958; n++) {
    g_autofree char *code = g_strdup_printf("QD%u", n);
    expect(QV_CODE_DOCTOR, code);
  }
  expect(QV_CODE_WORKER, "lost");
  expect(QV_CODE_WORKER, "bad_result");
}

static void test_rows(void)
{
  for (guint i = 0; qv_code_row(i) != NULL; i++) {
    const QvCodeRow *row = qv_code_row(i);
    g_assert_true(qv_code_row_find(row->code) == row);
    g_assert_cmpuint(strlen(row->meaning), >, 0);
    g_assert_cmpuint(strlen(row->remedy), >, 0);
    g_assert_null(strchr(row->meaning, '\n'));
    g_assert_null(strchr(row->remedy, '\n'));
    g_assert_true(i == 0 || row->kind >= qv_code_row(i - 1)->kind);
  }
  g_assert_null(qv_code_row_find("QD959"));
}

/* Each check has been seen in the integration test of doctor: content, and not. The kernel and the control groups of the machine
 * are as they are; so is what firecracker would need, and what Valkey keeps is told and never a fault. */
static void test_produced(void)
{
  static const char *const only_ok[] = { "host-kernel", "host-cgroup", "host-kvm", "host-disk", "valkey-version", "valkey-persistence", NULL };
  g_autofree char *path =
    g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "tests", "integration", "client", "test_doctor.c", NULL);
  g_autofree char *text = NULL;
  g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
  for (guint i = 0; qv_code_row(i) != NULL && qv_code_row(i)->kind == QV_CODE_DOCTOR; i++) {
    const char *code = qv_code_row(i)->code;
    g_autofree char *fails = g_strdup_printf("\"%s\", \"fail\"", code), *warns = g_strdup_printf("\"%s\", \"warn\"", code);
    g_autofree char *fine = g_strdup_printf("\"%s\", \"ok\"", code);
    if (strstr(text, fine) == NULL)
      g_error("%s is nowhere ok in %s", code, path);
    if (!g_strv_contains(only_ok, code) && strstr(text, fails) == NULL && strstr(text, warns) == NULL)
      g_error("%s is nowhere produced in %s", code, path);
  }
}

static void test_page(void)
{
  g_autofree char *path = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "docs", "TROUBLESHOOTING.md", NULL);
  g_autofree char *page = NULL, *table = qv_codes_markdown();
  g_assert_true(g_file_get_contents(path, &page, NULL, NULL));
  char *begin = strstr(page, BEGIN), *end = strstr(page, END);
  g_assert_nonnull(begin);
  g_assert_nonnull(end);
  begin += strlen(BEGIN);
  if (g_getenv("QUAVON_TEST_WRITE_DOCS") != NULL) {
    g_autofree char *head = g_strndup(page, (gsize)(begin - page));
    g_autofree char *text = g_strconcat(head, "\n", table, "\n", end, NULL);
    g_assert_true(qv_fd_write_file(path, text, strlen(text), 0644, NULL));
    return;
  }
  g_autofree char *found = g_strndup(begin, (gsize)(end - begin));
  g_autofree char *wanted = g_strconcat("\n", table, "\n", NULL);
  g_assert_cmpstr(found, ==, wanted);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/codes/complete", test_complete);
  g_test_add_func("/codes/rows", test_rows);
  g_test_add_func("/codes/produced", test_produced);
  g_test_add_func("/codes/page", test_page);
  return g_test_run();
}
