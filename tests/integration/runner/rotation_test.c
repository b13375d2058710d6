/* SPDX-License-Identifier: Apache-2.0 */
/* Two runners of one job each under three clients, so that jobs run on both and more wait, while the pool's key is rotated and
 * while the image is upgraded, one runner after the other: not one job fails. */
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "client/key_file.h"
#include "client/quavon.h"
#include "protocol/images_lock.h"
#include "world.h"

/* ---- the second runner */

typedef struct {
  World *world;
  char *state_dir, *images_file;
  GPid pid;
} Second;

static void before_exec(gpointer data)
{
  World *world = data;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int fd = open(world->log_file, O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(fd, 2);
}

static void second_start(Second *second, World *world)
{
  gsize n;
  *second = (Second){.world = world, .state_dir = g_build_filename(world->dir, "t", NULL),
                     .images_file = g_strconcat(world->images_file, ".second", NULL)};
  g_autofree char *lock = qv_fd_read_file(world->images_file, 1 << 20, &n, NULL);
  g_assert_true(qv_fd_write_file(second->images_file, lock, n, 0644, NULL));
  g_autofree char *state = g_strconcat("QUAVON_SANDBOX_STATE_DIR=", second->state_dir, NULL);
  g_autofree char *images = g_strconcat("QUAVON_SANDBOX_IMAGES_FILE=", second->images_file, NULL);
  g_auto(GStrv) env = world_environment(world, (const char *const[]){state, images, "QUAVON_SANDBOX_CONCURRENCY=1", NULL});
  g_autofree char *program = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src", "runner", "quavon-sandbox-runner", NULL);
  char *argv[] = {program, NULL};
  g_autoptr(GError) error = NULL;
  g_spawn_async(NULL, argv, env, G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_STDOUT_TO_DEV_NULL, before_exec, world, &second->pid, &error);
  g_assert_no_error(error);
}

static void second_stop(Second *second)
{
  int status;
  kill(second->pid, SIGTERM);
  g_assert_cmpint(waitpid(second->pid, &status, 0), ==, second->pid);
  g_assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  unlink(second->images_file);
  g_free(second->state_dir);
  g_free(second->images_file);
}

/* ---- the load: clients that know nothing of what happens */

enum { CLIENTS_N = 3 };

typedef struct {
  World *world;
  const char *const *settings;
  const char *repo;
  GThread *threads[CLIENTS_N];
  gint stop, clients_n, jobs[CLIENTS_N];
} Load;

static void say(const char *what, QuavonError *error)
{
  g_error("under load, %s: %s", what, quavon_error_message(error));
}

static void one_job(Load *load, QuavonClient *client)
{
  char id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  QuavonJob *job = quavon_job_new();
  quavon_job_set_image(job, load->world->image.name, NULL);
  quavon_job_set_folder(job, load->repo);
  quavon_job_set_all(job, 1);
  quavon_job_add_step(job, "step", (const char *const[]){"/bin/sh", "-c", "echo here", NULL});
  quavon_job_set_limit(job, "memoryMiB", 128);
  quavon_job_set_limit(job, "workMiB", 64);
  if (quavon_submit(client, job, NULL, NULL, id, &error) != 0)
    say("submit", error);
  quavon_job_free(job);
  QuavonResult *result = quavon_wait(client, id, NULL, NULL, &error);
  if (result == NULL)
    say("wait", error);
  g_assert_cmpstr(quavon_result_status(result), ==, "succeeded");
  QuavonPayload *payload = quavon_payload_fetch(client, result, &error);
  if (payload == NULL)
    say("payload", error);
  quavon_payload_unlink(client, result, NULL);
  quavon_payload_free(payload);
  quavon_result_free(result);
}

static gpointer load_run(gpointer data)
{
  Load *load = data;
  int number = g_atomic_int_add(&load->clients_n, 1);
  QuavonError *error = NULL;
  QuavonClient *client = quavon_client_open(load->settings, &error);
  if (client == NULL)
    say("open", error);
  while (!g_atomic_int_get(&load->stop)) {
    one_job(load, client);
    g_atomic_int_inc(&load->jobs[number]);
  }
  quavon_client_close(client);
  return NULL;
}

/* Until each client has submitted a job from now on, and that has succeeded: two more, as the first may have begun before. */
static void load_go_on(Load *load)
{
  gint before[CLIENTS_N];
  for (int i = 0; i < CLIENTS_N; i++)
    before[i] = g_atomic_int_get(&load->jobs[i]);
  gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;
  for (int i = 0; i < CLIENTS_N; i++) {
    for (; g_atomic_int_get(&load->jobs[i]) < before[i] + 2; g_usleep(50000))
      g_assert_cmpint(qv_clock_mono_ms(), <, end);
  }
}

/* ---- steps */

static void quavon(Load *load, int status, const char *const *words)
{
  g_autofree char *program = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src", "cli", "quavon", NULL);
  g_autoptr(GPtrArray) argv = g_ptr_array_new();
  g_ptr_array_add(argv, program);
  for (; *words != NULL; words++)
    g_ptr_array_add(argv, (gpointer)*words);
  g_ptr_array_add(argv, NULL);
  g_auto(GStrv) env = world_environment(load->world, load->settings);
  g_autofree char *out = NULL, *err = NULL;
  int wait_status;
  g_autoptr(GError) error = NULL;
  g_spawn_sync("/", (char **)argv->pdata, env, 0, NULL, NULL, &out, &err, &wait_status, &error);
  g_assert_no_error(error);
  if (!WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != status)
    g_error("quavon %s ended with %x, not %d: %s", (char *)argv->pdata[1], wait_status, status, err);
}

static guint count(const char *text, const char *part)
{
  guint n = 0;
  for (const char *at = text; (at = strstr(at, part)) != NULL; at++)
    n++;
  return n;
}

/* SIGHUP, and until it has worked. */
static void reload(World *world, GPid pid)
{
  static const char said[] = "keys and images were read again";
  g_autofree char *before = world_log(world);
  kill(pid, SIGHUP);
  for (gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;; g_usleep(20000)) {
    g_autofree char *log = world_log(world);
    if (count(log, said) > count(before, said))
      return;
    g_assert_cmpint(qv_clock_mono_ms(), <, end);
  }
}

static void write_lock(const char *path, const QvImage *images, gsize n_images)
{
  gsize n;
  QvImagesLock lock = {.images = (QvImage *)images, .n = n_images};
  g_autoptr(GError) error = NULL;
  g_autofree char *text = qv_images_lock_format(&lock, &n, &error);
  g_assert_no_error(error);
  g_assert_true(qv_fd_write_file(path, text, n, 0644, NULL));
}

static void rotate(Load *load, Second *second)
{
  World *world = load->world;
  quavon(load, 1, (const char *const[]){"keys", "rotate", "switch", NULL}); /* nothing is prepared */
  quavon(load, 0, (const char *const[]){"keys", "rotate", "prepare", NULL});
  load_go_on(load);
  reload(world, world->runner);
  load_go_on(load); /* one runner has the new key, the other does not */
  quavon(load, 75, (const char *const[]){"keys", "rotate", "switch", "--timeout=1s", NULL});
  load_go_on(load);
  reload(world, second->pid);
  quavon(load, 0, (const char *const[]){"keys", "rotate", "switch", NULL});
  load_go_on(load);
  quavon(load, 75, (const char *const[]){"keys", "rotate", "finish", NULL});
  quavon(load, 0, (const char *const[]){"keys", "rotate", "finish", "--now", NULL});
  load_go_on(load);
  reload(world, world->runner);
  reload(world, second->pid);
  load_go_on(load);
}

/* The same tree under another digest stands for the new build. */
static void upgrade(Load *load, Second *second)
{
  World *world = load->world;
  gsize n;
  g_autofree char *text = qv_fd_read_file(world->images_file, 1 << 20, &n, NULL);
  g_autoptr(QvImagesLock) lock = qv_images_lock_parse(text, n, NULL);
  QvImage both[] = {lock->images[0], lock->images[0]};
  both[0].digest = (char *)"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  write_lock(world->images_file, both, 2);
  reload(world, world->runner);
  load_go_on(load); /* common to both is the old one */
  write_lock(second->images_file, both, 2);
  reload(world, second->pid);
  load_go_on(load);
  write_lock(world->images_file, both, 1);
  reload(world, world->runner);
  load_go_on(load);
  write_lock(second->images_file, both, 1);
  reload(world, second->pid);
  load_go_on(load);
}

static gboolean ready(World *world, GPid unused)
{
  g_autofree char *ids = qv_test_valkey_cli(world->valkey, "ZCARD", "quavon-sandbox:runners", NULL);
  return g_ascii_strtoll(ids, NULL, 10) == 2;
}

static void test_under_load(void)
{
  g_autoptr(World) world = world_new(QV_TEST_VALKEY_PLAIN);
  if (world == NULL)
    return;
  Second second;
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_CONCURRENCY=1", NULL});
  second_start(&second, world);
  for (gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;; g_usleep(50000)) {
    g_autofree char *log = world_log(world);
    if (ready(world, 0) && count(log, "smoke test passed") + count(log, "smoke test: one that passed") == 2)
      break;
    g_assert_cmpint(qv_clock_mono_ms(), <, end);
  }
  g_autofree char *url = g_strconcat("VALKEY_URL=", qv_test_valkey_url(world->valkey, "worker"), NULL);
  g_autofree char *key = g_strconcat("QUAVON_SANDBOX_SIGNING_KEY_FILE=", world->key_file, NULL);
  /* No lock of its own: it takes what the runners offer. */
  const char *settings[] = {url, key, "QUAVON_SANDBOX_IMAGES_FILE=/nonexistent/images.lock.json", NULL};
  g_autofree char *repo = g_build_filename(world->dir, "repo", NULL);
  g_autofree char *file = g_build_filename(repo, "file", NULL);
  g_assert_cmpint(g_mkdir_with_parents(repo, 0700), ==, 0);
  g_assert_true(qv_fd_write_file(file, "text\n", 5, 0644, NULL));
  Load load = {.world = world, .settings = settings, .repo = repo};
  for (int i = 0; i < CLIENTS_N; i++)
    load.threads[i] = g_thread_new("load", load_run, &load);
  load_go_on(&load);
  rotate(&load, &second);
  upgrade(&load, &second);
  g_atomic_int_set(&load.stop, 1);
  for (int i = 0; i < CLIENTS_N; i++)
    g_thread_join(load.threads[i]);
  g_assert_false(world_log_has(world, "rejected: "));
  g_autofree char *failed = qv_test_valkey_cli(world->valkey, "ZCARD", "quavon-sandbox:sandbox:failed", NULL);
  g_assert_cmpstr(g_strchomp(failed), ==, "0");
  second_stop(&second);
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/runner/rotation/under-load", test_under_load);
  return g_test_run();
}
