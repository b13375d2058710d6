/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the probes of files, devices, descriptors and the environment. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "probes/answer.h"
#include "sandbox/probe_text.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* NONE, or the first of PATHS that exists. */
static void answer_first_of(const char *const *paths, size_t n)
{
  struct stat st;
  for (size_t i = 0; i < n; i++) {
    if (lstat(paths[i], &st) == 0) {
      qv_answer(paths[i]);
      return;
    }
  }
  qv_answer("NONE");
}

/* NONE, or the first of PATHS that can be opened with FLAGS. */
static void answer_opened_of(const char *const *paths, size_t n, int flags)
{
  for (size_t i = 0; i < n; i++) {
    if (open(paths[i], flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) >= 0) {
      qv_answer(paths[i]);
      return;
    }
  }
  qv_answer("NONE");
}

void qv_probe_engine_sockets(void)
{
  static const char *const paths[] = {
    "/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock",
    "/run/crio/crio.sock", "/run/podman/podman.sock", "/run/docker/plugins", "/var/run/cri-dockerd.sock"};
  answer_first_of(paths, COUNT(paths));
}

void qv_probe_system_sockets(void)
{
  static const char *const paths[] = {"/run/systemd/private", "/run/dbus/system_bus_socket", "/run/udev/control",
                                      "/run/valkey/valkey-server.sock", "/run/valkey/valkey.sock",
                                      "/run/redis/redis-server.sock", "/tmp/.X11-unix", "/run/lvm/lvmpolld.socket"};
  answer_first_of(paths, COUNT(paths));
}

void qv_probe_secrets(void)
{
  static const char *const paths[] = {"/run/secrets", "/var/run/secrets/kubernetes.io/serviceaccount", "/run/quavon",
                                      "/etc/quavon", "/var/lib/quavon", "/root/.docker/config.json"};
  answer_first_of(paths, COUNT(paths));
}

void qv_probe_kernel_memory(void)
{
  static const char *const paths[] = {"/proc/kcore", "/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg"};
  answer_opened_of(paths, COUNT(paths), O_RDONLY);
}

void qv_probe_kernel_knobs(void)
{
  static const char *const paths[] = {
    "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname",
    "/proc/sys/vm/drop_caches", "/proc/irq/default_smp_affinity", "/proc/sys/fs/binfmt_misc/register",
    "/sys/kernel/uevent_helper", "/sys/fs/cgroup/release_agent", "/sys/fs/cgroup/cgroup.procs",
    "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/kernel/mm/ksm/run"};
  answer_opened_of(paths, COUNT(paths), O_WRONLY);
}

void qv_probe_virtual_machines(void)
{
  static const char *const paths[] = {"/dev/kvm", "/dev/vsock", "/dev/vhost-net", "/dev/vhost-vsock", "/dev/vfio/vfio"};
  answer_first_of(paths, COUNT(paths));
}

void qv_probe_firmware(void)
{
  static const char *const paths[] = {"/sys/class/dmi/id/product_uuid", "/sys/class/dmi/id/product_serial",
                                      "/sys/firmware/dmi/tables/DMI", "/sys/firmware/acpi/tables",
                                      "/sys/firmware/efi/efivars"};
  answer_opened_of(paths, COUNT(paths), O_RDONLY);
}

void qv_probe_kernel_debug(void)
{
  static const char *const paths[] = {"/sys/kernel/debug", "/sys/kernel/tracing", "/sys/fs/bpf", "/lib/modules"};
  for (size_t i = 0; i < COUNT(paths); i++) {
    DIR *folder = opendir(paths[i]);
    struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
      if (entry->d_name[0] != '.') {
        qv_answer(paths[i]);
        return;
      }
    }
  }
  qv_answer("NONE");
}

/* Every node below /dev but those that every container has. */
void qv_probe_devices(void)
{
  static const char *const safe[] = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "fuse", "tun"};
  static const char *const folders[] = {"/dev", "/dev/net", "/dev/mapper", "/dev/shm", "/dev/pts"};
  for (size_t k = 0; k < COUNT(folders); k++) {
    DIR *folder = opendir(folders[k]);
    struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
      char path[512];
      struct stat st;
      size_t i = 0;
      snprintf(path, sizeof path, "%s/%s", folders[k], entry->d_name);
      if (lstat(path, &st) != 0 || !(S_ISBLK(st.st_mode) || S_ISCHR(st.st_mode)))
        continue;
      while (i < COUNT(safe) && strcmp(entry->d_name, safe[i]) != 0)
        i++;
      if (i == COUNT(safe) || S_ISBLK(st.st_mode)) {
        qv_answer(path);
        return;
      }
    }
    if (folder != NULL)
      closedir(folder);
  }
  qv_answer("NONE");
}

static void answer_first_line(int fd)
{
  char byte;
  if (fd < 0 || read(fd, &byte, 1) < 0)
    qv_answer_error(errno);
  else
    qv_answer("READ");
}

void qv_probe_dev_fuse(void)
{
  answer_first_line(open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK));
}

void qv_probe_dev_tun(void)
{
  answer_first_line(open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
}

/* ---- what is writable */

/* An unprivileged process meets the owner first, a read-only file system only where the owner would let it. */
void qv_probe_root_write(void)
{
  qv_answer_open("/.probe", O_WRONLY | O_CREAT);
}

/* NONE, or the first folder outside of the work folders in which a file can be made. */
void qv_probe_other_writes(void)
{
  static const char *const folders[] = {"/", "/bin", "/dev", "/etc", "/home", "/lib", "/media", "/mnt", "/opt", "/opt/quavon",
                                        "/proc", "/root", "/run", "/run/lock", "/run/user", "/srv", "/sys", "/usr", "/usr/local",
                                        "/usr/local/bin", "/var", "/var/cache", "/var/lib", "/var/lock", "/var/log",
                                        "/var/mail", "/var/run", "/var/spool", "/var/tmp"};
  for (size_t i = 0; i < COUNT(folders); i++) {
    char path[128];
    snprintf(path, sizeof path, "%s/.probe", folders[i]);
    if (open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) >= 0) {
      unlink(path);
      qv_answer(folders[i]);
      return;
    }
  }
  qv_answer("NONE");
}

void qv_probe_entry_write(void)
{
  qv_answer_open("/opt/quavon/entry", O_WRONLY);
}

void qv_probe_passwd_write(void)
{
  qv_answer_open("/etc/passwd", O_WRONLY | O_APPEND);
}

static void answer_mode(const char *path)
{
  char text[96];
  struct stat st;
  if (stat(path, &st) != 0) {
    qv_answer_error(errno);
    return;
  }
  snprintf(text, sizeof text, "%o/%u:%u", st.st_mode & 07777u, st.st_uid, st.st_gid);
  qv_answer(text);
}

void qv_probe_workspace_mode(void)
{
  answer_mode("/workspace");
}

void qv_probe_tmp_mode(void)
{
  answer_mode("/tmp");
}

/* MiB of the file system below PATH. */
static void answer_size(const char *path)
{
  struct statvfs fs;
  if (statvfs(path, &fs) != 0)
    qv_answer_error(errno);
  else
    qv_answer_number((long long)(fs.f_blocks * fs.f_frsize / (1024 * 1024)));
}

void qv_probe_workspace_mib(void)
{
  answer_size("/workspace");
}

void qv_probe_tmp_mib(void)
{
  answer_size("/tmp");
}

/* OPTION of the mount at PATH by mountinfo(5): both the mount's and the file system's. */
static void answer_options(const char *path, const char *const *wanted, size_t n)
{
  static char text[65536];
  char line[4096], point[1024], options[1024], answer[QV_PROBE_ANSWER_MAX] = "";
  if (qv_slurp("/proc/self/mountinfo", text, sizeof text) < 0) {
    qv_answer_error(errno);
    return;
  }
  snprintf(answer, sizeof answer, "UNMOUNTED");
  for (char *at = text; *at != '\0'; at += strcspn(at, "\n") + (strchr(at, '\n') != NULL)) {
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    if (sscanf(line, "%*d %*d %*s %*s %1023s %1023s", point, options) != 2 || strcmp(point, path) != 0)
      continue;
    answer[0] = '\0';
    for (size_t i = 0; i < n; i++) {
      char padded[1040], what[64];
      snprintf(padded, sizeof padded, ",%s,", options);
      snprintf(what, sizeof what, ",%s,", wanted[i]);
      if (strstr(padded, what) != NULL)
        snprintf(answer + strlen(answer), sizeof answer - strlen(answer), "%s%s", answer[0] != '\0' ? "," : "", wanted[i]);
    }
  }
  qv_answer(answer);
}

void qv_probe_root_options(void)
{
  static const char *const wanted[] = {"ro", "rw"};
  answer_options("/", wanted, COUNT(wanted));
}

void qv_probe_workspace_options(void)
{
  static const char *const wanted[] = {"rw", "nosuid", "nodev", "noexec"};
  answer_options("/workspace", wanted, COUNT(wanted));
}

void qv_probe_tmp_options(void)
{
  static const char *const wanted[] = {"rw", "nosuid", "nodev", "noexec"};
  answer_options("/tmp", wanted, COUNT(wanted));
}

/* NONE, or the first mount point that is not one of the plan's. */
void qv_probe_mounts(void)
{
  static const char *const planned[] = {"/", "/proc", "/sys", "/dev", "/dev/pts", "/dev/shm", "/dev/mqueue", "/tmp",
                                        "/workspace", "/sys/fs/cgroup", "/etc/resolv.conf", "/etc/hostname", "/etc/hosts"};
  static char text[65536];
  char line[4096], point[1024];
  if (qv_slurp("/proc/self/mountinfo", text, sizeof text) < 0) {
    qv_answer_error(errno);
    return;
  }
  for (char *at = text; *at != '\0'; at += strcspn(at, "\n") + (strchr(at, '\n') != NULL)) {
    size_t i = 0;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    if (sscanf(line, "%*d %*d %*s %*s %1023s", point) != 1)
      continue;
    while (i < COUNT(planned) && strcmp(point, planned[i]) != 0)
      i++;
    /* What masks a file or a folder of /proc and /sys shows nothing. */
    if (i == COUNT(planned) && strncmp(point, "/proc/", 6) != 0 && strncmp(point, "/sys/", 5) != 0) {
      qv_answer(point);
      return;
    }
  }
  qv_answer("NONE");
}

/* ---- the rest */

void qv_probe_shadow(void)
{
  qv_answer_open("/etc/shadow", O_RDONLY);
}

void qv_probe_root_home(void)
{
  DIR *folder = opendir("/root");
  struct dirent *entry;
  const char *what = folder != NULL ? "EMPTY" : "REFUSED";
  while (folder != NULL && (entry = readdir(folder)) != NULL)
    if (strcmp(entry->d_name, ".ssh") == 0 || strcmp(entry->d_name, ".aws") == 0 || strcmp(entry->d_name, ".docker") == 0)
      what = "KEYS";
  qv_answer(what);
}

void qv_probe_init_root(void)
{
  char target[256];
  ssize_t n = readlink("/proc/1/root", target, sizeof target - 1);
  target[n > 0 ? n : 0] = '\0';
  if (n < 0)
    qv_answer_error(errno);
  else
    qv_answer(target);
}

void qv_probe_init_memory(void)
{
  int fd = open("/proc/1/mem", O_RDWR | O_CLOEXEC);
  qv_answer(fd >= 0 ? "OPENED" : "REFUSED");
}

/* The result stream: a byte from a step in it would be a forgery. */
void qv_probe_init_stdout(void)
{
  qv_answer_open("/proc/1/fd/1", O_WRONLY);
}

void qv_probe_init_stdin(void)
{
  qv_answer_open("/proc/1/fd/0", O_RDONLY);
}

/* NONE, or the first descriptor above 2 that a step inherits; 3 is the answer's pipe, 4 the folder itself. */
void qv_probe_descriptors(void)
{
  DIR *folder = opendir("/proc/self/fd");
  struct dirent *entry;
  while (folder != NULL && (entry = readdir(folder)) != NULL) {
    int fd = atoi(entry->d_name);
    char path[64], target[256];
    if (fd <= 2 || fd == dirfd(folder))
      continue;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0)
      continue;
    target[n] = '\0';
    if (strncmp(target, "pipe:", 5) != 0 || fd > 4) {
      qv_answer(target);
      return;
    }
  }
  qv_answer(folder != NULL ? "NONE" : "UNREADABLE");
}

/* NONE, or the name of a variable that only the runner's own environment holds. */
static void answer_environment(const char *path)
{
  static const char *const foreign[] = {"VALKEY_", "REDIS_", "QUAVON_", "DOCKER_", "KUBERNETES_", "AWS_", "NOTIFY_SOCKET",
                                        "CREDENTIALS_DIRECTORY", "SSH_", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"};
  static char text[65536];
  long n = qv_slurp(path, text, sizeof text);
  if (n < 0) {
    qv_answer(errno == EACCES ? "NONE" : "UNREADABLE");
    return;
  }
  for (char *at = text; at < text + n; at += strlen(at) + 1) {
    for (size_t i = 0; i < COUNT(foreign); i++) {
      if (strncmp(at, foreign[i], strlen(foreign[i])) == 0 && strncmp(at, "QUAVON_CPUS=", 12) != 0) {
        at[strcspn(at, "=")] = '\0';
        qv_answer(at);
        return;
      }
    }
  }
  qv_answer("NONE");
}

void qv_probe_environment(void)
{
  answer_environment("/proc/self/environ");
}

void qv_probe_init_environment(void)
{
  answer_environment("/proc/1/environ");
}

/* NONE: every line of /proc/self/cgroup names the root. OWN: each that does not names one and the same child of the root. A
 * path of the host, or another container's, is its own answer. */
void qv_probe_cgroup_paths(void)
{
  static char text[16384];
  char own[256] = "";
  if (qv_slurp("/proc/self/cgroup", text, sizeof text) < 0) {
    qv_answer_error(errno);
    return;
  }
  for (char *at = text; *at != '\0'; at += strcspn(at, "\n") + (strchr(at, '\n') != NULL)) {
    char *path = strchr(at, ':');
    path = path != NULL ? strchr(path + 1, ':') : NULL;
    char shown[256];
    if (path == NULL || strncmp(path, ":/\n", 3) == 0)
      continue;
    snprintf(shown, sizeof shown, "%.*s", (int)strcspn(path + 1, "\n"), path + 1);
    if (strchr(shown + 1, '/') != NULL || (own[0] != '\0' && strcmp(own, shown) != 0)) {
      qv_answer(shown);
      return;
    }
    snprintf(own, sizeof own, "%s", shown);
  }
  qv_answer(own[0] != '\0' ? "OWN" : "NONE");
}
