/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong and what is left of it: failed starts, kill -9 at every moment, owners that
 * die, planted leftovers that the leak check must see and the sweep must remove. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/random.h"
#include "fixture.h"

#define PLANTED "00000000-0000-4000-8000-00000000000a"
#define POLL_US 2000

static char *write_script(Fixture *f, const char *name, const char *text)
{
  g_autoptr(GError) error = NULL;
  char *path = g_build_filename(f->dir, name, NULL);
  g_assert_true(g_file_set_contents(path, text, -1, &error));
  g_assert_cmpint(chmod(path, 0755), ==, 0);
  return path;
}

static QvBackend *backend_with(Fixture *f, const char *runsc, guint deadline_ms, GError **error)
{
  QvBackendOptions options = {.state_dir = f->state, .runner_id = "test-runner", .runsc = runsc,
                              .start_deadline_ms = deadline_ms};
  return qv_backend_open("runsc", &options, error);
}

/* --- opening and check --- */

static void test_program_missing(Fixture *f, gconstpointer data)
{
  g_autofree char *plain = g_build_filename(f->dir, "plain", NULL);
  g_assert_true(g_file_set_contents(plain, "x", 1, NULL));
  const char *const PROGRAMS[] = {"/nowhere/runsc", "no-such-program-of-ours", plain};
  for (gsize i = 0; i < G_N_ELEMENTS(PROGRAMS); i++) {
    g_autoptr(GError) error = NULL;
    g_assert_null(backend_with(f, PROGRAMS[i], 0, &error));
    g_assert_error(error, QV_ERROR, QV_ERROR_SYSTEM);
    g_assert_nonnull(strstr(error->message, PROGRAMS[i]));
    g_assert_nonnull(strstr(error->message, "install gVisor"));
  }
}

static void require_no_open(const char *name, const QvBackendOptions *options, int code, const char *words)
{
  g_autoptr(GError) error = NULL;
  g_assert_null(qv_backend_open(name, options, &error));
  g_assert_error(error, QV_ERROR, code);
  if (strstr(error->message, words) == NULL)
    g_error("'%s' is not in: %s", words, error->message);
}

static void test_open_refuses(Fixture *f, gconstpointer data)
{
  QvBackendOptions options = fixture_options(f, "r");
  require_no_open("firecracker", &options, QV_ERROR_POLICY, "firecracker");
  options.state_dir = "relative";
  require_no_open(row->name, &options, QV_ERROR_SYSTEM, "relative");
  options.state_dir = "/nowhere/at/all";
  require_no_open(row->name, &options, QV_ERROR_SYSTEM, "/nowhere/at/all");
  if (!ON(ON_RUNSC))
    return;
  g_autofree char *name = g_strnfill(60, 'n');
  g_autofree char *deep = g_build_filename(f->dir, name, NULL);
  g_assert_cmpint(mkdir(deep, 0700), ==, 0);
  options.state_dir = deep;
  require_no_open("runsc", &options, QV_ERROR_LIMIT, "QUAVON_SANDBOX_STATE_DIR");
  options.state_dir = f->state;
  options.cgroup_mount = f->dir;
  require_no_open("runsc", &options, QV_ERROR_SYSTEM, "limit cannot be set");
}

static void test_longest_state_folder(Fixture *f, gconstpointer data)
{
  /* 108 bytes of sun_path, less "/runsc/runsc-<36>.sock" and its NUL. */
  const gsize longest = 108 - 18 - 36 - 1;
  g_autoptr(GError) error = NULL;
  g_autofree char *name = g_strnfill(longest - strlen(f->dir) - 1, 'n');
  g_autofree char *deep = g_build_filename(f->dir, name, NULL);
  g_assert_cmpint(mkdir(deep, 0700), ==, 0);
  QvBackendOptions options = {.state_dir = deep, .runner_id = "r", .start_deadline_ms = DEADLINE_MS};
  g_autoptr(QvBackend) backend = qv_backend_open("runsc", &options, &error);
  g_assert_no_error(error);
  g_assert_true(check_with(backend, f->image, NULL, &error));
  g_assert_no_error(error);
  assert_no_leftovers(backend);
}

static void test_check(Fixture *f, gconstpointer data)
{
  g_autoptr(GError) error = NULL;
  g_autofree char *version = NULL;
  gboolean ok = check_with(f->backend, ON(ON_RUNSC) ? f->image : f->digest, &version, &error);
  g_assert_no_error(error);
  g_assert_true(ok);
  g_assert_nonnull(strpbrk(version, "0123456789"));
  g_assert_cmpstr(qv_backend_name(f->backend), ==, row->name);
  g_assert_cmpstr(qv_backend_platform(f->backend), ==, row->platform);
  g_assert_true(g_str_equal(qv_backend_cgroup(f->backend), "v1") || g_str_equal(qv_backend_cgroup(f->backend), "v2"));
}

static void test_check_refuses(Fixture *f, gconstpointer data)
{
  g_autoptr(GError) error = NULL;
  g_autofree char *absent = g_build_filename(f->dir, "absent.erofs", NULL);
  g_assert_false(check_with(f->backend, absent, NULL, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_SYSTEM);
  g_assert_nonnull(strstr(error->message, "absent.erofs"));
  g_clear_error(&error);
  g_autofree char *no_image = write_script(f, "no.erofs", "this is no file system image\n");
  g_assert_false(check_with(f->backend, no_image, NULL, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_SYSTEM);
  g_assert_nonnull(strstr(error->message, "trial start"));
  g_clear_error(&error);
  g_assert_false(check_with(f->backend, f->dir, NULL, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
}

static void check_with_script(Fixture *f, const char *script, guint deadline_ms, int code, const char *words)
{
  g_autoptr(GError) error = NULL;
  g_autofree char *program = write_script(f, "runsc-script", script);
  g_autoptr(QvBackend) backend = backend_with(f, program, deadline_ms, &error);
  g_assert_no_error(error);
  g_assert_false(check_with(backend, f->image, NULL, &error));
  g_assert_error(error, QV_ERROR, code);
  g_assert_nonnull(strstr(error->message, words));
  assert_no_leftovers(backend);
}

#define SAYS_VERSION "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'runsc version test'; exit 0; fi\n"

static void test_program_fails(Fixture *f, gconstpointer data)
{
  check_with_script(f, "#!/bin/sh\necho I am something else\n", DEADLINE_MS, QV_ERROR_SYSTEM, "something else");
  check_with_script(f, "#!/bin/sh\nexit 1\n", DEADLINE_MS, QV_ERROR_SYSTEM, "not gVisor");
  check_with_script(f, "not a script\n", DEADLINE_MS, QV_ERROR_SYSTEM, "runsc-script");
  check_with_script(f, "#!/bin/sh\nexec sleep 100000\n", 300, QV_ERROR_TIMEOUT, "did not answer");
  check_with_script(f, "#!/bin/sh\nexec >&- 2>&-\nsleep 100000\n", 300, QV_ERROR_TIMEOUT, "did not answer");
  check_with_script(f, SAYS_VERSION "echo cannot do that >&2; exit 128\n", DEADLINE_MS, QV_ERROR_SYSTEM,
                    "cannot do that");
  check_with_script(f, SAYS_VERSION "printf 'flag provided but not defined: -directfs\\nUsage: runsc\\n' >&2; exit 2\n", DEADLINE_MS,
                    QV_ERROR_SYSTEM, "too old, install 20240729 or newer (docs/GVISOR.md): flag provided but not defined: -directfs");
  check_with_script(f, SAYS_VERSION "kill -9 $$\n", DEADLINE_MS, QV_ERROR_SYSTEM, "signal 9");
  check_with_script(f, SAYS_VERSION "echo still waiting >&2; exec sleep 100000\n", 8000, QV_ERROR_SYSTEM, "did not start");
  /* A failed start that leaves processes of every shape: docker with runsc does (facts). */
  check_with_script(f, SAYS_VERSION "sleep 100000 & setsid sleep 100000 & (setsid sleep 100000 &) & exit 128\n",
                    DEADLINE_MS, QV_ERROR_SYSTEM, "status 128");
}

static void note_nothing(QvSandbox *sandbox, QvSandboxEvent event, gpointer data)
{
}

static void test_start_refuses(Fixture *f, gconstpointer data)
{
  g_autoptr(GError) error = NULL;
  Guest *guest = guest_started(f, &SMALL);
  /* An id is used once. The one that lives is not touched. */
  QvSandboxRequest request = fixture_request(f, qv_sandbox_id(guest->sandbox), &SMALL);
  g_assert_null(qv_backend_start(f->backend, &request, note_nothing, NULL, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_SYSTEM);
  guest_expect(guest, "echo alive", "echo alive");
  guest_free(guest);
  g_clear_error(&error);
  request.sandbox_id = "../../etc";
  g_assert_null(qv_backend_start(f->backend, &request, note_nothing, NULL, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
  assert_no_leftovers(f->backend);
}

/* A cgroup that is there already is somebody's: the start fails and leaves it. */
static void test_cgroup_is_taken(Fixture *f, gconstpointer data)
{
  g_autoptr(GError) error = NULL;
  Guest *guest = guest_started(f, &SMALL);
  g_auto(GStrv) lines = qv_backend_leftovers(f->backend);
  const char *own = NULL;
  for (guint i = 0; lines[i] != NULL; i++)
    if (g_str_has_prefix(lines[i], "cgroup "))
      own = lines[i] + strlen("cgroup ");
  g_assert_nonnull(own);
  g_autofree char *parent = g_path_get_dirname(own);
  g_autofree char *taken = g_build_filename(parent, PLANTED, NULL);
  g_assert_cmpint(mkdir(taken, 0755), ==, 0);
  QvSandboxRequest request = {.sandbox_id = PLANTED, .rootfs_file = f->image, .limits = SMALL};
  g_assert_null(qv_backend_start(f->backend, &request, note_nothing, NULL, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_SYSTEM);
  g_assert_cmpuint(leftovers_with(f->backend, PLANTED), ==, 1);
  g_assert_cmpint(rmdir(taken), ==, 0);
  guest_free(guest);
}

/* --- kill -9 --- */

/* The process `runsc run` of the guest, which the leak check names. */
static pid_t run_of(Fixture *f, Guest *guest)
{
  return leftover_process(f->backend, qv_sandbox_id(guest->sandbox), "runsc");
}

static void require_end_after_kill(Fixture *f, Guest *guest)
{
  wait_until(&guest->exited);
  g_assert_true(WIFSIGNALED(qv_sandbox_wait_status(guest->sandbox)));
  g_assert_cmpint(WTERMSIG(qv_sandbox_wait_status(guest->sandbox)), ==, SIGKILL);
  if (guest->started == 0)
    g_assert_nonnull(strstr(qv_sandbox_failure(guest->sandbox), "signal 9"));
  guest_free(guest);
  assert_no_leftovers(f->backend);
}

static void test_kill9_while_running(Fixture *f, gconstpointer data)
{
  Guest *guest = guest_started(f, &SMALL);
  guest_expect(guest, "strays", "strays done");
  pid_t pid = run_of(f, guest);
  g_assert_cmpint(pid, >, 1);
  g_assert_cmpint(kill(pid, SIGKILL), ==, 0);
  require_end_after_kill(f, guest);
}

/* At once, and when so many processes of it are there: run, gofer or sandbox, stubs. */
static void test_kill9_while_starting(Fixture *f, gconstpointer data)
{
  for (guint want = 1; want <= 4; want++) {
    Guest *guest = guest_start(f, f->backend, &SMALL, NULL);
    gint64 until = qv_clock_mono_ms() + DEADLINE_MS;
    pid_t pid = 0;
    while (pid == 0 || leftovers_with(f->backend, "process ") < want) {
      g_assert_cmpint(qv_clock_mono_ms(), <, until);
      pid = run_of(f, guest);
      if (guest->exited != 0 || guest->started != 0)
        break;
      g_usleep(POLL_US);
      g_main_context_iteration(NULL, FALSE);
    }
    if (pid == 0)
      pid = run_of(f, guest);
    g_assert_cmpint(pid, >, 1);
    g_assert_cmpint(kill(pid, SIGKILL), ==, 0);
    require_end_after_kill(f, guest);
  }
}

static void test_kill9_of_the_sandbox(Fixture *f, gconstpointer data)
{
  Guest *guest = guest_started(f, &SMALL);
  pid_t pid = leftover_process(f->backend, qv_sandbox_id(guest->sandbox), row->process);
  g_assert_cmpint(pid, >, 1);
  g_assert_cmpint(kill(pid, SIGKILL), ==, 0);
  wait_until(&guest->exited);
  guest_free(guest);
  assert_no_leftovers(f->backend);
}

/* Our own kill, at the same moments. */
static void test_kill_while_starting(Fixture *f, gconstpointer data)
{
  for (guint want = 0; want <= 4; want++) {
    Guest *guest = guest_start(f, f->backend, &SMALL, NULL);
    gint64 until = qv_clock_mono_ms() + DEADLINE_MS;
    while (leftovers_with(f->backend, "process ") < want && guest->started + guest->exited == 0) {
      g_assert_cmpint(qv_clock_mono_ms(), <, until);
      g_usleep(POLL_US);
      g_main_context_iteration(NULL, FALSE);
    }
    guest_free(guest);
    assert_no_leftovers(f->backend);
  }
}

/* A hung runtime does not answer signals either. */
static void test_kill_while_stopped(Fixture *f, gconstpointer data)
{
  Guest *guest = guest_started(f, &SMALL);
  pid_t pid = run_of(f, guest);
  g_assert_cmpint(kill(pid, SIGSTOP), ==, 0);
  pid = leftover_process(f->backend, qv_sandbox_id(guest->sandbox), row->process);
  g_assert_cmpint(kill(pid, SIGSTOP), ==, 0);
  guest_free(guest);
  assert_no_leftovers(f->backend);
}

/* --- an owner that dies --- */

typedef struct {
  pid_t pid;
  char id[64];
} Owner;

/* A process that starts a sandbox and then only lives. */
static Owner owner_start(Fixture *f)
{
  int ends[2];
  Owner owner = {0};
  g_assert_true(qv_fd_pipe(ends, NULL));
  owner.pid = fork();
  g_assert_cmpint(owner.pid, >=, 0);
  if (owner.pid == 0) {
    close(ends[0]);
    QvBackend *backend = fixture_backend(f, "test-runner");
    Guest *guest = guest_start(f, backend, &SMALL, NULL);
    g_free(guest_ask(guest, "echo up"));
    const char *id = qv_sandbox_id(guest->sandbox);
    if (!qv_io_write_full(ends[1], id, strlen(id)))
      _exit(1);
    close(ends[1]);
    for (;;)
      pause();
  }
  close(ends[1]);
  g_assert_cmpint(qv_io_read_full(ends[0], owner.id, 36), ==, 36);
  close(ends[0]);
  return owner;
}

static void owner_end(Owner *owner)
{
  g_assert_cmpint(kill(owner->pid, SIGKILL), ==, 0);
  g_assert_cmpint(waitpid(owner->pid, NULL, 0), ==, owner->pid);
}

static void test_owner_is_killed(Fixture *f, gconstpointer data)
{
  Owner first = owner_start(f), second = owner_start(f);
  /* While the owners live nothing of theirs is touched. */
  sweep_ok(f->backend, NULL, 0, 2);
  sweep_ok(f->backend, first.id, 0, 1);
  g_assert_cmpint(leftover_process(f->backend, first.id, row->process), >, 1);
  owner_end(&first);
  g_assert_cmpuint(leftovers_with(f->backend, first.id), >, 0);
  sweep_ok(f->backend, first.id, 1, 0);
  g_assert_cmpuint(leftovers_with(f->backend, first.id), ==, 0);
  g_assert_cmpint(leftover_process(f->backend, second.id, row->process), >, 1);
  owner_end(&second);
  sweep_ok(f->backend, NULL, 1, 0);
  assert_no_leftovers(f->backend);
  sweep_ok(f->backend, NULL, 0, 0);
}

static void test_two_runners(Fixture *f, gconstpointer data)
{
  g_autoptr(QvBackend) other = NULL;
  g_autofree char *state = g_build_filename(f->dir, "state-2", NULL);
  g_autoptr(GError) error = NULL;
  g_assert_cmpint(mkdir(state, 0700), ==, 0);
  /* The same runner id: a state folder that was copied with a machine. */
  QvBackendOptions options = fixture_options(f, "test-runner");
  options.state_dir = state;
  other = qv_backend_open(row->name, &options, &error);
  g_assert_no_error(error);
  Owner owner = owner_start(f);
  owner_end(&owner);
  Guest *guest = guest_start(f, other, &SMALL, NULL);
  guest_expect(guest, "echo up", "echo up");
  sweep_ok(other, NULL, 0, 1);
  g_assert_cmpuint(leftovers_with(f->backend, owner.id), >, 0);
  sweep_ok(f->backend, NULL, 1, 0);
  guest_expect(guest, "echo up", "echo up");
  guest_free(guest);
  assert_no_leftovers(other);
}

/* --- planted leftovers --- */

static pid_t plant_process(const char *join, const char *const *argv)
{
  pid_t pid = fork();
  g_assert_cmpint(pid, >=, 0);
  if (pid == 0) {
    int fd = join != NULL ? open(join, O_WRONLY) : -1;
    if (join != NULL && (fd < 0 || write(fd, "0", 1) != 1))
      _exit(1);
    execvp("sleep", (char *const *)argv);
    _exit(1);
  }
  return pid;
}

static void wait_for_leftover(QvBackend *backend, const char *text)
{
  gint64 until = qv_clock_mono_ms() + DEADLINE_MS;
  while (leftovers_with(backend, text) == 0) {
    g_assert_cmpint(qv_clock_mono_ms(), <, until);
    g_usleep(POLL_US);
  }
}

/* A child of the test's, so that only reaping makes it go. */
static void require_killed(pid_t pid)
{
  int status = 0;
  g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
  g_assert_true(WIFSIGNALED(status));
  g_assert_cmpint(WTERMSIG(status), ==, SIGKILL);
}

/* The folder of this runner's cgroups in a hierarchy, as the leak check names it. */
static char *cgroup_parent(Fixture *f, Guest *guest)
{
  g_auto(GStrv) lines = qv_backend_leftovers(f->backend);
  for (guint i = 0; lines[i] != NULL; i++)
    if (g_str_has_prefix(lines[i], "cgroup ") && strstr(lines[i], qv_sandbox_id(guest->sandbox)) != NULL)
      return g_path_get_dirname(lines[i] + strlen("cgroup "));
  g_assert_not_reached();
}

static void test_planted_cgroup(Fixture *f, gconstpointer data)
{
  static const char *const SLEEP[] = {"sleep", "100000", NULL};
  Guest *guest = guest_started(f, &SMALL);
  g_autofree char *parent = cgroup_parent(f, guest);
  g_autofree char *planted = g_build_filename(parent, PLANTED, NULL);
  g_autofree char *procs = g_build_filename(planted, "cgroup.procs", NULL);
  g_assert_cmpint(mkdir(planted, 0755), ==, 0);
  g_autofree char *line = g_strconcat("cgroup ", planted, NULL);
  g_assert_cmpuint(leftovers_with(f->backend, line), ==, 1);
  pid_t pid = plant_process(procs, SLEEP);
  wait_for_leftover(f->backend, "(sleep) in the cgroups of " PLANTED);
  sweep_ok(f->backend, NULL, 1, 1);
  require_killed(pid);
  g_assert_cmpuint(leftovers_with(f->backend, PLANTED), ==, 0);
  guest_expect(guest, "echo alive", "echo alive");
  guest_free(guest);
}

static void plant_file(Fixture *f, const char *folder, const char *name)
{
  g_autoptr(GError) error = NULL;
  g_autofree char *path = g_build_filename(f->state, folder, name, NULL);
  g_assert_cmpuint(leftovers_with(f->backend, path), ==, 0);
  g_assert_true(g_file_set_contents(path, "{", 1, &error));
  g_assert_no_error(error);
  g_assert_cmpuint(leftovers_with(f->backend, path), ==, 1);
}

static void test_planted_files(Fixture *f, gconstpointer data)
{
  g_autofree char *bundle = g_build_filename(f->state, "runs", PLANTED, "bundle", NULL);
  g_assert_cmpint(g_mkdir_with_parents(bundle, 0700), ==, 0);
  g_assert_cmpuint(leftovers_with(f->backend, "run folder "), ==, 1);
  sweep_ok(f->backend, NULL, 1, 0);
  assert_no_leftovers(f->backend);
  static const char *const NAMES[] = {PLANTED "_sandbox:" PLANTED ".state", PLANTED "_sandbox:" PLANTED ".lock",
                                      "runsc-" PLANTED ".sock"};
  for (gsize i = 0; i < G_N_ELEMENTS(NAMES); i++) {
    plant_file(f, "runsc", NAMES[i]);
    sweep_ok(f->backend, PLANTED, 1, 0);
    assert_no_leftovers(f->backend);
  }
}

/* What no sandbox of ours can have made is shown, and left alone. */
static void test_planted_by_others(Fixture *f, gconstpointer data)
{
  g_autofree char *path = g_build_filename(f->state, "runs", "notes.txt", NULL);
  plant_file(f, "runs", "notes.txt");
  sweep_ok(f->backend, NULL, 0, 0);
  g_assert_cmpint(access(path, F_OK), ==, 0);
  g_assert_cmpint(unlink(path), ==, 0);
}

/* A sandbox process in none of our cgroups. */
static void test_planted_process(Fixture *f, gconstpointer data)
{
  g_autofree char *script = write_script(f, "stray", "#!/bin/sh\nread forever\n");
  g_autofree char *root = g_strdup_printf("--root=%s/runsc", f->state);
  int ends[2];
  g_assert_true(qv_fd_pipe(ends, NULL));
  pid_t pid = fork();
  g_assert_cmpint(pid, >=, 0);
  if (pid == 0) {
    if (dup2(ends[0], 0) == 0)
      execl(script, script, root, "boot", PLANTED, (char *)NULL);
    _exit(1);
  }
  wait_for_leftover(f->backend, "in no cgroup of it");
  GThread *reaper = g_thread_new("reaper", (GThreadFunc)(void (*)(void))require_killed, GINT_TO_POINTER(pid));
  sweep_ok(f->backend, NULL, 1, 0);
  g_thread_join(reaper);
  close(ends[0]);
  close(ends[1]);
}

static const FixtureCase CASES[] = {
  {ON_RUNSC, "program-missing", test_program_missing},
  {ON_ALL, "open-refuses", test_open_refuses},
  {ON_RUNSC, "longest-state-folder", test_longest_state_folder},
  {ON_ALL, "check", test_check},
  {ON_RUNSC, "check-refuses", test_check_refuses},
  {ON_RUNSC, "program-fails", test_program_fails},
  {ON_ALL, "start-refuses", test_start_refuses},
  {ON_RUNSC, "cgroup-is-taken", test_cgroup_is_taken},
  {ON_RUNSC, "kill9-while-running", test_kill9_while_running},
  {ON_RUNSC, "kill9-while-starting", test_kill9_while_starting},
  {ON_ALL, "kill9-of-the-sandbox", test_kill9_of_the_sandbox},
  {ON_ALL, "kill-while-starting", test_kill_while_starting},
  {ON_RUNSC, "kill-while-stopped", test_kill_while_stopped},
  {ON_ALL, "owner-is-killed", test_owner_is_killed},
  {ON_ALL, "two-runners", test_two_runners},
  {ON_RUNSC, "planted-cgroup", test_planted_cgroup},
  {ON_RUNSC, "planted-files", test_planted_files},
  {ON_RUNSC, "planted-by-others", test_planted_by_others},
  {ON_RUNSC, "planted-process", test_planted_process},
};

int main(int argc, char **argv)
{
  return fixture_main(argc, argv, "recovery", CASES, G_N_ELEMENTS(CASES));
}
