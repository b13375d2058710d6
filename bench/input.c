/* SPDX-License-Identifier: Apache-2.0 */
/* input MIB SECONDS: a blob of MIB MiB in memory goes through the writing end of a sandbox's stdin, as in a job process, to
 * stdout, a pipe. Prints bytes a second of wall time, and those of CPU time, on stderr. */
#include <glib-unix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "protocol/blob.h"
#include "runner/job_input.h"

enum { SLOT = QV_CHUNK_BYTES + QV_CHUNK_IV_BYTES + QV_CHUNK_TAG_BYTES };

typedef struct {
  QvJob job;
  QvJobKeys keys;
  guint8 *sealed; /* every chunk's slot is as long as the longest */
  GMainLoop *loop;
  QvJobInput *input;
  gint64 given;
} Bench;

static void make(Bench *bench, gint64 mib)
{
  guint8 raw[32], salt[QV_SALT_BYTES], iv[QV_CHUNK_IV_BYTES];
  qv_random_bytes(raw, sizeof raw);
  qv_random_bytes(salt, sizeof salt);
  g_autoptr(QvKey) key = qv_key_new(raw, sizeof raw);
  char *id = (char *)"01234567-89ab-cdef-0123-456789abcdef.base";
  g_autoptr(QvSecret) secret = qv_blob_key_derive(key, salt, "bench", id);
  memcpy(bench->keys.base_key, qv_secret_bytes(secret), QV_BLOB_KEY_BYTES);
  bench->job.tenant_id = (char *)"bench";
  bench->sealed = g_malloc((gsize)mib * SLOT);
  g_autofree guint8 *plain = g_malloc(QV_CHUNK_BYTES);
  qv_random_bytes(plain, QV_CHUNK_BYTES);
  g_autoptr(QvBlobWriter) writer = qv_blob_writer_new(secret, salt, "bench", id, mib * QV_CHUNK_BYTES);
  for (gint64 i; (i = qv_blob_writer_next(writer)) >= 0;) {
    qv_random_bytes(iv, sizeof iv);
    qv_blob_writer_step(writer, iv, plain, bench->sealed + (gsize)i * SLOT);
  }
  char zeros[65];
  memset(zeros, '0', 64);
  zeros[64] = '\0';
  qv_blob_writer_describe(writer, zeros, &bench->job.base);
}

/* As the supervisor does: no more chunks under way than the protocol allows. */
static void give(gpointer data)
{
  Bench *bench = data;
  g_autoptr(GError) error = NULL;
  if (bench->given == bench->job.base.chunks)
    return;
  if (!qv_job_input_chunk(bench->input, FALSE, (guint32)bench->given, bench->sealed + (gsize)bench->given * SLOT, SLOT, &error))
    g_error("%s", error->message);
  bench->given++;
}

static void done(gpointer data)
{
  g_main_loop_quit(((Bench *)data)->loop);
}

static void once(Bench *bench)
{
  static const QvJobInputEvents events = {.written = give, .done = done, .stuck = done};
  bench->given = 0;
  bench->input = qv_job_input_new(dup(STDOUT_FILENO), qv_secret_new_copy("\n", 1), &bench->job, &bench->keys, &events, bench);
  for (int i = 0; i < QV_CHUNKS_IN_MEMORY_MAX; i++)
    give(bench);
  g_main_loop_run(bench->loop);
  g_clear_pointer(&bench->input, qv_job_input_free);
}

int main(int argc, char **argv)
{
  if (argc != 3 || !g_unix_set_fd_nonblocking(STDOUT_FILENO, TRUE, NULL))
    return 2;
  Bench bench = {.loop = g_main_loop_new(NULL, FALSE)};
  gint64 mib = atoll(argv[1]);
  double seconds = g_ascii_strtod(argv[2], NULL);
  make(&bench, mib);
  gint64 start = qv_clock_mono_us(), spent;
  clock_t cpu = clock();
  double bytes = 0;
  do {
    once(&bench);
    bytes += (double)mib * QV_CHUNK_BYTES;
  } while ((spent = qv_clock_mono_us() - start) < (gint64)(seconds * 1e6));
  fprintf(stderr, "pipe_bytes_per_s %.0f\npipe_bytes_per_cpu_s %.0f\n", bytes * 1e6 / (double)spent,
          bytes * CLOCKS_PER_SEC / (double)(clock() - cpu));
  g_free(bench.sealed);
  g_main_loop_unref(bench.loop);
  return 0;
}
