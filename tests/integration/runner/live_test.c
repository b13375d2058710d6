/* SPDX-License-Identifier: Apache-2.0 */
/* Live logs of real jobs: told of, sealed, on time, and in nobody's way. */
#include <glib.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/clock.h"
#include "protocol/live.h"
#include "queue/subscriber.h"
#include "support/loop.h"
#include "world.h"

#define PREFIX "quavon-sandbox"

static World *world;
static QvSubscriber *subscriber;
static gboolean subscribed;
static GPtrArray *messages; /* of char *: all that came */

static void on_message(const char *channel, const char *text, gsize len, gpointer user)
{
  g_ptr_array_add(messages, g_strndup(text, len));
}

static void on_ready(gpointer user)
{
  subscribed = TRUE;
}

/* One more than the highest number that was told for the job. */
static guint told(const QvJob *job)
{
  guint end = 0, n = 0;
  for (guint i = 0; i < messages->len; i++) {
    if (qv_live_message_parse(messages->pdata[i], strlen(messages->pdata[i]), job->job_id, &n))
      end = MAX(end, n + 1);
  }
  return end;
}

typedef struct {
  gboolean done;
  GBytes *bytes;
} Got;

static void on_bytes(GBytes *bytes, const GError *error, gpointer user)
{
  Got *got = user;
  g_assert_no_error(error);
  got->bytes = bytes != NULL ? g_bytes_ref(bytes) : NULL;
  got->done = TRUE;
}

/* All that can be read of it, as a worker does. */
static char *live_log(const QvJob *job, const char *sha256)
{
  g_autoptr(QvSecret) key = qv_live_key_derive(world->key, sha256, job->tenant_id, job->job_id);
  g_autoptr(QvBlobCipher) cipher = qv_live_cipher_new(key, job->tenant_id, job->job_id);
  g_autofree char *blob_id = g_strconcat(job->job_id, ".live", NULL);
  GString *text = g_string_new(NULL);
  for (guint i = 0; i < told(job); i++) {
    Got got = {0};
    qv_blob_get(world->conn, PREFIX, blob_id, i, 0, on_bytes, &got);
    QV_TEST_WAIT(got.done);
    if (got.bytes == NULL)
      continue;
    gsize n;
    const guint8 *sealed = g_bytes_get_data(got.bytes, &n);
    g_autofree guint8 *plain = g_malloc(n);
    g_autoptr(GError) error = NULL;
    qv_blob_cipher_unseal(cipher, i, sealed, n, plain, &error);
    g_assert_no_error(error);
    g_string_append_len(text, (const char *)plain, (gssize)n - 28);
    g_bytes_unref(got.bytes);
  }
  return g_string_free(text, FALSE);
}

static char *live_key(const QvJob *job, const char *last)
{
  return g_strdup_printf(PREFIX ":blob:%s.live:%s", job->job_id, last);
}

/* -2: there is none. */
static gint64 ttl_ms(const QvJob *job, const char *last)
{
  g_autofree char *key = live_key(job, last);
  g_autofree char *text = qv_test_valkey_cli(world->valkey, "PTTL", key, NULL);
  return g_ascii_strtoll(text, NULL, 10);
}

/* How many chunks Valkey says that there are. */
static guint stored_n(const QvJob *job)
{
  g_autofree char *key = live_key(job, "n"), *text = qv_test_valkey_cli(world->valkey, "GET", key, NULL);
  return (guint)strtoul(text, NULL, 10);
}

/* Seen while it runs; and where the job leaves no logs otherwise, they stay for their time. */
static void test_running(void)
{
  /* It goes on, so that there is a second message wherever the two words come. */
  g_autoptr(QvJob) job = world_job(world, "echo first; sleep 3; printf 'second\\000\\377'; while :; do sleep 1; echo more; done");
  char sha256[65];
  world_add(world, job, sha256);
  QV_TEST_WAIT(told(job) >= 2);
  g_autofree char *key = live_key(job, "0");
  g_autofree char *sealed = qv_test_valkey_cli(world->valkey, "GET", key, NULL);
  g_assert_null(strstr(sealed, "first"));
  world_cancel(world, job);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_assert_cmpstr(qv_code_text(result->code), ==, "cancelled");
  g_assert_null(result->payload);
  g_autofree char *text = live_log(job, sha256);
  g_assert_cmpmem(text, 14, "first\nsecond\0\xff", 14);
  QV_TEST_WAIT(stored_n(job) == told(job));
  world_expect_clean(world);
  static const char *const lasts[] = {"0", "1", "n"};
  for (gsize i = 0; i < G_N_ELEMENTS(lasts); i++) {
    g_assert_cmpint(ttl_ms(job, lasts[i]), >, 60000);
    g_assert_cmpint(ttl_ms(job, lasts[i]), <=, QV_LIVE_TTL_MS);
  }
}

/* A result with logs: the live ones are no longer needed. The result has all, whatever the live view passed over. */
static void test_complete(void)
{
  g_autoptr(QvJob) job = world_job(world, "echo one; head -c 3000000 /dev/zero | tr '\\0' x; sleep 2; echo end");
  job->setup = g_new0(QvStep, 1);
  const char *argv[] = {"/bin/sh", "-c", "echo setting up; sleep 2", NULL};
  *job->setup = (QvStep){.name = g_strdup("setup"), .argv = g_strdupv((char **)argv)};
  char sha256[65];
  world_add(world, job, sha256);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_assert_cmpstr(qv_code_text(result->code), ==, NULL);
  g_assert_cmpint(result->facts.steps[0].log_total_bytes, ==, 3000008);
  g_autofree char *log = world_payload_log(world, job, result, 0);
  g_assert_true(g_str_has_suffix(log, "xxxend\n"));
  QV_TEST_WAIT(told(job) >= 2);
  QV_TEST_WAIT(ttl_ms(job, "0") <= 30000 && ttl_ms(job, "n") <= 30000);
  world_expect_clean(world);
}

/* Valkey stands still while the job prints: the job does not. */
static void test_slow_valkey(void)
{
  g_autoptr(QvJob) job = world_job(world, "for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 1; done; echo done");
  char sha256[65];
  world_add(world, job, sha256);
  QV_TEST_WAIT(told(job) >= 1);
  kill(qv_test_valkey_pid(world->valkey), SIGSTOP);
  g_usleep(4 * G_USEC_PER_SEC);
  kill(qv_test_valkey_pid(world->valkey), SIGCONT);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_assert_cmpstr(qv_code_text(result->code), ==, NULL);
  g_autofree char *log = world_payload_log(world, job, result, 0);
  g_assert_true(g_str_has_suffix(log, "9\ndone\n"));
  world_expect_clean(world);
}

static void test_off(void)
{
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_LIVE_LOGS=off", NULL});
  g_autoptr(QvJob) job = world_job(world, "echo quiet; sleep 2; echo please");
  char sha256[65];
  world_add(world, job, sha256);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_autofree char *log = world_payload_log(world, job, result, 0);
  g_assert_cmpstr(log, ==, "quiet\nplease\n");
  g_assert_cmpuint(told(job), ==, 0);
  g_assert_cmpint(ttl_ms(job, "n"), ==, -2);
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  world_expect_clean(world);
}

int main(int argc, char **argv)
{
  static const QvSubscriberEvents events = {.message = on_message, .ready = on_ready};
  if (!backend_select(argc, argv))
    return 0;
  g_test_init(&argc, &argv, NULL);
  world = world_new(QV_TEST_VALKEY_PLAIN);
  if (world == NULL)
    return 77;
  messages = g_ptr_array_new_with_free_func(g_free);
  subscriber = qv_subscriber_new(world->address, NULL, (const char *const[]){PREFIX ":live", NULL}, &events, NULL);
  QV_TEST_WAIT(subscribed);
  world_start(world, NULL);
  g_test_add_func("/runner/live/running", test_running);
  g_test_add_func("/runner/live/complete", test_complete);
  if (ON(ON_RUNSC)) { /* what depends on no backend */
    g_test_add_func("/runner/live/slow-valkey", test_slow_valkey);
    g_test_add_func("/runner/live/off", test_off);
  }
  int status = g_test_run();
  qv_subscriber_free(subscriber);
  world_free(world);
  backend_finish();
  g_ptr_array_unref(messages);
  return status;
}
