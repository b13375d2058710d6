/* SPDX-License-Identifier: Apache-2.0 */
/* The starter and what comes out of it. This program plays the roles itself: spawn.h executes /proc/self/exe. */
#include <glib.h>
#include <seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "runner/job.h"
#include "runner/spawn.h"
#include "runner/starter.h"
#include "runner/unpack.h"
#include "support/valgrind.h"

enum { PATIENCE_S = 300 };

/* LANG is one of the few variables that a role is given. */
#define STOPS_FIRST "x-stops-first"
#define CLOSES_STDERR "x-closes-stderr"
#define DIES_UNANSWERED "x-dies-unanswered"

typedef struct {
  GPid pid, unpack;
  int channel; /* to it */
} Job;

static char *proc_text(GPid pid, const char *name, gsize *n)
{
  g_autofree char *path = g_strdup_printf("/proc/%d/%s", pid, name);
  char *text = NULL;
  gsize length = 0;
  g_file_get_contents(path, &text, &length, NULL);
  if (n != NULL)
    *n = length;
  return text;
}

/* A line of its status. */
static char *status_of(GPid pid, const char *name)
{
  g_autofree char *text = proc_text(pid, "status", NULL);
  g_auto(GStrv) lines = g_strsplit(text != NULL ? text : "", "\n", -1);
  for (char **line = lines; *line != NULL; line++) {
    if (g_str_has_prefix(*line, name) && (*line)[strlen(name)] == ':')
      return g_strstrip(g_strdup(*line + strlen(name) + 1));
  }
  return g_strdup("");
}

/* The word behind --role. */
static char *role_of(GPid pid)
{
  gsize n;
  g_autofree char *line = proc_text(pid, "cmdline", &n);
  for (gsize i = 0, word = 0; i < n; i += strlen(line + i) + 1, word++) {
    if (word == 2)
      return g_strdup(line + i);
  }
  return g_strdup("");
}

static GPid child_of(GPid pid)
{
  g_autofree char *name = g_strdup_printf("task/%d/children", pid);
  g_autofree char *text = proc_text(pid, name, NULL);
  return text != NULL ? atoi(text) : 0;
}

#define AWAIT(what) \
  for (const gint64 until = g_get_monotonic_time() + (gint64)PATIENCE_S * G_USEC_PER_SEC; !(what);) { \
    g_assert_cmpint(g_get_monotonic_time(), <, until); \
    g_usleep(2000); \
  }

static gboolean has_role(GPid pid, const char *word)
{
  g_autofree char *role = role_of(pid);
  return strcmp(role, word) == 0;
}

static const QvStarterPatience long_patience = {.answer_ms = PATIENCE_S * 1000, .ready_ms = PATIENCE_S * 1000};

static QvStarter *starter_new(gboolean engine)
{
  return qv_starter_new(engine, long_patience);
}

static gboolean job_try(QvStarter *starter, Job *job)
{
  int pair[2];
  g_assert_true(qv_fd_socketpair(pair, NULL));
  QV_AUTOFD int far = pair[1];
  QV_AUTOFD int lock = dup(STDERR_FILENO);
  *job = (Job){.channel = pair[0]};
  if (qv_starter_job(starter, far, lock, &job->pid))
    return TRUE;
  close(job->channel);
  return FALSE;
}

/* Until its unpack process waits as well. */
static void job_start(QvStarter *starter, Job *job)
{
  AWAIT(qv_starter_is_ready(starter));
  g_assert_true(job_try(starter, job));
  AWAIT((job->unpack = child_of(job->pid)) != 0 && has_role(job->unpack, "unpack"));
}

/* The end of its channel is its own end, and that of its unpack process. */
static void job_end(Job *job)
{
  int status;
  close(job->channel);
  g_assert_cmpint(waitpid(job->pid, &status, 0), ==, job->pid);
  g_assert_cmpint(status, ==, 0);
  AWAIT(kill(job->unpack, 0) != 0);
}

static void test_job(void)
{
  QvStarter *starter = starter_new(FALSE);
  Job one, two;
  job_start(starter, &one);
  job_start(starter, &two);
  g_assert_cmpint(one.pid, !=, two.pid);
  g_autofree char *parent = status_of(one.pid, "PPid");
  g_assert_cmpint(atoi(parent), ==, getpid());
  g_assert_true(has_role(qv_starter_pid(starter), "starter"));
  g_assert_true(has_role(one.pid, "job"));
  const GPid both[] = {one.pid, one.unpack};
  for (gsize i = 0; i < G_N_ELEMENTS(both); i++) {
    g_autofree char *name = status_of(both[i], "Name");
    g_assert_cmpstr(name, ==, "quavon-role");
    AWAIT(getsid(both[i]) == both[i]);
  }
  g_assert_cmpint(getsid(qv_starter_pid(starter)), ==, qv_starter_pid(starter));
  job_end(&one);
  g_assert_cmpint(kill(two.pid, 0), ==, 0);
  job_end(&two);
  qv_starter_free(starter);
}

/* Descriptors of a process, in order, as "0 1 2". NULL where we may not look. */
static char *descriptors(GPid pid)
{
  g_autofree char *path = g_strdup_printf("/proc/%d/fd", pid);
  g_autoptr(GDir) folder = g_dir_open(path, 0, NULL);
  if (folder == NULL)
    return NULL;
  gboolean open[64] = {FALSE};
  for (const char *name; (name = g_dir_read_name(folder)) != NULL;) {
    g_assert_cmpint(atoi(name), <, (int)G_N_ELEMENTS(open));
    open[atoi(name)] = TRUE;
  }
  GString *text = g_string_new("");
  for (gsize i = 0; i < G_N_ELEMENTS(open); i++) {
    if (open[i])
      g_string_append_printf(text, "%s%zu", text->len > 0 ? " " : "", i);
  }
  return g_string_free(text, FALSE);
}

/* It was nobody and had its limits before it got a stream. */
static gboolean is_bounded(GPid unpack)
{
  g_autofree char *limits = proc_text(unpack, "limits", NULL), *uid = status_of(unpack, "Uid");
  return limits != NULL && strstr(limits, "Max file size             0 ") != NULL &&
         (geteuid() != 0 || g_str_has_prefix(uid, "65534\t65534\t65534"));
}

/* Nothing in its environment but what is given on purpose, see spawn.c. */
static void expect_bare(GPid pid)
{
  static const char *const given[] = {"PATH=", "LANG=", "QUAVON_LOG_", "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "LSAN_OPTIONS="};
  gsize n;
  g_autofree char *environment = proc_text(pid, "environ", &n);
  g_assert_nonnull(environment);
  for (gsize at = 0; at < n; at += strlen(environment + at) + 1) {
    gboolean known = FALSE;
    for (gsize i = 0; i < G_N_ELEMENTS(given); i++)
      known |= g_str_has_prefix(environment + at, given[i]);
    if (!known)
      g_error("%d has the variable %s", pid, environment + at);
  }
}

/* Neither has what the other one holds, nor the environment of who started the starter. */
static void test_holds_nothing(void)
{
  g_setenv("QUAVON_TEST_SECRET", "hunter2", TRUE);
  QvStarter *starter = starter_new(TRUE);
  Job job;
  job_start(starter, &job);
  char *text;
  AWAIT((text = descriptors(job.unpack)) == NULL || strcmp(text, "0 1 2 3 4") == 0 || (g_free(text), FALSE));
  if (text == NULL) {
    g_test_skip("needs root: the processes are not dumpable");
  } else {
    g_autofree char *idle = descriptors(qv_starter_pid(starter));
    g_assert_cmpstr(idle, ==, "0 1 2 3");
    const GPid all[] = {qv_starter_pid(starter), job.pid, job.unpack};
    for (gsize i = 0; i < G_N_ELEMENTS(all); i++) {
      expect_bare(all[i]);
      g_autofree char *threads = status_of(all[i], "Threads");
      g_assert_true(all[i] == job.pid || strcmp(threads, "1") == 0); /* of GLib, in a job process that waits for its child */
    }
    AWAIT(is_bounded(job.unpack));
    GPid first = job.unpack; /* the one that takes its place is executed */
    kill(first, SIGKILL);
    AWAIT((job.unpack = child_of(job.pid)) != 0 && job.unpack != first && has_role(job.unpack, "unpack"));
    expect_bare(job.unpack);
  }
  g_free(text);
  g_unsetenv("QUAVON_TEST_SECRET");
  job_end(&job);
  qv_starter_free(starter);
}

/* Where libc is: the same in all that come out of one starter. */
static char *layout(GPid pid)
{
  g_autofree char *maps = proc_text(pid, "maps", NULL);
  g_auto(GStrv) lines = g_strsplit(maps != NULL ? maps : "", "\n", -1);
  for (char **line = lines; *line != NULL; line++) {
    if (strstr(*line, "libc.so") != NULL)
      return g_strndup(*line, strcspn(*line, "-"));
  }
  return NULL;
}

static void test_renew(void)
{
  QvStarter *starter = starter_new(FALSE);
  Job before, after;
  job_start(starter, &before);
  GPid pid = qv_starter_pid(starter);
  qv_starter_renew(starter);
  g_assert_cmpint(qv_starter_pid(starter), !=, pid);
  AWAIT((g_main_context_iteration(NULL, FALSE), kill(pid, 0) != 0)); /* it is reaped, too */
  job_start(starter, &after);
  g_autofree char *first = layout(before.pid), *second = layout(after.pid);
  if (first != NULL && second != NULL) /* root alone may look */
    g_assert_cmpstr(first, !=, second);
  job_end(&before);
  job_end(&after);
  qv_starter_free(starter);
}

static void test_renews_by_itself(void)
{
  QvStarter *starter = starter_new(FALSE);
  GPid pid = qv_starter_pid(starter);
  for (guint i = 0; i < QV_STARTER_JOBS_MAX; i++) {
    g_assert_cmpint(qv_starter_pid(starter), ==, pid);
    Job job;
    job_start(starter, &job);
    job_end(&job);
  }
  g_assert_cmpint(qv_starter_pid(starter), !=, pid);
  qv_starter_free(starter);
}

/* Its jobs go on, the next one is not started this way, and the one after that is. */
static void test_dies(void)
{
  QvStarter *starter = starter_new(FALSE);
  Job job, next;
  job_start(starter, &job);
  GPid pid = qv_starter_pid(starter);
  kill(pid, SIGKILL);
  /* Before it is noticed, or after. */
  g_assert_false(job_try(starter, &next));
  g_assert_cmpint(qv_starter_pid(starter), !=, pid);
  job_start(starter, &next);
  kill(qv_starter_pid(starter), SIGKILL);
  AWAIT((g_main_context_iteration(NULL, FALSE), qv_starter_pid(starter) == 0));
  Job third;
  g_assert_false(job_try(starter, &third));
  job_start(starter, &third);
  g_assert_cmpint(kill(job.pid, 0), ==, 0);
  job_end(&job);
  job_end(&next);
  job_end(&third);
  qv_starter_free(starter);
}

static gboolean is_in_state(GPid pid, char letter)
{
  g_autofree char *state = status_of(pid, "State");
  return *state == letter;
}

static gboolean is_stopped(GPid pid)
{
  return is_in_state(pid, 'T');
}

/* A starter that HOW says what to do first, see main(). */
static QvStarter *starter_new_odd(const char *how, QvStarterPatience patience)
{
  g_autofree char *lang = g_strdup(g_getenv("LANG"));
  g_setenv("LANG", how, TRUE);
  QvStarter *starter = qv_starter_new(FALSE, patience);
  if (lang != NULL)
    g_setenv("LANG", lang, TRUE);
  else
    g_unsetenv("LANG");
  return starter;
}

/* One that has not linked yet is not asked, and nobody waits for it. */
static void test_slow(void)
{
  QvStarter *starter = starter_new_odd(STOPS_FIRST, long_patience);
  GPid pid = qv_starter_pid(starter);
  Job job;
  AWAIT(is_stopped(pid));
  g_assert_false(qv_starter_is_ready(starter));
  g_assert_false(job_try(starter, &job));
  g_assert_cmpint(qv_starter_pid(starter), ==, pid);
  kill(pid, SIGCONT);
  job_start(starter, &job);
  g_assert_cmpint(qv_starter_pid(starter), ==, pid);
  job_end(&job);
  qv_starter_free(starter);
}

/* One that takes too long for that is given up. */
static void test_never_ready(void)
{
  QvStarter *starter = starter_new_odd(STOPS_FIRST, (QvStarterPatience){.answer_ms = PATIENCE_S * 1000, .ready_ms = 0});
  GPid pid = qv_starter_pid(starter);
  Job job;
  AWAIT(is_stopped(pid));
  g_assert_false(job_try(starter, &job));
  g_assert_cmpint(qv_starter_pid(starter), !=, pid);
  AWAIT((g_main_context_iteration(NULL, FALSE), kill(pid, 0) != 0));
  qv_starter_free(starter);
}

/* So is one that gives no answer. */
static void test_no_answer(void)
{
  QvStarter *starter = qv_starter_new(FALSE, (QvStarterPatience){.answer_ms = 10, .ready_ms = PATIENCE_S * 1000});
  GPid pid = qv_starter_pid(starter);
  Job job;
  AWAIT(qv_starter_is_ready(starter));
  kill(pid, SIGSTOP);
  AWAIT(is_stopped(pid));
  g_assert_false(job_try(starter, &job));
  g_assert_cmpint(qv_starter_pid(starter), !=, pid);
  AWAIT((g_main_context_iteration(NULL, FALSE), kill(pid, 0) != 0));
  qv_starter_free(starter);
}

/* A channel that would be the stderr of its job process as well. */
static void test_closed_stderr(void)
{
  QvStarter *starter = starter_new_odd(CLOSES_STDERR, long_patience);
  Job job;
  int status;
  AWAIT(qv_starter_is_ready(starter));
  g_assert_true(job_try(starter, &job));
  g_assert_cmpint(waitpid(job.pid, &status, 0), ==, job.pid);
  g_assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
  close(job.channel);
  qv_starter_free(starter);
}

/* Killed when it wants to answer. */
static void die_unanswered(void)
{
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  if (filter == NULL ||
      seccomp_rule_add(filter, SCMP_ACT_KILL_PROCESS, SCMP_SYS(write), 2, SCMP_A0(SCMP_CMP_EQ, QV_STARTER_FD),
                       SCMP_A2(SCMP_CMP_EQ, sizeof(gint32))) != 0 ||
      seccomp_load(filter) != 0)
    _exit(2);
  seccomp_release(filter);
}

/* Children of this process but PID, those that wait to be reaped with them. */
static gboolean has_others(GPid pid)
{
  g_autofree char *own = g_strdup_printf("%d ", pid);
  g_autofree char *name = g_strdup_printf("task/%d/children", getpid());
  g_autofree char *text = proc_text(getpid(), name, NULL);
  return text != NULL && strcmp(text, own) != 0;
}

/* What it forked and did not tell of is ended and reaped. */
static void test_dies_unanswered(void)
{
  QvStarter *starter = starter_new_odd(DIES_UNANSWERED, long_patience);
  GPid pid = qv_starter_pid(starter);
  Job job;
  AWAIT(qv_starter_is_ready(starter));
  g_assert_false(job_try(starter, &job));
  g_assert_cmpint(qv_starter_pid(starter), !=, pid);
  AWAIT((g_main_context_iteration(NULL, FALSE), !has_others(qv_starter_pid(starter))));
  job_start(starter, &job);
  job_end(&job);
  qv_starter_free(starter);
}

/* A crash is told, whether or not the job process heard of it before its own end; a kill is none. */
static void test_unpack_crashes(void)
{
  static const struct {
    int signal;
    gboolean first; /* before the job process can hear of it */
    int status;
  } rows[] = {{SIGUSR1, FALSE, QV_JOB_UNPACK_CRASHED}, {SIGUSR1, TRUE, QV_JOB_UNPACK_CRASHED}, {SIGKILL, FALSE, 0}};
  QvStarter *starter = starter_new(FALSE);
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    Job job;
    int status;
    job_start(starter, &job);
    if (rows[i].first) {
      kill(job.pid, SIGSTOP);
      AWAIT(is_stopped(job.pid));
      close(job.channel);
    }
    kill(job.unpack, rows[i].signal);
    if (rows[i].first) {
      AWAIT(is_in_state(job.unpack, 'Z'));
      kill(job.pid, SIGCONT);
    } else {
      AWAIT(kill(job.unpack, 0) != 0);
      close(job.channel);
    }
    g_assert_cmpint(waitpid(job.pid, &status, 0), ==, job.pid);
    g_assert_true(WIFEXITED(status));
    g_assert_cmpint(WEXITSTATUS(status), ==, rows[i].status);
  }
  qv_starter_free(starter);
}

/* Who started it is killed: nothing is left. */
static void test_supervisor_dies(void)
{
  int tell[2];
  g_assert_true(qv_fd_pipe(tell, NULL));
  pid_t supervisor = fork();
  if (supervisor == 0) {
    QvStarter *starter = starter_new(FALSE);
    Job job;
    job_start(starter, &job);
    GPid pids[] = {qv_starter_pid(starter), job.pid, job.unpack};
    _exit(write(tell[1], pids, sizeof pids) == sizeof pids && pause() == 0);
  }
  GPid pids[3];
  g_assert_cmpint(qv_io_read_full(tell[0], pids, sizeof pids), ==, sizeof pids);
  kill(supervisor, SIGKILL);
  g_assert_cmpint(waitpid(supervisor, NULL, 0), ==, supervisor);
  for (gsize i = 0; i < G_N_ELEMENTS(pids); i++)
    AWAIT(has_role(pids[i], ""));
  close(tell[0]);
  close(tell[1]);
}

int main(int argc, char **argv)
{
  if (qv_role_of(argc, argv) == QV_ROLE_STARTER) {
    const char *how = g_getenv("LANG") ?: "";
    if (strcmp(how, STOPS_FIRST) == 0)
      raise(SIGSTOP);
    if (strcmp(how, CLOSES_STDERR) == 0)
      close(STDERR_FILENO);
    if (strcmp(how, DIES_UNANSWERED) == 0)
      die_unanswered();
    prctl(PR_SET_NAME, "quavon-role");
    return qv_starter_main(argc, argv);
  }
  if (qv_role_of(argc, argv) == QV_ROLE_UNPACK) /* one that takes the place of another */
    return qv_unpack_main(FALSE);
  signal(SIGPIPE, SIG_IGN);
  g_test_init(&argc, &argv, NULL);
  if (qv_test_under_valgrind()) { /* /proc/self/exe is valgrind's */
    g_print("1..0 # SKIP not under valgrind\n");
    return 0;
  }
  g_test_add_func("/starter/job", test_job);
  g_test_add_func("/starter/holds-nothing", test_holds_nothing);
  g_test_add_func("/starter/renew", test_renew);
  g_test_add_func("/starter/renews-by-itself", test_renews_by_itself);
  g_test_add_func("/starter/dies", test_dies);
  g_test_add_func("/starter/slow", test_slow);
  g_test_add_func("/starter/never-ready", test_never_ready);
  g_test_add_func("/starter/no-answer", test_no_answer);
  g_test_add_func("/starter/closed-stderr", test_closed_stderr);
  g_test_add_func("/starter/dies-unanswered", test_dies_unanswered);
  g_test_add_func("/starter/unpack-crashes", test_unpack_crashes);
  g_test_add_func("/starter/supervisor-dies", test_supervisor_dies);
  return g_test_run();
}
