/* SPDX-License-Identifier: Apache-2.0 */
/* bare RUNSC ROOTFS GZIP DIR COUNT [idle]
 * bare --docker SOCKET DIGEST RUNTIME GZIP COUNT
 *
 * What a job costs without us. For each of COUNT rounds a bundle in DIR, as
 * the backend writes it, `runsc run` of it, the request line and the snapshot GZIP (a file) on its stdin, its
 * output read to the end marker. A line a round: ms from the start of runsc to the marker; with `idle` the sandbox is
 * started first and left alone for 300 ms, and the time is from the first byte written to the marker.
 * With --docker it is `docker run` of the image, as a person types it with the settings that the backend gives, and a line
 * has a second figure: ms until `docker run` has ended, its container removed. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/random.h"
#include "protocol/entry_request.h"
#include "sandbox/container_spec.h"

enum { MARKER = 1024 };

typedef struct {
  const char *runsc, *rootfs, *dir;
  const char *socket, *digest, *runtime; /* of an engine */
  char *gzip;
  gsize gzip_n;
} Bare;

static QvSecret *request_line(const Bare *bare)
{
  static const char *const ARGV[] = {"/bin/true", NULL};
  QvLimitsPolicy policy;
  qv_limits_policy_standard(&policy, g_get_num_processors());
  g_autoptr(QvJob) job = qv_job_new();
  job->run = g_new0(QvStep, 1);
  job->run_n = 1;
  job->run[0].name = g_strdup("run");
  job->run[0].argv = g_strdupv((char **)ARGV);
  job->base.size = (gint64)bare->gzip_n;
  job->limits = policy.defaults;
  guint8 key[QV_STREAM_KEY_BYTES];
  qv_random_bytes(key, sizeof key);
  g_autoptr(GError) error = NULL;
  QvSecret *line = qv_entry_request_format(job, key, NULL, FALSE, &error);
  if (line == NULL)
    g_error("%s", error->message);
  return line;
}

static void write_bundle(const Bare *bare, const char *id)
{
  QvSandboxRequest request = {.sandbox_id = id, .rootfs_file = bare->rootfs,
                              .limits = {.memory_mib = 256, .work_mib = 64, .milli_cpus = 2000, .pids = 64}};
  g_autoptr(GError) error = NULL;
  g_autoptr(QvContainerSpec) spec = qv_container_spec_plan(&request, &error);
  if (spec == NULL)
    g_error("%s", error->message);
  g_autofree char *text = qv_container_spec_format(spec);
  g_autofree char *config = g_build_filename(bare->dir, "config.json", NULL);
  g_autofree char *rootfs = g_build_filename(bare->dir, "rootfs", NULL);
  mkdir(rootfs, 0755);
  unlink(config);
  if (!qv_fd_write_file(config, text, strlen(text), 0600, &error))
    g_error("%s", error->message);
}

static pid_t start(const Bare *bare, const char *id, int in, int out)
{
  g_autofree char *root = g_strdup_printf("--root=%s/root", bare->dir);
  g_autofree char *bundle = g_strdup_printf("--bundle=%s", bare->dir);
  pid_t pid = fork();
  if (pid == 0) {
    dup2(in, 0);
    dup2(out, 1);
    dup2(open("/dev/null", O_WRONLY), 2);
    execlp(bare->runsc, "runsc", root, "--network=none", "--platform=systrap", "--directfs=false", "--ignore-cgroups",
           "--overlay2=none", "--host-uds=none", "run", bundle, id, (char *)NULL);
    _exit(127);
  }
  return pid;
}

static void put(int fd, const void *bytes, gsize n)
{
  const char *p = bytes;
  while (n > 0) {
    ssize_t done = write(fd, p, n);
    if (done <= 0)
      g_error("the sandbox takes no input");
    p += done;
    n -= (gsize)done;
  }
}

/* The stream ends with two zero blocks, and no member of this job ends with so many zeros. */
static void await_marker(int fd)
{
  g_autoptr(GByteArray) all = g_byte_array_new();
  static const guint8 zeros[MARKER];
  guint8 bytes[65536];
  for (;;) {
    ssize_t n = read(fd, bytes, sizeof bytes);
    if (n <= 0)
      g_error("the output ended before its marker");
    g_byte_array_append(all, bytes, (guint)n);
    if (all->len > MARKER && all->len % 512 == 0 && memcmp(all->data + all->len - MARKER, zeros, MARKER) == 0)
      return;
  }
}

static void destroy(const Bare *bare, const char *id, pid_t pid)
{
  g_autofree char *command =
    g_strdup_printf("%s --root=%s/root delete --force %s >/dev/null 2>&1", bare->runsc, bare->dir, id);
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  if (system(command) != 0)
    g_error("runsc delete failed");
}

static pid_t start_docker(const Bare *bare, int in, int out)
{
  g_autofree char *host = g_strdup_printf("--host=unix://%s", bare->socket);
  g_autofree char *runtime = g_strdup_printf("--runtime=%s", bare->runtime);
#define TMPFS(path, mib) "--tmpfs", path ":rw,exec,nosuid,nodev,uid=65532,gid=65532,mode=0700,size=" mib "m"
  pid_t pid = fork();
  if (pid == 0) {
    dup2(in, 0);
    dup2(out, 1);
    dup2(open("/dev/null", O_WRONLY), 2);
    execlp("docker", "docker", host, "run", "--rm", "-i", runtime, "--network=none", "--read-only", "--cap-drop=ALL",
           "--security-opt=no-new-privileges", "--user=65532:65532", "--memory=704m", "--memory-swap=704m", "--pids-limit=1280",
           "--cpus=2", "--ulimit=nproc=64", "--log-driver=none", TMPFS("/workspace", "64"), TMPFS("/tmp", "256"),
           "--entrypoint=/opt/quavon/entry", bare->digest, (char *)NULL);
    _exit(127);
  }
  return pid;
}

static void docker_round(const Bare *bare)
{
  g_autoptr(QvSecret) line = request_line(bare);
  int in[2], out[2], status;
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
    g_error("pipe: %s", g_strerror(errno));
  gint64 begin = qv_clock_mono_us();
  pid_t pid = start_docker(bare, in[0], out[1]);
  close(in[0]);
  close(out[1]);
  put(in[1], qv_secret_bytes(line), qv_secret_len(line));
  put(in[1], bare->gzip, bare->gzip_n);
  await_marker(out[0]);
  double marker = (double)(qv_clock_mono_us() - begin) / 1e3;
  close(in[1]);
  if (waitpid(pid, &status, 0) != pid || status != 0)
    g_error("docker run ended with %d", status);
  printf("%.3f %.3f\n", marker, (double)(qv_clock_mono_us() - begin) / 1e3);
  fflush(stdout);
  close(out[0]);
}

static double round_ms(const Bare *bare, gboolean idle)
{
  char id[QV_UUID_LEN + 1];
  qv_random_uuid(id);
  write_bundle(bare, id);
  g_autoptr(QvSecret) line = request_line(bare);
  int in[2], out[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) != 0 ||
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, out) != 0)
    g_error("socketpair: %s", g_strerror(errno));
  gint64 begin = qv_clock_mono_us();
  pid_t pid = start(bare, id, in[1], out[1]);
  close(in[1]);
  close(out[1]);
  if (idle) {
    g_autofree char *state = g_strdup_printf("%s --root=%s/root state %s 2>/dev/null | grep -q running", bare->runsc, bare->dir, id);
    while (system(state) != 0)
      g_usleep(20000);
    g_usleep(300000);
    begin = qv_clock_mono_us();
  }
  put(in[0], qv_secret_bytes(line), qv_secret_len(line));
  put(in[0], bare->gzip, bare->gzip_n);
  await_marker(out[0]);
  double ms = (double)(qv_clock_mono_us() - begin) / 1e3;
  destroy(bare, id, pid);
  close(in[0]);
  close(out[0]);
  return ms;
}

static void read_gzip(Bare *bare, const char *path)
{
  g_autoptr(GError) error = NULL;
  if (!g_file_get_contents(path, &bare->gzip, &bare->gzip_n, &error))
    g_error("%s", error->message);
}

int main(int argc, char **argv)
{
  signal(SIGPIPE, SIG_IGN);
  if (argc == 7 && strcmp(argv[1], "--docker") == 0) {
    Bare bare = {.socket = argv[2], .digest = argv[3], .runtime = argv[4]};
    read_gzip(&bare, argv[5]);
    for (long i = atol(argv[6]); i > 0; i--)
      docker_round(&bare);
    g_free(bare.gzip);
    return 0;
  }
  if (argc != 6 && argc != 7)
    return 2;
  Bare bare = {.runsc = argv[1], .rootfs = argv[2], .dir = argv[4]};
  read_gzip(&bare, argv[3]);
  for (long i = atol(argv[5]); i > 0; i--) {
    printf("%.3f\n", round_ms(&bare, argc == 7));
    fflush(stdout);
  }
  g_free(bare.gzip);
  return 0;
}
