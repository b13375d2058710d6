/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the two kinds of sandbox. Both have: the machine's /usr and /etc
 * read-only, /dev/null and its like, tmpfs at /workspace and /tmp that belong to uid 65532,
 * /proc, the entry at /opt/quavon/entry, no network but loopback, two
 * socket pairs as stdin and stdout. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/limits.h"
#include "harness_private.h"

HarnessKind harness_kind;

#define PATH_ENV "PATH=/usr/local/bin:/usr/bin:/bin"

static const char *entry_program(void)
{
  return g_getenv("QUAVON_TEST_ENTRY");
}

const char *harness_missing(void)
{
  if (geteuid() != 0)
    return "needs root";
  g_autofree char *runsc = g_find_program_in_path("runsc");
  return harness_kind == HARNESS_GVISOR && !runsc ? "needs runsc" : NULL;
}

/* ---- namespaces: runs in the child, after a raw clone ---- */

static void must(gboolean good, const char *what)
{
  if (good)
    return;
  dprintf(2, "harness: %s: %s\n", what, g_strerror(errno));
  _exit(120);
}

static void bind_at(const char *from, const char *to, gboolean read_only)
{
  must(mount(from, to, NULL, MS_BIND, NULL) == 0, to);
  if (read_only)
    must(mount(NULL, to, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID, NULL) == 0, to);
}

static void make_file(const char *path)
{
  int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
  must(fd >= 0, path);
  close(fd);
}

static void loopback_up(void)
{
  struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  must(fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0, "loopback");
  close(fd);
}

/* The folders of the root, below the working folder; also what gVisor's bundle starts from. */
static void make_root(void)
{
  static const char *const folders[] = {"usr", "etc", "proc", "dev", "tmp", "workspace",
                                        "opt", "opt/quavon", "run", "run/quavon", "sys"};
  static const char *const links[] = {"bin", "sbin", "lib", "lib64"};
  for (gsize i = 0; i < G_N_ELEMENTS(folders); i++)
    must(mkdir(folders[i], 0755) == 0, folders[i]);
  for (gsize i = 0; i < G_N_ELEMENTS(links); i++) {
    char host[16], target[256];
    g_snprintf(host, sizeof host, "/%s", links[i]);
    ssize_t n = readlink(host, target, sizeof target - 1);
    if (n > 0) {
      target[n] = '\0';
      must(symlink(target, links[i]) == 0, links[i]);
    }
  }
}

static void mount_root(const Harness *harness)
{
  static const char *const devices[] = {"null", "zero", "full", "random", "urandom"};
  char options[128];
  must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "private mounts");
  must(mount("tmpfs", harness->folder, "tmpfs", 0, "mode=0755") == 0 && chdir(harness->folder) == 0, "root");
  make_root();
  bind_at("/usr", "usr", TRUE);
  bind_at("/etc", "etc", TRUE);
  for (gsize i = 0; i < G_N_ELEMENTS(devices); i++) {
    char from[32];
    g_snprintf(from, sizeof from, "/dev/%s", devices[i]);
    make_file(from + 1);
    bind_at(from, from + 1, FALSE);
  }
  make_file("opt/quavon/entry");
  bind_at(entry_program(), "opt/quavon/entry", TRUE);
  if (harness->options.socket) {
    make_file("run/quavon/egress.sock");
    bind_at(harness->options.socket, "run/quavon/egress.sock", FALSE);
  }
  must(mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV, NULL) == 0, "proc");
  g_snprintf(options, sizeof options, "uid=%d,gid=%d,mode=0700,size=%um", QV_SANDBOX_UID, QV_SANDBOX_GID,
             harness->options.work_mib);
  must(mount("tmpfs", "workspace", "tmpfs", MS_NOSUID | MS_NODEV, options) == 0, "workspace");
  must(mount("tmpfs", "tmp", "tmpfs", MS_NOSUID | MS_NODEV, options) == 0, "tmp");
  must(mount(".", "/", NULL, MS_MOVE, NULL) == 0 && chroot(".") == 0 && chdir("/") == 0, "new root");
}

static void G_GNUC_NORETURN namespaces_child(const Harness *harness, int in, int out, int err)
{
  static char *const argv[] = {(char *)"/opt/quavon/entry", NULL};
  static char *const env[] = {(char *)PATH_ENV, NULL};
  mount_root(harness);
  loopback_up();
  if (harness->options.nproc > 0) {
    const struct rlimit limit = {harness->options.nproc, harness->options.nproc};
    must(setrlimit(RLIMIT_NPROC, &limit) == 0, "nproc");
  }
  must(setsid() > 0 && dup2(in, 0) == 0 && dup2(out, 1) == 1 && dup2(err, 2) == 2, "descriptors");
  must(syscall(SYS_setgroups, 0, NULL) == 0 && setresgid(QV_SANDBOX_GID, QV_SANDBOX_GID, QV_SANDBOX_GID) == 0 &&
         setresuid(QV_SANDBOX_UID, QV_SANDBOX_UID, QV_SANDBOX_UID) == 0,
       "uid");
  must(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0, "parent's death");
  execve(argv[0], argv, env);
  must(FALSE, argv[0]);
  _exit(120);
}

static GPid start_namespaces(const Harness *harness, int in, int out, int err)
{
  const long flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | SIGCHLD;
  GPid pid = (GPid)syscall(SYS_clone, flags, NULL, NULL, NULL, NULL);
  if (pid == 0)
    namespaces_child(harness, in, out, err);
  g_assert_cmpint(pid, >, 0);
  return pid;
}

/* ---- gVisor ---- */

static void add_mount(json_t *mounts, const char *to, const char *type, const char *from, json_t *options)
{
  json_array_append_new(mounts, json_pack("{ssssssso}", "destination", to, "type", type, "source", from, "options",
                                          options));
}

static json_t *bundle_config(const Harness *harness)
{
  json_t *mounts = json_array();
  g_autofree char *size = g_strdup_printf("size=%um", harness->options.work_mib);
  add_mount(mounts, "/proc", "proc", "proc", json_array());
  add_mount(mounts, "/usr", "bind", "/usr", json_pack("[ss]", "rbind", "ro"));
  add_mount(mounts, "/etc", "bind", "/etc", json_pack("[ss]", "rbind", "ro"));
  for (int i = 0; i < 2; i++)
    add_mount(mounts, i == 0 ? "/workspace" : "/tmp", "tmpfs", "tmpfs",
              json_pack("[ssssssss]", "rw", "exec", "nosuid", "nodev", "uid=65532", "gid=65532", "mode=0700", size));
  if (harness->options.socket)
    add_mount(mounts, "/run/quavon/egress.sock", "bind", harness->options.socket, json_pack("[ss]", "bind", "rw"));
  json_t *limits = json_array();
  if (harness->options.nproc > 0)
    json_array_append_new(limits, json_pack("{sssIsI}", "type", "RLIMIT_NPROC", "soft",
                                            (json_int_t)harness->options.nproc, "hard",
                                            (json_int_t)harness->options.nproc));
  json_t *process = json_pack("{sb s{sisi} s[s] s[s] ss s{} sb so}", "terminal", 0, "user", "uid", QV_SANDBOX_UID,
                              "gid", QV_SANDBOX_GID, "args", "/opt/quavon/entry", "env", PATH_ENV, "cwd", "/",
                              "capabilities", "noNewPrivileges", 1, "rlimits", limits);
  return json_pack("{ss so s{sssb} ss so s{s[{ss}{ss}{ss}{ss}]}}", "ociVersion", "1.0.2", "process", process, "root",
                   "path", "rootfs", "readonly", 1, "hostname", "sandbox", "mounts", mounts, "linux", "namespaces",
                   "type", "pid", "type", "ipc", "type", "uts", "type", "mount");
}

static void write_bundle(const Harness *harness)
{
  g_autofree char *rootfs = g_build_filename(harness->folder, "rootfs", NULL);
  g_autofree char *entry = g_build_filename(rootfs, "opt/quavon/entry", NULL);
  g_autofree char *socket = g_build_filename(rootfs, "run/quavon/egress.sock", NULL);
  g_autofree char *config = g_build_filename(harness->folder, "config.json", NULL);
  g_autofree char *program = NULL;
  gsize n;
  g_autofree char *here = g_get_current_dir();
  g_assert_cmpint(g_mkdir(rootfs, 0755), ==, 0);
  g_assert_cmpint(g_chdir(rootfs), ==, 0);
  make_root();
  g_assert_cmpint(g_chdir(here), ==, 0);
  g_assert_true(g_file_get_contents(entry_program(), &program, &n, NULL));
  g_assert_true(g_file_set_contents_full(entry, program, (gssize)n, G_FILE_SET_CONTENTS_NONE, 0755, NULL));
  make_file(socket);
  json_t *json = bundle_config(harness);
  g_assert_nonnull(json);
  g_assert_cmpint(json_dump_file(json, config, 0), ==, 0);
  json_decref(json);
}

static GPid start_gvisor(Harness *harness, int in, int out, int err)
{
  write_bundle(harness);
  g_autofree char *root = g_strdup_printf("--root=%s/state", harness->folder);
  const char *argv[] = {"runsc", root, "--network=none", "--platform=systrap", "--directfs=false",
                        "--ignore-cgroups", "--host-uds=open", "run", "--bundle", harness->folder,
                        harness->id, NULL};
  GPid pid;
  g_autoptr(GError) error = NULL;
  g_spawn_async_with_fds(NULL, (char **)argv, NULL, G_SPAWN_SEARCH_PATH | G_SPAWN_DO_NOT_REAP_CHILD, NULL, NULL, &pid,
                         in, out, err, &error);
  g_assert_no_error(error);
  return pid;
}

static void delete_gvisor(const Harness *harness)
{
  g_autofree char *root = g_strdup_printf("--root=%s/state", harness->folder);
  const char *argv[] = {"runsc", root, "delete", "--force", harness->id, NULL};
  g_autoptr(GError) error = NULL;
  g_spawn_sync(NULL, (char **)argv, NULL,
               G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_STDERR_TO_DEV_NULL, NULL, NULL, NULL, NULL,
               NULL, &error);
  g_assert_no_error(error);
}

/* ---- both ---- */

Harness *harness_start(const HarnessOptions *options)
{
  static guint count;
  Harness *harness = g_new0(Harness, 1);
  int in[2], out[2];
  g_autoptr(GError) error = NULL;
  if (options)
    harness->options = *options;
  if (harness->options.work_mib == 0)
    harness->options.work_mib = 64;
  harness->id = g_strdup_printf("entry-test-%d-%u", (int)getpid(), count++);
  harness->folder = g_dir_make_tmp("quavon-entry-XXXXXX", &error);
  g_assert_no_error(error);
  harness->err_path = g_strconcat(harness->folder, ".err", NULL);
  int err = open(harness->err_path, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  g_assert_cmpint(err, >=, 0);
  g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in), ==, 0);
  g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, out), ==, 0);
  harness->pid = harness_kind == HARNESS_GVISOR ? start_gvisor(harness, in[1], out[1], err)
                                                : start_namespaces(harness, in[1], out[1], err);
  if (harness_kind == HARNESS_NAMESPACES) {
    close(in[1]);
    close(out[1]);
    close(err);
  }
  harness->in_fd = in[0];
  harness->out_fd = out[0];
  return harness;
}

void harness_stop(Harness *harness)
{
  if (harness->pid <= 0)
    return;
  int status;
  kill(harness->pid, SIGKILL);
  while (waitpid(harness->pid, &status, 0) < 0 && errno == EINTR)
    ;
  harness->pid = 0;
  if (harness_kind == HARNESS_GVISOR)
    delete_gvisor(harness);
}

void harness_free(Harness *harness)
{
  if (!harness)
    return;
  harness_stop(harness);
  close(harness->in_fd);
  close(harness->out_fd);
  g_autoptr(GError) error = NULL;
  qv_fd_remove_tree(harness->folder, &error);
  g_assert_no_error(error);
  g_unlink(harness->err_path);
  g_free(harness->folder);
  g_free(harness->err_path);
  g_free(harness->id);
  g_free(harness);
}
