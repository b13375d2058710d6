/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/progress.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/verb.h"

static volatile sig_atomic_t interrupts;

static void on_signal(int signal_number)
{
  if (interrupts++ > 0)
    _exit(QV_CLI_CANCELLED); /* what was started ends with this process */
}

void qv_interrupt_watch(void)
{
  static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
  for (guint i = 0; i < G_N_ELEMENTS(signals); i++) {
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    struct sigaction before;
    /* nohup: a signal that was ignored stays so. */
    if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
      sigaction(signals[i], &action, NULL);
  }
}

gboolean qv_interrupted(void)
{
  return interrupts > 0;
}

void qv_progress_init(QvProgress *progress, gboolean quiet, QvEmbedded *embedded)
{
  const char *term = g_getenv("TERM");
  *progress = (QvProgress){ .quiet = quiet, .embedded = embedded };
  progress->terminal = isatty(STDERR_FILENO) == 1 && term != NULL && strcmp(term, "dumb") != 0;
}

void qv_progress_end_line(QvProgress *progress)
{
  if (progress->line_open)
    fputs("\r\033[K", stderr);
  progress->line_open = FALSE;
}

static char *bytes_text(gint64 bytes)
{
  return qv_size_text((guint64)MAX(bytes, 0));
}

/* Without its time; numbers that move only where the line can be rewritten. */
static char *stage_text(const QuavonProgress *now, gboolean moving)
{
  switch (now->stage) {
  case QUAVON_STAGE_PACKING:
    return moving && now->total > 0
               ? g_strdup_printf("packing %" G_GINT64_FORMAT " of %" G_GINT64_FORMAT " files", now->done, now->total)
               : g_strdup("packing");
  case QUAVON_STAGE_PACKED: {
    g_autofree char *size = bytes_text(now->total);
    return g_strdup_printf("packed %" G_GINT64_FORMAT " file%s, %s%s%s", now->done, now->done == 1 ? "" : "s", size,
                           now->detail != NULL ? "; left out: " : "", now->detail != NULL ? now->detail : "");
  }
  case QUAVON_STAGE_SENDING:
    return moving && now->total > 0
               ? g_strdup_printf("sending %" G_GINT64_FORMAT " %%", now->done * 100 / now->total)
               : g_strdup("sending");
  case QUAVON_STAGE_WAITING:
    return g_strdup("waiting for a runner");
  case QUAVON_STAGE_PREPARING:
    return g_strdup("preparing the sandbox");
  case QUAVON_STAGE_SETUP:
    return g_strdup("setup");
  case QUAVON_STAGE_STEP:
    /* A single step has nothing to be told from. */
    return g_strdup_printf("step %" G_GINT64_FORMAT " of %" G_GINT64_FORMAT "%s%s", now->done, now->total,
                           now->total > 1 && now->detail != NULL ? ": " : "",
                           now->total > 1 && now->detail != NULL ? now->detail : "");
  case QUAVON_STAGE_FINISHING:
    return g_strdup("finishing");
  }
  return g_strdup("?");
}

static void show(QvProgress *progress, const QuavonProgress *now)
{
  /* What was left out is said for good, on a line of its own. */
  gboolean moving = progress->terminal && now->stage != QUAVON_STAGE_PACKED;
  gboolean news = !progress->any || progress->stage != now->stage ||
                  (now->stage == QUAVON_STAGE_STEP && progress->done != now->done);
  if ((!moving && !news) || (progress->busy != NULL && *progress->busy))
    return;
  g_autofree char *text = stage_text(now, moving);
  double seconds = (double)now->elapsed_ms / 1000;
  if (progress->terminal)
    qv_progress_end_line(progress);
  if (moving) {
    fprintf(stderr, "%s, %.1f s", text, seconds);
    progress->line_open = TRUE;
    fflush(stderr);
  } else {
    fprintf(stderr, "quavon: %s (%.1f s)\n", text, seconds);
  }
  progress->any = TRUE;
  progress->stage = now->stage;
  progress->done = now->done;
}

int qv_progress_show(const QuavonProgress *now, void *data)
{
  QvProgress *progress = data;
  if (!progress->quiet)
    show(progress, now);
  else if (now->stage == QUAVON_STAGE_PACKED && now->detail != NULL && !progress->any) {
    qv_complain("left out of the snapshot: %s", now->detail);
    progress->any = TRUE;
  }
  if (progress->embedded != NULL && qv_embedded_trouble(progress->embedded) != NULL)
    return QUAVON_ABANDON;
  return qv_interrupted() ? QUAVON_CANCEL : QUAVON_GO_ON;
}
