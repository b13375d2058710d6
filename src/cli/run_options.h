/* SPDX-License-Identifier: Apache-2.0 */
/* What `quavon run` was asked for, as a value. */
#pragma once

#include <glib.h>

typedef struct {
  char *repo, *rev, *image, *setup, *output, *tenant;
  char **artefacts, **env, **egress; /* NULL: none; egress: name:port, lower-case */
  gboolean all, detach, json, raw, force, quiet, live, no_live;
  gint64 timeout_ms, memory_mib, milli_cpus; /* 0: not said */
  char **command; /* at least one word */
} QvRunOptions;

void qv_run_options_clear(QvRunOptions *options);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(QvRunOptions, qv_run_options_clear)

/* argv[0] is the verb. FALSE: *status is the exit status, what was wrong has been said. */
gboolean qv_run_options_parse(int argc, char **argv, QvRunOptions *options, int *status);

/* "90", "90s", "10m", "1h", "500ms": ms from 1 to 86 400 000; -1 for anything else. */
gint64 qv_parse_duration_ms(const char *text);
/* "512", "512M", "2G" (MiB, GiB): MiB from 1 to 1 048 576; -1. */
gint64 qv_parse_mib(const char *text);
/* "2", "1.5", "0.25": thousandths of a core from 1 to 1 024 000; -1. */
gint64 qv_parse_milli_cpus(const char *text);
