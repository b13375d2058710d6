/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the findings on this host. What is not here (no Docker, no runsc, no runner) is said and is no fault: the runner may
 * be elsewhere. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/doctor.h"
#include "images/images.h"

enum {
  DISK_LEFT_MIB = 2048,
  PROC_BYTES_MAX = 1 << 20,
  ENGINE_S = 5,
  ENGINE_MIN = 24,
  KERNEL_MIN = 5 * 1000 + 10,
  RUNSC_TESTED = 20240729,
  RUNSC_NEWNET = 20241028,       /* the first release that starts such containers there */
  KERNEL_NEWNET = 6 * 1000 + 11, /* core network settings are seen in every namespace (gvisor#10704) */
};


#define DOCKER_SOCKET "/var/run/docker.sock"

static char *read_word(const char *path)
{
  gsize n;
  char *text = qv_fd_read_file(path, PROC_BYTES_MAX, &n, NULL);
  return text != NULL ? g_strchomp(text) : NULL;
}

/* 6018 for 6.18; 0 where it cannot be read. */
static int kernel_version(void)
{
  struct utsname name;
  int major = 0, minor = 0;
  if (uname(&name) != 0 || sscanf(name.release, "%d.%d", &major, &minor) != 2)
    return 0;
  return major * 1000 + minor;
}

static void check_kernel(GPtrArray *findings)
{
  struct utsname name;
  gboolean known = uname(&name) == 0;
  qv_finding_add(findings, "host-kernel", kernel_version() >= KERNEL_MIN ? QV_DOCTOR_OK : QV_DOCTOR_WARN, NULL, "%s %s, %s",
                 known ? name.sysname : "unknown", known ? name.release : "", known ? name.machine : "");
}

static void check_cgroup(GPtrArray *findings)
{
  static const char *const needed[] = { "cpu", "memory", "pids" };
  g_autofree char *unified = read_word("/sys/fs/cgroup/cgroup.controllers");
  g_auto(GStrv) controllers = g_strsplit(unified != NULL ? unified : "", " ", -1);
  g_autoptr(GString) missing = g_string_new(NULL);
  for (gsize i = 0; i < G_N_ELEMENTS(needed); i++) {
    g_autofree char *folder = g_build_filename("/sys/fs/cgroup", needed[i], NULL);
    gboolean there = unified != NULL ? g_strv_contains((const char *const *)controllers, needed[i])
                                     : g_file_test(folder, G_FILE_TEST_IS_DIR);
    if (!there)
      g_string_append_printf(missing, " %s", needed[i]);
  }
  qv_finding_add(findings, "host-cgroup", missing->len == 0 ? QV_DOCTOR_OK : QV_DOCTOR_WARN, NULL,
                 "control groups version %d%s%s", unified != NULL ? 2 : 1, missing->len > 0 ? ", without" : " with cpu, memory, pids",
                 missing->str);
}

/* 20240729 in "release-20240729.0" and in Debian's "0.0~20240729.0"; 0 where there is none. */
static gint64 release_date(const char *version)
{
  for (const char *at = strstr(version, "20"); at != NULL; at = strstr(at + 1, "20")) {
    if (strspn(at, "0123456789") == 8)
      return g_ascii_strtoll(at, NULL, 10);
  }
  return 0;
}

static void check_runsc(GPtrArray *findings, const QvConfig *config)
{
  g_autofree char *program = g_find_program_in_path(config->runsc);
  const char *argv[] = { program, "--version", NULL };
  g_autofree char *out = NULL, *err = NULL;
  int status = 0;
  if (program == NULL) {
    qv_finding_add(findings, "host-runsc", QV_DOCTOR_OK, NULL, "no runsc here: it is needed where a runner is");
    return;
  }
  if (!g_spawn_sync("/", (char **)argv, NULL, 0, NULL, NULL, &out, &err, &status, NULL) || !g_spawn_check_wait_status(status, NULL)) {
    qv_finding_add(findings, "host-runsc", QV_DOCTOR_FAIL, NULL, "%s --version fails", program);
    return;
  }
  out[strcspn(out, "\n")] = '\0';
  gint64 date = release_date(out);
  if (date > 0 && date < RUNSC_TESTED) {
    qv_finding_add(findings, "host-runsc", QV_DOCTOR_WARN, NULL, "%s: older than %d, the oldest release that is tested; a runner may not start with it",
                   out, RUNSC_TESTED);
    qv_finding_remedy(findings, "apt install -t bookworm-backports runsc, or a release of gVisor's own (docs/GVISOR.md); then restart the runner");
    return;
  }
  if (date > 0 && date < RUNSC_NEWNET && kernel_version() >= KERNEL_NEWNET) {
    qv_finding_add(findings, "host-runsc", QV_DOCTOR_WARN, NULL,
                   "%s: on this kernel it starts no container with a network of its own (jobs without egress, and the backend runsc, are not affected)",
                   out);
    return;
  }
  qv_finding_add(findings, "host-runsc", QV_DOCTOR_OK, NULL, "%s", out);
}

/* The engine's answer to GET /version; NULL where there is no engine, or it does not speak to us. */
static char *engine_version(const char *path)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  QV_AUTOFD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const struct timeval patience = { .tv_sec = ENGINE_S };
  static const char request[] = "GET /version HTTP/1.0\r\nHost: docker\r\n\r\n";
  gsize n;
  if (g_strlcpy(address.sun_path, path, sizeof address.sun_path) >= sizeof address.sun_path)
    return NULL;
  if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0 ||
      connect(fd, (const struct sockaddr *)&address, sizeof address) != 0 || !qv_io_write_full(fd, request, strlen(request)))
    return NULL;
  g_autofree char *answer = qv_fd_read_all(fd, path, PROC_BYTES_MAX, &n, NULL);
  const char *at = answer != NULL ? strstr(answer, "\"ApiVersion\"") : NULL;
  const char *version = answer != NULL ? strstr(answer, "\"Version\":\"") : NULL;
  if (at == NULL || version == NULL)
    return NULL;
  version += strlen("\"Version\":\"");
  return g_strndup(version, strcspn(version, "\""));
}

/* A runner here does not start without them. FALSE: something was found. */
static gboolean check_engine_images(GPtrArray *findings, const QvConfig *config, const char *path)
{
  g_autofree char *lock = qv_config_images_file(config);
  g_autoptr(GPtrArray) images = g_str_has_prefix(config->backend, "docker-") ? qv_images_list(lock, NULL) : NULL;
  for (guint i = 0; images != NULL && i < images->len; i++) {
    const QvStoredImage *image = images->pdata[i];
    g_autoptr(GError) error = NULL;
    gboolean there = FALSE;
    if (!image->fits || image->is_repository || (qv_images_is_loaded(path, image->digest, &there, &error) && there))
      continue;
    if (error != NULL)
      qv_finding_add(findings, "host-docker", QV_DOCTOR_FAIL, NULL, "image %s: %s", image->name, error->message);
    else
      qv_finding_add(findings, "host-docker", QV_DOCTOR_FAIL, NULL, "the engine does not have image %s, %.19s…", image->name, image->digest);
    qv_finding_remedy(findings, "quavon images load");
    return FALSE;
  }
  return TRUE;
}

static void check_docker(GPtrArray *findings, const QvConfig *config)
{
  const char *path = config->docker_socket != NULL ? config->docker_socket : DOCKER_SOCKET;
  if (!g_file_test(path, G_FILE_TEST_EXISTS)) {
    qv_finding_add(findings, "host-docker", QV_DOCTOR_OK, NULL, "no Docker engine here: the backends docker-* need one");
    return;
  }
  g_autofree char *version = engine_version(path);
  if (version == NULL) {
    qv_finding_add(findings, "host-docker", QV_DOCTOR_WARN, NULL, "%s does not answer", path);
    qv_finding_remedy(findings, "systemctl status docker; run doctor as root or as a member of the socket's group");
    return;
  }
  gboolean new = g_ascii_strtoll(version, NULL, 10) >= ENGINE_MIN;
  if (!new || check_engine_images(findings, config, path))
    qv_finding_add(findings, "host-docker", new ? QV_DOCTOR_OK : QV_DOCTOR_FAIL, NULL, "Docker Engine %s", version);
}

static void check_kvm(GPtrArray *findings, const QvConfig *config)
{
  g_autofree char *smt = read_word("/sys/devices/system/cpu/smt/control");
  gboolean kvm = access("/dev/kvm", R_OK | W_OK) == 0, smt_on = g_strcmp0(smt, "on") == 0;
  gboolean wanted = strcmp(config->backend, "firecracker") == 0;
  qv_finding_add(findings, "host-kvm", wanted && (!kvm || smt_on) ? QV_DOCTOR_WARN : QV_DOCTOR_OK, NULL,
                 "/dev/kvm %s, SMT %s%s", kvm ? "usable" : "not usable", smt != NULL ? smt : "unknown",
                 wanted ? "" : " (for the backend firecracker alone)");
}

static void check_disk(GPtrArray *findings, const QvConfig *config)
{
  struct statvfs st;
  g_autofree char *lock = qv_config_images_file(config), *folder = g_path_get_dirname(lock);
  if (statvfs(folder, &st) != 0) {
    qv_finding_add(findings, "host-disk", QV_DOCTOR_OK, NULL, "no images here (%s: %s)", folder, g_strerror(errno));
    return;
  }
  guint64 left_mib = (guint64)st.f_bavail * (st.f_frsize / 1024) / 1024;
  qv_finding_add(findings, "host-disk", left_mib >= DISK_LEFT_MIB ? QV_DOCTOR_OK : QV_DOCTOR_WARN, NULL,
                 "%" G_GUINT64_FORMAT " MiB left for %s", left_mib, folder);
}

/* ── Secrets ── */

static gboolean check_mode(GPtrArray *findings, const char *path)
{
  struct stat st;
  if (path == NULL || stat(path, &st) != 0)
    return TRUE;
  if (S_ISREG(st.st_mode) && (st.st_mode & 0027) == 0)
    return TRUE;
  qv_finding_add(findings, "host-secrets", QV_DOCTOR_FAIL, NULL, "%s has mode %04o", path, (unsigned)st.st_mode & 07777);
  qv_finding_remedy(findings, "chmod 600 %s", path);
  return FALSE;
}

static void check_secrets(GPtrArray *findings, const QvConfig *config)
{
  gboolean fine = check_mode(findings, config->valkey_key_file);
  QvConfigRow row;
  for (guint i = 0; qv_config_row(i, &row); i++) {
    g_autofree char *name = g_strconcat(row.name, "_FILE", NULL);
    fine = (!row.secret || check_mode(findings, g_getenv(name))) && fine;
  }
  if (config->signing_key_file != NULL) {
    g_autofree char *next = g_strconcat(config->signing_key_file, QV_KEY_NEXT_SUFFIX, NULL);
    g_autofree char *previous = g_strconcat(config->signing_key_file, QV_KEY_PREVIOUS_SUFFIX, NULL);
    g_autofree char *folder = g_path_get_dirname(config->signing_key_file);
    struct stat st;
    fine = check_mode(findings, config->signing_key_file) && check_mode(findings, next) && check_mode(findings, previous) && fine;
    if (stat(folder, &st) == 0 && (st.st_mode & 0022) != 0 && (st.st_mode & S_ISVTX) == 0) {
      qv_finding_add(findings, "host-secrets", QV_DOCTOR_FAIL, NULL, "others may put their own key into %s", folder);
      qv_finding_remedy(findings, "chmod go-w %s", folder);
      fine = FALSE;
    }
  }
  if (fine)
    qv_finding_add(findings, "host-secrets", QV_DOCTOR_OK, NULL, "key and URL files are for their owner alone");
}

gboolean qv_doctor_is_secret_name(const char *name)
{
  static const char *const parts[] = { "ENCRYPTION_KEY", "API_KEY", "SECRET", "PRIVATE_KEY" };
  static const char *const ends[] = { "_TOKEN", "_PASSWORD", "_PAT" };
  for (gsize i = 0; i < G_N_ELEMENTS(parts); i++) {
    if (strstr(name, parts[i]) != NULL)
      return TRUE;
  }
  for (gsize i = 0; i < G_N_ELEMENTS(ends); i++) {
    if (g_str_has_suffix(name, ends[i]))
      return TRUE;
  }
  return FALSE;
}

/* In a pid namespace below ours: its line has a number for each. */
static gboolean is_in_container(const char *pid)
{
  g_autofree char *path = g_build_filename("/proc", pid, "status", NULL);
  gsize n;
  g_autofree char *text = qv_fd_read_file(path, PROC_BYTES_MAX, &n, NULL);
  const char *line = text != NULL ? strstr(text, "\nNSpid:") : NULL;
  if (line == NULL)
    return FALSE;
  g_autofree char *numbers = g_strndup(line + strlen("\nNSpid:\t"), strcspn(line + strlen("\nNSpid:\t"), "\n"));
  return strchr(numbers, '\t') != NULL;
}

/* Names only; values stay where they are. TRUE: looked at. */
static gboolean check_runner_environment(GPtrArray *findings, const char *pid, gboolean *fine)
{
  g_autofree char *path = g_build_filename("/proc", pid, "environ", NULL);
  gsize n;
  g_autofree char *text = qv_fd_read_file(path, PROC_BYTES_MAX, &n, NULL);
  if (text == NULL)
    return FALSE;
  for (gsize i = 0; i < n; i += strlen(text + i) + 1) {
    g_autofree char *name = g_strndup(text + i, strcspn(text + i, "="));
    if (!qv_doctor_is_secret_name(name))
      continue;
    *fine = FALSE;
    qv_finding_add(findings, "host-environment", QV_DOCTOR_FAIL, NULL, "%s is in the environment of the runner with pid %s", name, pid);
    if (is_in_container(pid))
      qv_finding_remedy(findings, "take %s out of compose.override.yaml or .env beside compose.yaml, then there: docker compose up -d", name);
    else
      qv_finding_remedy(findings, "systemctl edit quavon-sandbox-runner: UnsetEnvironment=%s; then restart it", name);
  }
  explicit_bzero(text, n);
  return TRUE;
}

static void check_environment(GPtrArray *findings)
{
  g_autoptr(GDir) dir = g_dir_open("/proc", 0, NULL);
  guint looked = 0, hidden = 0;
  gboolean fine = TRUE;
  for (const char *pid; dir != NULL && (pid = g_dir_read_name(dir)) != NULL;) {
    g_autofree char *path = g_build_filename("/proc", pid, "comm", NULL);
    g_autofree char *comm = g_ascii_isdigit(*pid) ? read_word(path) : NULL;
    if (comm == NULL || strcmp(comm, "quavon-sandbox-") != 0) /* the kernel's 15 letters of a runner's or proxy's name */
      continue;
    if (check_runner_environment(findings, pid, &fine))
      looked++;
    else
      hidden++;
  }
  if (!fine)
    return;
  if (hidden > 0) {
    qv_finding_add(findings, "host-environment", QV_DOCTOR_WARN, NULL, "%u runners of this host do not let us look", hidden);
    qv_finding_remedy(findings, "sudo -E quavon doctor");
  } else {
    qv_finding_add(findings, "host-environment", QV_DOCTOR_OK, NULL, "%u runners and proxies here, no secret of others in their environment",
                   looked);
  }
}

void qv_doctor_host(GPtrArray *findings, const QvConfig *config)
{
  check_kernel(findings);
  check_cgroup(findings);
  check_runsc(findings, config);
  check_docker(findings, config);
  check_kvm(findings, config);
  check_disk(findings, config);
  check_secrets(findings, config);
  check_environment(findings);
}
