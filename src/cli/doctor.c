/* SPDX-License-Identifier: Apache-2.0 */
/* quavon doctor */
#include "cli/doctor.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "cli/codes.h"
#include "cli/progress.h"
#include "cli/verb.h"
#include "client/health.h"
#include "format/text.h"

enum { EXIT_FAIL = 1, EXIT_COULD_NOT_RUN = 2 };

static const char *const verdicts[] = { "ok", "warn", "fail" };

static void finding_free(gpointer data)
{
  QvFinding *finding = data;
  g_free(finding->runner_id);
  g_free(finding->found);
  g_free(finding->remedy);
  g_free(finding);
}

GPtrArray *qv_findings_new(void)
{
  return g_ptr_array_new_with_free_func(finding_free);
}

void qv_finding_add(GPtrArray *findings, const char *code, QvVerdict verdict, const char *runner_id, const char *format, ...)
{
  const QvCodeRow *row = qv_code_row_find(code);
  g_assert(row != NULL);
  QvFinding *finding = g_new0(QvFinding, 1);
  va_list args;
  va_start(args, format);
  g_autofree char *found = g_strdup_vprintf(format, args);
  va_end(args);
  *finding = (QvFinding){ .code = row->code, .verdict = verdict, .runner_id = g_strdup(runner_id),
                          .found = g_strdelimit(g_utf8_make_valid(found, -1), "\n\r\t", ' '),
                          .remedy = verdict != QV_DOCTOR_OK ? g_strdup(row->remedy) : NULL };
  g_ptr_array_add(findings, finding);
}

void qv_finding_remedy(GPtrArray *findings, const char *format, ...)
{
  QvFinding *finding = findings->pdata[findings->len - 1];
  if (finding->verdict == QV_DOCTOR_OK)
    return;
  va_list args;
  va_start(args, format);
  g_free(finding->remedy);
  g_autofree char *text = g_strdup_vprintf(format, args);
  finding->remedy = g_utf8_make_valid(text, -1);
  va_end(args);
}

QvVerdict qv_findings_worst(const GPtrArray *findings)
{
  QvVerdict worst = QV_DOCTOR_OK;
  for (guint i = 0; i < findings->len; i++)
    worst = MAX(worst, ((const QvFinding *)findings->pdata[i])->verdict);
  return worst;
}

/* ── What is printed ── */

static gboolean wants_colours(void)
{
  const char *term = g_getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && g_getenv("NO_COLOR") == NULL && term != NULL && strcmp(term, "dumb") != 0;
}

static void print_text(const GPtrArray *findings)
{
  static const char *const colours[] = { "\033[32m", "\033[33m", "\033[31;1m" };
  gboolean coloured = wants_colours();
  guint counts[G_N_ELEMENTS(verdicts)] = { 0 };
  for (guint i = 0; i < findings->len; i++) {
    const QvFinding *f = findings->pdata[i];
    counts[f->verdict]++;
    char *printable = qv_text_printable_line(f->found, strlen(f->found)); /* what a record says is another's text */
    printf("%-18s %s%-4s%s  %s%s%s%s\n", f->code, coloured ? colours[f->verdict] : "", verdicts[f->verdict], coloured ? "\033[0m" : "",
           f->runner_id != NULL ? "runner " : "", f->runner_id != NULL ? f->runner_id : "", f->runner_id != NULL ? ": " : "", printable);
    free(printable);
    if (f->remedy != NULL) {
      char *shown = qv_text_printable_line(f->remedy, strlen(f->remedy));
      printf("%-18s %s> %s%s\n", "", coloured ? "\033[1m" : "", shown, coloured ? "\033[0m" : "");
      free(shown);
    }
  }
  printf("%u ok, %u warnings, %u failures\n", counts[QV_DOCTOR_OK], counts[QV_DOCTOR_WARN], counts[QV_DOCTOR_FAIL]);
}

static json_t *text_or_null(const char *text)
{
  return text != NULL ? json_string(text) : json_null();
}

static void print_json(const GPtrArray *findings, const QvConfig *config, int status)
{
  json_t *list = json_array();
  for (guint i = 0; i < findings->len; i++) {
    const QvFinding *f = findings->pdata[i];
    json_array_append_new(list, json_pack("{s:s,s:s,s:o,s:s,s:o}", "code", f->code, "verdict", verdicts[f->verdict], "runnerId",
                                          text_or_null(f->runner_id), "found", f->found, "remedy", text_or_null(f->remedy)));
  }
  json_t *root = json_pack("{s:i,s:s,s:s,s:s,s:I,s:i,s:o}", "v", 1, "version", QV_VERSION, "pool", config->pool, "verdict",
                           verdicts[qv_findings_worst(findings)], "at", (json_int_t)qv_clock_unix_ms(), "exit", status, "findings", list);
  char *text = json_dumps(root, JSON_INDENT(2));
  puts(text);
  free(text);
  json_decref(root);
}

/* ── The checks ── */

static const char *platform(void)
{
#if defined(__aarch64__)
  return "linux/arm64";
#else
  return "linux/amd64";
#endif
}

static char *own_host_id(void)
{
  gsize n;
  char hex[65];
  g_autofree char *boot_id = qv_fd_read_file("/proc/sys/kernel/random/boot_id", 128, &n, NULL);
  if (boot_id == NULL)
    return NULL;
  qv_host_id_format(g_strchomp(boot_id), hex);
  return g_strdup(hex);
}

static gint64 check_runners(GPtrArray *findings, QuavonClient *client)
{
  g_autoptr(QvSessionScope) scope G_GNUC_UNUSED = qv_session_enter(client);
  g_autoptr(GError) error = NULL;
  g_autoptr(GPtrArray) seen = qv_session_runners(client, &error);
  gint64 running_max = 0;
  if (seen == NULL) {
    qv_finding_add(findings, "QD952", QV_DOCTOR_FAIL, NULL, "%s", error->message);
    qv_finding_remedy(findings, "our user needs the health records: load deploy/valkey/users.acl");
    return 0;
  }
  g_autofree char *host_id = own_host_id(), *lock_file = qv_config_images_file(client->config);
  gsize n = 0;
  g_autoptr(GError) lock_error = NULL;
  g_autofree char *lock_text = qv_fd_read_file(lock_file, QV_IMAGES_LOCK_BYTES_MAX, &n, &lock_error);
  g_autoptr(QvImagesLock) lock = lock_text != NULL ? qv_images_lock_parse(lock_text, n, &lock_error) : NULL;
  if (lock == NULL && g_file_test(lock_file, G_FILE_TEST_EXISTS)) {
    qv_finding_add(findings, "QD956", QV_DOCTOR_FAIL, NULL, "the images lock cannot be used: %s", lock_error->message);
    qv_finding_remedy(findings, "quavon images verify");
  }
  QvDoctorWorld world = { .pool = client->config->pool, .host_id = host_id, .lock = lock, .platform = platform(),
                          .enterprise = strcmp(client->config->edition, "enterprise") == 0,
                          .development = strcmp(client->config->environment, "development") == 0, .now_ms = qv_clock_unix_ms() };
  qv_doctor_runners(findings, seen, &world);
  for (guint i = 0; i < seen->len; i++) {
    const QvHealth *health = ((const QvRunnerSeen *)seen->pdata[i])->health;
    running_max += health != NULL ? health->concurrency : 0;
  }
  return running_max;
}

static gboolean examine(GPtrArray *findings, const QvConfig *config, gboolean smoke, gboolean quiet)
{
  gboolean finished = TRUE;
  QuavonClient *client = qv_doctor_open(findings, config);
  if (client != NULL) {
    qv_doctor_worker(findings, client);
    finished = !smoke || qv_doctor_smoke(client, findings, quiet);
    gint64 running_max = check_runners(findings, client);
    qv_doctor_valkey(findings, client, running_max);
    quavon_client_close(client);
  }
  qv_doctor_host(findings, config);
  return finished;
}

int qv_verb_doctor(int argc, char **argv)
{
  gboolean json = FALSE, smoke = FALSE;
  const GOptionEntry entries[] = {
    { "json", 0, 0, G_OPTION_ARG_NONE, &json, "Print JSON (docs/doctor.schema.json)", NULL },
    { "sandbox-smoke", 0, 0, G_OPTION_ARG_NONE, &smoke, "Have every runner run the escape smoke test first", NULL },
    { NULL },
  };
  int status = QV_CLI_OK;
  if (!qv_options_parse("doctor", entries, &argc, &argv, &status))
    return status == QV_CLI_OK ? QV_CLI_OK : EXIT_COULD_NOT_RUN;
  if (argc > 1) {
    qv_usage("doctor", "it takes options alone");
    return EXIT_COULD_NOT_RUN;
  }
  g_autoptr(QvConfig) config = qv_verb_config();
  if (config == NULL)
    return EXIT_COULD_NOT_RUN;
  qv_interrupt_watch();
  g_autoptr(GPtrArray) findings = qv_findings_new();
  gboolean finished = examine(findings, config, smoke, json);
  status = !finished ? EXIT_COULD_NOT_RUN : qv_findings_worst(findings) == QV_DOCTOR_FAIL ? EXIT_FAIL : QV_CLI_OK;
  if (json)
    print_json(findings, config, status);
  else
    print_text(findings);
  return status;
}
