/* SPDX-License-Identifier: Apache-2.0 */
#include "embedded_run.h"

#include <fcntl.h>
#include <ftw.h>
#include <glib/gstdio.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../unit/client/tree.h"

enum { POLL_US = 50000, NOBODY = 65534 };

gboolean run_possible(void)
{
  if (geteuid() == 0)
    return TRUE;
  g_test_skip("sandboxes need root");
  return FALSE;
}

Run *run_new(void)
{
  Run *run = g_new0(Run, 1);
  run->dir = tree_new();
  run->repo = tree_path(run->dir, "repo");
  tree_write(run->dir, "repo/hello.txt", "hello\n", 0644);
  return run;
}

static void forget_parts(Run *run)
{
  g_clear_pointer(&run->folder, g_free);
  g_clear_pointer(&run->sandbox_id, g_free);
  run->keeper = run->runner = run->valkey = 0;
}

void run_free(Run *run)
{
  g_assert_cmpint(run->pid, ==, 0);
  forget_parts(run);
  g_strfreev(run->extra);
  g_free(run->repo);
  tree_free(run->dir);
  g_free(run);
}

char **run_environment(const Run *run)
{
  const char *images = g_getenv("QUAVON_TEST_IMAGES");
  g_autofree char *lock = g_build_filename(images != NULL ? images : "build/test-images", "images.lock.json", NULL);
  if (!g_file_test(lock, G_FILE_TEST_EXISTS))
    g_error("%s is not there: scripts/test-image.sh makes it", lock);
  char **env = g_environ_setenv(NULL, "PATH", g_getenv("PATH"), TRUE);
  env = g_environ_setenv(env, "HOME", "/nonexistent", TRUE);
  const char *asan = g_getenv("ASAN_OPTIONS");
  if (asan != NULL)
    env = g_environ_setenv(env, "ASAN_OPTIONS", asan, TRUE);
  env = g_environ_setenv(env, "QUAVON_SANDBOX_DEFAULT_MEMORY_MIB", "256", TRUE);
  env = g_environ_setenv(env, "QUAVON_SANDBOX_DEFAULT_WORK_MIB", "64", TRUE);
  env = g_environ_setenv(env, "QUAVON_SANDBOX_IMAGES_FILE", lock, TRUE);
  for (guint i = 0; run->extra != NULL && run->extra[i] != NULL; i++) {
    g_auto(GStrv) pair = g_strsplit(run->extra[i], "=", 2);
    env = g_environ_setenv(env, pair[0], pair[1], TRUE);
  }
  return env;
}

void run_setenv(Run *run, const char *name, const char *value)
{
  run->extra = g_environ_setenv(run->extra, name, value, TRUE);
}

typedef struct {
  const char *out, *err;
  GPid parent;
  gboolean nobody;
} Child;

static void before_exec(gpointer data)
{
  const Child *child = data;
  int out = open(child->out, O_WRONLY | O_CREAT | O_TRUNC | O_NOCTTY, 0666);
  int err = open(child->err, O_WRONLY | O_CREAT | O_TRUNC | O_NOCTTY, 0666);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  if (child->nobody && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
    _exit(99);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != child->parent)
    _exit(99);
}

static void start(Run *run, const char *program, const char *verb, const char *const *words, gboolean nobody)
{
  g_autofree char *out = tree_path(run->dir, "stdout");
  g_autofree char *err = tree_path(run->dir, "stderr");
  g_autoptr(GPtrArray) argv = g_ptr_array_new();
  g_ptr_array_add(argv, (gpointer)program);
  if (verb != NULL)
    g_ptr_array_add(argv, (gpointer)verb);
  for (; *words != NULL; words++)
    g_ptr_array_add(argv, (gpointer)*words);
  g_ptr_array_add(argv, NULL);
  g_auto(GStrv) env = run_environment(run);
  Child child = { run->terminal_out ? run->terminal : out, run->terminal != NULL ? run->terminal : err, getpid(), nobody };
  g_autoptr(GError) error = NULL;
  forget_parts(run);
  g_spawn_async(run->repo, (char **)argv->pdata, env, G_SPAWN_DO_NOT_REAP_CHILD, before_exec, &child, &run->pid, &error);
  g_assert_no_error(error);
}

static char *program_path(void)
{
  const char *build = g_getenv("QUAVON_BUILD_ROOT");
  g_assert_nonnull(build);
  return g_build_filename(build, "src", "cli", "quavon", NULL);
}

void run_start(Run *run, const char *const *words)
{
  g_autofree char *program = program_path();
  start(run, program, "run", words, FALSE);
}

void run_start_verb(Run *run, const char *const *words)
{
  g_autofree char *program = program_path();
  start(run, program, NULL, words, FALSE);
}

void run_start_as_nobody(Run *run, const char *const *words)
{
  /* The build may lie where nobody has no access. */
  g_autofree char *program = program_path();
  g_autofree char *copy = tree_path(run->dir, "quavon");
  tree_run("/", "cp", program, copy, NULL);
  tree_run("/", "chmod", "-R", "a+rX", run->dir, NULL);
  g_assert_cmpint(g_chmod(copy, 0755), ==, 0);
  start(run, copy, "run", words, TRUE);
}

int run_wait(Run *run)
{
  int status = 0;
  for (gint64 until = g_get_monotonic_time() + RUN_DEADLINE_MS * 1000; g_get_monotonic_time() < until;
       g_usleep(POLL_US)) {
    if (waitpid(run->pid, &status, WNOHANG) == run->pid) {
      run->pid = 0;
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
  }
  g_autofree char *err = run_stderr(run);
  g_error("quavon does not end; it said:\n%s", err);
}

int run_all(Run *run, const char *const *words)
{
  run_start(run, words);
  return run_wait(run);
}

static char *slurp(const Run *run, const char *name)
{
  g_autofree char *path = tree_path(run->dir, name);
  char *text = NULL;
  return g_file_get_contents(path, &text, NULL, NULL) ? text : g_strdup("");
}

void run_expect(Run *run, int status, const char *const *words)
{
  int is = run_all_verb(run, words);
  if (is == status)
    return;
  g_autofree char *err = run_stderr(run);
  g_error("`quavon %s` ended with %d, not %d; it said:\n%s", words[0], is, status, err);
}

/* ---- a Valkey and a runner that are there */

char *run_use_valkey(Run *run, const char *url)
{
  char *key = tree_path(run->dir, "pool.key");
  g_autofree char *state = tree_path(run->dir, "s");
  tree_mkdir(run->dir, "s");
  run_expect(run, 0, WORDS("keygen", key));
  run_setenv(run, "VALKEY_URL", url);
  run_setenv(run, "QUAVON_SANDBOX_SIGNING_KEY_FILE", key);
  run_setenv(run, "QUAVON_SANDBOX_STATE_DIR", state);
  return key;
}

static void before_runner(gpointer log)
{
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(fd, STDERR_FILENO);
}

GPid run_start_runner(Run *run, const char *url, const char *const *settings)
{
  g_autofree char *program =
      g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src", "runner", "quavon-sandbox-runner", NULL);
  g_autofree char *log = tree_path(run->dir, "runner.log");
  char **env = run_environment(run);
  env = g_environ_setenv(env, "VALKEY_URL", url, TRUE);
  env = g_environ_setenv(env, "QUAVON_SANDBOX_BACKEND", "runsc", TRUE);
  env = g_environ_setenv(env, "QUAVON_SANDBOX_GRACE_MS", "0", TRUE);
  for (; settings != NULL && *settings != NULL; settings += 2)
    env = g_environ_setenv(env, settings[0], settings[1], TRUE);
  const char *argv[] = { program, NULL };
  g_autoptr(GError) error = NULL;
  GPid runner = 0;
  g_spawn_async("/", (char **)argv, env, G_SPAWN_DO_NOT_REAP_CHILD, before_runner, log, &runner, &error);
  g_strfreev(env);
  g_assert_no_error(error);
  return runner;
}

void run_stop_runner(Run *run, GPid *runner)
{
  int status = 0;
  if (*runner == 0)
    return;
  kill(*runner, SIGTERM);
  g_assert_cmpint(waitpid(*runner, &status, 0), ==, *runner);
  *runner = 0;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return;
  g_autofree char *log = tree_path(run->dir, "runner.log");
  g_autofree char *text = NULL;
  g_file_get_contents(log, &text, NULL, NULL);
  g_error("the runner ended with %x:\n%s", (unsigned)status, text);
}

char *run_stdout(const Run *run)
{
  return slurp(run, "stdout");
}

char *run_stderr(const Run *run)
{
  return slurp(run, "stderr");
}

int run_all_verb(Run *run, const char *const *words)
{
  run_start_verb(run, words);
  return run_wait(run);
}

void run_await_words(const Run *run, const char *words)
{
  for (gint64 until = g_get_monotonic_time() + RUN_DEADLINE_MS * 1000; g_get_monotonic_time() < until;
       g_usleep(POLL_US)) {
    g_autofree char *err = run_stderr(run);
    if (strstr(err, words) != NULL)
      return;
    if (waitpid(run->pid, NULL, WNOHANG) == run->pid)
      g_error("quavon ended too early; it said:\n%s", err);
  }
  g_autofree char *err = run_stderr(run);
  g_error("quavon does not say \"%s\"; it said:\n%s", words, err);
}

/* ── Its parts ── */

static char *proc_read(int pid, const char *name, gsize *n)
{
  g_autofree char *path = g_strdup_printf("/proc/%d/%s", pid, name);
  char *text = NULL;
  *n = 0;
  return g_file_get_contents(path, &text, n, NULL) ? text : NULL;
}

static int parent_of(int pid)
{
  gsize n = 0;
  g_autofree char *text = proc_read(pid, "stat", &n);
  const char *end = text != NULL ? strrchr(text, ')') : NULL;
  int parent = 0;
  return end != NULL && sscanf(end + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

/* The word of the command line, counted from 0; NULL. */
static char *word_of(int pid, guint index)
{
  gsize n = 0;
  g_autofree char *text = proc_read(pid, "cmdline", &n);
  for (gsize at = 0; text != NULL && at < n; at += strlen(text + at) + 1) {
    if (index-- == 0)
      return g_strdup(text + at);
  }
  return NULL;
}

typedef gboolean (*PidFunc)(int pid, gpointer data);

static void each_pid(PidFunc func, gpointer data)
{
  g_autoptr(GDir) dir = g_dir_open("/proc", 0, NULL);
  for (const char *name; (name = g_dir_read_name(dir)) != NULL;) {
    int pid = g_ascii_isdigit(*name) ? atoi(name) : 0;
    if (pid > 0 && func(pid, data))
      return;
  }
}

static gboolean see_part(int pid, gpointer data)
{
  Run *run = data;
  int parent = parent_of(pid);
  g_autofree char *program = word_of(pid, 0);
  g_autofree char *verb = word_of(pid, 1);
  if (program == NULL)
    return FALSE;
  if (parent == run->pid && g_strcmp0(verb, "_keeper") == 0) {
    run->keeper = pid;
    g_free(run->folder);
    run->folder = word_of(pid, 2);
  } else if (run->keeper != 0 && parent == run->keeper) {
    if (g_str_has_suffix(program, "quavon-sandbox-runner"))
      run->runner = pid;
    else if (g_str_has_prefix(program, "valkey-server"))
      run->valkey = pid;
  }
  return FALSE;
}

void run_await_runner(Run *run)
{
  for (gint64 until = g_get_monotonic_time() + RUN_DEADLINE_MS * 1000; run->runner == 0; g_usleep(POLL_US)) {
    g_assert_cmpint(g_get_monotonic_time(), <, until);
    each_pid(see_part, run);
  }
}

static gboolean kill_child(int pid, gpointer parent)
{
  if (parent_of(pid) == GPOINTER_TO_INT(parent))
    kill(pid, SIGKILL);
  return FALSE;
}

void run_kill_runner(const Run *run)
{
  g_assert_cmpint(kill(run->runner, SIGSTOP), ==, 0); /* it must not see their end */
  each_pid(kill_child, GINT_TO_POINTER(run->runner));
  g_assert_cmpint(kill(run->runner, SIGKILL), ==, 0);
}

void run_await_step(Run *run)
{
  for (gint64 until = g_get_monotonic_time() + RUN_DEADLINE_MS * 1000; g_get_monotonic_time() < until;
       g_usleep(POLL_US)) {
    g_autofree char *err = run_stderr(run);
    if (waitpid(run->pid, NULL, WNOHANG) == run->pid)
      g_error("quavon ended too early; it said:\n%s", err);
    each_pid(see_part, run); /* the keeper may have a higher pid than its children: the next round finds them */
    if (strstr(err, "step 1 of 1") == NULL || run->runner == 0 || run->valkey == 0)
      continue;
    g_autofree char *runs = g_build_filename(run->folder, "state", "runs", NULL);
    g_autoptr(GDir) dir = g_dir_open(runs, 0, NULL);
    const char *name = dir != NULL ? g_dir_read_name(dir) : NULL;
    if (name == NULL)
      continue;
    run->sandbox_id = g_strdup(name);
    return;
  }
  g_autofree char *err = run_stderr(run);
  g_error("the job does not run; quavon said:\n%s", err);
}

/* ── What is left ── */

typedef struct {
  const Run *run;
  GString *found;
} Leftovers;

static gboolean see_process(int pid, gpointer data)
{
  Leftovers *left = data;
  gsize n = 0, environ_n = 0;
  g_autofree char *cmdline = proc_read(pid, "cmdline", &n);
  g_autofree char *environ_text = proc_read(pid, "environ", &environ_n);
  const char *folder = left->run->folder;
  if ((cmdline != NULL && memmem(cmdline, n, folder, strlen(folder)) != NULL) ||
      (environ_text != NULL && memmem(environ_text, environ_n, folder, strlen(folder)) != NULL))
    g_string_append_printf(left->found, "process %d (%s)\n", pid, cmdline != NULL ? cmdline : "?");
  return FALSE;
}

static const char *walked_id;
static GString *walked_found;

static int see_cgroup(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
  /* One link per folder in it, and two: the folder of all sandboxes goes with the last of them. */
  gboolean is_empty_top = type == FTW_D && strcmp(path + ftw->base, "quavon") == 0 && st->st_nlink == 2;
  if (is_empty_top || (type == FTW_D && strstr(path + ftw->base, walked_id) != NULL))
    g_string_append_printf(walked_found, "cgroup %s\n", path);
  return 0;
}

static char *leftovers(const Run *run)
{
  g_autoptr(GString) found = g_string_new(NULL);
  Leftovers left = { run, found };
  if (g_file_test(run->folder, G_FILE_TEST_EXISTS))
    g_string_append_printf(found, "folder %s\n", run->folder);
  each_pid(see_process, &left);
  walked_id = run->sandbox_id;
  walked_found = found;
  /* Breaks off where a folder goes away under it, as those of other runners do: then it has not looked. */
  if (nftw("/sys/fs/cgroup", see_cgroup, 32, FTW_PHYS) != 0)
    g_string_append(found, "control groups that were not looked at\n");
  g_autofree char *mounts = NULL;
  if (g_file_get_contents("/proc/self/mountinfo", &mounts, NULL, NULL) && strstr(mounts, run->folder) != NULL)
    g_string_append(found, "a mount\n");
  return g_string_free(g_steal_pointer(&found), FALSE);
}

void run_expect_nothing_left(const Run *run)
{
  g_assert_nonnull(run->folder);
  g_autofree char *found = NULL;
  for (gint64 until = g_get_monotonic_time() + RUN_DEADLINE_MS * 1000; g_get_monotonic_time() < until;
       g_usleep(POLL_US)) {
    g_free(found);
    found = leftovers(run);
    if (*found == '\0')
      return;
  }
  g_error("left behind:\n%s", found);
}

void run_says(char *text, const char *part)
{
  g_autofree char *owned = text;
  if (strstr(owned, part) == NULL)
    g_error("no \"%s\" in:\n%s", part, owned);
}

/* Until nobody has the other side open. */
static gpointer read_terminal(gpointer data)
{
  GString *text = g_string_new(NULL);
  char buffer[1024];
  for (ssize_t n; (n = read(GPOINTER_TO_INT(data), buffer, sizeof buffer)) > 0;)
    g_string_append_len(text, buffer, n);
  return g_string_free(text, FALSE);
}

char *run_on_terminal(Run *run, gboolean out, int status, const char *const *words)
{
  int ours = -1, theirs = -1;
  char name[64];
  g_assert_cmpint(openpty(&ours, &theirs, NULL, NULL, NULL), ==, 0);
  g_assert_cmpint(ttyname_r(theirs, name, sizeof name), ==, 0);
  run->terminal = name;
  run->terminal_out = out;
  run_setenv(run, "TERM", "xterm");
  GThread *reader = g_thread_new("terminal", read_terminal, GINT_TO_POINTER(ours));
  int is = run_all_verb(run, words);
  close(theirs);
  char *text = g_thread_join(reader);
  close(ours);
  run->terminal = NULL;
  run->terminal_out = FALSE;
  if (is != status)
    g_error("`quavon %s` ended with %d, not %d; it said:\n%s", words[0], is, status, text);
  return text;
}

/* A shell with its libraries, packed as `docker save` does. */
static const char make_tiny[] =
  "mkdir -p tree/bin tree/etc work\n"
  "for program in /bin/sh /usr/bin/id /usr/bin/env; do\n"
  "  cp -L $program tree/bin/\n"
  "  ldd $program | grep -o '/[^ ]*' | while read -r library; do\n"
  "    mkdir -p \"tree$(dirname $library)\"; cp -L $library tree$library\n"
  "  done\n"
  "done\n"
  "tar -C tree -cf work/layer.tar .\n"
  "case $(uname -m) in x86_64) a=amd64 ;; *) a=arm64 ;; esac\n"
  "printf '{\"architecture\":\"%s\",\"os\":\"linux\",\"config\":{\"Env\":[\"PATH=/bin\",\"GREETING=hello there\"],"
  "\"Entrypoint\":[\"/bin/sh\"],\"User\":\"root\"},\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"sha256:%s\"]}}'"
  "  $a $(sha256sum work/layer.tar | cut -c 1-64) >work/config.json\n"
  "printf '[{\"Config\":\"config.json\",\"RepoTags\":[\"tiny:latest\"],\"Layers\":[\"layer.tar\"]}]' >work/manifest.json\n"
  "tar -C work -cf tiny.tar config.json layer.tar manifest.json\n"
  "sha256sum work/config.json | cut -c 1-64 | tr -d '\\n' >hex\n"
  "rm -r tree work\n";

char *run_foreign_image(const Run *run)
{
  tree_run(run->dir, "sh", "-euc", make_tiny, NULL);
  g_autofree char *hex = NULL;
  g_autofree char *hex_file = tree_path(run->dir, "hex");
  g_assert_true(g_file_get_contents(hex_file, &hex, NULL, NULL));
  return g_strdup_printf("%s/tiny.tar@sha256:%s", run->dir, hex);
}
