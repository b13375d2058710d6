/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the table of probes on the host's side. */
#include "sandbox/probe_judge.h"

#include <string.h>
#include <sys/auxv.h>
#include <sys/utsname.h>

#include "base/fd.h"
#include "sandbox/probe_text.h"

enum { RUNSC, DOCKER_RUNSC, DOCKER_RUNC, COLUMNS_N, AGE_SLACK_S = 5, HOST_FILE_MAX = 65536 };

static const char *const columns[COLUMNS_N] = {"runsc", "docker-runsc", "docker-runc-insecure"};

typedef struct {
  const char *name;
  const char *tries;
  const char *expected[COLUMNS_N];
  gboolean host;
} Row;

static const Row rows[] = {
#define QV_PROBE(name, tries, runsc, docker_runsc, docker_runc) {#name, tries, {runsc, docker_runsc, docker_runc}, FALSE},
#define QV_PROBE_HOST(name, tries, runsc, docker_runsc, docker_runc) {#name, tries, {runsc, docker_runsc, docker_runc}, TRUE},
#include "sandbox/probes.def"
#undef QV_PROBE
#undef QV_PROBE_HOST
};

typedef struct {
  char *answer; /* NULL: none yet */
  gint64 age_s;
  gboolean doubled;
} Answer;

struct QvProbeJudge {
  int column;
  GHashTable *host;
  Answer answers[G_N_ELEMENTS(rows)];
};

static int column_of(const char *backend)
{
  for (int i = 0; i < COLUMNS_N; i++)
    if (g_strcmp0(backend, columns[i]) == 0)
      return i;
  return -1;
}

guint qv_probe_count(void)
{
  return G_N_ELEMENTS(rows);
}

gboolean qv_probe_row(guint i, const char *backend, QvProbeRow *row)
{
  int column = column_of(backend);
  if (column < 0 || i >= G_N_ELEMENTS(rows))
    return FALSE;
  *row = (QvProbeRow){rows[i].name, rows[i].tries, rows[i].expected[column], rows[i].host};
  return TRUE;
}

/* ---- the host's own answers */

static void keep(GHashTable *host, const char *name, const char *text)
{
  char answer[QV_PROBE_ANSWER_MAX + 1];
  qv_probe_answer_format(text, answer);
  g_hash_table_insert(host, g_strdup(name), g_strdup(answer));
}

static void keep_file(GHashTable *host, const char *name, const char *path)
{
  gsize n;
  g_autofree char *text = qv_fd_read_file(path, HOST_FILE_MAX, &n, NULL);
  if (text != NULL)
    keep(host, name, text);
}

GHashTable *qv_probe_host_read(void)
{
  GHashTable *host = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
  struct utsname names;
  char hash[QV_VDSO_HASH_CAP];
  if (uname(&names) == 0) {
    keep(host, "uname_release", names.release);
    keep(host, "hostname", names.nodename);
  }
  keep_file(host, "proc_version", "/proc/version");
  keep_file(host, "boot_id", "/proc/sys/kernel/random/boot_id");
  keep_file(host, "proc_cmdline", "/proc/cmdline");
  qv_vdso_hash(getauxval(AT_SYSINFO_EHDR), hash);
  keep(host, "vdso", hash);
  return host;
}

/* ---- judging */

QvProbeJudge *qv_probe_judge_new(const char *backend, GHashTable *host)
{
  int column = column_of(backend);
  if (column < 0)
    return NULL;
  QvProbeJudge *judge = g_new0(QvProbeJudge, 1);
  judge->column = column;
  judge->host = g_hash_table_ref(host);
  qv_probe_judge_answer(judge, "report", "COMPLETE");
  return judge;
}

void qv_probe_judge_free(QvProbeJudge *judge)
{
  if (judge == NULL)
    return;
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++)
    g_free(judge->answers[i].answer);
  g_hash_table_unref(judge->host);
  g_free(judge);
}

static gssize find(const char *name, gsize n)
{
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++)
    if (strlen(rows[i].name) == n && memcmp(rows[i].name, name, n) == 0)
      return (gssize)i;
  return -1;
}

static void take(QvProbeJudge *judge, gsize i, const char *answer, gsize n, gint64 age_s)
{
  Answer *to = &judge->answers[i];
  to->doubled = to->doubled || to->answer != NULL;
  g_free(to->answer);
  to->answer = g_strndup(answer, MIN(n, QV_PROBE_ANSWER_MAX));
  to->age_s = age_s;
}

/* The report is not what the program prints: WHY replaces the good answer that it began with. */
static void spoil(QvProbeJudge *judge, const char *why)
{
  gssize i = find("report", strlen("report"));
  g_free(judge->answers[i].answer);
  judge->answers[i].answer = g_strdup(why);
}

static void take_line(QvProbeJudge *judge, const char *line, gsize n, gint64 age_s)
{
  static const char head[] = "probe ";
  const gsize head_n = sizeof head - 1;
  const char *name = line + head_n;
  const char *blank = n > head_n && memcmp(line, head, head_n) == 0 ? memchr(name, ' ', n - head_n) : NULL;
  gsize name_n = blank != NULL ? (gsize)(blank - name) : 0, answer_n = blank != NULL ? n - head_n - name_n - 1 : 0;
  gssize i = name_n > 0 ? find(name, name_n) : -1;
  gboolean printable = answer_n > 0 && answer_n <= QV_PROBE_ANSWER_MAX;
  for (gsize k = 0; printable && k < answer_n; k++)
    printable = blank[1 + k] > 32 && blank[1 + k] < 127;
  if (i < 0 || !printable || rows[i].host) {
    spoil(judge, "UNKNOWN");
    return;
  }
  take(judge, (gsize)i, blank + 1, answer_n, age_s);
  if (judge->answers[i].doubled)
    spoil(judge, "DOUBLED");
}

void qv_probe_judge_text(QvProbeJudge *judge, const char *text, gsize n, gint64 age_s)
{
  while (n > 0) {
    const char *end = memchr(text, '\n', n);
    if (end == NULL) {
      spoil(judge, "CUT");
      return;
    }
    take_line(judge, text, (gsize)(end - text), age_s);
    n -= (gsize)(end - text) + 1;
    text = end + 1;
  }
}

void qv_probe_judge_answer(QvProbeJudge *judge, const char *name, const char *answer)
{
  gssize i = find(name, strlen(name));
  g_assert(i >= 0 && rows[i].host);
  take(judge, (gsize)i, answer, strlen(answer), 0);
}

/* Errors and markers are upper case: no kernel has such a name. */
static gboolean is_marker(const char *answer)
{
  return answer[strspn(answer, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")] == '\0' && g_ascii_isupper(answer[0]);
}

static gboolean is_young(const char *answer, gint64 age_s)
{
  gint64 seconds;
  return g_ascii_string_to_signed(answer, 10, 0, G_MAXINT64, &seconds, NULL) && seconds <= age_s + AGE_SLACK_S;
}

static gboolean is_one_of(const char *answer, const char *expected)
{
  g_auto(GStrv) words = g_strsplit(expected, "|", -1);
  return g_strv_contains((const char *const *)words, answer);
}

static gboolean is_right(const QvProbeJudge *judge, gsize i)
{
  const char *expected = rows[i].expected[judge->column];
  const Answer *given = &judge->answers[i];
  const char *host = g_hash_table_lookup(judge->host, rows[i].name);
  if (given->answer == NULL || given->doubled)
    return FALSE;
  if (strcmp(expected, "ANY") == 0)
    return TRUE;
  if (strcmp(expected, "YOUNG") == 0)
    return is_young(given->answer, given->age_s);
  if (strcmp(expected, "HOST!") == 0)
    return host != NULL && !is_marker(given->answer) && strcmp(given->answer, host) != 0;
  if (strcmp(expected, "HOST=") == 0)
    return host != NULL && strcmp(given->answer, host) == 0;
  return is_one_of(given->answer, expected);
}

const char *qv_probe_judge_row(const QvProbeJudge *judge, guint i, gboolean *ok)
{
  g_assert(i < G_N_ELEMENTS(rows));
  *ok = is_right(judge, i);
  return judge->answers[i].answer;
}

char **qv_probe_judge_failed(const QvProbeJudge *judge)
{
  g_autoptr(GStrvBuilder) names = g_strv_builder_new();
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++)
    if (!is_right(judge, i))
      g_strv_builder_add(names, rows[i].name);
  return g_strv_builder_end(names);
}
