/* SPDX-License-Identifier: Apache-2.0 */
/* Live members in the job process: their rate, the bound on what waits for the supervisor, and the seal. */
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "protocol/live.h"
#include "runner/job_live.h"

static void test_rate(void)
{
  /* An honest entry writes number n no sooner than n seconds after its start, and may be heard later. */
  for (guint32 n = 0; n < QV_LIVE_MEMBERS_MAX; n += 997)
    g_assert_true(qv_job_live_in_time(n, (gint64)n * QV_LIVE_EVERY_MS));
  g_assert_true(qv_job_live_in_time(10, 0));
  g_assert_false(qv_job_live_in_time(11, 0));
  g_assert_false(qv_job_live_in_time(100, 60000));
  g_assert_false(qv_job_live_in_time(G_MAXUINT32, 1800000));
}

static gboolean on_frame(QvIpcType type, const guint8 *payload, gsize n, gpointer data, GError **error)
{
  return TRUE;
}

static void on_end(const GError *error, gpointer data) {}

typedef struct {
  QvJob *job;
  int ours;
  QvChannel *channel;
  QvJobLive *live;
  guint8 key[QV_BLOB_KEY_BYTES];
} Fixture;

static void set_up(Fixture *f, gconstpointer data)
{
  int pair[2];
  g_assert_true(qv_fd_socketpair(pair, NULL));
  f->ours = pair[0];
  f->job = qv_job_new();
  g_strlcpy(f->job->job_id, "01234567-89ab-cdef-0123-456789abcdef", sizeof f->job->job_id);
  f->job->tenant_id = g_strdup("tenant");
  memset(f->key, 3, sizeof f->key);
  f->channel = qv_channel_new(pair[1], QV_IPC_FROM_SUPERVISOR, on_frame, on_end, f);
  f->live = qv_job_live_new(f->job, f->key, f->channel);
}

static void tear_down(Fixture *f, gconstpointer data)
{
  qv_job_live_free(f->live);
  qv_channel_free(f->channel);
  qv_job_free(f->job);
  close(f->ours);
}

static void test_sealed(Fixture *f, gconstpointer data)
{
  g_assert_true(qv_job_live_member(f->live, 0, (const guint8 *)"hello", 5));
  g_assert_true(qv_job_live_member(f->live, 1, NULL, 0));
  while (qv_channel_queued_bytes(f->channel) > 0)
    g_main_context_iteration(NULL, TRUE);
  guint8 bytes[4096], plain[64];
  ssize_t got = read(f->ours, bytes, sizeof bytes);
  g_autoptr(QvIpcReader) reader = qv_ipc_reader_new(QV_IPC_FROM_JOB);
  g_assert_true(qv_ipc_reader_feed(reader, bytes, (gsize)got, NULL));
  g_assert_null(memmem(bytes, (gsize)got, "hello", 5));
  g_autoptr(QvSecret) key = qv_secret_new_copy(f->key, sizeof f->key);
  g_autoptr(QvBlobCipher) cipher = qv_live_cipher_new(key, "tenant", f->job->job_id);
  QvIpcType type;
  const guint8 *payload;
  gsize n;
  for (guint32 i = 0; i < 2; i++) {
    g_assert_true(qv_ipc_reader_next(reader, &type, &payload, &n));
    g_assert_cmpint(type, ==, QV_IPC_LIVE);
    g_assert_cmpuint(qv_ipc_u32(payload), ==, i);
    g_assert_true(qv_blob_cipher_unseal(cipher, i, payload + 4, n - 4, plain, NULL));
    g_assert_cmpmem(plain, n - 4 - 28, "hello", i == 0 ? 5 : 0);
  }
}

/* A supervisor that does not read costs chunks, not memory; and never the job. */
static void test_slow(Fixture *f, gconstpointer data)
{
  g_autofree guint8 *large = g_malloc0(QV_LIVE_BYTES_MAX);
  for (int i = 0; i < 1000; i++)
    g_assert_true(qv_job_live_member(f->live, 0, large, QV_LIVE_BYTES_MAX));
  g_assert_cmpuint(qv_channel_queued_bytes(f->channel), <, 512 * 1024);
}

static void test_too_fast(Fixture *f, gconstpointer data)
{
  g_assert_true(qv_job_live_member(f->live, 5, (const guint8 *)"x", 1));
  g_assert_false(qv_job_live_member(f->live, 80000, (const guint8 *)"x", 1));
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/live/rate", test_rate);
  g_test_add("/live/sealed", Fixture, NULL, set_up, test_sealed, tear_down);
  g_test_add("/live/slow", Fixture, NULL, set_up, test_slow, tear_down);
  g_test_add("/live/too-fast", Fixture, NULL, set_up, test_too_fast, tear_down);
  return g_test_run();
}
