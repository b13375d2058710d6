/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the files of remembered passes: <folder>/<identity>, "<at> <probes>" and a line feed. */
#include "runner/smoke_memory.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "base/error.h"
#include "base/fd.h"
#include "protocol/crypto.h"
#include "runner/state_dir.h"

enum { FILE_BYTES_MAX = 64, AHEAD_MS_MAX = 1000 };

static void add(GString *text, const char *name, const char *value)
{
  g_string_append_printf(text, "%s=%zu:%s\n", name, value != NULL ? strlen(value) : 0, value != NULL ? value : "");
}

/* Who writes to a file changes its ctime. */
static gboolean add_file(GString *text, const char *name, const char *path)
{
  struct stat st;
  if (path == NULL || stat(path, &st) != 0)
    return FALSE;
  g_string_append_printf(text, "%s=%ju:%ju:%jd:%jd.%09ld:%jd.%09ld\n", name, (uintmax_t)st.st_dev, (uintmax_t)st.st_ino,
                         (intmax_t)st.st_size, (intmax_t)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
                         (intmax_t)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
  return TRUE;
}

char *qv_smoke_identity(const QvPlace *place, const QvBackendFacts *facts, const QvImage *image)
{
  g_autoptr(GString) text = g_string_new("quavon/smoke-memory/v1\n");
  struct utsname kernel;
  gsize n;
  g_autofree char *boot_id = qv_fd_read_file("/proc/sys/kernel/random/boot_id", FILE_BYTES_MAX, &n, NULL);
  g_autofree char *runsc = place->runsc != NULL ? g_find_program_in_path(place->runsc) : NULL;
  if (strcmp(place->backend, "runsc") != 0 || facts == NULL || boot_id == NULL || uname(&kernel) != 0 ||
      !add_file(text, "runner", "/proc/self/exe") || !add_file(text, "runtime", runsc))
    return NULL;
  add(text, "boot", g_strchomp(boot_id));
  add(text, "kernel", kernel.release);
  add(text, "version", facts->runtime_version);
  add(text, "platform", facts->platform);
  add(text, "cgroup", facts->cgroup);
  add(text, "digest", image->digest);
  add(text, "rootfs", image->rootfs_sha256);
  char hex[65];
  g_autoptr(QvDigest) digest = qv_digest_new_sha256();
  qv_digest_update(digest, text->str, text->len);
  qv_digest_final_hex(digest, hex);
  return g_strdup(hex);
}

QvSmokeReport *qv_smoke_memory_find(const char *folder, const char *identity, gint64 now_ms, gint64 max_age_ms)
{
  g_autofree char *path = g_build_filename(folder, identity, NULL);
  gsize n;
  gint64 at, probes;
  if (!qv_state_dir_private(folder, NULL))
    return NULL;
  g_autofree char *text = qv_fd_read_file(path, FILE_BYTES_MAX, &n, NULL);
  if (text == NULL || sscanf(text, "%" G_GINT64_FORMAT " %" G_GINT64_FORMAT, &at, &probes) != 2 || probes < 1 ||
      at > now_ms + AHEAD_MS_MAX || now_ms - at >= max_age_ms)
    return NULL;
  QvSmokeReport *report = g_new0(QvSmokeReport, 1);
  *report = (QvSmokeReport){.at = at, .passed = TRUE, .probes = probes, .failed = g_new0(char *, 1)};
  return report;
}

gboolean qv_smoke_memory_put(const char *folder, const char *identity, const QvSmokeReport *report, GError **error)
{
  if (g_mkdir_with_parents(folder, 0700) != 0)
    return qv_error_set_errno(error, errno, "%s", folder);
  if (!qv_state_dir_private(folder, error))
    return FALSE;
  g_autofree char *path = g_build_filename(folder, identity, NULL);
  g_autofree char *text = g_strdup_printf("%" G_GINT64_FORMAT " %" G_GINT64_FORMAT "\n", report->at, report->probes);
  return qv_fd_write_file(path, text, strlen(text), 0600, error);
}
