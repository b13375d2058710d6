/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the runner's test world: its servers, files and runner. Every wait polls, with a deadline far beyond what a slow
 * machine needs. */
#include "world.h"

#include <fcntl.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/random.h"
#include "protocol/images_lock.h"
#include "sandbox/backend.h"
#include "support/tiny.h"

/* ---- world */

static void write_key(World *world)
{
  guint8 bytes[32];
  qv_random_bytes(bytes, sizeof bytes);
  world->key = qv_key_new(bytes, sizeof bytes);
  world->ring = qv_keyring_new(world->key);
  g_autoptr(QvSecret) text = qv_key_format(world->key);
  world->key_file = g_build_filename(world->dir, "key", NULL);
  g_assert_true(qv_fd_write_file(world->key_file, qv_secret_bytes(text), qv_secret_len(text), 0600, NULL));
}

/* The test image as scripts/test-image.sh made it; it stays where it is, the lock beside it is this world's own. */
static QvImagesLock *read_images(char **text, gsize *n)
{
  const char *folder = g_getenv("QUAVON_TEST_IMAGES");
  g_assert_nonnull(folder);
  g_autofree char *built = g_build_filename(folder, "images.lock.json", NULL);
  g_autoptr(GError) error = NULL;
  *text = qv_fd_read_file(built, 1024 * 1024, n, &error);
  QvImagesLock *lock = *text != NULL ? qv_images_lock_parse(*text, *n, &error) : NULL;
  if (lock == NULL)
    g_error("%s: %s: scripts/test-image.sh makes it", built, error->message);
  return lock;
}

/* A lock of one image, which the private engine alone has; made once. */
static char *engine_lock(World *world, gsize *n)
{
  static char *text;
  static gsize text_n;
  g_autofree char *file = g_build_filename(world->dir, "tiny.lock.json", NULL);
  if (text == NULL) {
    g_free(qv_test_tiny_image(backend_dockerd(), "base", file));
    g_assert_true(g_file_get_contents(file, &text, &text_n, NULL));
  }
  *n = text_n;
  return g_strndup(text, text_n);
}

static void write_images(World *world)
{
  gsize n;
  g_autofree char *text = NULL;
  g_autoptr(QvImagesLock) lock = NULL;
  if (ON(ON_DOCKER)) {
    text = engine_lock(world, &n);
    lock = qv_images_lock_parse(text, n, NULL);
  } else {
    lock = read_images(&text, &n);
  }
  world->image.name = g_strdup(lock->images[0].name);
  world->image.digest = g_strdup(lock->images[0].digest);
  g_autofree char *base = g_path_get_basename(world->dir);
  g_autofree char *name = g_strconcat(base, ".lock.json", NULL);
  world->images_file = g_build_filename(g_getenv("QUAVON_TEST_IMAGES"), name, NULL);
  g_assert_true(qv_fd_write_file(world->images_file, text, n, 0644, NULL));
}

void world_use_image(World *world, const char *name)
{
  gsize n;
  g_autofree char *text = NULL;
  g_autoptr(QvImagesLock) lock = read_images(&text, &n);
  for (gsize i = 0; i < lock->n; i++) {
    if (strcmp(lock->images[i].name, name) != 0)
      continue;
    g_free(world->image.name);
    g_free(world->image.digest);
    world->image.name = g_strdup(name);
    world->image.digest = g_strdup(lock->images[i].digest);
    return;
  }
  g_error("there is no test image %s: scripts/test-image.sh %s makes it", name, name);
}

World *world_new(QvTestValkeyFlags flags)
{
  if (geteuid() != 0) {
    g_test_skip("sandboxes need root");
    return NULL;
  }
  signal(SIGPIPE, SIG_IGN);
  World *world = g_new0(World, 1);
  world->valkey = qv_test_valkey_start(flags);
  world->deadline_ms = WORLD_DEADLINE_MS;
  world->dir = g_strdup("/tmp/qv-XXXXXX");
  g_assert_nonnull(g_mkdtemp(world->dir));
  world->state_dir = g_build_filename(world->dir, "s", NULL);
  world->log_file = g_build_filename(world->dir, "log", NULL);
  write_key(world);
  write_images(world);
  qv_limits_policy_standard(&world->policy, g_get_num_processors());
  world->address = qv_address_parse(qv_test_valkey_url(world->valkey, "worker"), NULL);
  world->conn = qv_conn_new(world->address, NULL);
  world->producer = qv_producer_new(world->conn, WORLD_PREFIX, 0);
  return world;
}

static QvBackendOptions backend_options(World *world, const char *runner_id)
{
  return (QvBackendOptions){.state_dir = world->state_dir, .runner_id = runner_id,
                            .docker_socket = ON(ON_DOCKER) ? qv_test_dockerd_socket(backend_dockerd()) : NULL};
}

/* A runner that was killed leaves the outermost of its sandboxes' folders to the next one, and there is none. */
static void tidy(World *world)
{
  g_autofree char *id_file = g_build_filename(world->state_dir, "runner-id", NULL);
  g_autofree char *id = NULL;
  if (!g_file_get_contents(id_file, &id, NULL, NULL))
    return;
  QvBackendOptions options = backend_options(world, g_strchomp(id));
  qv_backend_tidy(row->name, &options);
}

static gboolean has_log_open(World *world, const char *pid)
{
  g_autofree char *folder = g_build_filename("/proc", pid, "fd", NULL);
  g_autoptr(GDir) dir = g_dir_open(folder, 0, NULL);
  for (const char *name = dir != NULL ? g_dir_read_name(dir) : NULL; name != NULL; name = g_dir_read_name(dir)) {
    g_autofree char *link = g_build_filename(folder, name, NULL), *target = g_file_read_link(link, NULL);
    if (g_strcmp0(target, world->log_file) == 0)
      return TRUE;
  }
  return FALSE;
}

void world_processes(World *world, GPtrArray *lines)
{
  g_autoptr(GDir) dir = g_dir_open("/proc", 0, NULL);
  GPid starter = world->runner != 0 ? world_child(world->runner, "starter") : 0; /* lives as long as the runner */
  for (const char *name = g_dir_read_name(dir); name != NULL; name = g_dir_read_name(dir)) {
    int pid = atoi(name);
    g_autofree char *file = g_build_filename("/proc", name, "cmdline", NULL), *text = NULL;
    gsize n;
    if (pid <= 1 || pid == getpid() || pid == world->runner || pid == starter || pid == qv_test_valkey_pid(world->valkey) ||
        !g_file_get_contents(file, &text, &n, NULL))
      continue;
    for (gsize i = 0; i + 1 < n; i++)
      text[i] = text[i] == '\0' ? ' ' : text[i];
    /* The runner's watch over an engine lives as long as it does. */
    if (world->runner != 0 && n > 0 && strstr(text, "--role sweep") != NULL && strstr(text, "\"watch\"") != NULL)
      continue;
    if ((n > 0 && strstr(text, world->dir) != NULL) || has_log_open(world, name))
      g_ptr_array_add(lines, g_strdup_printf("process %s: %.200s", name, n > 0 ? text : ""));
  }
}

/* A runner that was killed while it had a sandbox: its job processes take that down, and are at work below the world's folder. */
static void await_quiet(World *world)
{
  for (gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;; g_usleep(20000)) {
    g_autoptr(GPtrArray) lines = g_ptr_array_new_with_free_func(g_free);
    world_processes(world, lines);
    if (lines->len == 0)
      return;
    if (qv_clock_mono_ms() > end)
      world_fail(world, lines->pdata[0]);
  }
}

void world_free(World *world)
{
  if (world == NULL)
    return;
  if (world->runner != 0 && world_stop(world, SIGKILL) == 128 + SIGKILL)
    await_quiet(world);
  /* In a sanitized build each of its processes has looked for leaks, behind all that it had given up. */
  if (world_log_has(world, "LeakSanitizer"))
    world_fail(world, "a process of the runner leaks, or cannot tell");
  qv_producer_free(world->producer);
  qv_conn_free(world->conn);
  qv_address_unref(world->address);
  qv_keyring_unref(world->ring);
  qv_key_unref(world->key);
  qv_test_valkey_free(world->valkey);
  g_unlink(world->images_file);
  g_autoptr(GError) error = NULL;
  tidy(world);
  if (!qv_fd_remove_tree(world->dir, &error))
    g_error("%s", error->message);
  g_free(world->image.name);
  g_free(world->image.digest);
  g_free(world->dir);
  g_free(world->state_dir);
  g_free(world->key_file);
  g_free(world->images_file);
  g_free(world->log_file);
  g_free(world->egress_url);
  g_free(world);
}

/* ---- cases */

typedef struct {
  QvTestValkeyFlags flags;
  void (*func)(World *world);
} Case;

static void run_case(gconstpointer data)
{
  const Case *test = data;
  g_autoptr(World) world = world_new(test->flags);
  if (world != NULL)
    test->func(world);
}

void world_test_add(const char *path, QvTestValkeyFlags flags, void (*func)(World *world))
{
  Case *test = g_new(Case, 1);
  *test = (Case){.flags = flags, .func = func};
  g_test_add_data_func_full(path, test, run_case, g_free);
}

/* ---- runner */

static void before_exec(gpointer data)
{
  World *world = data;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int fd = open(world->log_file, O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(fd, 2);
  close(fd);
}

char **world_environment(World *world, const char *const *extra)
{
  static const char *const ours[] = {"QUAVON_SOURCE_ROOT", "QUAVON_BUILD_ROOT", "QUAVON_VECTORS", "QUAVON_TEST_IMAGES"};
  g_autofree char *smoke = g_build_filename(g_getenv("QUAVON_TEST_IMAGES"), "smoke", NULL);
  const char *fixed[][2] = {{"QUAVON_SANDBOX_SMOKE_MEMORY", smoke},
                            {"VALKEY_URL", qv_test_valkey_url(world->valkey, "sandbox")},
                            {"QUAVON_SANDBOX_SIGNING_KEY_FILE", world->key_file},
                            {"QUAVON_SANDBOX_BACKEND", row->name},
                            {"QUAVON_SANDBOX_STATE_DIR", world->state_dir},
                            {"QUAVON_SANDBOX_IMAGES_FILE", world->images_file},
                            {"QUAVON_SANDBOX_DEFAULT_MEMORY_MIB", "256"},
                            {"QUAVON_LOG_LEVEL", "debug"},
                            {"QUAVON_LOG_FORMAT", "text"}};
  char **env = g_get_environ();
  for (gsize i = 0; i < G_N_ELEMENTS(ours); i++)
    env = g_environ_unsetenv(env, ours[i]);
  for (gsize i = 0; i < G_N_ELEMENTS(fixed); i++)
    env = g_environ_setenv(env, fixed[i][0], fixed[i][1], TRUE);
  if (ON(ON_DOCKER))
    env = g_environ_setenv(env, "QUAVON_SANDBOX_DOCKER_SOCKET", qv_test_dockerd_socket(backend_dockerd()), TRUE);
  if (ON(ON_DOCKER_RUNC))
    env = g_environ_setenv(env, "QUAVON_ENV", "development", TRUE);
  for (; extra != NULL && *extra != NULL; extra++) {
    g_auto(GStrv) pair = g_strsplit(*extra, "=", 2);
    env = g_environ_setenv(env, pair[0], pair[1], TRUE);
  }
  return env;
}

void world_start(World *world, const char *const *extra)
{
  g_autofree char *program = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src", "runner", "quavon-sandbox-runner",
                                              NULL);
  char *argv[] = {program, NULL};
  g_auto(GStrv) env = world_environment(world, extra);
  g_assert_cmpint(world->runner, ==, 0);
  g_autoptr(GError) error = NULL;
  g_spawn_async(NULL, argv, env, G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_STDOUT_TO_DEV_NULL, before_exec, world,
                &world->runner, &error);
  g_assert_no_error(error);
}

char *world_weak_runsc(World *world, const char *kind)
{
  g_autofree char *program =
    g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "tests", "integration", "runner", "weak_runsc.py", NULL);
  g_autofree char *weak = g_build_filename(world->dir, kind, NULL);
  g_autofree char *text = NULL;
  gsize n;
  g_assert_true(g_file_get_contents(program, &text, &n, NULL));
  g_assert_true(qv_fd_write_file(weak, text, n, 0755, NULL));
  return g_strconcat("QUAVON_SANDBOX_RUNSC=", weak, NULL);
}

char *world_log(World *world)
{
  char *text = NULL;
  if (!g_file_get_contents(world->log_file, &text, NULL, NULL))
    text = g_strdup("");
  return text;
}

gboolean world_log_has(World *world, const char *text)
{
  g_autofree char *log = world_log(world);
  return strstr(log, text) != NULL;
}

void world_fail(World *world, const char *what)
{
  g_autofree char *all = world_log(world);
  g_auto(GStrv) lines = g_strsplit(all, "\n", -1);
  g_autoptr(GString) kept = g_string_new(NULL);
  for (char **line = lines; *line != NULL; line++) {
    if (strstr(*line, "GSocketClient") == NULL)
      g_string_append_printf(kept, "%s\n", *line);
  }
  const char *log = kept->str;
  gsize n = kept->len;
  g_error("%s; the runner's log ends:\n%s", what, n > 6000 ? log + n - 6000 : log);
}

void world_await_log(World *world, const char *text)
{
  gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;
  while (!world_log_has(world, text)) {
    if (qv_clock_mono_ms() > end)
      world_fail(world, text);
    g_usleep(20000);
  }
}

int world_stop(World *world, int signal_number)
{
  int status;
  if (signal_number != 0)
    kill(world->runner, signal_number);
  gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;
  pid_t got;
  while ((got = waitpid(world->runner, &status, WNOHANG)) == 0) {
    if (qv_clock_mono_ms() > end)
      world_fail(world, "the runner does not end");
    g_main_context_iteration(NULL, FALSE);
    g_usleep(5000);
  }
  g_assert_cmpint(got, ==, world->runner);
  world->runner = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- a look from outside */

guint world_ends(World *world, const char *id)
{
  g_autofree char *text = qv_test_valkey_cli(world->valkey, "XRANGE", WORLD_PREFIX ":sandbox:events", "-", "+", NULL);
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  guint n = 0;
  gboolean end = FALSE;
  for (char **line = lines; *line != NULL; line++) {
    if (strcmp(*line, "event") == 0 && line[1] != NULL)
      end = strcmp(line[1], "completed") == 0 || strcmp(line[1], "failed") == 0;
    if (strcmp(*line, "jobId") == 0 && line[1] != NULL)
      n += end && strcmp(line[1], id) == 0;
  }
  return n;
}

GPid world_child(GPid parent, const char *word)
{
  g_autoptr(GDir) dir = g_dir_open("/proc", 0, NULL);
  const char *name;
  while ((name = g_dir_read_name(dir)) != NULL) {
    g_autofree char *stat_file = g_strdup_printf("/proc/%s/stat", name);
    g_autofree char *line_file = g_strdup_printf("/proc/%s/cmdline", name);
    g_autofree char *stat_text = NULL, *line = NULL;
    gsize n;
    if (!g_ascii_isdigit(*name) || !g_file_get_contents(stat_file, &stat_text, NULL, NULL) ||
        !g_file_get_contents(line_file, &line, &n, NULL))
      continue;
    char *close_paren = strrchr(stat_text, ')');
    int ppid = 0;
    if (close_paren == NULL || sscanf(close_paren + 2, "%*c %d", &ppid) != 1 || ppid != parent)
      continue;
    for (gsize i = 0; i < n; i += strlen(line + i) + 1) {
      if (strcmp(line + i, word) == 0)
        return atoi(name);
    }
  }
  return 0;
}

/* ---- leftovers */

gboolean world_key_exists(World *world, const char *key)
{
  g_autofree char *text = qv_test_valkey_cli(world->valkey, "EXISTS", key, NULL);
  return strcmp(text, "1") == 0;
}

/* As qv_backend_leftovers. */
static char **leftovers(World *world)
{
  g_autofree char *id_file = g_build_filename(world->state_dir, "runner-id", NULL);
  g_autofree char *id = NULL;
  g_assert_true(g_file_get_contents(id_file, &id, NULL, NULL));
  QvBackendOptions options = backend_options(world, g_strchomp(id));
  g_autoptr(GError) error = NULL;
  g_autoptr(QvBackend) backend = qv_backend_open(row->name, &options, &error);
  g_assert_no_error(error);
  return qv_backend_leftovers(backend);
}

gboolean world_has_sandbox(World *world)
{
  g_auto(GStrv) left = leftovers(world);
  return left[0] != NULL;
}

void world_expect_clean(World *world)
{
  gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;
  for (;;) {
    g_auto(GStrv) left = leftovers(world);
    g_autofree char *chunks = qv_test_valkey_cli(world->valkey, "--scan", "--pattern", WORLD_PREFIX ":blob:*.base:*", NULL);
    GPid job = world->runner != 0 ? world_child(world->runner, "job") : 0;
    if (left[0] == NULL && job == 0 && (world->keeps_input || *chunks == '\0'))
      return;
    if (qv_clock_mono_ms() > end) {
      g_autofree char *text = g_strjoinv("\n", left);
      g_autofree char *all = g_strconcat("left over: ", text, " ", chunks, job != 0 ? " a job process" : "", NULL);
      world_fail(world, all);
    }
    g_usleep(50000);
  }
}

QvHealth *world_health(World *world)
{
  g_autofree char *ids = qv_test_valkey_cli(world->valkey, "ZRANGE", WORLD_PREFIX ":runners", "0", "-1", NULL);
  g_strchomp(ids);
  if (*ids == '\0' || strchr(ids, '\n') != NULL)
    return NULL;
  g_autofree char *key = g_strdup_printf(WORLD_PREFIX ":health:%s", ids);
  g_autofree char *text = qv_test_valkey_cli(world->valkey, "GET", key, NULL);
  g_strchomp(text);
  g_autoptr(GError) error = NULL;
  QvHealth *health = qv_health_verify(text, strlen(text), world->ring, "default", ids, qv_clock_unix_ms(), NULL, &error);
  return health;
}

QvHealth *world_await_health(World *world, gboolean (*test)(const QvHealth *health))
{
  gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;
  for (;; g_usleep(30000)) {
    g_autoptr(QvHealth) health = world_health(world);
    if (health != NULL && test(health))
      return g_steal_pointer(&health);
    if (qv_clock_mono_ms() > end)
      world_fail(world, "the health record does not say what it should");
  }
}
