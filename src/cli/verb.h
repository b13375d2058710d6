/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs of quavon, one file each, and its exit statuses. */
#pragma once

#include <glib.h>

#include "base/config.h"

typedef enum {
  QV_CLI_OK = 0,
  QV_CLI_FAILED = 1,       /* of verbs that run no command: verify found a fault */
  QV_CLI_USAGE = 64,       /* EX_USAGE */
  QV_CLI_DATA = 65,        /* EX_DATAERR: a tree that cannot be packed */
  QV_CLI_NO_INPUT = 66,    /* EX_NOINPUT: no such folder, revision, job */
  QV_CLI_UNAVAILABLE = 69, /* EX_UNAVAILABLE: Valkey, the queue */
  QV_CLI_NOT_YET = 75,     /* EX_TEMPFAIL: `quavon result` of a job that has not ended */
  QV_CLI_NO_PERMISSION = 77,
  QV_CLI_CONFIG = 78,
  QV_CLI_TIMED_OUT = 124,
  QV_CLI_SANDBOX = 125,    /* no command's status: the sandbox or we failed */
  QV_CLI_CANCELLED = 130,
  QV_CLI_MEMORY = 137,
} QvCliStatus;

typedef struct {
  const char *name;
  const char *synopsis; /* behind "quavon " */
  const char *summary;
  int (*run)(int argc, char **argv); /* argv[0] is the verb */
} QvVerb;

/* Ends with a name that is NULL. */
extern const QvVerb qv_verbs[];

/* The program. */
int qv_main(int argc, char **argv);

int qv_verb_run(int argc, char **argv);
int qv_verb_wait(int argc, char **argv);
int qv_verb_result(int argc, char **argv);
int qv_verb_logs(int argc, char **argv);
int qv_verb_ps(int argc, char **argv);
int qv_verb_runners(int argc, char **argv);
int qv_verb_top(int argc, char **argv);
int qv_verb_pool(int argc, char **argv);
int qv_verb_cancel(int argc, char **argv);
int qv_verb_keys(int argc, char **argv);
int qv_verb_keygen(int argc, char **argv);
int qv_verb_snapshot(int argc, char **argv);
int qv_verb_images(int argc, char **argv);
int qv_verb_doctor(int argc, char **argv);
int qv_verb_help(int argc, char **argv);
int qv_verb_version(int argc, char **argv);
/* Not in the table: the process that owns what `quavon run` starts (keeper.h). */
int qv_verb_keeper(int argc, char **argv);

/* "quavon: <text>" on stderr. */
void qv_complain(const char *format, ...) G_GNUC_PRINTF(1, 2);

/* What the environment configures; NULL, and said why, where it cannot be. */
QvConfig *qv_verb_config(void);

/* "12.9 MiB". (GLib's own has a space that not every locale can print.) */
char *qv_size_text(guint64 bytes);

/* Says it with the verb's synopsis behind, and gives QV_CLI_USAGE. */
int qv_usage(const char *verb, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* Parses a verb's options (GOption; the first word that is none ends them, so does "--"), which `argv`
 * loses. FALSE: *status is what to return. */
gboolean qv_options_parse(const char *verb, const GOptionEntry *entries, int *argc, char ***argv, int *status);
