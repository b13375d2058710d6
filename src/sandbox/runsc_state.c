/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the bundle and knows the names of runsc's own files. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "sandbox/run_folder.h"
#include "sandbox/runsc_private.h"

/* The state holds the whole configuration once more. */
#define STATE_BYTES_MAX (4 * 1024 * 1024)

static char *run_path(QvRunscBackend *runsc, const char *id, const char *name)
{
  return g_build_filename(runsc->runs_dir, id, name, NULL);
}

char *qv_runsc_bundle(QvRunscBackend *runsc, const char *id)
{
  return run_path(runsc, id, "bundle");
}

static gboolean write_bundle(QvRunscBackend *runsc, const char *id, const char *config, GError **error)
{
  g_autofree char *bundle = qv_runsc_bundle(runsc, id);
  g_autofree char *rootfs = g_build_filename(bundle, "rootfs", NULL);
  g_autofree char *file = g_build_filename(bundle, "config.json", NULL);
  if (mkdir(bundle, 0700) != 0 || mkdir(rootfs, 0755) != 0)
    return qv_error_set_errno(error, errno, "run folder: making %s", rootfs);
  QV_AUTOFD int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0)
    return qv_error_set_errno(error, errno, "run folder: making %s", file);
  return qv_fd_write_all(fd, file, config, strlen(config), error);
}

int qv_runsc_make_run(QvRunscBackend *runsc, const char *id, const char *config, GError **error)
{
  QV_AUTOFD int fd = qv_run_folder_make(runsc->runs_dir, id, error);
  if (fd < 0 || write_bundle(runsc, id, config, error))
    return qv_io_steal(&fd);
  qv_run_folder_remove(runsc->runs_dir, id, NULL);
  return -1;
}

static char *state_path(QvRunscBackend *runsc, const char *id, const char *suffix)
{
  g_autofree char *name = g_strdup_printf("%s_sandbox:%s.%s", id, id, suffix);
  return g_build_filename(runsc->runsc_root, name, NULL);
}

gboolean qv_runsc_remove_state(QvRunscBackend *runsc, const char *id, GError **error)
{
  g_autofree char *socket_name = g_strdup_printf("runsc-%s.sock", id);
  char *paths[] = {state_path(runsc, id, "state"), state_path(runsc, id, "lock"),
                   g_build_filename(runsc->runsc_root, socket_name, NULL)};
  gboolean ok = TRUE;
  for (gsize i = 0; i < G_N_ELEMENTS(paths); i++) {
    if (unlink(paths[i]) != 0 && errno != ENOENT && ok)
      ok = qv_error_set_errno(error, errno, "runsc: removing %s", paths[i]);
    g_free(paths[i]);
  }
  return ok;
}

gboolean qv_runsc_state_parse(const char *text, gsize n, gint *pid)
{
  json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
  const char *status = json_string_value(json_object_get(root, "status"));
  json_t *number = json_object_get(json_object_get(root, "sandbox"), "pid");
  json_int_t value = json_integer_value(number);
  gboolean running = status != NULL && strcmp(status, "running") == 0 && value > 1 && value <= G_MAXINT;
  if (running)
    *pid = (gint)value;
  json_decref(root);
  return running;
}

gboolean qv_runsc_is_running(QvRunscBackend *runsc, const char *id, gint *pid)
{
  g_autofree char *path = state_path(runsc, id, "state");
  gsize n;
  /* Absent or half written: not yet. */
  g_autofree char *text = qv_fd_read_file(path, STATE_BYTES_MAX, &n, NULL);
  return text != NULL && qv_runsc_state_parse(text, n, pid);
}
