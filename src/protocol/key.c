/* SPDX-License-Identifier: Apache-2.0 */
/* Owns pool keys: the form of a key file, the rule on its permissions, key ids,
 * and the ring that verifiers pick from. Reads no file. Source: section 1. */
#include "protocol/key.h"

#include <string.h>
#include <sys/stat.h>

#include "base/base64.h"
#include "base/error.h"
#include "base/hex.h"
#include "base/sha256.h"

struct QvKey {
  guint refs;
  QvSecret *secret;
  char id[QV_KEY_ID_HEX_N + 1];
};

struct QvKeyring {
  guint refs;
  QvKey *current;
  GPtrArray *previous;
};

static gboolean reader_has_group(const QvKeyReader *reader, guint gid)
{
  if (reader->egid == gid)
    return TRUE;
  for (gsize i = 0; i < reader->groups_n; i++)
    if (reader->groups[i] == gid)
      return TRUE;
  return FALSE;
}

gboolean qv_key_file_check(const QvKeyFile *file, const QvKeyReader *reader, GError **error)
{
  const char *fault = NULL;
  if (!S_ISREG(file->mode))
    fault = "is not a regular file";
  else if (file->mode & S_IRWXO)
    fault = "is open to others: chmod o= it";
  else if (file->mode & S_IWGRP)
    fault = "is writable by its group: chmod g-w it";
  else if ((file->mode & S_IRGRP) && !reader_has_group(reader, file->gid))
    fault = "is readable by a group that is none of this process's: chmod g= or chgrp it";
  if (fault == NULL)
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_AUTH, "the key file %s (mode %04o, group %u)", fault, file->mode & 07777,
              file->gid);
  return FALSE;
}

QvKey *qv_key_parse(const char *text, gsize n, GError **error)
{
  guint8 bytes[QV_KEY_BYTES_MAX];
  gsize bytes_n = 0;
  if (n > 0 && text[n - 1] == '\n')
    n--;
  if (!qv_base64_decode(text, n, bytes, sizeof bytes, &bytes_n) || bytes_n < QV_KEY_BYTES_MIN) {
    explicit_bzero(bytes, sizeof bytes);
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT,
                "a key file holds one base64 text of %d to %d random bytes and at most one line feed behind it",
                QV_KEY_BYTES_MIN, QV_KEY_BYTES_MAX);
    return NULL;
  }
  QvKey *key = qv_key_new(bytes, bytes_n);
  explicit_bzero(bytes, sizeof bytes);
  return key;
}

QvKey *qv_key_new(const void *bytes, gsize n)
{
  g_assert(n >= QV_KEY_BYTES_MIN && n <= QV_KEY_BYTES_MAX);
  QvKey *key = g_new0(QvKey, 1);
  guint8 digest[QV_SHA256_BYTES];
  key->refs = 1;
  key->secret = qv_secret_new_copy(bytes, n);
  qv_sha256(bytes, n, digest);
  qv_hex_encode(digest, QV_KEY_ID_HEX_N / 2, key->id);
  return key;
}

QvSecret *qv_key_format(const QvKey *key)
{
  gsize text_n = QV_BASE64_LEN(qv_secret_len(key->secret));
  char text[QV_BASE64_LEN(QV_KEY_BYTES_MAX) + 1];
  qv_base64_encode(qv_secret_bytes(key->secret), qv_secret_len(key->secret), text);
  text[text_n] = '\n';
  return qv_secret_new_take(text, text_n + 1);
}

QvKey *qv_key_ref(QvKey *key)
{
  key->refs++;
  return key;
}

void qv_key_unref(QvKey *key)
{
  if (key == NULL || --key->refs > 0)
    return;
  qv_secret_free(key->secret);
  g_free(key);
}

const char *qv_key_id(const QvKey *key)
{
  return key->id;
}

const QvSecret *qv_key_secret(const QvKey *key)
{
  return key->secret;
}

QvKeyring *qv_keyring_new(QvKey *current)
{
  QvKeyring *ring = g_new0(QvKeyring, 1);
  ring->refs = 1;
  ring->current = qv_key_ref(current);
  ring->previous = g_ptr_array_new_with_free_func((GDestroyNotify)qv_key_unref);
  return ring;
}

void qv_keyring_add_previous(QvKeyring *ring, QvKey *previous)
{
  g_ptr_array_add(ring->previous, qv_key_ref(previous));
}

QvKeyring *qv_keyring_ref(QvKeyring *ring)
{
  ring->refs++;
  return ring;
}

void qv_keyring_unref(QvKeyring *ring)
{
  if (ring == NULL || --ring->refs > 0)
    return;
  qv_key_unref(ring->current);
  g_ptr_array_unref(ring->previous);
  g_free(ring);
}

QvKey *qv_keyring_current(const QvKeyring *ring)
{
  return ring->current;
}

QvKey *qv_keyring_find(const QvKeyring *ring, const char *key_id)
{
  if (strcmp(ring->current->id, key_id) == 0)
    return ring->current;
  for (guint i = 0; i < ring->previous->len; i++) {
    QvKey *key = ring->previous->pdata[i];
    if (strcmp(key->id, key_id) == 0)
      return key;
  }
  return NULL;
}

gboolean qv_keyring_is_current(const QvKeyring *ring, const QvKey *key)
{
  return strcmp(ring->current->id, key->id) == 0;
}
