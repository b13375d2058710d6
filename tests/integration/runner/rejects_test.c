/* SPDX-License-Identifier: Apache-2.0 */
/* A job for each code with which a runner refuses: it ends as `failed` with
 * exactly that reason, its sandbox never starts, and the next job is unaffected. Who
 * unlinks the input and who leaves it (protocol.md 3) is checked beside it. */
#include <glib.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "protocol/envelope.h"
#include "world.h"

#define PREFIX "quavon-sandbox"

static World *world;

static gboolean has_input(const QvJob *job)
{
  g_autofree char *key = g_strdup_printf(PREFIX ":blob:%s:0", job->base.blob_id);
  return world_key_exists(world, key);
}

/* Reason, and whether the input chunks are to be gone afterwards. */
static void expect(const QvJob *job, const char *reason, gboolean unlinked)
{
  world_expect_failed(world, job, reason);
  /* Whatever the runner does with the input, it has done it by now. */
  g_autofree char *done = g_strdup_printf("jobId=%s event=%s phase=DONE", job->job_id, unlinked ? "UNLINKED" : "ANSWERED");
  world_await_log(world, done);
  g_assert_cmpint(has_input(job), ==, !unlinked);
}

static void expect_raw(const char *data, gsize n, const char *reason)
{
  g_autoptr(QvJob) job = world_job(world, "true");
  world_add_raw(world, job->job_id, data, n);
  g_autofree char *text = NULL;
  g_assert_cmpint(world_wait(world, job->job_id, &text), ==, QV_JOB_FAILED);
  g_assert_cmpstr(text, ==, reason);
}

static void test_malformed(void)
{
  expect_raw("{}", 2, "rejected: malformed");
  expect_raw("not json", 8, "rejected: malformed");
  expect_raw("{\"keyId\":\"a\",\"keyId\":\"b\"}", 25, "rejected: malformed");
  g_autofree char *big = g_strnfill(2 * 1024 * 1024, 'x');
  expect_raw(big, 2 * 1024 * 1024, "rejected: malformed");
  /* Signed, but not by the tables. */
  g_autoptr(QvJob) job = world_job(world, "true");
  gsize n;
  json_t *body = qv_job_build(job);
  json_object_set_new(body, "extra", json_true());
  g_autofree char *text = qv_envelope_sign(QV_ENVELOPE_JOB, world->key, body, &n, NULL);
  json_decref(body);
  expect_raw(text, n, "rejected: malformed");
}

static void test_keys(void)
{
  guint8 bytes[32] = {9};
  g_autoptr(QvKey) other = qv_key_new(bytes, sizeof bytes);
  g_autoptr(QvJob) job = world_job(world, "true");
  gsize n;
  g_autofree char *foreign = qv_job_sign(job, &world->policy, other, &n, NULL, NULL);
  expect_raw(foreign, n, "rejected: unknown_key");
  g_autofree char *data = qv_job_sign(job, &world->policy, world->key, &n, NULL, NULL);
  char *tenant = strstr(data, "\"tenant\"");
  g_assert_nonnull(tenant);
  memcpy(tenant, "\"tenanT\"", 8);
  expect_raw(data, n, "rejected: bad_signature");
}

static void test_body(void)
{
  g_autoptr(QvJob) pool = world_job(world, "true");
  g_free(pool->pool);
  pool->pool = g_strdup("other");
  expect(pool, "rejected: wrong_pool", FALSE);

  g_autoptr(QvJob) expired = world_job(world, "true");
  expired->issued_at -= 700000;
  expired->not_after = qv_clock_unix_ms() - 31000;
  expect(expired, "rejected: expired", FALSE);

  g_autoptr(QvJob) far = world_job(world, "true");
  far->not_after = qv_clock_unix_ms() + 2000000;
  far->issued_at = far->not_after - 600000;
  expect(far, "rejected: not_after_too_far", FALSE);

  g_autoptr(QvJob) mismatch = world_job(world, "true");
  gsize n;
  g_autofree char *data = qv_job_sign(mismatch, &world->policy, world->key, &n, NULL, NULL);
  expect_raw(data, n, "rejected: job_id_mismatch");
  g_assert_true(has_input(mismatch));
}

/* The guard was won before these: the id is used up and the input goes. */
static void test_policy(void)
{
  g_autoptr(QvJob) backend = world_job(world, "true");
  g_strfreev(backend->backends);
  backend->backends = g_strdupv((char *[]){(char *)"firecracker", NULL});
  expect(backend, "rejected: backend_not_allowed", TRUE);

  g_autoptr(QvJob) image = world_job(world, "true");
  memset(image->image.digest + 7, '0', 64);
  expect(image, "rejected: unknown_image", TRUE);

  g_autoptr(QvJob) limits = world_job(world, "true");
  limits->given.memory_mib = 1000000;
  expect(limits, "rejected: limits", TRUE);

  /* Under its ceiling, over what the host has for one job. */
  g_autoptr(QvJob) budget = world_job(world, "true");
  budget->given.memory_mib = 3000;
  expect(budget, "rejected: limits", TRUE);

  g_autoptr(QvJob) egress = world_job(world, "true");
  g_strfreev(egress->egress);
  egress->egress = g_strdupv((char *[]){(char *)"registry.example:443", NULL});
  egress->setup = g_new0(QvStep, 1);
  egress->setup->name = g_strdup("setup");
  egress->setup->argv = g_strdupv((char *[]){(char *)"/bin/true", NULL});
  expect(egress, "rejected: egress_not_allowed", TRUE);
}

static void remove_job(const char *id)
{
  g_autofree char *completed = qv_test_valkey_cli(world->valkey, "ZREM", PREFIX ":sandbox:completed", id, NULL);
  g_autofree char *failed = qv_test_valkey_cli(world->valkey, "ZREM", PREFIX ":sandbox:failed", id, NULL);
  g_autofree char *key = g_strconcat(PREFIX ":sandbox:", id, NULL);
  g_autofree char *hash = qv_test_valkey_cli(world->valkey, "DEL", key, NULL);
}

static void test_replayed(void)
{
  g_autoptr(QvJob) job = world_job(world, "true");
  world_expect(world, job, NULL);
  world_expect_clean(world);
  remove_job(job->job_id);
  /* Whoever replays a job brings chunks: they are not the runner's to remove. */
  const char *files[] = {"again.txt", "again", NULL};
  g_autoptr(GBytes) plain = world_snapshot(files);
  world_put_base(world, job, plain);
  expect(job, "rejected: replayed", FALSE);
  /* The same after a restart, when only Valkey remembers. */
  remove_job(job->job_id);
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  world_start(world, NULL);
  expect(job, "rejected: replayed", FALSE);
}

/* Fields of BullMQ's features that nobody here may use, and the deferred failure. */
static void test_fields(void)
{
  static const char *const fields[] = {"rjk", "parent", "parentKey", "deid"};
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  g_autoptr(GPtrArray) owned = g_ptr_array_new_with_free_func((GDestroyNotify)qv_job_free);
  QvJob *jobs[5];
  char sha256[65];
  for (gsize i = 0; i < 5; i++) {
    jobs[i] = world_job(world, "true");
    g_ptr_array_add(owned, jobs[i]);
    world_add(world, jobs[i], sha256);
    g_autofree char *key = g_strconcat(PREFIX ":sandbox:", jobs[i]->job_id, NULL);
    g_free(qv_test_valkey_cli(world->valkey, "HSET", key, i < 4 ? fields[i] : "defa",
                              i < 4 ? "{}" : "job stalled more than allowable limit", NULL));
  }
  /* One more that stalled, but is not ours to unlink. */
  g_autoptr(QvJob) forged = world_job(world, "true");
  world_add_raw(world, forged->job_id, "{}", 2);
  g_autofree char *key = g_strconcat(PREFIX ":sandbox:", forged->job_id, NULL);
  g_free(qv_test_valkey_cli(world->valkey, "HSET", key, "defa", "stalled", NULL));
  world_start(world, NULL);
  for (gsize i = 0; i < 5; i++) {
    g_autofree char *text = NULL;
    g_assert_cmpint(world_wait(world, jobs[i]->job_id, &text), ==, QV_JOB_FAILED);
    g_assert_cmpstr(text, ==, i < 4 ? "rejected: unsupported" : "stalled");
    if (i < 4)
      g_assert_true(has_input(jobs[i]));
  }
  g_autofree char *text = NULL;
  g_assert_cmpint(world_wait(world, forged->job_id, &text), ==, QV_JOB_FAILED);
  g_assert_cmpstr(text, ==, "stalled");
  g_assert_true(has_input(forged));
  gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;
  while (has_input(jobs[4]) && qv_clock_mono_ms() < end)
    g_usleep(20000);
  g_assert_false(has_input(jobs[4]));
  /* That id is used up. */
  remove_job(jobs[4]->job_id);
  world_expect_failed(world, jobs[4], "rejected: replayed");
}

static void test_next_job_is_fine(void)
{
  g_autoptr(QvJob) job = world_job(world, "true");
  world_expect(world, job, NULL);
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  world = world_new(QV_TEST_VALKEY_PLAIN);
  if (world == NULL)
    return 77;
  world->keeps_input = TRUE;
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_MEMORY_BUDGET_MIB=2000",
                                           "QUAVON_SANDBOX_CONCURRENCY=1", NULL});
  g_test_add_func("/runner/rejects/malformed", test_malformed);
  g_test_add_func("/runner/rejects/keys", test_keys);
  g_test_add_func("/runner/rejects/body", test_body);
  g_test_add_func("/runner/rejects/policy", test_policy);
  g_test_add_func("/runner/rejects/replayed", test_replayed);
  g_test_add_func("/runner/rejects/fields", test_fields);
  g_test_add_func("/runner/rejects/next-job-is-fine", test_next_job_is_fine);
  int status = g_test_run();
  world_free(world);
  return status;
}
