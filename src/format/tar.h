/* SPDX-License-Identifier: Apache-2.0 */
/* The one tar of this project (protocol section 4): regular files with relative paths. Strict
 * incremental reader, deterministic writer, libc alone; neither touches a file system.
 *
 * Reading:
 *
 *   qv_tar_reader_init(&r, &caps);
 *   for each portion:
 *     while ((event = qv_tar_reader_step(&r, &bytes, &n)) != QV_TAR_MORE) { … }   (consumes BYTES)
 *   at the end of the stream: qv_tar_reader_finish(&r) == QV_TAR_OK
 *   qv_tar_reader_clear(&r);
 *
 * MORE: the portion is used up. ENTRY: r.entry is valid until the next ENTRY. DATA: r.data, r.data_n
 * lie inside the portion. ENTRY_END: all bytes of the file were seen (also where the size is 0). END: the second
 * zero block. BAD: r.reason says why, for good. A byte behind END is BAD, so nothing counts before
 * the caller knows that the stream has ended, or decides not to read on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

/* Why a stream or a path is refused: enumerator, text. */
#define QV_TAR_REASONS(X)                                                            \
  X(QV_TAR_OK, "fine")                                                               \
  X(QV_TAR_TRUNCATED, "ends before the two zero blocks")                             \
  X(QV_TAR_TRAILING, "bytes behind the two zero blocks")                             \
  X(QV_TAR_LONE_ZERO_BLOCK, "one zero block, then something else")                   \
  X(QV_TAR_CHECKSUM, "wrong header checksum")                                        \
  X(QV_TAR_MAGIC, "not a ustar header")                                              \
  X(QV_TAR_TYPE, "an entry that is no regular file")                                 \
  X(QV_TAR_FIELD, "a numeric header field that is not octal")                        \
  X(QV_TAR_FIELD_SET, "a header field that must be empty or zero")                   \
  X(QV_TAR_PADDING, "padding that is not zero")                                      \
  X(QV_TAR_PAX, "an extended header that is not one path record")                    \
  X(QV_TAR_PAX_SHORT, "an extended header for a path that needs none")               \
  X(QV_TAR_PAX_ALONE, "an extended header without its file")                         \
  X(QV_TAR_PATH_EMPTY, "an empty path, or an empty part")                            \
  X(QV_TAR_PATH_ABSOLUTE, "an absolute path")                                        \
  X(QV_TAR_PATH_DOT, "a . or .. part in a path")                                     \
  X(QV_TAR_PATH_LONG, "a path of more than 1024 bytes, or a part of more than 255")  \
  X(QV_TAR_PATH_UTF8, "a path that is not UTF-8")                                    \
  X(QV_TAR_PATH_CONTROL, "a control character in a path")                            \
  X(QV_TAR_PATH_GIT, "a .git part in a path")                                        \
  X(QV_TAR_PATH_FOREIGN, "a backslash or a drive letter in a path")                  \
  X(QV_TAR_PATH_TWICE, "a path twice")                                               \
  X(QV_TAR_PATH_CONFLICT, "a path that is a file and a folder")                      \
  X(QV_TAR_FILE_CAP, "a file over its size cap")                                     \
  X(QV_TAR_TOTAL_CAP, "over the cap of the whole archive")                           \
  X(QV_TAR_ENTRIES_CAP, "too many entries")                                          \
  X(QV_TAR_MEMORY, "out of memory")

#define QV_TAR_ENUM(name, text) name,
typedef enum { QV_TAR_REASONS(QV_TAR_ENUM) } QvTarReason;
#undef QV_TAR_ENUM

const char *qv_tar_reason_name(QvTarReason reason); /* "QV_TAR_OK" */
const char *qv_tar_reason_text(QvTarReason reason);

enum {
  QV_TAR_BLOCK_BYTES = 512,
  QV_TAR_END_BYTES = 1024,
  QV_TAR_PART_BYTES_MAX = 255,
  /* A pax header, its body (at most 1024 + 11 bytes) and the file's header. */
  QV_TAR_HEADER_BYTES_MAX = 5 * QV_TAR_BLOCK_BYTES,
};

/* What a path may be, for reader and writer alike: relative, no empty, "." or ".." part, at most QV_PATH_BYTES_MAX
 * bytes, UTF-8 without control characters (C0, DEL, C1), no part that a file system could take
 * for ".git". PORTABLE (paths that leave the sandbox): also no backslash, drive letter or "git~1". */
QvTarReason qv_tar_path_check(const char *path, size_t n, bool portable);

/* ---- reader ---- */

typedef struct {
  uint64_t entries_max;
  uint64_t total_bytes_max; /* of the tar, headers and padding included */
  uint64_t file_bytes_max;
  bool portable;            /* see qv_tar_path_check */
} QvTarCaps;

typedef struct {
  char path[QV_PATH_BYTES_MAX + 1];
  size_t path_n;
  uint64_t size;
  bool executable; /* the owner's bit of mode */
} QvTarEntry;

typedef enum {
  QV_TAR_MORE,
  QV_TAR_ENTRY,
  QV_TAR_DATA,
  QV_TAR_ENTRY_END,
  QV_TAR_END,
  QV_TAR_BAD,
} QvTarEvent;

/* Hears every byte of the stream once, in order; the header of an entry (its
 * extended header included) only after the step that returned its ENTRY: what was heard on ENTRY is
 * exactly the stream before that entry. */
typedef void (*QvTarTap)(void *user, const uint8_t *bytes, size_t n);

typedef struct {
  QvTarEntry entry;
  const uint8_t *data;
  size_t data_n;
  QvTarReason reason;
  uint64_t entries_n;
  uint64_t stream_bytes; /* consumed */
  QvTarTap tap;          /* may be set after init */
  void *tap_user;

  /* below: the reader's own */
  QvTarCaps caps;
  int state;
  uint64_t left;    /* of the file's bytes */
  size_t padding;   /* left */
  size_t pax_n;     /* bytes of the extended header's body */
  size_t block_n;   /* bytes in BLOCKS that belong to the header being read */
  bool untapped;
  uint8_t blocks[QV_TAR_HEADER_BYTES_MAX];
  uint64_t *names; /* set of hashes of files and folders */
  size_t names_n, names_cap;
} QvTarReader;

void qv_tar_reader_init(QvTarReader *reader, const QvTarCaps *caps);
void qv_tar_reader_clear(QvTarReader *reader);
QvTarEvent qv_tar_reader_step(QvTarReader *reader, const uint8_t **bytes, size_t *n);
/* The stream has ended: QV_TAR_OK, or why it is refused (QV_TAR_TRUNCATED where END was not reached). */
QvTarReason qv_tar_reader_finish(QvTarReader *reader);

/* ---- writer ---- */

/* The header of one file: its length in *N. QV_TAR_OK, or the reason that the
 * path is refused for, or QV_TAR_FILE_CAP for 8 GiB and more. The caller sorts paths and keeps them unique. */
QvTarReason qv_tar_header(const char *path, uint64_t size, bool executable, uint8_t out[QV_TAR_HEADER_BYTES_MAX],
                          size_t *n);
/* Zero bytes after a file of SIZE bytes, below QV_TAR_BLOCK_BYTES. */
size_t qv_tar_padding(uint64_t size);
/* QV_TAR_END_BYTES of zeros: the end, and the source of padding. */
extern const uint8_t qv_tar_zeros[QV_TAR_END_BYTES];
/* Bytes of the header of a path of PATH_N bytes, the file and its padding. */
uint64_t qv_tar_entry_bytes(size_t path_n, uint64_t size);
