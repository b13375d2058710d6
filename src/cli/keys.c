/* SPDX-License-Identifier: Apache-2.0 */
/* quavon keys: a pool's key is replaced while jobs run.
 *
 *   prepare  KEY.next is made. Workers verify with it from then on; a runner that is reloaded signs its health with it.
 *   switch   waits until every runner does, then KEY.next becomes KEY and KEY becomes KEY.previous: workers sign with the new one.
 *   finish   when no job of the old key can be left, KEY.previous goes; a reload makes the runners forget it.
 *
 * At each moment whoever verifies has the key of whoever signs, so no job fails. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/error.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/run_options.h"
#include "cli/verb.h"
#include "client/health.h"
#include "client/key_file.h"

enum {
  PATIENCE_MS = 300000,
  LOOK_MS = 500,
  /* What a producer waits for a result beyond notAfter and wallMs (section 2.2), and the longest notAfter. */
  GIVE_UP_MS = 180000,
  ADMISSION_MS = 930000,
};

static int prepare(const QvConfig *config)
{
  g_autoptr(GError) error = NULL;
  gboolean made = FALSE;
  g_autoptr(QvKey) key = qv_key_rotate_prepare(config->signing_key_file, &made, &error);
  if (key == NULL) {
    qv_complain("%s", error->message);
    return QV_CLI_FAILED;
  }
  printf("%s\n", qv_key_id(key));
  fprintf(stderr, "quavon: %s%s %s. Now:\n"
                  "  1. copy it beside the key of every other worker and runner of the pool, same owner and mode\n"
                  "  2. reload each runner: systemctl reload quavon-sandbox-runner (or SIGHUP)\n"
                  "  3. quavon keys rotate switch\n",
          config->signing_key_file, QV_KEY_NEXT_SUFFIX, made ? "is made" : "was there already");
  return QV_CLI_OK;
}

/* Runners whose record is not signed with the key that comes, which is the only one of the client's ring here; in *NAMES. */
static guint behind(const GPtrArray *seen, char **names)
{
  g_autoptr(GString) text = g_string_new(NULL);
  guint n = 0;
  for (guint i = 0; i < seen->len; i++) {
    const QvRunnerSeen *runner = seen->pdata[i];
    if (runner->health != NULL)
      continue;
    n++;
    g_string_append_printf(text, "\n  runner %s: %s", runner->runner_id,
                           runner->error->code == QV_ERROR_AUTH ? "signs with another key: reload it" : runner->error->message);
  }
  *names = g_string_free(g_steal_pointer(&text), FALSE);
  return n;
}

/* TRUE: every runner that reports has the new key. */
static gboolean await_runners(QuavonClient *client, QvKey *next, gint64 patience_ms)
{
  g_autoptr(QvSessionScope) scope G_GNUC_UNUSED = qv_session_enter(client);
  qv_keyring_unref(client->ring);
  client->ring = qv_keyring_new(next);
  gint64 until_ms = qv_clock_mono_ms() + patience_ms;
  gboolean said = FALSE;
  for (;; g_usleep(LOOK_MS * 1000)) {
    g_autoptr(GError) error = NULL;
    g_autoptr(GPtrArray) seen = qv_session_runners(client, &error);
    g_autofree char *names = NULL;
    if (seen == NULL) {
      qv_complain("%s", error->message);
      return FALSE;
    }
    guint n = behind(seen, &names);
    if (n == 0 && seen->len > 0)
      return TRUE;
    gboolean over = qv_clock_mono_ms() >= until_ms || qv_interrupted();
    if (over || !said)
      qv_complain("%s%s", seen->len == 0 ? "no runner reports" : over ? "these runners do not have the new key; nothing was changed:"
                                                              : "waiting for", names);
    if (over)
      return FALSE;
    said = TRUE;
  }
}

static int switch_over(const QvConfig *config, gboolean now, gint64 patience_ms)
{
  g_autoptr(GError) error = NULL;
  g_autofree char *next = g_strconcat(config->signing_key_file, QV_KEY_NEXT_SUFFIX, NULL);
  g_autoptr(QvKey) key = qv_key_file_read(next, &error);
  if (key == NULL) {
    qv_complain("%s (quavon keys rotate prepare makes it)", error->message);
    return QV_CLI_FAILED;
  }
  if (!now) {
    QuavonError *cause = NULL;
    QuavonClient *client = quavon_client_open(NULL, &cause);
    if (client == NULL)
      return qv_fail(cause);
    gboolean ready = await_runners(client, key, patience_ms);
    quavon_client_close(client);
    if (!ready)
      return QV_CLI_NOT_YET;
  }
  if (!qv_key_rotate_switch(config->signing_key_file, &error)) {
    qv_complain("%s", error->message);
    return QV_CLI_FAILED;
  }
  printf("%s\n", qv_key_id(key));
  fprintf(stderr, "quavon: %s is the new key. Do the same with the files of every other worker and runner (quavon keys rotate switch "
                  "--now), then, when jobs of the old key are over: quavon keys rotate finish\n", config->signing_key_file);
  return QV_CLI_OK;
}

static int finish(const QvConfig *config, gboolean now)
{
  g_autoptr(GError) error = NULL;
  gint64 switched_at = qv_key_rotate_switched_at(config->signing_key_file);
  gint64 safe_at = switched_at + ADMISSION_MS + config->max_wall_ms + GIVE_UP_MS, left_ms = safe_at - qv_clock_unix_ms();
  if (switched_at < 0) {
    qv_complain("%s%s is not there: there is nothing to finish", config->signing_key_file, QV_KEY_PREVIOUS_SUFFIX);
    return QV_CLI_FAILED;
  }
  if (!now && left_ms > 0) {
    qv_complain("a job of the old key may still run: again in %" G_GINT64_FORMAT " min (or --now, and such jobs are refused)",
                left_ms / 60000 + 1);
    return QV_CLI_NOT_YET;
  }
  if (!qv_key_rotate_finish(config->signing_key_file, &error)) {
    qv_complain("%s", error->message);
    return QV_CLI_FAILED;
  }
  fprintf(stderr, "quavon: the old key is gone here. Do the same with the files of every other worker and runner, then reload the "
                  "runners: systemctl reload quavon-sandbox-runner (or SIGHUP)\n");
  return QV_CLI_OK;
}

int qv_verb_keys(int argc, char **argv)
{
  gboolean now = FALSE;
  g_autofree char *timeout = NULL;
  const GOptionEntry entries[] = {
    { "now", 0, 0, G_OPTION_ARG_NONE, &now, "Do not wait for runners, or for jobs of the old key", NULL },
    { "timeout", 0, 0, G_OPTION_ARG_FILENAME, &timeout, "How long `switch` waits for the runners (default: 5m)", "TIME" },
    { NULL },
  };
  const char *words[] = { argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "" };
  gboolean rotate = strcmp(words[0], "rotate") == 0;
  int status = QV_CLI_OK;
  if (rotate && argc > 2) { /* the two words come before the options */
    argv[2] = argv[0];
    argv += 2;
    argc -= 2;
  }
  if (!qv_options_parse("keys", entries, &argc, &argv, &status))
    return status;
  gint64 patience_ms = timeout != NULL ? qv_parse_duration_ms(timeout) : PATIENCE_MS;
  if (!rotate || argc > 1 || patience_ms < 0)
    return qv_usage("keys", "the form is: keys rotate prepare|switch|finish [--now] [--timeout=5m]");
  g_autoptr(QvConfig) config = qv_verb_config();
  if (config == NULL)
    return QV_CLI_CONFIG;
  if (config->signing_key_file == NULL) {
    qv_complain("QUAVON_SANDBOX_SIGNING_KEY_FILE is not set");
    return QV_CLI_CONFIG;
  }
  qv_interrupt_watch();
  if (strcmp(words[1], "prepare") == 0)
    return prepare(config);
  if (strcmp(words[1], "switch") == 0)
    return switch_over(config, now, patience_ms);
  if (strcmp(words[1], "finish") == 0)
    return finish(config, now);
  return qv_usage("keys", "rotate has the steps prepare, switch and finish, not `%s`", words[1]);
}
