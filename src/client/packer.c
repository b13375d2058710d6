/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the pipeline from files to gzip.
 *
 *   caller's thread                      pool                     caller's thread
 *   tar bytes ─ blocks of 1 MiB ─→ one gzip member a block ─→ spool and digest, in order
 *
 * At most two blocks a thread are on their way, so memory is bounded and the order of the output does not
 * depend on which thread is first. */
#include "client/packer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/limits.h"
#include "format/error.h"
#include "format/gzip.h"
#include "format/tar.h"
#include "protocol/crypto.h"

enum { THREADS_MAX = 64 };

typedef struct {
  guint8 *tar, *gzip;
  gsize tar_n, gzip_n;
  gboolean done;
} Block;

struct QvPacker {
  GThreadPool *pool;
  GMutex lock;
  GCond changed;
  GQueue under_way;   /* Block *, in the order of the tar */
  GQueue compressors; /* those that no thread uses */
  guint threads_n;
  Block *filling; /* or NULL */
  QvDigest *tar_digest, *gzip_digest;
  guint64 tar_bytes, gzip_bytes, max_tar_bytes, files_n;
  guint64 file_bytes, file_left;
  int fd;
};

static void block_free(gpointer data)
{
  Block *block = data;
  if (block == NULL)
    return;
  g_free(block->tar);
  g_free(block->gzip);
  g_free(block);
}

/* A thread of the pool. */
static void compress(gpointer data, gpointer user)
{
  Block *block = data;
  QvPacker *packer = user;
  g_mutex_lock(&packer->lock);
  QvGzipCompressor *compressor = g_queue_pop_head(&packer->compressors);
  g_mutex_unlock(&packer->lock);
  if (compressor == NULL)
    compressor = qv_gzip_compressor_new();
  gsize bound = qv_gzip_member_bound(compressor, block->tar_n);
  block->gzip = g_malloc(bound);
  block->gzip_n = qv_gzip_member(compressor, block->tar, block->tar_n, block->gzip, bound);
  g_mutex_lock(&packer->lock);
  g_queue_push_head(&packer->compressors, compressor);
  block->done = TRUE;
  g_cond_signal(&packer->changed);
  g_mutex_unlock(&packer->lock);
}

static int open_spool(GError **error)
{
  const char *dir = g_get_tmp_dir();
  int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT || errno == EINVAL)) {
    g_autofree char *name = g_build_filename(dir, "quavon-XXXXXX", NULL);
    fd = g_mkstemp_full(name, O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
      unlink(name);
  }
  if (fd < 0)
    qv_error_set_errno(error, errno, "no temporary file in %s (TMPDIR)", dir);
  return fd;
}

QvPacker *qv_packer_new(guint threads_n, guint64 max_tar_bytes, GError **error)
{
  QV_AUTOFD int fd = open_spool(error);
  if (fd < 0)
    return NULL;
  QvPacker *packer = g_new0(QvPacker, 1);
  packer->threads_n = CLAMP(threads_n != 0 ? threads_n : g_get_num_processors(), 1, THREADS_MAX);
  packer->max_tar_bytes = max_tar_bytes;
  packer->fd = qv_io_steal(&fd);
  packer->tar_digest = qv_digest_new_sha256();
  packer->gzip_digest = qv_digest_new_sha256();
  g_mutex_init(&packer->lock);
  g_cond_init(&packer->changed);
  g_queue_init(&packer->under_way);
  g_queue_init(&packer->compressors);
  packer->pool = g_thread_pool_new(compress, packer, (gint)packer->threads_n, FALSE, error);
  if (packer->pool == NULL)
    g_clear_pointer(&packer, qv_packer_free);
  return packer;
}

void qv_packer_free(QvPacker *packer)
{
  if (packer == NULL)
    return;
  if (packer->pool != NULL)
    g_thread_pool_free(packer->pool, FALSE, TRUE); /* waits: blocks are still being read */
  g_queue_clear_full(&packer->under_way, block_free);
  g_queue_clear_full(&packer->compressors, (GDestroyNotify)qv_gzip_compressor_free);
  block_free(packer->filling);
  qv_digest_free(packer->tar_digest);
  qv_digest_free(packer->gzip_digest);
  if (packer->fd >= 0)
    close(packer->fd);
  g_mutex_clear(&packer->lock);
  g_cond_clear(&packer->changed);
  g_free(packer);
}

/* Waits for the oldest block and writes it, until at most `most` are under way. */
static gboolean write_until(QvPacker *packer, guint most, GError **error)
{
  while (g_queue_get_length(&packer->under_way) > most) {
    Block *block = g_queue_peek_head(&packer->under_way);
    g_mutex_lock(&packer->lock);
    while (!block->done)
      g_cond_wait(&packer->changed, &packer->lock);
    g_mutex_unlock(&packer->lock);
    g_queue_pop_head(&packer->under_way);
    gboolean ok = qv_fd_write_all(packer->fd, "the snapshot's temporary file (TMPDIR)", block->gzip, block->gzip_n, error);
    qv_digest_update(packer->gzip_digest, block->gzip, block->gzip_n);
    packer->gzip_bytes += block->gzip_n;
    block_free(block);
    if (!ok)
      return FALSE;
  }
  return TRUE;
}

static gboolean send_block(QvPacker *packer, GError **error)
{
  Block *block = g_steal_pointer(&packer->filling);
  qv_digest_update(packer->tar_digest, block->tar, block->tar_n);
  g_queue_push_tail(&packer->under_way, block);
  g_thread_pool_push(packer->pool, block, NULL);
  return write_until(packer, 2 * packer->threads_n, error);
}

/* Where the tar's next bytes go. */
static guint8 *room(QvPacker *packer, gsize *n)
{
  if (packer->filling == NULL) {
    packer->filling = g_new0(Block, 1);
    packer->filling->tar = g_malloc(QV_GZIP_MEMBER_BYTES);
  }
  *n = QV_GZIP_MEMBER_BYTES - packer->filling->tar_n;
  return packer->filling->tar + packer->filling->tar_n;
}

static gboolean took(QvPacker *packer, gsize n, GError **error)
{
  packer->tar_bytes += n;
  packer->filling->tar_n += n;
  return packer->filling->tar_n < QV_GZIP_MEMBER_BYTES || send_block(packer, error);
}

static gboolean put(QvPacker *packer, const guint8 *bytes, gsize n, GError **error)
{
  while (n > 0) {
    gsize most;
    guint8 *to = room(packer, &most);
    gsize part = MIN(n, most);
    memcpy(to, bytes, part);
    if (!took(packer, part, error))
      return FALSE;
    bytes += part;
    n -= part;
  }
  return TRUE;
}

gboolean qv_packer_begin(QvPacker *packer, const char *path, guint64 size, gboolean executable, GError **error)
{
  guint8 header[QV_TAR_HEADER_BYTES_MAX];
  size_t n = 0;
  QvTarReason reason = qv_tar_header(path, size, executable, header, &n);
  if (reason != QV_TAR_OK)
    return qv_tar_set_error(error, reason, "snapshot", path);
  guint64 entry_bytes = qv_tar_entry_bytes(strlen(path), size);
  if (packer->tar_bytes + entry_bytes + QV_TAR_END_BYTES > packer->max_tar_bytes)
    return qv_tar_set_error(error, QV_TAR_TOTAL_CAP, "snapshot", path);
  packer->file_bytes = packer->file_left = size;
  return put(packer, header, n, error);
}

gboolean qv_packer_add(QvPacker *packer, const void *bytes, gsize n, GError **error)
{
  g_assert(n <= packer->file_left);
  packer->file_left -= n;
  return put(packer, bytes, n, error);
}

guint8 *qv_packer_room(QvPacker *packer, gsize *n)
{
  guint8 *to = room(packer, n);
  *n = (gsize)MIN(*n, packer->file_left);
  return to;
}

gboolean qv_packer_took(QvPacker *packer, gsize n, GError **error)
{
  g_assert(n <= packer->file_left);
  packer->file_left -= n;
  return took(packer, n, error);
}

gboolean qv_packer_end(QvPacker *packer, GError **error)
{
  g_assert(packer->file_left == 0);
  packer->files_n++;
  return put(packer, qv_tar_zeros, qv_tar_padding(packer->file_bytes), error);
}

gboolean qv_packer_finish(QvPacker *packer, QvPacked *packed, GError **error)
{
  if (!put(packer, qv_tar_zeros, QV_TAR_END_BYTES, error))
    return FALSE;
  if (packer->filling != NULL && !send_block(packer, error))
    return FALSE;
  if (!write_until(packer, 0, error))
    return FALSE;
  if (lseek(packer->fd, 0, SEEK_SET) != 0)
    return qv_error_set_errno(error, errno, "the snapshot's temporary file");
  qv_digest_final_hex(packer->tar_digest, packed->tree_sha256);
  qv_digest_final_hex(packer->gzip_digest, packed->sha256);
  packed->tar_bytes = packer->tar_bytes;
  packed->gzip_bytes = packer->gzip_bytes;
  packed->files_n = packer->files_n;
  packed->fd = qv_io_steal(&packer->fd);
  return TRUE;
}
