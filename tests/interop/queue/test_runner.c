/* SPDX-License-Identifier: Apache-2.0 */
/* Node on the worker's side, our runner on the other: producer.mjs makes, signs and adds jobs from the contract alone with
 * the public bullmq; the runner runs them in gVisor; Node verifies what comes back. */
#include <signal.h>

#include "node.h"
#include "world.h"

static void run_major(gconstpointer major)
{
  if (!node_folder())
    return;
  World *world = world_new(QV_TEST_VALKEY_PLAIN);
  if (!world)
    return;
  world_start(world, NULL);
  g_autofree char *key = g_strconcat("QV_KEY_FILE=", world->key_file, NULL);
  g_autofree char *image = g_strconcat("QV_IMAGE=", world->image.name, NULL);
  g_autofree char *digest = g_strconcat("QV_DIGEST=", world->image.digest, NULL);
  const char *env[] = { key, image, digest, NULL };
  node_finish(node_start(world->valkey, "worker", "producer.mjs", major, NULL, env));
  world_expect_clean(world);
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  world_free(world);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_data_func("/interop/runner/bullmq-5", "5", run_major);
  g_test_add_data_func("/interop/runner/bullmq-6", "6", run_major);
  return g_test_run();
}
