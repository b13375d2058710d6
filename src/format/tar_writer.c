/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the bytes of a header: one form for one path, size and owner's execute bit. */
#include <stdio.h>
#include <string.h>

#include "format/tar.h"
#include "format/tar_layout.h"

const uint8_t qv_tar_zeros[QV_TAR_END_BYTES] = {0};

static void put_block(uint8_t *block, const char *name, size_t name_n, uint64_t size, bool executable, char type)
{
  memset(block, 0, QV_TAR_BLOCK_BYTES);
  memcpy(block + QV_TAR_NAME_AT, name, name_n);
  memcpy(block + QV_TAR_MODE_AT, executable ? "0000755" : "0000644", 7);
  memcpy(block + QV_TAR_UID_AT, "0000000", 7);
  memcpy(block + QV_TAR_GID_AT, "0000000", 7);
  char text[24];
  snprintf(text, sizeof text, "%011llo", (unsigned long long)size);
  memcpy(block + QV_TAR_SIZE_AT, text, 11);
  memcpy(block + QV_TAR_MTIME_AT, "00000000000", 11);
  block[QV_TAR_TYPE_AT] = (uint8_t)type;
  memcpy(block + QV_TAR_MAGIC_AT, "ustar\0" "00", 8);
  memcpy(block + QV_TAR_DEVMAJOR_AT, "0000000", 7);
  memcpy(block + QV_TAR_DEVMINOR_AT, "0000000", 7);
  memset(block + QV_TAR_CHKSUM_AT, ' ', 8);
  unsigned sum = 0;
  for (size_t i = 0; i < QV_TAR_BLOCK_BYTES; i++)
    sum += block[i];
  snprintf(text, sizeof text, "%06o", sum);
  memcpy(block + QV_TAR_CHKSUM_AT, text, 7);
}

/* "<len> path=<path>\n", where len counts itself. */
static size_t record_bytes(size_t path_n)
{
  size_t rest = sizeof " path=\n" - 1 + path_n;
  size_t n = rest + 1;
  for (size_t digits = 1, bound = 10; n >= bound; bound *= 10)
    n = rest + ++digits;
  return n;
}

static size_t round_up(size_t n)
{
  return (n + QV_TAR_BLOCK_BYTES - 1) / QV_TAR_BLOCK_BYTES * QV_TAR_BLOCK_BYTES;
}

QvTarReason qv_tar_header(const char *path, uint64_t size, bool executable, uint8_t out[QV_TAR_HEADER_BYTES_MAX],
                          size_t *n)
{
  size_t path_n = strlen(path);
  QvTarReason reason = qv_tar_path_check(path, path_n, false);
  if (reason != QV_TAR_OK)
    return reason;
  if (size > QV_TAR_SIZE_MAX)
    return QV_TAR_FILE_CAP;
  if (path_n <= QV_TAR_NAME_BYTES) {
    put_block(out, path, path_n, size, executable, '0');
    *n = QV_TAR_BLOCK_BYTES;
    return QV_TAR_OK;
  }
  size_t record_n = record_bytes(path_n), body_n = round_up(record_n);
  put_block(out, "pax", 3, record_n, false, 'x');
  char record[QV_PATH_BYTES_MAX + 32];
  int written = snprintf(record, sizeof record, "%zu path=%s\n", record_n, path);
  memcpy(out + QV_TAR_BLOCK_BYTES, record, (size_t)written);
  memset(out + QV_TAR_BLOCK_BYTES + written, 0, body_n - (size_t)written);
  put_block(out + QV_TAR_BLOCK_BYTES + body_n, "pax", 3, size, executable, '0');
  *n = 2 * QV_TAR_BLOCK_BYTES + body_n;
  return QV_TAR_OK;
}

size_t qv_tar_padding(uint64_t size)
{
  return (size_t)(-size % QV_TAR_BLOCK_BYTES);
}

uint64_t qv_tar_entry_bytes(size_t path_n, uint64_t size)
{
  uint64_t pax = path_n <= QV_TAR_NAME_BYTES ? 0 : QV_TAR_BLOCK_BYTES + round_up(record_bytes(path_n));
  return pax + QV_TAR_BLOCK_BYTES + size + qv_tar_padding(size);
}
