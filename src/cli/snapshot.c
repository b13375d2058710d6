/* SPDX-License-Identifier: Apache-2.0 */
/* quavon snapshot */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "cli/verb.h"
#include "client/snapshot.h"

enum { COPY_BYTES = 256 * 1024, THREADS_MAX = 64 };

static gboolean copy_gzip(const QvSnapshot *snapshot, const char *path, GError **error)
{
  QV_AUTOFD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
  if (fd < 0)
    return qv_error_set_errno(error, errno, "%s", path);
  g_autofree guint8 *buffer = g_malloc(COPY_BYTES);
  for (;;) {
    ssize_t n = qv_io_read_full(snapshot->fd, buffer, COPY_BYTES);
    if (n < 0)
      return qv_error_set_errno(error, errno, "the snapshot's temporary file");
    if (n == 0)
      return TRUE;
    if (!qv_fd_write_all(fd, path, buffer, (gsize)n, error))
      return FALSE;
  }
}

static int status_of(const GError *error)
{
  switch ((QvError)error->code) {
  case QV_ERROR_NOT_FOUND:
    return QV_CLI_NO_INPUT;
  case QV_ERROR_FORMAT:
  case QV_ERROR_LIMIT:
    return QV_CLI_DATA;
  default:
    return QV_CLI_FAILED;
  }
}

static void print(const QvSnapshot *snapshot, gboolean json)
{
  g_autofree char *left_out = qv_left_out_describe(&snapshot->left_out);
  const QvLeftOut *left = &snapshot->left_out;
  if (json) {
    printf("{\"files\":%" G_GUINT64_FORMAT ",\"tarBytes\":%" G_GUINT64_FORMAT ",\"gzipBytes\":%" G_GUINT64_FORMAT
           ",\"tarSha256\":\"%s\",\"gzipSha256\":\"%s\",\"leftOut\":{\"git\":%" G_GUINT64_FORMAT
           ",\"links\":%" G_GUINT64_FORMAT ",\"devices\":%" G_GUINT64_FORMAT ",\"sockets\":%" G_GUINT64_FORMAT
           ",\"fifos\":%" G_GUINT64_FORMAT ",\"submodules\":%" G_GUINT64_FORMAT ",\"ignored\":%" G_GUINT64_FORMAT "}}\n",
           snapshot->files_n, snapshot->tar_bytes, snapshot->gzip_bytes, snapshot->tree_sha256, snapshot->sha256,
           left->git, left->links, left->devices, left->sockets, left->fifos, left->submodules, left->ignored);
    return;
  }
  printf("files     %" G_GUINT64_FORMAT "\n", snapshot->files_n);
  printf("tar       %s  %" G_GUINT64_FORMAT " bytes\n", snapshot->tree_sha256, snapshot->tar_bytes);
  printf("gzip      %s  %" G_GUINT64_FORMAT " bytes\n", snapshot->sha256, snapshot->gzip_bytes);
  printf("left out  %s\n", left_out != NULL ? left_out : "nothing");
}

int qv_verb_snapshot(int argc, char **argv)
{
  QvSnapshotOptions options = { 0 };
  gint threads = 0;
  gboolean json = FALSE;
  g_autofree char *output = NULL;
  g_autofree char *rev = NULL;
  int status = QV_CLI_OK;
  const GOptionEntry entries[] = {
    { "rev", 0, 0, G_OPTION_ARG_FILENAME, &rev, "The files of this commit", "REV" },
    { "all", 0, 0, G_OPTION_ARG_NONE, &options.all, "All files, also those that git ignores", NULL },
    { "threads", 0, 0, G_OPTION_ARG_INT, &threads, "Threads that compress (default: one a core)", "N" },
    { "output", 0, 0, G_OPTION_ARG_FILENAME, &output, "Write the gzip here", "FILE" },
    { "json", 0, 0, G_OPTION_ARG_NONE, &json, "Print one JSON object", NULL },
    { NULL },
  };
  if (!qv_options_parse("snapshot", entries, &argc, &argv, &status))
    return status;
  if (argc != 2)
    return qv_usage("snapshot", "one folder is wanted");
  options.rev = rev;
  if (options.all && options.rev != NULL)
    return qv_usage("snapshot", "--all is about a folder, --rev about a commit: not both");
  if (threads < 0 || threads > THREADS_MAX)
    return qv_usage("snapshot", "--threads: 0 to %d", THREADS_MAX);
  options.dir = argv[1];
  options.threads_n = (guint)threads;
  g_autoptr(GError) error = NULL;
  g_autoptr(QvSnapshot) snapshot = qv_snapshot_build(&options, NULL, NULL, NULL, &error);
  if (snapshot == NULL || (output != NULL && !copy_gzip(snapshot, output, &error))) {
    qv_complain("%s", error->message);
    return status_of(error);
  }
  print(snapshot, json);
  return QV_CLI_OK;
}
