/* SPDX-License-Identifier: Apache-2.0 */
/* Owns locked pages: one mapping a secret, header and bytes together.
 *
 * MADV_WIPEONFORK, so that a child that forgets to drop a key has none. A
 * process that hands a key to its child therefore sends it through a pipe. */
#include "base/secret.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sha256.h"

struct QvSecret {
  gsize n;
  gsize mapped_bytes;
  guint8 bytes[];
};

QvSecret *qv_secret_new(gsize n)
{
  g_assert(n >= 1 && n <= 1024 * 1024);
  gsize page = (gsize)sysconf(_SC_PAGESIZE);
  gsize mapped = (sizeof(QvSecret) + n + page - 1) / page * page;
  QvSecret *secret = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (secret == MAP_FAILED)
    g_error("no memory for a secret of %" G_GSIZE_FORMAT " bytes", n);
  /* Best effort: an unprivileged user's lock limit may be zero. */
  (void)mlock(secret, mapped);
  (void)madvise(secret, mapped, MADV_DONTDUMP);
  (void)madvise(secret, mapped, MADV_WIPEONFORK);
  secret->n = n;
  secret->mapped_bytes = mapped;
  return secret;
}

QvSecret *qv_secret_new_copy(const void *bytes, gsize n)
{
  QvSecret *secret = qv_secret_new(n);
  memcpy(secret->bytes, bytes, n);
  return secret;
}

QvSecret *qv_secret_new_take(void *bytes, gsize n)
{
  QvSecret *secret = qv_secret_new_copy(bytes, n);
  explicit_bzero(bytes, n);
  return secret;
}

QvSecret *qv_secret_dup(const QvSecret *secret)
{
  return qv_secret_new_copy(secret->bytes, secret->n);
}

void qv_secret_free(QvSecret *secret)
{
  if (secret == NULL)
    return;
  gsize mapped = secret->mapped_bytes;
  /* Zero after a fork: the pages were wiped, their size with them. */
  if (mapped == 0)
    return;
  explicit_bzero(secret, mapped);
  munmap(secret, mapped);
}

const guint8 *qv_secret_bytes(const QvSecret *secret)
{
  return secret->bytes;
}

guint8 *qv_secret_bytes_mut(QvSecret *secret)
{
  return secret->bytes;
}

gsize qv_secret_len(const QvSecret *secret)
{
  return secret->n;
}

gboolean qv_secret_equal(const QvSecret *a, const QvSecret *b)
{
  return a->n == b->n && qv_equal_ct(a->bytes, b->bytes, a->n);
}
