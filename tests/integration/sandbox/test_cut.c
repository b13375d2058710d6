/* SPDX-License-Identifier: Apache-2.0 */
/* Starts that are cut off before the engine has answered: containerd stands still, so that the engine does not come to their end. */
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#include "base/clock.h"
#include "base/fd.h"
#include "fixture.h"

static char *run_file(Fixture *f, const char *id, const char *name)
{
  return g_build_filename(f->state, "runs", id, name, NULL);
}

/* A start that another engine was asked for may go on behind our back: its run folder stays until that must be over. */
static void sweep_cut(Fixture *f, const char *id)
{
  g_autofree char *mark = run_file(f, id, "cut");
  g_assert_cmpuint(leftovers_with(f->backend, "run folder "), ==, 1);
  sweep_says(f->backend, NULL, 0, 0, 1);
  g_assert_cmpuint(leftovers_with(f->backend, "container "), ==, 0);
  /* The clock is set back: from then on it is new. */
  struct stat st;
  time_t ahead = time(NULL) + 3600;
  g_assert_cmpint(utime(mark, &(struct utimbuf){.actime = ahead, .modtime = ahead}), ==, 0);
  sweep_says(f->backend, NULL, 0, 0, 1);
  g_assert_cmpint(stat(mark, &st), ==, 0);
  g_assert_cmpint(st.st_mtime, <, ahead);
  g_assert_cmpint(utime(mark, &(struct utimbuf){.actime = 1000, .modtime = 1000}), ==, 0);
  sweep_ok(f->backend, NULL, 1, 0);
  assert_no_leftovers(f->backend);
}

static pid_t stop_containerd(void)
{
  pid_t pid = qv_test_dockerd_containerd(backend_dockerd());
  g_assert_cmpint(pid, >, 1);
  g_assert_cmpint(kill(pid, SIGSTOP), ==, 0);
  return pid;
}

static void await_file(const char *path)
{
  for (gint64 until = qv_clock_mono_ms() + DEADLINE_MS; access(path, F_OK) != 0; g_usleep(2000)) {
    g_assert_cmpint(qv_clock_mono_ms(), <, until);
    g_main_context_iteration(NULL, FALSE);
  }
}

/* A guest whose start the engine has before it. */
static Guest *guest_starting(Fixture *f)
{
  Guest *guest = guest_start(f, f->backend, &SMALL, NULL);
  g_autofree char *mark = run_file(f, qv_sandbox_id(guest->sandbox), "starting");
  await_file(mark);
  for (guint turn = 0; turn < 100; turn++, g_usleep(2000))
    g_main_context_iteration(NULL, FALSE);
  g_assert_cmpuint(guest->started + guest->exited, ==, 0);
  return guest;
}

#define HOLD_US 300000

static gpointer go_on(gpointer data)
{
  g_usleep(HOLD_US);
  g_assert_cmpint(kill(GPOINTER_TO_INT(data), SIGCONT), ==, 0);
  return NULL;
}

/* The engine lives: behind its removal nothing comes, and nothing is kept. */
static void test_engine_lives(Fixture *f, gconstpointer data)
{
  pid_t containerd = stop_containerd();
  Guest *guest = guest_starting(f);
  GThread *thread = g_thread_new("go-on", go_on, GINT_TO_POINTER(containerd));
  guest_free(guest);
  g_thread_join(thread);
  assert_no_leftovers(f->backend);
}

static gpointer die_and_go_on(gpointer data)
{
  g_usleep(HOLD_US);
  qv_test_dockerd_kill(backend_dockerd());
  g_assert_cmpint(kill(GPOINTER_TO_INT(data), SIGCONT), ==, 0);
  qv_test_dockerd_restart(backend_dockerd());
  return NULL;
}

/* It dies while we take the start back: what containerd was asked for may come behind the removal. Stopped first, so that it does not
 * remove the container before. */
static void test_engine_killed(Fixture *f, gconstpointer data)
{
  pid_t containerd = stop_containerd();
  Guest *guest = guest_starting(f);
  g_assert_cmpint(kill(qv_test_dockerd_pid(backend_dockerd()), SIGSTOP), ==, 0);
  g_autofree char *id = g_strdup(qv_sandbox_id(guest->sandbox));
  GThread *thread = g_thread_new("die", die_and_go_on, GINT_TO_POINTER(containerd));
  for (gint64 until = qv_clock_mono_ms() + DEADLINE_MS; !qv_sandbox_kill(guest->sandbox, NULL);)
    g_assert_cmpint(qv_clock_mono_ms(), <, until);
  g_thread_join(thread);
  guest_free(guest);
  guest = guest_started(f, &SMALL); /* containerd is through */
  guest_expect(guest, "echo up", "echo up");
  guest_free(guest);
  sweep_cut(f, id);
}

/* A process that begins a start and dies; ID: 37 bytes. */
static void start_and_die(Fixture *f, char *id)
{
  int ends[2];
  g_assert_true(qv_fd_pipe(ends, NULL));
  pid_t owner = fork();
  g_assert_cmpint(owner, >=, 0);
  if (owner == 0) {
    Guest *guest = guest_starting(f);
    if (!qv_io_write_full(ends[1], qv_sandbox_id(guest->sandbox), 36))
      _exit(1);
    for (;;)
      pause();
  }
  close(ends[1]);
  g_assert_cmpint(qv_io_read_full(ends[0], id, 36), ==, 36);
  close(ends[0]);
  id[36] = '\0';
  g_assert_cmpint(kill(owner, SIGKILL), ==, 0);
  g_assert_cmpint(waitpid(owner, NULL, 0), ==, owner);
}

/* Whoever waited for the answer dies, and perhaps the engine as well: the sweep takes away what is there, and knows whether to
 * look again. */
static void test_owner_killed(Fixture *f, gconstpointer data)
{
  for (guint engine_dies = 0; engine_dies < 2; engine_dies++) {
    char id[40];
    pid_t containerd = stop_containerd();
    start_and_die(f, id);
    if (engine_dies)
      qv_test_dockerd_kill(backend_dockerd());
    g_assert_cmpint(kill(containerd, SIGCONT), ==, 0);
    if (engine_dies)
      qv_test_dockerd_restart(backend_dockerd());
    g_assert_cmpuint(leftovers_with(f->backend, id), >, 0);
    sweep_says(f->backend, id, engine_dies ? 0 : 1, 0, engine_dies ? 1 : 0);
    if (engine_dies)
      sweep_cut(f, id);
    assert_no_leftovers(f->backend);
  }
}

static const FixtureCase CASES[] = {
  {ON_DOCKER, "engine-lives", test_engine_lives},
  {ON_DOCKER, "engine-killed", test_engine_killed},
  {ON_DOCKER, "owner-killed", test_owner_killed},
};

int main(int argc, char **argv)
{
  return fixture_main(argc, argv, "cut", CASES, G_N_ELEMENTS(CASES));
}
