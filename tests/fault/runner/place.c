/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the engine of a fault run, and the look at it from outside. Every container of it is of one world, for worlds
 * come one after the other: what remains once a world is quiet is a leftover. */
#include "place.h"

#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>

#include "base/fd.h"
#include "protocol/images_lock.h"
#include "support/dockerd.h"

#define IMAGE "base"

static const char *const BACKENDS[] = {"runsc", "docker-runsc"};

static const char *backend = "runsc";
static QvTestDockerd *engine;
static char *group;           /* name of the engine's control groups */
static char *digest;          /* of the engine's image */
static char *environment[4];

gboolean place_choose(const char *name)
{
  for (gsize i = 0; i < G_N_ELEMENTS(BACKENDS); i++) {
    if (strcmp(BACKENDS[i], name) == 0) {
      backend = BACKENDS[i];
      return TRUE;
    }
  }
  return FALSE;
}

gboolean place_has_engine(void)
{
  return strcmp(backend, "runsc") != 0;
}

const char *place_missing(void)
{
  return place_has_engine() ? qv_test_dockerd_missing() : NULL;
}

/* ---- the engine */

/* The current image `base` alone: others need not be in the engine. Free with g_free. */
static char *write_lock(const char *all)
{
  g_autoptr(GError) error = NULL;
  gsize n;
  g_autofree char *text = qv_fd_read_file(all, 1024 * 1024, &n, &error);
  g_assert_no_error(error);
  g_autoptr(QvImagesLock) lock = qv_images_lock_parse(text, n, &error);
  g_assert_no_error(error);
  for (gsize i = 0; i < lock->n && digest == NULL; i++)
    digest = strcmp(lock->images[i].name, IMAGE) == 0 ? g_strdup(lock->images[i].digest) : NULL;
  g_assert_nonnull(digest);
  for (gsize i = lock->n; i > 0; i--) {
    const QvImage *image = &lock->images[i - 1];
    g_autofree char *name = g_strdup(image->name), *own = g_strdup(image->digest), *platform = g_strdup(image->platform);
    if (strcmp(own, digest) != 0)
      g_assert_true(qv_images_lock_remove(lock, name, own, platform));
  }
  g_autofree char *one = qv_images_lock_format(lock, &n, &error);
  g_assert_no_error(error);
  char *path = g_build_filename(qv_test_dockerd_dir(engine), "images.lock.json", NULL);
  g_assert_true(qv_fd_write_file(path, one, n, 0644, &error));
  return path;
}

static void export_image(const char *lock, const char *archive)
{
  static const char *const ours[] = {"QUAVON_SOURCE_ROOT", "QUAVON_BUILD_ROOT", "QUAVON_VECTORS", "QUAVON_TEST_IMAGES"};
  g_autofree char *program = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src", "cli", "quavon", NULL);
  g_autofree char *output = g_strconcat("--output=", archive, NULL);
  const char *argv[] = {program, "images", "export", output, IMAGE, NULL};
  g_auto(GStrv) env = g_get_environ();
  for (gsize i = 0; i < G_N_ELEMENTS(ours); i++)
    env = g_environ_unsetenv(env, ours[i]);
  env = g_environ_setenv(env, "QUAVON_SANDBOX_IMAGES_FILE", lock, TRUE);
  g_autofree char *err = NULL;
  g_autoptr(GError) error = NULL;
  int status;
  g_spawn_sync(NULL, (char **)argv, env, G_SPAWN_STDOUT_TO_DEV_NULL, NULL, NULL, NULL, &err, &status, &error);
  g_assert_no_error(error);
  if (!g_spawn_check_wait_status(status, &error))
    g_error("quavon images export: %s %s", error->message, err);
}

void place_open(void)
{
  environment[0] = g_strconcat("QUAVON_SANDBOX_BACKEND=", backend, NULL);
  if (!place_has_engine())
    return;
  engine = qv_test_dockerd_start(QV_TEST_DOCKERD_USUAL);
  environment[1] = g_strconcat("QUAVON_SANDBOX_DOCKER_SOCKET=", qv_test_dockerd_socket(engine), NULL);
  g_autofree char *base = g_path_get_basename(qv_test_dockerd_dir(engine));
  group = g_strconcat("quavon-test-", base, NULL);
  g_autofree char *all = g_build_filename(g_getenv("QUAVON_TEST_IMAGES"), "images.lock.json", NULL);
  g_autofree char *lock = write_lock(all);
  environment[2] = g_strconcat("QUAVON_SANDBOX_IMAGES_FILE=", lock, NULL);
  g_autofree char *archive = g_build_filename(qv_test_dockerd_dir(engine), "image.tar", NULL);
  export_image(all, archive);
  qv_test_dockerd_load(engine, archive);
  g_assert_cmpint(g_unlink(archive), ==, 0);
}

void place_close(void)
{
  g_clear_pointer(&engine, qv_test_dockerd_free);
  g_clear_pointer(&group, g_free);
  g_clear_pointer(&digest, g_free);
  for (gsize i = 0; i < G_N_ELEMENTS(environment); i++)
    g_clear_pointer(&environment[i], g_free);
}

void place_kill_engine(gboolean all, gint64 pause_ms)
{
  (all ? qv_test_dockerd_kill_all : qv_test_dockerd_kill)(engine);
  g_usleep((gulong)pause_ms * 1000);
  qv_test_dockerd_restart(engine);
}

GPid place_engine(void)
{
  return qv_test_dockerd_pid(engine);
}

/* ---- what the world has to know */

const char *const *place_environment(void)
{
  return (const char *const *)environment;
}

void place_job(QvJob *job)
{
  g_strfreev(job->backends);
  job->backends = g_strdupv((char *[]){(char *)backend, NULL});
  if (engine == NULL)
    return;
  g_free(job->image.name);
  g_free(job->image.digest);
  job->image.name = g_strdup(IMAGE);
  job->image.digest = g_strdup(digest);
}

QvBackend *place_backend(World *world)
{
  g_autofree char *id_file = g_build_filename(world->state_dir, "runner-id", NULL), *id = NULL;
  g_assert_true(g_file_get_contents(id_file, &id, NULL, NULL));
  QvBackendOptions options = {.state_dir = world->state_dir, .runner_id = g_strchomp(id),
                              .docker_socket = engine != NULL ? qv_test_dockerd_socket(engine) : NULL};
  g_autoptr(GError) error = NULL;
  QvBackend *opened = qv_backend_open(backend, &options, &error);
  g_assert_no_error(error);
  return opened;
}

/* ---- from outside */

static char *read_proc(const char *pid, const char *name, gsize *n)
{
  g_autofree char *path = g_build_filename("/proc", pid, name, NULL);
  char *text = NULL;
  return g_file_get_contents(path, &text, n, NULL) ? text : NULL;
}

/* A process that has ended is gone, whoever has to reap it. */
static gboolean is_of(PlaceProcess which, const char *pid)
{
  gsize n = 0;
  g_autofree char *state = read_proc(pid, "stat", &n);
  const char *behind = state != NULL ? strrchr(state, ')') : NULL;
  if (behind == NULL || g_str_has_prefix(behind, ") Z") || g_str_has_prefix(behind, ") X"))
    return FALSE;
  if (which == PLACE_SANDBOX) {
    g_autofree char *groups = read_proc(pid, "cgroup", &n), *inside = g_strdup_printf("/%s/", group);
    return groups != NULL && strstr(groups, inside) != NULL;
  }
  g_autofree char *name = read_proc(pid, "comm", &n), *arguments = read_proc(pid, "cmdline", &n);
  g_autofree char *dir = g_strconcat(qv_test_dockerd_dir(engine), "/", NULL);
  return name != NULL && arguments != NULL && g_str_has_prefix(name, "containerd-shim") &&
         memmem(arguments, n, dir, strlen(dir)) != NULL;
}

static GArray *processes(PlaceProcess which)
{
  GArray *pids = g_array_new(FALSE, FALSE, sizeof(GPid));
  g_autoptr(GDir) dir = g_dir_open("/proc", 0, NULL);
  for (const char *name = g_dir_read_name(dir); name != NULL; name = g_dir_read_name(dir)) {
    GPid pid = g_ascii_isdigit(*name) ? atoi(name) : 0;
    if (pid > 1 && is_of(which, name))
      g_array_append_val(pids, pid);
  }
  return pids;
}

GPid place_process(PlaceProcess which, guint at)
{
  g_autoptr(GArray) pids = processes(which);
  return pids->len > 0 ? g_array_index(pids, GPid, at % pids->len) : 0;
}

static void add_processes(PlaceProcess which, GPtrArray *lines)
{
  g_autoptr(GArray) pids = processes(which);
  for (guint i = 0; i < pids->len; i++)
    g_ptr_array_add(lines, g_strdup_printf("process %d of the engine's", g_array_index(pids, GPid, i)));
}

static void add_containers(GPtrArray *lines)
{
  int status;
  g_autofree char *text = qv_test_dockerd_call(engine, "GET", "/containers/json?all=1", NULL, &status);
  g_strchomp(text);
  if (status != 200 || strcmp(text, "[]") != 0)
    g_ptr_array_add(lines, g_strdup_printf("containers: %.1000s", text));
}

/* Folders of containers below the engine's own. */
static void add_groups(GPtrArray *lines)
{
  g_autoptr(GDir) dir = g_dir_open("/sys/fs/cgroup", 0, NULL);
  for (const char *name = g_dir_read_name(dir); name != NULL; name = g_dir_read_name(dir)) {
    g_autofree char *folder = g_build_filename("/sys/fs/cgroup", name, group, NULL);
    g_autoptr(GDir) inside = g_dir_open(folder, 0, NULL);
    for (const char *id = inside != NULL ? g_dir_read_name(inside) : NULL; id != NULL; id = g_dir_read_name(inside)) {
      g_autofree char *path = g_build_filename(folder, id, NULL);
      if (g_file_test(path, G_FILE_TEST_IS_DIR))
        g_ptr_array_add(lines, g_strdup_printf("cgroup %s", path));
    }
  }
}

/* In the mount namespace of the engine: roots, shared memory and network namespaces of containers. */
static void add_mounts(GPtrArray *lines)
{
  static const char *const marks[] = {"/merged ", "/mounts/shm ", "/rootfs ", "/netns/"};
  g_autofree char *pid = g_strdup_printf("%d", place_engine());
  gsize n;
  g_autofree char *text = read_proc(pid, "mountinfo", &n);
  g_auto(GStrv) all = g_strsplit(text != NULL ? text : "", "\n", -1);
  for (char **line = all; *line != NULL; line++) {
    for (gsize i = 0; i < G_N_ELEMENTS(marks); i++) {
      if (strstr(*line, qv_test_dockerd_dir(engine)) != NULL && strstr(*line, marks[i]) != NULL)
        g_ptr_array_add(lines, g_strdup_printf("mount of the engine's: %.300s", *line));
    }
  }
}

void place_leftovers(GPtrArray *lines)
{
  if (engine == NULL)
    return;
  add_containers(lines);
  add_processes(PLACE_SANDBOX, lines);
  add_processes(PLACE_SHIM, lines);
  add_groups(lines);
  add_mounts(lines);
}

void place_plant(const char *runner_id, const char *owner, const char *id)
{
  g_autofree char *body = g_strdup_printf("{\"Image\":\"%s\",\"Entrypoint\":[\"/opt/quavon/entry\"],\"Labels\":{\"quavon.owner\":\"%s\","
                                          "\"quavon.runner\":\"%s\",\"quavon.job\":\"%s\",\"quavon.boot\":\"planted\"},"
                                          "\"HostConfig\":{\"NetworkMode\":\"none\",\"Runtime\":\"runsc-offline\"}}",
                                          digest, owner, runner_id, id);
  int status;
  g_free(qv_test_dockerd_call(engine, "POST", "/containers/create", body, &status));
  g_assert_cmpint(status, ==, 201);
}
