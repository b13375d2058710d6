/* SPDX-License-Identifier: Apache-2.0 */
/* Owns what engine_way.h describes. */
#include "engine_way.h"

#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "protocol/images_lock.h"
#include "sandbox/backend.h"
#include "way_out.h"

enum { LOCK_BYTES_MAX = 1024 * 1024 };

/* ---- the engine's image */

/* The lock of the test images, less all but NAME. */
static void write_lock(World *world, const char *name)
{
  gsize n;
  g_autoptr(GError) error = NULL;
  g_autofree char *text = qv_fd_read_file(world->images_file, LOCK_BYTES_MAX, &n, &error);
  g_assert_no_error(error);
  g_autoptr(QvImagesLock) lock = qv_images_lock_parse(text, n, &error);
  g_assert_no_error(error);
  for (gsize i = 0; i < lock->n; i++) {
    if (strcmp(lock->images[i].name, name) != 0)
      continue;
    QvImagesLock one = {.images = &lock->images[i], .n = 1};
    g_autofree char *kept = qv_images_lock_format(&one, &n, &error);
    g_assert_no_error(error);
    g_assert_true(qv_fd_write_file(world->images_file, kept, n, 0644, NULL));
    return;
  }
  g_error("there is no test image %s: scripts/test-image.sh %s makes it", name, name);
}

static void run(char **environment, const char *script, const char *const *arguments)
{
  g_autoptr(GPtrArray) argv = g_ptr_array_new();
  const char *head[] = {"/bin/sh", "-euc", script, "sh"};
  for (gsize i = 0; i < G_N_ELEMENTS(head); i++)
    g_ptr_array_add(argv, (gpointer)head[i]);
  for (; *arguments != NULL; arguments++)
    g_ptr_array_add(argv, (gpointer)*arguments);
  g_ptr_array_add(argv, NULL);
  g_autofree char *out = NULL, *err = NULL;
  g_autoptr(GError) error = NULL;
  int status;
  g_spawn_sync(NULL, (char **)argv->pdata, environment, G_SPAWN_SEARCH_PATH, NULL, NULL, &out, &err, &status, &error);
  g_assert_no_error(error);
  if (!g_spawn_check_wait_status(status, &error))
    g_error("%s: %s: %s%s", script, error->message, out, err);
}

static void load_image(EngineWay *way, const char *name)
{
  g_autofree char *program = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src", "cli", "quavon", NULL);
  g_autofree char *archive = g_build_filename(way->world->dir, "image", NULL);
  g_auto(GStrv) environment = g_environ_setenv(g_get_environ(), "QUAVON_SANDBOX_IMAGES_FILE", way->world->images_file, TRUE);
  const char *unset[] = {"QUAVON_SOURCE_ROOT", "QUAVON_BUILD_ROOT", "QUAVON_VECTORS", "QUAVON_TEST_IMAGES"};
  for (gsize i = 0; i < G_N_ELEMENTS(unset); i++)
    environment = g_environ_unsetenv(environment, unset[i]);
  run(environment, "\"$1\" images export \"$2\" >\"$3\"", (const char *const[]){program, name, archive, NULL});
  qv_test_dockerd_load(way->engine, archive);
  g_unlink(archive);
}

const char *engine_way_missing(void)
{
  static const char *const PROGRAMS[] = {"docker", "nft", "iptables"};
  const char *missing = qv_test_dockerd_missing();
  for (gsize i = 0; missing == NULL && i < G_N_ELEMENTS(PROGRAMS); i++) {
    g_autofree char *path = g_find_program_in_path(PROGRAMS[i]);
    if (path == NULL)
      missing = "docker, nft and iptables are needed for the network of an engine";
  }
  return missing;
}

EngineWay *engine_way_new(World *world, const char *backend, const char *name)
{
  EngineWay *way = g_new0(EngineWay, 1);
  way->world = world;
  way->backend = backend;
  world_use_image(world, name);
  write_lock(world, name);
  way->engine = qv_test_dockerd_start(FALSE);
  load_image(way, name);
  return way;
}

void engine_way_free(EngineWay *way)
{
  if (way == NULL)
    return;
  engine_way_relay(way, NULL);
  qv_test_dockerd_free(way->engine);
  g_free(way);
}

/* ---- the host */

void engine_way_inside(EngineWay *way, const char *script)
{
  g_autofree char *host = g_strconcat("unix://", qv_test_dockerd_socket(way->engine), NULL);
  g_autofree char *pid = g_strdup_printf("%d", (int)qv_test_dockerd_pid(way->engine));
  g_auto(GStrv) environment = g_environ_setenv(g_get_environ(), "DOCKER_HOST", host, TRUE);
  run(environment, "exec nsenter -t \"$1\" -n sh -euc \"$2\"", (const char *const[]){pid, script, NULL});
}

void engine_way_network(EngineWay *way, const char *verb)
{
  g_autofree char *program =
    g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "deploy", "docker", "quavon-egress-network", NULL);
  g_autofree char *script = g_strdup_printf("'%s' %s", program, verb);
  engine_way_inside(way, script);
}

/* An end of either side is passed on; a thread a way. */
static const char relay[] =
  "import socket, sys, threading\n"
  "host, port = sys.argv[1].split(':')\n"
  "listener = socket.create_server((host, int(port)), backlog=128)\n"
  "open(sys.argv[3], 'w').close()\n"
  "def pump(a, b):\n"
  "  try:\n"
  "    while (data := a.recv(65536)): b.sendall(data)\n"
  "    b.shutdown(socket.SHUT_WR)\n"
  "  except OSError:\n"
  "    for s in (a, b):\n"
  "      try: s.shutdown(socket.SHUT_RDWR)\n"
  "      except OSError: pass\n"
  "while True:\n"
  "  client, _ = listener.accept()\n"
  "  proxy = socket.socket(socket.AF_UNIX)\n"
  "  try: proxy.connect(sys.argv[2])\n"
  "  except OSError: client.close(); continue\n"
  "  for pair in ((client, proxy), (proxy, client)): threading.Thread(target=pump, args=pair, daemon=True).start()\n";

void engine_way_relay(EngineWay *way, const char *path)
{
  if (way->relay != 0)
    way_out_stop(way->relay);
  way->relay = 0;
  if (path == NULL)
    return;
  g_autofree char *pid = g_strdup_printf("%d", (int)qv_test_dockerd_pid(way->engine));
  g_autofree char *ready = g_build_filename(way->world->dir, "relay", NULL);
  g_unlink(ready);
  const char *argv[] = {"nsenter", "-t", pid, "-n", "python3", "-c", relay, ENGINE_WAY_PROXY, path, ready, NULL};
  way->relay = way_out_spawn(way->world, argv, ready);
}

/* ---- the runner */

char **engine_way_settings(const EngineWay *way, const char *const *extra)
{
  g_autoptr(GStrvBuilder) settings = g_strv_builder_new();
  g_autofree char *backend = g_strconcat("QUAVON_SANDBOX_BACKEND=", way->backend, NULL);
  g_autofree char *socket = g_strconcat("QUAVON_SANDBOX_DOCKER_SOCKET=", way->socket ?: qv_test_dockerd_socket(way->engine), NULL);
  const char *ours[] = {backend, socket, "QUAVON_ENV=development", "QUAVON_SANDBOX_EGRESS_NETWORK=quavon-egress",
                        "QUAVON_SANDBOX_EGRESS_PROXY=" ENGINE_WAY_PROXY};
  for (gsize i = 0; i < G_N_ELEMENTS(ours); i++)
    g_strv_builder_add(settings, ours[i]);
  for (; extra != NULL && *extra != NULL; extra++)
    g_strv_builder_add(settings, *extra);
  return g_strv_builder_end(settings);
}

void engine_way_adopt(const EngineWay *way, QvJob *job)
{
  g_strfreev(job->backends);
  job->backends = g_strdupv((char *[]){(char *)way->backend, NULL});
}

void engine_way_expect_clean(EngineWay *way)
{
  g_autofree char *id_file = g_build_filename(way->world->state_dir, "runner-id", NULL);
  g_autofree char *id = NULL;
  g_assert_true(g_file_get_contents(id_file, &id, NULL, NULL));
  QvBackendOptions options = {.state_dir = way->world->state_dir, .runner_id = g_strchomp(id),
                              .docker_socket = qv_test_dockerd_socket(way->engine)};
  g_autoptr(GError) error = NULL;
  g_autoptr(QvBackend) backend = qv_backend_open(way->backend, &options, &error);
  g_assert_no_error(error);
  gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;
  for (;; g_usleep(50000)) {
    g_auto(GStrv) left = qv_backend_leftovers(backend);
    if (left[0] == NULL)
      return;
    if (qv_clock_mono_ms() > end) {
      g_autofree char *text = g_strjoinv("\n", left);
      g_error("left over: %s", text);
    }
  }
}
