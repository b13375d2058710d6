/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/watch.h"

#include <unistd.h>

static void make_room(gpointer progress)
{
  qv_progress_end_line(progress);
}

QuavonResult *qv_watch(QuavonClient *client, const char *job_id, const QvWatchOptions *options, QvProgress *progress,
                       QvLiveView *view, QuavonError **error)
{
  gboolean people = !options->quiet && !options->json && isatty(STDOUT_FILENO) == 1;
  qv_live_view_init(view, options->json ? stderr : stdout, options->live || (people && !options->no_live), options->raw);
  view->before = make_room;
  view->user = progress;
  progress->busy = &view->line_open;
  quavon_client_follow_logs(client, qv_live_view_add, view);
  QuavonResult *result = quavon_wait(client, job_id, qv_progress_show, progress, error);
  quavon_client_follow_logs(client, NULL, NULL);
  progress->busy = NULL;
  qv_progress_end_line(progress);
  qv_live_view_end(view);
  if (result == NULL)
    qv_live_view_break(view);
  return result;
}
