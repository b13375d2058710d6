/* SPDX-License-Identifier: Apache-2.0 */
/* pure jcs FILE SECONDS        canonicalise and HMAC the value of FILE, parsed before: operations a second
 * pure unseal MIB SECONDS      unseal a blob of MIB MiB into nothing: bytes a second, of the reader (tags, size and
 *                              SHA-256) and of the tags alone
 * Each prints figures, one a line: name, number. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "format/jcs.h"
#include "protocol/blob.h"
#include "protocol/crypto.h"

static double cpu_seconds(void)
{
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int jcs(const char *file, double seconds)
{
  json_t *value = json_load_file(file, 0, NULL);
  guint8 key[32] = {1}, mac[32];
  if (value == NULL)
    return 1;
  guint64 n = 0;
  double start = cpu_seconds(), spent;
  do {
    for (int i = 0; i < 200; i++, n++) {
      gsize len;
      char *text = qv_jcs(value, &len);
      qv_crypto_hmac(key, sizeof key, text, len, mac);
      free(text);
    }
    spent = cpu_seconds() - start;
  } while (spent < seconds);
  printf("jcs_per_cpu_s %.1f\n", (double)n / spent);
  json_decref(value);
  return 0;
}

typedef struct {
  QvSecret *secret;
  QvBlobDescriptor descriptor;
  guint8 *sealed; /* every chunk's slot is as long as the longest */
  guint8 *plain;
} Blob;

enum { SLOT = QV_CHUNK_BYTES + 28 };

static void blob_make(Blob *blob, gint64 mib)
{
  gint64 size = mib * 1048576;
  guint8 raw[32], salt[QV_SALT_BYTES], iv[QV_CHUNK_IV_BYTES];
  qv_random_bytes(raw, sizeof raw);
  qv_random_bytes(salt, sizeof salt);
  g_autoptr(QvKey) key = qv_key_new(raw, sizeof raw);
  const char *id = "01234567-89ab-cdef-0123-456789abcdef.base";
  blob->secret = qv_blob_key_derive(key, salt, "bench", id);
  blob->plain = g_malloc(QV_CHUNK_BYTES);
  blob->sealed = g_malloc((gsize)mib * SLOT);
  qv_random_bytes(blob->plain, QV_CHUNK_BYTES);
  g_autoptr(QvBlobWriter) writer = qv_blob_writer_new(blob->secret, salt, "bench", id, size);
  for (gint64 i; (i = qv_blob_writer_next(writer)) >= 0;) {
    qv_random_bytes(iv, sizeof iv);
    qv_blob_writer_step(writer, iv, blob->plain, blob->sealed + (gsize)i * SLOT);
  }
  char zeros[65];
  memset(zeros, '0', 64);
  zeros[64] = '\0';
  qv_blob_writer_describe(writer, zeros, &blob->descriptor);
}

static void blob_clear(Blob *blob)
{
  qv_secret_free(blob->secret);
  g_free(blob->sealed);
  g_free(blob->plain);
}

static void read_once(Blob *blob)
{
  g_autoptr(QvBlobReader) reader = qv_blob_reader_new(blob->secret, "bench", &blob->descriptor);
  g_autoptr(GError) error = NULL;
  for (gint64 i; (i = qv_blob_reader_next(reader)) >= 0;) {
    gsize n;
    if (!qv_blob_reader_step(reader, blob->sealed + (gsize)i * SLOT, SLOT, blob->plain, &n, &error))
      g_error("%s", error->message);
  }
}

static void tags_once(Blob *blob)
{
  g_autoptr(QvBlobCipher) cipher =
    qv_blob_cipher_new(blob->secret, "bench", blob->descriptor.blob_id, blob->descriptor.chunks);
  for (gint64 i = 0; i < blob->descriptor.chunks; i++) {
    if (!qv_blob_cipher_unseal(cipher, i, blob->sealed + (gsize)i * SLOT, SLOT, blob->plain, NULL))
      g_error("tag");
  }
}

static int unseal(gint64 mib, double seconds)
{
  Blob blob;
  blob_make(&blob, mib);
  for (int tags = 0; tags <= 1; tags++) {
    double start = cpu_seconds(), spent;
    guint64 rounds = 0;
    do {
      tags ? tags_once(&blob) : read_once(&blob);
      rounds++;
    } while ((spent = cpu_seconds() - start) < seconds);
    printf("%s %.0f\n", tags ? "tags_bytes_per_s" : "unseal_bytes_per_s", (double)(rounds * (guint64)mib * 1048576) / spent);
  }
  blob_clear(&blob);
  return 0;
}

int main(int argc, char **argv)
{
  if (argc != 4)
    return 2;
  double seconds = g_ascii_strtod(argv[3], NULL);
  if (strcmp(argv[1], "jcs") == 0)
    return jcs(argv[2], seconds);
  if (strcmp(argv[1], "unseal") == 0)
    return unseal(atoll(argv[2]), seconds);
  return 2;
}
