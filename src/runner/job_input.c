/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the writing end of a sandbox's stdin. The SHA-256 of a blob, the dearest part of reading one, is taken of
 * bytes that were just written: the sandbox reads them at the same time. No thread for that: the job process starts
 * children and drops its rights, and two cores are the sandbox's and its own. Of the last chunk the SHA-256 comes
 * first, since it decides whether that is passed on. */
#include "runner/job_input.h"

#include <errno.h>
#include <glib-unix.h>
#include <unistd.h>

#include "base/error.h"

/* So much is written before it is hashed: less than what a socket takes, so that the sandbox has something to read. */
enum { WRITE_BYTES = 64 * 1024 };

/* A chunk of plaintext. */
typedef struct {
  QvBlobReader *reader;
  guint8 *bytes;
  gsize n;
  gsize hashed; /* all of it where it is the last chunk of its blob */
} Piece;

struct QvJobInput {
  int fd;
  guint source;
  QvSecret *request;    /* NULL once it is written */
  gsize request_taken;
  QvBlobReader *base;
  QvBlobReader *overlay; /* NULL: none */
  GQueue pieces;         /* Piece, in order */
  gsize taken;           /* bytes of the head that are written */
  guint8 *spare;         /* memory of the piece that was written last, for the next one; NULL: none */
  gboolean finished;
  QvJobInputEvents events;
  gpointer data;
};

static gboolean all_read(const QvJobInput *input)
{
  return qv_blob_reader_next(input->base) < 0 &&
         (input->overlay == NULL || qv_blob_reader_next(input->overlay) < 0);
}

/* What is to be written next, or NULL. */
static const guint8 *next_bytes(QvJobInput *input, gsize *n)
{
  if (input->request != NULL) {
    *n = qv_secret_len(input->request) - input->request_taken;
    return qv_secret_bytes(input->request) + input->request_taken;
  }
  const Piece *head = g_queue_peek_head(&input->pieces);
  if (head == NULL)
    return NULL;
  *n = MIN(head->n - input->taken, WRITE_BYTES);
  return head->bytes + input->taken;
}

static void piece_hash(Piece *piece, gsize until)
{
  if (piece->hashed >= until)
    return;
  qv_blob_reader_hash(piece->reader, piece->bytes + piece->hashed, until - piece->hashed);
  piece->hashed = until;
}

static void piece_free(gpointer data)
{
  Piece *piece = data;
  g_free(piece->bytes);
  g_free(piece);
}

static void took(QvJobInput *input, gsize n)
{
  if (input->request != NULL) {
    input->request_taken += n;
    if (input->request_taken == qv_secret_len(input->request))
      g_clear_pointer(&input->request, qv_secret_free);
    return;
  }
  Piece *head = g_queue_peek_head(&input->pieces);
  input->taken += n;
  piece_hash(head, input->taken);
  if (input->taken < head->n)
    return;
  g_free(input->spare);
  input->spare = all_read(input) ? NULL : g_steal_pointer(&head->bytes);
  piece_free(g_queue_pop_head(&input->pieces));
  input->taken = 0;
  input->events.written(input->data);
}

static gboolean on_out(int fd, GIOCondition condition, gpointer data)
{
  QvJobInput *input = data;
  const guint8 *bytes;
  gsize n;
  while ((bytes = next_bytes(input, &n)) != NULL) {
    ssize_t written = write(fd, bytes, n);
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0 && errno == EAGAIN)
      return G_SOURCE_CONTINUE;
    if (written < 0) {
      input->source = 0;
      input->finished = TRUE;
      if (input->events.stuck != NULL)
        input->events.stuck(input->data);
      return G_SOURCE_REMOVE;
    }
    took(input, written);
  }
  input->source = 0;
  if (all_read(input) && !input->finished) {
    input->finished = TRUE;
    input->events.done(input->data);
  }
  return G_SOURCE_REMOVE;
}

static void wake(QvJobInput *input)
{
  if (input->source == 0 && !input->finished)
    input->source = g_unix_fd_add(input->fd, G_IO_OUT | G_IO_ERR | G_IO_HUP, on_out, input);
}

QvJobInput *qv_job_input_new(int fd, QvSecret *request, const QvJob *job, const QvJobKeys *keys,
                             const QvJobInputEvents *events, gpointer data)
{
  QvJobInput *input = g_new0(QvJobInput, 1);
  input->fd = fd;
  input->request = request;
  g_autoptr(QvSecret) base_key = qv_secret_new_copy(keys->base_key, QV_BLOB_KEY_BYTES);
  input->base = qv_blob_reader_new(base_key, job->tenant_id, &job->base);
  if (job->overlay != NULL) {
    g_autoptr(QvSecret) overlay_key = qv_secret_new_copy(keys->overlay_key, QV_BLOB_KEY_BYTES);
    input->overlay = qv_blob_reader_new(overlay_key, job->tenant_id, job->overlay);
  }
  g_queue_init(&input->pieces);
  input->events = *events;
  input->data = data;
  wake(input);
  return input;
}

void qv_job_input_free(QvJobInput *input)
{
  if (input == NULL)
    return;
  g_clear_handle_id(&input->source, g_source_remove);
  close(input->fd);
  qv_secret_free(input->request);
  qv_blob_reader_free(input->base);
  qv_blob_reader_free(input->overlay);
  g_queue_clear_full(&input->pieces, piece_free);
  g_free(input->spare);
  g_free(input);
}

/* What the sandbox has not read yet. */
static void hash_waiting(QvJobInput *input)
{
  for (GList *at = input->pieces.head; at != NULL; at = at->next) {
    Piece *piece = at->data;
    piece_hash(piece, piece->n);
  }
}

gboolean qv_job_input_chunk(QvJobInput *input, gboolean overlay, guint32 index, const guint8 *sealed, gsize n,
                            GError **error)
{
  QvBlobReader *reader = overlay ? input->overlay : input->base;
  if (reader == NULL || (overlay && qv_blob_reader_next(input->base) >= 0) || qv_blob_reader_next(reader) != index) {
    g_set_error(error, QV_ERROR, QV_ERROR_AUTH, "a chunk comes out of order");
    return FALSE;
  }
  if (qv_blob_reader_at_last(reader) || input->finished)
    hash_waiting(input);
  g_autofree guint8 *plain = input->spare != NULL ? g_steal_pointer(&input->spare) : g_malloc(QV_CHUNK_BYTES);
  gsize plain_n;
  if (input->finished) /* nobody reads it: the blob is still read, and its faults found */
    return qv_blob_reader_step(reader, sealed, n, plain, &plain_n, error);
  if (!qv_blob_reader_open(reader, sealed, n, plain, &plain_n, error))
    return FALSE;
  Piece *piece = g_new(Piece, 1);
  *piece = (Piece){reader, g_steal_pointer(&plain), plain_n, qv_blob_reader_next(reader) < 0 ? plain_n : 0};
  g_queue_push_tail(&input->pieces, piece);
  wake(input);
  return TRUE;
}
