/* SPDX-License-Identifier: Apache-2.0 */
/* What holds for a sandbox that runs: operations.md "Containers", on real gVisor. */
#include <fcntl.h>
#include <glib-unix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "fixture.h"

static void test_echo_and_kill(Fixture *f, gconstpointer data)
{
  Guest *guest = guest_started(f, &SMALL);
  guest_expect(guest, "echo hello", "echo hello");
  g_assert_true(qv_sandbox_has_started(guest->sandbox));
  g_assert_cmpint(qv_sandbox_wait_status(guest->sandbox), ==, -1);
  /* The leak check sees what lives. */
  g_assert_cmpuint(leftovers_with(f->backend, qv_sandbox_id(guest->sandbox)), >, ON(ON_RUNSC) ? 5 : 2);
  g_assert_cmpint(leftover_process(f->backend, qv_sandbox_id(guest->sandbox), row->process), >, 1);
  g_autoptr(GError) error = NULL;
  g_assert_true(qv_sandbox_kill(guest->sandbox, &error));
  g_assert_no_error(error);
  assert_no_leftovers(f->backend);
  g_assert_true(qv_sandbox_kill(guest->sandbox, &error)); /* again is fine */
  g_assert_cmpuint(guest->exited, ==, 0);                 /* nobody is told of what he did himself */
  guest_free(guest);
}

/* Who writes to the sandbox's freezer from here on; -1: it has none. */
static int watch_freezer(Fixture *f, const Guest *guest)
{
  g_auto(GStrv) lines = qv_backend_leftovers(f->backend);
  for (guint i = 0; lines[i] != NULL; i++) {
    if (!g_str_has_prefix(lines[i], "cgroup ") || strstr(lines[i], "/freezer/") == NULL ||
        strstr(lines[i], qv_sandbox_id(guest->sandbox)) == NULL)
      continue;
    g_autofree char *path = g_build_filename(lines[i] + strlen("cgroup "), "freezer.state", NULL);
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    g_assert_cmpint(inotify_add_watch(fd, path, IN_MODIFY), >=, 0);
    return fd;
  }
  return -1;
}

static gboolean is_written(int fd)
{
  struct inotify_event event;
  return read(fd, &event, sizeof event) > 0;
}

/* Where ending it takes no time it is over before anybody removes it: with that moment between them, and without. */
static void test_end(Fixture *f, gconstpointer data)
{
  for (guint i = 0; i < 2; i++) {
    Guest *guest = guest_started(f, &SMALL);
    guest_expect(guest, "echo hello", "echo hello");
    QV_AUTOFD int freezer = watch_freezer(f, guest);
    qv_sandbox_end(guest->sandbox);
    g_assert_false(is_written(freezer)); /* a task that sleeps uninterruptibly would be waited for */
    if (i == 0 && ON(ON_RUNSC))
      wait_until(&guest->exited);
    if (ON(ON_DOCKER))
      guest_expect(guest, "echo alive", "echo alive");
    g_autoptr(GError) error = NULL;
    g_assert_true(qv_sandbox_kill(guest->sandbox, &error));
    g_assert_no_error(error);
    assert_no_leftovers(f->backend);
    qv_sandbox_end(guest->sandbox); /* nothing is there any more */
    guest_free(guest);
  }
}

static void test_exits_by_itself(Fixture *f, gconstpointer data)
{
  Guest *guest = guest_started(f, &SMALL);
  guest_send(guest, "exit 7");
  wait_until(&guest->exited);
  int status = qv_sandbox_wait_status(guest->sandbox);
  g_assert_true(WIFEXITED(status));
  g_assert_cmpint(WEXITSTATUS(status), ==, 7);
  g_assert_null(qv_sandbox_failure(guest->sandbox));
  guest_free(guest);
}

/* Perhaps before the clock has looked at the state even once: that it ended is told in any case, with its
 * status or, where runsc could not tell that it had run, with a reason. */
static void test_exits_at_once(Fixture *f, gconstpointer data)
{
  Guest *guest = guest_start(f, f->backend, &SMALL, NULL);
  guest_send(guest, "exit 3");
  wait_until(&guest->exited);
  int status = qv_sandbox_wait_status(guest->sandbox);
  g_assert_true(WIFEXITED(status));
  g_assert_cmpint(guest->started == 0, ==, qv_sandbox_failure(guest->sandbox) != NULL);
  if (guest->started != 0)
    g_assert_cmpint(WEXITSTATUS(status), ==, 3);
  else
    g_printerr("# exits-at-once: %s\n", qv_sandbox_failure(guest->sandbox));
  guest_free(guest);
}

static void test_who_and_where(Fixture *f, gconstpointer data)
{
  Guest *guest = guest_started(f, &SMALL);
  guest_expect(guest, "identity", "identity uid=65532 gid=65532 nnp=1 pid=1 cpus=2");
  g_autofree char *groups = g_strconcat("groups", row->groups, NULL);
  guest_expect(guest, "groups", groups);
  g_autofree char *caps = guest_ask(guest, "caps");
  g_assert_true(g_str_has_prefix(caps, "caps 0000000000000000"));
  g_assert_cmpuint(strspn(caps + strlen("caps"), " 0"), ==, strlen(caps + strlen("caps")));
  guest_expect(guest, "create /made", row->root);
  guest_expect(guest, "create /etc/made", "open EROFS");
  guest_expect(guest, "mode /workspace", row->workspace);
  guest_expect(guest, "mode /tmp", row->tmp);
  guest_expect(guest, "create /workspace/made", "open yes");
  guest_expect(guest, "create /tmp/made", "open yes");
  guest_expect(guest, "exec /workspace/program", "exec 0");
  guest_expect(guest, "exec /tmp/program", "exec 0");
  guest_expect(guest, "mode /run/quavon/egress.sock", "mode ENOENT");
  guest_free(guest);
}

/* Protocol section 5: a step of the same uid may not write into the stream. An engine's pipes can be opened: there the stream
 * key alone tells the entry's words from a step's. */
static void test_stream_cannot_be_opened(Fixture *f, gconstpointer data)
{
  Guest *guest = guest_started(f, &SMALL);
  guest_expect(guest, "open /proc/1/fd/1", row->stdout_open);
  guest_expect(guest, "read /proc/1/fd/0", row->stdin_open);
  guest_free(guest);
}

static void test_no_network(Fixture *f, gconstpointer data)
{
  static const char *const ADDRESSES[] = {"192.0.2.1", "169.254.169.254", "172.17.0.1", "10.0.0.1"};
  Guest *guest = guest_started(f, &SMALL);
  guest_expect(guest, "interfaces", "interfaces 0");
  for (gsize i = 0; i < G_N_ELEMENTS(ADDRESSES); i++) {
    g_autofree char *line = g_strconcat("connect ", ADDRESSES[i], NULL);
    g_autofree char *answer = guest_ask(guest, line);
    g_assert_true(strcmp(answer, "connect EHOSTUNREACH") == 0 || strcmp(answer, "connect ENETUNREACH") == 0);
  }
  guest_free(guest);
}

static void test_process_limit_inside(Fixture *f, gconstpointer data)
{
  QvSandboxLimits limits = SMALL;
  limits.pids = 20;
  Guest *guest = guest_started(f, &limits);
  guest_expect(guest, "fork 1000", "forks 19 EAGAIN");
  guest_expect(guest, "echo alive", "echo alive");
  g_assert_cmpuint(guest->pids, ==, 0);
  guest_free(guest);
}

static void test_disk_full(Fixture *f, gconstpointer data)
{
  Guest *guest = guest_started(f, &SMALL);
  guest_expect(guest, "fill /workspace/big", "fill 32 ENOSPC");
  guest_expect(guest, "fill /tmp/big", "fill 256 ENOSPC");
  guest_expect(guest, "echo alive", "echo alive");
  g_assert_cmpuint(guest->oom, ==, 0);
  guest_free(guest);
}

static void test_out_of_memory(Fixture *f, gconstpointer data)
{
  Guest *guest = guest_started(f, &SMALL);
  QvSandboxUsage usage;
  /* Twice the cgroup's limit: 128 + 32 + 256 + 128 MiB. */
  guest_send(guest, "memory 1088");
  wait_until(&guest->oom);
  qv_sandbox_usage(guest->sandbox, &usage);
  g_assert_true(usage.oom);
  g_assert_false(usage.pids);
  g_autoptr(GError) error = NULL;
  g_assert_true(qv_sandbox_kill(guest->sandbox, &error));
  g_assert_no_error(error);
  g_assert_cmpuint(guest->oom, ==, 1);
  qv_sandbox_usage(guest->sandbox, &usage);
  g_assert_true(usage.oom);
  /* The kernel lets a few pages through that it could not refuse. */
  g_assert_cmpuint(usage.max_memory_bytes, <=, (guint64)(544 + 32) * 1024 * 1024);
  g_assert_cmpuint(usage.max_memory_bytes, >, (guint64)256 * 1024 * 1024);
  guest_free(guest);
}

/* The folders of the guest's control groups: the leak check names ours, of an engine's the process tells. */
static void list_groups(Fixture *f, Guest *guest, GPtrArray *folders)
{
  g_auto(GStrv) lines = qv_backend_leftovers(f->backend);
  for (guint i = 0; lines[i] != NULL; i++)
    if (g_str_has_prefix(lines[i], "cgroup "))
      g_ptr_array_add(folders, g_strdup(lines[i] + strlen("cgroup ")));
  if (ON(ON_RUNSC))
    return;
  pid_t pid = leftover_process(f->backend, qv_sandbox_id(guest->sandbox), row->process);
  g_autofree char *path = g_strdup_printf("/proc/%d/cgroup", (int)pid);
  g_autofree char *text = NULL;
  g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
  g_auto(GStrv) groups = g_strsplit(text, "\n", -1);
  for (guint i = 0; groups[i] != NULL; i++) {
    g_auto(GStrv) parts = g_strsplit(groups[i], ":", 3);
    if (g_strv_length(parts) == 3)
      g_ptr_array_add(folders, g_build_filename("/sys/fs/cgroup", parts[1], parts[2], NULL));
  }
}

/* The outer limit cannot be reached by a guest, whose own is a quarter of it; so the test lowers it. */
static void test_host_process_limit(Fixture *f, gconstpointer data)
{
  Guest *guest = guest_started(f, &SMALL);
  g_autoptr(GError) error = NULL;
  g_autoptr(GPtrArray) folders = g_ptr_array_new_with_free_func(g_free);
  list_groups(f, guest, folders);
  gboolean lowered = FALSE;
  for (guint i = 0; i < folders->len; i++) {
    g_autofree char *path = g_build_filename(folders->pdata[i], "pids.max", NULL);
    if (access(path, F_OK) != 0)
      continue;
    QV_AUTOFD int fd = open(path, O_WRONLY | O_CLOEXEC);
    g_assert_true(qv_fd_write_all(fd, path, "4", 1, &error));
    lowered = TRUE;
  }
  g_assert_true(lowered);
  guest_send(guest, "fork 30");
  /* gVisor dies of it. An engine takes the control group away as soon as that is done, and the counter with it. */
  while (ON(ON_DOCKER) && guest->pids + guest->exited == 0)
    g_main_context_iteration(NULL, TRUE);
  if (guest->exited != 0 && guest->pids == 0) {
    g_assert_true(ON(ON_DOCKER));
    g_assert_cmpint(qv_sandbox_wait_status(guest->sandbox), ==, W_EXITCODE(2, 0));
  } else {
    wait_until(&guest->pids);
    QvSandboxUsage usage;
    qv_sandbox_usage(guest->sandbox, &usage);
    g_assert_true(usage.pids);
  }
  guest_free(guest);
}

/* Processor time of all processes that are in the guest's control group now, by the kernel's account of each of them; a tick of
 * each of the two times of each may be missing. */
static gint64 processes_ms(Fixture *f, Guest *guest, guint *n)
{
  g_autoptr(GPtrArray) folders = g_ptr_array_new_with_free_func(g_free);
  gint64 ticks = 0;
  *n = 0;
  list_groups(f, guest, folders);
  for (guint i = 0; i < folders->len && *n == 0; i++) {
    g_autofree char *v1 = g_build_filename(folders->pdata[i], "cpuacct.usage", NULL);
    g_autofree char *v2 = g_build_filename(folders->pdata[i], "cpu.stat", NULL);
    g_autofree char *path = g_build_filename(folders->pdata[i], "cgroup.procs", NULL), *text = NULL;
    if ((access(v1, F_OK) != 0 && access(v2, F_OK) != 0) || !g_file_get_contents(path, &text, NULL, NULL))
      continue;
    g_auto(GStrv) pids = g_strsplit(g_strstrip(text), "\n", -1);
    for (char **pid = pids; *pid != NULL; pid++) {
      g_autofree char *of = g_build_filename("/proc", *pid, "stat", NULL), *stat = NULL;
      unsigned long long user, sys;
      if (g_file_get_contents(of, &stat, NULL, NULL) &&
          sscanf(strrchr(stat, ')'), ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &sys) == 2) {
        ticks += (gint64)(user + sys);
        ++*n;
      }
    }
  }
  return ticks * 1000 / sysconf(_SC_CLK_TCK);
}

static void burn(Guest *guest, QvSandboxUsage *usage, guint64 user_ms)
{
  gint64 until = g_get_monotonic_time() + (gint64)DEADLINE_MS * 1000;
  /* The guest's own idea of processor time is a rough one. */
  while (usage->user_ms < user_ms) {
    g_assert_cmpint(g_get_monotonic_time(), <, until);
    guest_expect(guest, "burn 100", "burnt");
    qv_sandbox_usage(guest->sandbox, usage);
  }
}

/* What is told against what the kernel says of each process, and against what the guest was made to touch. */
static void test_usage(Fixture *f, gconstpointer data)
{
  enum { TOUCHED_MIB = 96, MIB = 1024 * 1024 };
  Guest *guest = guest_started(f, &SMALL);
  QvSandboxUsage usage = {0};
  guint processes;
  qv_sandbox_usage(guest->sandbox, &usage);
  /* What they used before they came into the group is the kernel's account of them alone. */
  gint64 told_first = usage.user_ms + usage.sys_ms, seen_first = processes_ms(f, guest, &processes);
  burn(guest, &usage, usage.user_ms + 500);
  gint64 until = g_get_monotonic_time() + (gint64)DEADLINE_MS * 1000;
  gint64 seen = processes_ms(f, guest, &processes) - seen_first, told;
  g_assert_cmpuint(processes, >, 0);
  g_assert_cmpint(seen, >, 0);
  while ((told = (gint64)(usage.user_ms + usage.sys_ms) - told_first) + processes * 20 + seen / 10 < seen) {
    g_assert_cmpint(g_get_monotonic_time(), <, until); /* an engine is asked, and answers later */
    g_main_context_iteration(NULL, FALSE);
    g_usleep(10000);
    qv_sandbox_usage(guest->sandbox, &usage);
  }
  gint64 later = processes_ms(f, guest, &processes) - seen_first;
  g_test_message("told %" G_GINT64_FORMAT " ms; %u processes had %" G_GINT64_FORMAT ", then %" G_GINT64_FORMAT, told, processes, seen, later);
  /* Those that have ended count as well, and what was told first may be old. */
  g_assert_cmpint(told, <=, 2 * later + 1000);
  guint64 before = usage.max_memory_bytes;
  g_assert_cmpuint(before, >, MIB);
  guest_expect(guest, "memory 96", "memory 0");
  until = g_get_monotonic_time() + (gint64)DEADLINE_MS * 1000;
  while (usage.max_memory_bytes < TOUCHED_MIB * MIB) {
    g_assert_cmpint(g_get_monotonic_time(), <, until);
    g_main_context_iteration(NULL, FALSE);
    g_usleep(10000);
    qv_sandbox_usage(guest->sandbox, &usage);
  }
  g_test_message("peak %" G_GUINT64_FORMAT " KiB, %" G_GUINT64_FORMAT " before", usage.max_memory_bytes / 1024, before / 1024);
  g_assert_cmpuint(usage.max_memory_bytes, <, before + (guint64)(TOUCHED_MIB + 64) * MIB);
  g_assert_false(usage.oom);
  g_assert_false(usage.pids);
  guest_free(guest);
}

static void test_stderr_is_capped(Fixture *f, gconstpointer data)
{
  Guest *guest = guest_started(f, &SMALL);
  guest_expect(guest, "stderr 32", "stderr done");
  guest_send(guest, "exit 0");
  wait_until(&guest->exited);
  /* The pipe may hold more than one turn of the loop reads. */
  gint64 until = g_get_monotonic_time() + (gint64)DEADLINE_MS * 1000;
  while (strstr(qv_sandbox_stderr(guest->sandbox), "the last words") == NULL) {
    g_assert_cmpint(g_get_monotonic_time(), <, until);
    g_main_context_iteration(NULL, TRUE);
  }
  g_assert_cmpuint(strlen(qv_sandbox_stderr(guest->sandbox)), <=, 8192);
  guest_free(guest);
}

static void test_strays_die(Fixture *f, gconstpointer data)
{
  Guest *guest = guest_started(f, &SMALL);
  guest_expect(guest, "strays", "strays done");
  guest_free(guest);
  assert_no_leftovers(f->backend);
}

static int listen_at(const char *path)
{
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  g_assert_cmpuint(g_strlcpy(at.sun_path, path, sizeof at.sun_path), <, sizeof at.sun_path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(bind(fd, (struct sockaddr *)&at, sizeof at), ==, 0);
  g_assert_cmpint(listen(fd, 8), ==, 0);
  g_assert_cmpint(chmod(path, 0666), ==, 0);
  return fd;
}

static gboolean answer_one(gint fd, GIOCondition condition, gpointer data)
{
  char bytes[64];
  QV_AUTOFD int peer = accept(fd, NULL, NULL);
  g_assert_cmpint(peer, >=, 0);
  ssize_t n = read(peer, bytes, sizeof bytes);
  g_assert_cmpint(n, >, 0);
  g_assert_true(qv_io_write_full(peer, bytes, (gsize)n));
  return G_SOURCE_CONTINUE;
}

static void test_egress_socket(Fixture *f, gconstpointer data)
{
  g_autofree char *path = g_build_filename(f->dir, "egress.sock", NULL);
  int fd = listen_at(path);
  guint id = g_unix_fd_add(fd, G_IO_IN, answer_one, NULL);
  Guest *guest = guest_start(f, f->backend, &SMALL, path);
  guest_expect(guest, "egress ping", "egress ping");
  guest_expect(guest, "interfaces", "interfaces 0");
  guest_expect(guest, "mode /run", "mode 755 0:0");
  guest_expect(guest, "create /run/made", "open EACCES");
  guest_expect(guest, "create /run/quavon/made", "open EACCES");
  g_source_remove(id);
  close(fd);
  guest_expect(guest, "egress ping", "egress ECONNREFUSED");
  guest_free(guest);
}

static void test_three_at_once(Fixture *f, gconstpointer data)
{
  Guest *guests[3];
  for (guint i = 0; i < G_N_ELEMENTS(guests); i++)
    guests[i] = guest_start(f, f->backend, &SMALL, NULL);
  for (guint i = 0; i < G_N_ELEMENTS(guests); i++)
    guest_expect(guests[i], "echo here", "echo here");
  guest_free(guests[1]);
  guest_expect(guests[0], "echo still", "echo still");
  guest_expect(guests[2], "echo still", "echo still");
  guest_free(guests[0]);
  guest_free(guests[2]);
}

static const FixtureCase CASES[] = {
  {ON_ALL, "echo-and-kill", test_echo_and_kill},
  {ON_ALL, "end", test_end},
  {ON_ALL, "exits-by-itself", test_exits_by_itself},
  {ON_ALL, "exits-at-once", test_exits_at_once},
  {ON_ALL, "who-and-where", test_who_and_where},
  {ON_ALL, "stream-cannot-be-opened", test_stream_cannot_be_opened},
  {ON_ALL, "no-network", test_no_network},
  {ON_ALL, "process-limit-inside", test_process_limit_inside},
  {ON_ALL, "disk-full", test_disk_full},
  {ON_ALL, "out-of-memory", test_out_of_memory},
  {ON_GVISOR, "host-process-limit", test_host_process_limit},
  {ON_ALL, "usage", test_usage},
  {ON_ALL, "stderr-is-capped", test_stderr_is_capped},
  {ON_ALL, "strays-die", test_strays_die},
  {ON_RUNSC, "egress-socket", test_egress_socket},
  {ON_ALL, "three-at-once", test_three_at_once},
};

int main(int argc, char **argv)
{
  return fixture_main(argc, argv, "run", CASES, G_N_ELEMENTS(CASES));
}
