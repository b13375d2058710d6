/* SPDX-License-Identifier: Apache-2.0 */
/* The judge of the probes: the one report that passes, and everything that is a little different. */
#include <locale.h>
#include <string.h>

#include "base/limits.h"
#include "sandbox/probe_judge.h"
#include "sandbox/probe_text.h"
#include "support/valgrind.h"

enum { INSIDE_MIN = 60 };

static const char *const BACKENDS[] = {"runsc", "docker-runsc", "docker-runc-insecure"};

static GHashTable *host_answers(void)
{
  static const char *const NAMES[] = {"uname_release", "proc_version", "boot_id", "proc_cmdline", "vdso", "hostname"};
  GHashTable *host = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
  for (gsize i = 0; i < G_N_ELEMENTS(NAMES); i++)
    g_hash_table_insert(host, g_strdup(NAMES[i]), g_strconcat("host-", NAMES[i], NULL));
  return host;
}

static char *right_answer(const QvProbeRow *row)
{
  if (strcmp(row->expected, "YOUNG") == 0)
    return g_strdup("3");
  if (strcmp(row->expected, "ANY") == 0)
    return g_strdup("whatever");
  if (strcmp(row->expected, "HOST!") == 0)
    return g_strdup("of-another-kernel");
  if (strcmp(row->expected, "HOST=") == 0)
    return g_strconcat("host-", row->name, NULL);
  return g_strndup(row->expected, strcspn(row->expected, "|"));
}

/* The report that passes; the line of SPECIAL (may be NULL) is LINE in its place (NULL: left out). */
static char *make_report(const char *backend, const char *special, const char *line)
{
  GString *text = g_string_new(NULL);
  QvProbeRow row;
  for (guint i = 0; qv_probe_row(i, backend, &row); i++) {
    g_autofree char *answer = right_answer(&row);
    if (row.host)
      continue;
    if (g_strcmp0(special, row.name) == 0)
      g_string_append(text, line != NULL ? line : "");
    else
      g_string_append_printf(text, "probe %s %s\n", row.name, answer);
  }
  return g_string_free(text, FALSE);
}

static void answer_host(QvProbeJudge *judge, const char *backend, const char *special, const char *answer)
{
  QvProbeRow row;
  for (guint i = 0; qv_probe_row(i, backend, &row); i++) {
    g_autofree char *right = right_answer(&row);
    if (row.host && strcmp(row.name, "report") != 0)
      qv_probe_judge_answer(judge, row.name, g_strcmp0(special, row.name) == 0 ? answer : right);
  }
}

/* Names of the failed probes, joined. */
static char *judge_text(const char *backend, const char *text, gsize n)
{
  g_autoptr(GHashTable) host = host_answers();
  g_autoptr(QvProbeJudge) judge = qv_probe_judge_new(backend, host);
  qv_probe_judge_text(judge, text, n, 3);
  answer_host(judge, backend, NULL, NULL);
  g_auto(GStrv) failed = qv_probe_judge_failed(judge);
  return g_strjoinv(" ", failed);
}

static void test_table(void)
{
  QvProbeRow row, other;
  for (gsize b = 0; b < G_N_ELEMENTS(BACKENDS); b++) {
    guint inside = 0, identity = 0;
    for (guint i = 0; qv_probe_row(i, BACKENDS[b], &row); i++) {
      inside += !row.host;
      identity += strncmp(row.expected, "HOST", 4) == 0;
      g_assert_cmpuint(strspn(row.name, "abcdefghijklmnopqrstuvwxyz0123456789_"), ==, strlen(row.name));
      g_assert_cmpuint(strlen(row.tries), >, 5);
      g_assert_cmpuint(strlen(row.expected), >, 0);
      for (guint k = 0; k < i && qv_probe_row(k, BACKENDS[b], &other); k++)
        g_assert_cmpstr(row.name, !=, other.name);
    }
    g_assert_cmpuint(inside, >=, INSIDE_MIN);
    g_assert_cmpuint(identity, >=, 5);
    g_test_message("%s: %u probes, %u of them inside", BACKENDS[b], qv_probe_count(), inside);
  }
  g_assert_false(qv_probe_row(0, "firecracker", &row));
  g_assert_false(qv_probe_row(qv_probe_count(), "runsc", &row));
  g_autoptr(GHashTable) host = host_answers();
  g_assert_null(qv_probe_judge_new("firecracker", host));
}

static void test_right_report(void)
{
  for (gsize b = 0; b < G_N_ELEMENTS(BACKENDS); b++) {
    g_autofree char *text = make_report(BACKENDS[b], NULL, NULL);
    g_autofree char *failed = judge_text(BACKENDS[b], text, strlen(text));
    g_assert_cmpstr(failed, ==, "");
  }
}

/* Each probe for itself: missing, another answer, twice. */
static void test_each_probe_counts(void)
{
  for (gsize b = 0; b < G_N_ELEMENTS(BACKENDS); b++) {
    QvProbeRow row;
    for (guint i = 0; qv_probe_row(i, BACKENDS[b], &row); i++) {
      if (row.host)
        continue;
      g_autofree char *right = right_answer(&row);
      g_autofree char *wrong_line = g_strdup_printf("probe %s WRONG1\n", row.name);
      g_autofree char *twice = g_strdup_printf("probe %s %s\nprobe %s %s\n", row.name, right, row.name, right);
      g_autofree char *name_report = g_strconcat(row.name, " report", NULL);
      g_autofree char *without = make_report(BACKENDS[b], row.name, NULL);
      g_autofree char *failed = judge_text(BACKENDS[b], without, strlen(without));
      g_assert_cmpstr(failed, ==, row.name);
      g_autofree char *wrong = make_report(BACKENDS[b], row.name, wrong_line);
      g_autofree char *failed_wrong = judge_text(BACKENDS[b], wrong, strlen(wrong));
      g_assert_cmpstr(failed_wrong, ==, strcmp(row.expected, "ANY") == 0 ? "" : row.name);
      g_autofree char *doubled = make_report(BACKENDS[b], row.name, twice);
      g_autofree char *failed_doubled = judge_text(BACKENDS[b], doubled, strlen(doubled));
      g_assert_cmpstr(failed_doubled, ==, name_report);
    }
  }
}

static void test_host_probes_count(void)
{
  static const char *const WRONG[][2] = {{"memory", "SURVIVED"}, {"forks", "OK"}, {"cpu", "OVER"}, {"cpu", "UNKNOWN"},
                                         {"gone", "LEFT"}, {"started", "FAILED"}, {"egress", "BROKEN"}};
  for (gsize i = 0; i < G_N_ELEMENTS(WRONG); i++) {
    g_autofree char *text = make_report("runsc", NULL, NULL);
    g_autoptr(GHashTable) host = host_answers();
    g_autoptr(QvProbeJudge) judge = qv_probe_judge_new("runsc", host);
    qv_probe_judge_text(judge, text, strlen(text), 3);
    answer_host(judge, "runsc", WRONG[i][0], WRONG[i][1]);
    g_auto(GStrv) failed = qv_probe_judge_failed(judge);
    g_assert_cmpstr(failed[0], ==, WRONG[i][0]);
    g_assert_null(failed[1]);
  }
}

static void test_identity(void)
{
  /* answer, age in seconds, is it right for that probe */
  static const struct {
    const char *probe, *answer;
    gboolean right;
  } CASES[] = {
    {"boot_id", "host-boot_id", FALSE},      {"boot_id", "ENOENT", FALSE},  {"boot_id", "NONE", FALSE},
    {"boot_id", "0f0e-1", TRUE},             {"vdso", "host-vdso", FALSE},  {"vdso", "NONE", FALSE},
    {"vdso", "848e0f494b4cdac3", TRUE},      {"monotonic_age", "0", TRUE},  {"monotonic_age", "8", TRUE},
    {"monotonic_age", "9", FALSE},           {"monotonic_age", "-1", FALSE}, {"monotonic_age", "1e0", FALSE},
    {"monotonic_age", "99999999999999999999", FALSE},
    {"uname_release", "4.4.0", TRUE},        {"uname_release", "host-uname_release", FALSE},
    {"modules", "EMPTY", TRUE},              {"modules", "ENOENT", TRUE},   {"modules", "ENOENT|EMPTY", FALSE},
    {"modules", "DATA", FALSE},
  };
  for (gsize i = 0; i < G_N_ELEMENTS(CASES); i++) {
    g_autofree char *line = g_strdup_printf("probe %s %s\n", CASES[i].probe, CASES[i].answer);
    g_autofree char *text = make_report("runsc", CASES[i].probe, line);
    g_autofree char *failed = judge_text("runsc", text, strlen(text));
    g_assert_cmpstr(failed, ==, CASES[i].right ? "" : CASES[i].probe);
  }
}

/* A host that cannot say who it is proves nothing about who is not it. */
static void test_silent_host(void)
{
  g_autoptr(GHashTable) host = g_hash_table_new(g_str_hash, g_str_equal);
  g_autoptr(QvProbeJudge) judge = qv_probe_judge_new("runsc", host);
  g_autofree char *text = make_report("runsc", NULL, NULL);
  qv_probe_judge_text(judge, text, strlen(text), 3);
  answer_host(judge, "runsc", NULL, NULL);
  g_auto(GStrv) failed = qv_probe_judge_failed(judge);
  g_autofree char *joined = g_strjoinv(" ", failed);
  g_assert_cmpstr(joined, ==, "uname_release proc_version boot_id proc_cmdline vdso");
}

static void test_hostile_lines(void)
{
  static const char *const LINES[] = {
    "probe\n", "probe \n", "probe ids\n", "probe ids \n", "probe  ids OK\n", "Probe ids OK\n", "\n", " \n", "probe ids two words\n",
    "probe ids caf\xc3\xa9\n", "probe ids \x1b[2J\n", "probe none OK\n", "probe memory OOM\n", "probe report COMPLETE\n",
    "probe started OK\n", "probe ids OK", "noise\n", "probe ids OK\r\n", "probe id OK\n", "probe idss OK\n",
  };
  for (gsize i = 0; i < G_N_ELEMENTS(LINES); i++) {
    g_autofree char *right = make_report("runsc", NULL, NULL);
    g_autofree char *text = g_strconcat(right, LINES[i], NULL);
    g_autofree char *failed = judge_text("runsc", text, strlen(text));
    g_assert_true(g_str_has_suffix(failed, "report"));
  }
  g_autofree char *long_line = g_strnfill(100000, 'x');
  g_autofree char *right = make_report("runsc", NULL, NULL);
  g_autofree char *text = g_strdup_printf("%sprobe ids %s\n", right, long_line);
  g_autofree char *failed = judge_text("runsc", text, strlen(text));
  g_assert_cmpstr(failed, ==, "report");
  /* A NUL within. */
  g_autofree char *with_nul = g_strdup(right);
  with_nul[strlen(with_nul) / 2] = '\0';
  g_autofree char *failed_nul = judge_text("runsc", with_nul, strlen(right));
  g_assert_nonnull(strstr(failed_nul, "report"));
  g_autofree char *failed_empty = judge_text("runsc", "", 0);
  g_assert_nonnull(strstr(failed_empty, "uname_release proc_version boot_id"));
}

static void test_answer_form(void)
{
  static const char *const FORMS[][2] = {{"a b\tc\n", "a_b_c"}, {"", "EMPTY"}, {"  \n", "EMPTY"}, {"\x01\xff", "??"}, {"x", "x"}};
  char answer[QV_PROBE_ANSWER_MAX + 1];
  for (gsize i = 0; i < G_N_ELEMENTS(FORMS); i++) {
    qv_probe_answer_format(FORMS[i][0], answer);
    g_assert_cmpstr(answer, ==, FORMS[i][1]);
  }
  g_autofree char *long_text = g_strnfill(1000, 'y');
  qv_probe_answer_format(long_text, answer);
  g_assert_cmpuint(strlen(answer), ==, QV_PROBE_ANSWER_MAX);
  char hash[QV_VDSO_HASH_CAP];
  qv_vdso_hash(0, hash);
  g_assert_cmpstr(hash, ==, "NONE");
  g_autoptr(GHashTable) host = qv_probe_host_read();
  g_assert_nonnull(g_hash_table_lookup(host, "boot_id"));
  /* Valgrind hides the vdso from its programs. */
  g_assert_cmpint(strcmp(g_hash_table_lookup(host, "vdso"), "NONE") == 0, ==, qv_test_under_valgrind());
}

int main(int argc, char **argv)
{
  setlocale(LC_ALL, "");
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/sandbox/probes/table", test_table);
  g_test_add_func("/sandbox/probes/right-report", test_right_report);
  g_test_add_func("/sandbox/probes/each-probe-counts", test_each_probe_counts);
  g_test_add_func("/sandbox/probes/host-probes-count", test_host_probes_count);
  g_test_add_func("/sandbox/probes/identity", test_identity);
  g_test_add_func("/sandbox/probes/silent-host", test_silent_host);
  g_test_add_func("/sandbox/probes/hostile-lines", test_hostile_lines);
  g_test_add_func("/sandbox/probes/answer-form", test_answer_form);
  return g_test_run();
}
