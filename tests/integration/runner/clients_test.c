/* SPDX-License-Identifier: Apache-2.0 */
/* pip, cargo, go, bundler and maven in setup, through forwarder, relay and the real proxy, against a registry of our own
 * behind a CA of our own, with a name that nothing but the proxy resolves; each as docs/EGRESS-CLIENTS.md says. What setup
 * fetched the run step uses, without a network.
 *
 * In a sandbox of the image `clients` (Debian's packages) where QUAVON_TEST_LONG is set: the image takes minutes to make. */
#include <glib.h>
#include <signal.h>
#include <string.h>

#include "way_out.h"

typedef struct {
  World *world;
  GPid proxy, server;
  guint16 port;
} Scene;

static void scene_start(Scene *scene)
{
  World *world = scene->world;
  g_autofree char *folder = g_build_filename(world->dir, "registry", NULL);
  g_autofree char *hosts = g_build_filename(world->dir, "hosts", NULL), *ca_file = NULL;
  g_assert_cmpint(g_mkdir_with_parents(folder, 0755), ==, 0);
  g_assert_true(g_file_set_contents(hosts, "127.0.0.1 localhost " WAY_OUT_REGISTRY "\n", -1, NULL));
  scene->port = way_out_serve_registry(world, folder, &ca_file, &scene->server);
  g_autofree char *registries = g_strdup_printf(WAY_OUT_REGISTRY ":%u@127.0.0.0/8", scene->port);
  g_autofree char *socket = way_out_start_proxy_with(world, registries, hosts, &scene->proxy);
  g_autofree char *proxy = g_strconcat("QUAVON_SANDBOX_EGRESS_PROXY=", socket, NULL);
  g_autofree char *list = g_strconcat("QUAVON_SANDBOX_REGISTRIES=", registries, NULL);
  g_autofree char *ca = g_strconcat("QUAVON_SANDBOX_CA_FILE=", ca_file, NULL);
  const char *extra[] = {list, proxy, ca, NULL};
  world->deadline_ms = 900000;
  world_start(world, extra);
}

static void scene_end(Scene *scene)
{
  world_expect_clean(scene->world);
  g_assert_cmpint(world_stop(scene->world, SIGTERM), ==, 0);
  way_out_stop(scene->proxy);
  way_out_stop(scene->server);
  world_free(scene->world);
}

static char *read_file(const char *folder, const char *name)
{
  g_autofree char *path = g_build_filename(folder, name, NULL);
  char *text = NULL;
  g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
  return text;
}

static QvJob *client_job(Scene *scene, const char *client)
{
  World *world = scene->world;
  g_autofree char *source = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "tests", "integration", "runner", "clients", NULL);
  g_autofree char *registry = g_build_filename(world->dir, "registry", NULL);
  g_autofree char *script = read_file(source, "client.sh"), *go_sum = read_file(registry, "go.sum");
  g_autofree char *run = g_strdup_printf("sh client.sh %s run", client);
  QvJob *job = world_job(world, run);
  const char *files[] = {"client.sh", script, "go.sum", go_sum, NULL};
  g_autoptr(GBytes) plain = world_snapshot(files);
  world_put_base(world, job, plain);
  g_autofree char *setup = g_strdup_printf("sh client.sh %s setup https://" WAY_OUT_REGISTRY ":%u", client, scene->port);
  const char *argv[] = {"/bin/sh", "-c", setup, NULL};
  job->setup = g_new0(QvStep, 1);
  *job->setup = (QvStep){.name = g_strdup("setup"), .argv = g_strdupv((char **)argv)};
  g_strfreev(job->egress);
  job->egress = g_new0(char *, 2);
  job->egress[0] = g_strdup_printf(WAY_OUT_REGISTRY ":%u", scene->port);
  job->given = (QvLimits){.wall_ms = 900000, .memory_mib = 1536, .work_mib = 768, .milli_cpus = 2000, .pids = 256};
  return job;
}

static void test_client(Scene *scene, const char *client)
{
  World *world = scene->world;
  char sha256[65];
  g_autoptr(QvJob) job = client_job(scene, client);
  world_add(world, job, sha256);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_assert_nonnull(result->payload);
  g_autofree char *setup = world_payload_log(world, job, result, -1);
  g_test_message("%s setup: %s", client, setup);
  g_autofree char *log = result->facts.steps_n > 0 ? world_payload_log(world, job, result, 0) : NULL;
  g_test_message("%s run: %s", client, log);
  g_assert_cmpstr(qv_code_text(result->code), ==, NULL);
  g_assert_nonnull(strstr(log, "hello from the registry\n"));
  g_assert_true(result->has_egress);
  g_assert_cmpuint(result->egress_n, ==, 1);
  g_assert_cmpint(result->egress[0].connections, >=, 1);
  g_assert_cmpint(result->egress[0].bytes_down, >=, 1000);
  g_assert_cmpint(result->egress[0].refused, ==, 0);
}

static void test_sandbox(void)
{
  static const char *const clients[] = {"pip", "cargo", "go", "gem", "maven"};
  if (g_strcmp0(g_getenv("QUAVON_TEST_LONG"), "1") != 0) {
    g_test_skip("QUAVON_TEST_LONG is not set: it wants the image of scripts/test-image.sh clients");
    return;
  }
  Scene scene = {.world = world_new(QV_TEST_VALKEY_PLAIN)};
  if (scene.world == NULL)
    return;
  world_use_image(scene.world, "clients");
  scene_start(&scene);
  for (gsize i = 0; i < G_N_ELEMENTS(clients); i++)
    test_client(&scene, clients[i]);
  scene_end(&scene);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/clients/sandbox", test_sandbox);
  return g_test_run();
}
