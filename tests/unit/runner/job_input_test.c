/* SPDX-License-Identifier: Apache-2.0 */
/* What reaches a sandbox's stdin of good blobs and of bad ones, read while it is written and only behind it: the SHA-256 is taken
 * at other moments then. One process holds both ends, so nothing here waits. */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "runner/job_input.h"

#define TENANT "acme"
#define REQUEST "{\"v\":1}\n"

/* One blob of a job. */
typedef struct {
  GByteArray *plain;
  GPtrArray *sealed; /* of GByteArray */
  QvBlobDescriptor descriptor;
} Blob;

typedef struct {
  Blob base, overlay;
  QvJob job;
  QvJobKeys keys;
  QvJobInput *input;
  int sandbox;
  GByteArray *read;
  guint written, done, stuck;
} World;

static void blob_make(Blob *blob, const char *id, guint8 *key_out, gsize size)
{
  static const guint8 raw[32] = {7}, salt[QV_SALT_BYTES] = {9};
  g_autoptr(QvKey) key = qv_key_new(raw, sizeof raw);
  g_autoptr(QvSecret) derived = qv_blob_key_derive(key, salt, TENANT, id);
  memcpy(key_out, qv_secret_bytes(derived), QV_BLOB_KEY_BYTES);
  blob->plain = g_byte_array_new();
  g_byte_array_set_size(blob->plain, (guint)size);
  for (gsize i = 0; i < size; i++)
    blob->plain->data[i] = (guint8)(i * 31 ^ i >> 7 ^ i >> 16);
  blob->sealed = g_ptr_array_new_with_free_func((GDestroyNotify)g_byte_array_unref);
  g_autoptr(QvBlobWriter) writer = qv_blob_writer_new(derived, salt, TENANT, id, (gint64)size);
  for (gint64 i; (i = qv_blob_writer_next(writer)) >= 0;) {
    guint8 iv[QV_CHUNK_IV_BYTES] = {(guint8)i};
    GByteArray *chunk = g_byte_array_new();
    g_byte_array_set_size(chunk, (guint)qv_blob_writer_want(writer) + QV_CHUNK_IV_BYTES + QV_CHUNK_TAG_BYTES);
    qv_blob_writer_step(writer, iv, blob->plain->data + i * QV_CHUNK_BYTES, chunk->data);
    g_ptr_array_add(blob->sealed, chunk);
  }
  qv_blob_writer_describe(writer, "0000000000000000000000000000000000000000000000000000000000000000", &blob->descriptor);
}

static void blob_clear(Blob *blob)
{
  g_byte_array_unref(blob->plain);
  g_ptr_array_unref(blob->sealed);
}

static void on_written(gpointer data)
{
  ((World *)data)->written++;
}

static void on_done(gpointer data)
{
  ((World *)data)->done++;
}

static void on_stuck(gpointer data)
{
  ((World *)data)->stuck++;
}

static void world_make(World *world, gsize base_bytes, gsize overlay_bytes)
{
  *world = (World){.read = g_byte_array_new()};
  blob_make(&world->base, "01234567-89ab-cdef-0123-456789abcdef.base", world->keys.base_key, base_bytes);
  blob_make(&world->overlay, "01234567-89ab-cdef-0123-456789abcdef.overlay", world->keys.overlay_key, overlay_bytes);
  world->job.tenant_id = (char *)TENANT;
}

static void world_start(World *world)
{
  static const QvJobInputEvents events = {on_written, on_done, on_stuck};
  int pair[2];
  world->job.base = world->base.descriptor;
  world->job.overlay = &world->overlay.descriptor;
  g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), ==, 0);
  world->sandbox = pair[1];
  world->input = qv_job_input_new(pair[0], qv_secret_new_copy(REQUEST, strlen(REQUEST)), &world->job, &world->keys, &events,
                                  world);
}

static void world_stop(World *world)
{
  qv_job_input_free(world->input);
  if (world->sandbox >= 0)
    close(world->sandbox);
  g_byte_array_unref(world->read);
  blob_clear(&world->base);
  blob_clear(&world->overlay);
}

/* Reads and lets write until there is nothing more to do. */
static void flow(World *world)
{
  for (gboolean more = TRUE; more;) {
    guint8 bytes[50000];
    more = g_main_context_iteration(NULL, FALSE);
    for (ssize_t n; (n = read(world->sandbox, bytes, sizeof bytes)) > 0; more = TRUE)
      g_byte_array_append(world->read, bytes, (guint)n);
  }
}

/* Gives all chunks, to a sandbox that reads between them or only when it has all; FALSE where one is refused. */
static gboolean give(World *world, gboolean reads)
{
  for (int overlay = 0; overlay <= 1; overlay++) {
    const Blob *blob = overlay ? &world->overlay : &world->base;
    for (guint i = 0; i < blob->sealed->len; i++) {
      g_autoptr(GError) error = NULL;
      const GByteArray *chunk = blob->sealed->pdata[i];
      if (!qv_job_input_chunk(world->input, overlay, i, chunk->data, chunk->len, &error)) {
        g_assert_error(error, QV_ERROR, QV_ERROR_AUTH);
        flow(world);
        return FALSE;
      }
      if (reads)
        flow(world);
      else
        g_main_context_iteration(NULL, FALSE);
    }
  }
  flow(world);
  return TRUE;
}

/* What the sandbox has is the request line and so much of base and overlay. */
static void assert_read(const World *world, gsize base_n, gsize overlay_n)
{
  gsize at = strlen(REQUEST);
  g_assert_cmpuint(world->read->len, ==, at + base_n + overlay_n);
  g_assert_cmpmem(world->read->data, at, REQUEST, at);
  g_assert_true(memcmp(world->read->data + at, world->base.plain->data, base_n) == 0);
  g_assert_true(memcmp(world->read->data + at + base_n, world->overlay.plain->data, overlay_n) == 0);
}

static void test_whole(void)
{
  static const gsize sizes[][2] = {{1, 1}, {QV_CHUNK_BYTES, QV_CHUNK_BYTES + 1}, {2 * QV_CHUNK_BYTES + 77, 70000}};
  for (gsize i = 0; i < 2 * G_N_ELEMENTS(sizes); i++) {
    const gsize *size = sizes[i / 2];
    World world;
    world_make(&world, size[0], size[1]);
    world_start(&world);
    g_assert_true(give(&world, i % 2));
    assert_read(&world, size[0], size[1]);
    g_assert_cmpuint(world.written, ==, world.base.sealed->len + world.overlay.sealed->len);
    g_assert_cmpuint(world.done, ==, 1);
    g_assert_cmpuint(world.stuck, ==, 0);
    world_stop(&world);
  }
}

/* All tags are right, the SHA-256 of the whole is not: not one byte of the last chunk. */
static void test_wrong_sum(void)
{
  for (int i = 0; i < 4; i++) {
    gboolean of_overlay = i / 2;
    World world;
    world_make(&world, 2 * QV_CHUNK_BYTES + 100, QV_CHUNK_BYTES + 5);
    char *sum = (of_overlay ? &world.overlay : &world.base)->descriptor.sha256;
    sum[63] = sum[63] == '0' ? '1' : '0';
    world_start(&world);
    g_assert_false(give(&world, i % 2));
    if (of_overlay)
      assert_read(&world, 2 * QV_CHUNK_BYTES + 100, QV_CHUNK_BYTES);
    else
      assert_read(&world, 2 * QV_CHUNK_BYTES, 0);
    g_assert_cmpuint(world.done, ==, 0);
    world_stop(&world);
  }
}

static void test_wrong_tag(void)
{
  for (guint i = 0; i < 6; i++) {
    World world;
    world_make(&world, 2 * QV_CHUNK_BYTES + 100, 1);
    GByteArray *chunk = world.base.sealed->pdata[i / 2];
    chunk->data[chunk->len / 2] ^= 1;
    world_start(&world);
    g_assert_false(give(&world, i % 2));
    assert_read(&world, i / 2 * QV_CHUNK_BYTES, 0);
    world_stop(&world);
  }
}

/* A sandbox that closes its stdin: the rest of the blobs is still read, and found right or wrong. */
static void test_stuck(void)
{
  for (int wrong = 0; wrong <= 1; wrong++) {
    World world;
    world_make(&world, 3 * QV_CHUNK_BYTES, QV_CHUNK_BYTES + 5);
    if (wrong)
      world.overlay.descriptor.sha256[0] ^= 1;
    world_start(&world);
    const GByteArray *first = world.base.sealed->pdata[0];
    g_assert_true(qv_job_input_chunk(world.input, FALSE, 0, first->data, first->len, NULL));
    g_main_context_iteration(NULL, FALSE);
    close(world.sandbox);
    while (g_main_context_iteration(NULL, FALSE))
      ;
    g_assert_cmpuint(world.stuck, ==, 1);
    g_ptr_array_remove_index(world.base.sealed, 0);
    gboolean fine = TRUE;
    for (guint i = 0; fine && i < 4; i++) {
      const GByteArray *chunk = i < 2 ? world.base.sealed->pdata[i] : world.overlay.sealed->pdata[i - 2];
      fine = qv_job_input_chunk(world.input, i >= 2, i < 2 ? i + 1 : i - 2, chunk->data, chunk->len, NULL);
    }
    g_assert_cmpint(fine, ==, !wrong);
    g_assert_cmpuint(world.done, ==, 0);
    world.sandbox = -1;
    world_stop(&world);
  }
}

static void test_order(void)
{
  World world;
  world_make(&world, QV_CHUNK_BYTES + 1, 1);
  world_start(&world);
  g_autoptr(GError) error = NULL;
  const GByteArray *second = world.base.sealed->pdata[1], *overlay = world.overlay.sealed->pdata[0];
  g_assert_false(qv_job_input_chunk(world.input, FALSE, 1, second->data, second->len, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_AUTH);
  g_assert_false(qv_job_input_chunk(world.input, TRUE, 0, overlay->data, overlay->len, NULL));
  g_assert_true(give(&world, TRUE));
  assert_read(&world, QV_CHUNK_BYTES + 1, 1);
  world_stop(&world);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  signal(SIGPIPE, SIG_IGN);
  g_test_add_func("/runner/job-input/whole", test_whole);
  g_test_add_func("/runner/job-input/wrong-sum", test_wrong_sum);
  g_test_add_func("/runner/job-input/wrong-tag", test_wrong_tag);
  g_test_add_func("/runner/job-input/stuck", test_stuck);
  g_test_add_func("/runner/job-input/order", test_order);
  return g_test_run();
}
