/* SPDX-License-Identifier: Apache-2.0 */
/* The whole conversation between the runner's processes, as a table: a frame
 * is a 4-byte length and a 4-byte type, both in host order (the processes are
 * one binary on one machine), then the payload. Each type has one sender and a
 * cap; a frame that is over its cap, of an unknown type or from the wrong side
 * ends the conversation.
 *
 *   supervisor <──socket pair──> job ──pipe──> unpack ──pipe──> job
 *
 * Neither the supervisor nor the job process ever acts on a byte of the guest
 * but through the frames of unpack, and those are read here. */
#pragma once

#include <glib.h>

#include "base/limits.h"

/* One bit a sender. */
enum { QV_IPC_FROM_SUPERVISOR = 1, QV_IPC_FROM_JOB = 2, QV_IPC_FROM_UNPACK = 4 };

enum {
  QV_IPC_HEADER_BYTES = 8,
  QV_IPC_JSON_MAX = 8 * 1024 * 1024,    /* a job of 1 MiB, escaped at worst */
  QV_IPC_TEXT_MAX = 4096,
  QV_IPC_SEALED_MAX = 8 + 1048604,      /* index, which; IV, chunk of 1 MiB, tag (protocol.md 3) */
  QV_IPC_PIECE_MAX = 256 * 1024,
  QV_IPC_LIVE_MAX = 4 + QV_LIVE_BYTES_MAX + QV_CHUNK_IV_BYTES + QV_CHUNK_TAG_BYTES,
};

#define QV_IPC_COLLECTING G_MAXUINT32

/* X(NAME, senders, cap in bytes): payload
 * WARM        JSON, setup.h: the sandbox to start before there is a job; the first frame, or none
 * SETUP       JSON, setup.h: what the job process must do
 * KEYS        32 bytes each: the derived keys of base, overlay (zeros: none) and result, the salt of result, the key of
 *             live; then the egress token, 43 bytes and a NUL (zeros: none)
 * CHUNK       u32 0 base or 1 overlay, u32 index, the sealed chunk as it came from Valkey
 * GRANT       u32: this many more PAYLOAD frames may be sent; QV_CHUNKS_IN_MEMORY_MAX may come without, right behind REPORT
 * STOP        kill the sandbox, report what there is
 * DISCARD     no report is wanted: clean up and exit
 * END_EGRESS  setup is over, or its time is: cut the way to the proxy
 * CREDIT      u32: this many more CHUNK frames are welcome
 * STARTED     the sandbox runs
 * INPUT_DONE  every byte of the input went into the sandbox
 * PROGRESS    u32: this many members of the output are complete; QV_IPC_COLLECTING: all those of steps
 * TROUBLE     NUL-terminated code of section 6, then a text for the log
 * HOST        JSON, report.h: what the host saw of the run; comes right before REPORT
 * REPORT      from unpack, after the last piece of payload: "<treeSha256 or ->" LF facts (record.h). From
 *             job: the same bytes; empty where there are none
 * PAYLOAD     from unpack: the next piece of the payload's gzip. From job: u32 index, u32 0, the sealed chunk
 * LIVE        u32 n, then from unpack: the bytes of the n-th live member (section 10). From job: the same, sealed
 * GONE        the sandbox and all that belonged to it is removed; a text when something is left
 * CONFIG      JSON: what unpack must know
 * VERDICT     u32 QvUnpackVerdict (unpack.h), then a text for the log: the stream is over or not worth
 *             reading, kill the sandbox */
#define QV_IPC_MESSAGES(X) \
  X(WARM, QV_IPC_FROM_SUPERVISOR, QV_IPC_JSON_MAX) \
  X(SETUP, QV_IPC_FROM_SUPERVISOR, QV_IPC_JSON_MAX) \
  X(KEYS, QV_IPC_FROM_SUPERVISOR, 204) \
  X(CHUNK, QV_IPC_FROM_SUPERVISOR, QV_IPC_SEALED_MAX) \
  X(GRANT, QV_IPC_FROM_SUPERVISOR, 4) \
  X(STOP, QV_IPC_FROM_SUPERVISOR, 0) \
  X(DISCARD, QV_IPC_FROM_SUPERVISOR, 0) \
  X(END_EGRESS, QV_IPC_FROM_SUPERVISOR, 0) \
  X(CREDIT, QV_IPC_FROM_JOB, 4) \
  X(STARTED, QV_IPC_FROM_JOB, 0) \
  X(INPUT_DONE, QV_IPC_FROM_JOB, 0) \
  X(PROGRESS, QV_IPC_FROM_JOB | QV_IPC_FROM_UNPACK, 4) \
  X(TROUBLE, QV_IPC_FROM_JOB, QV_IPC_TEXT_MAX) \
  X(HOST, QV_IPC_FROM_JOB, QV_IPC_TEXT_MAX) \
  X(REPORT, QV_IPC_FROM_JOB | QV_IPC_FROM_UNPACK, QV_IPC_JSON_MAX) \
  X(PAYLOAD, QV_IPC_FROM_JOB | QV_IPC_FROM_UNPACK, QV_IPC_SEALED_MAX) \
  X(LIVE, QV_IPC_FROM_JOB | QV_IPC_FROM_UNPACK, QV_IPC_LIVE_MAX) \
  X(GONE, QV_IPC_FROM_JOB, QV_IPC_TEXT_MAX) \
  X(CONFIG, QV_IPC_FROM_JOB, QV_IPC_JSON_MAX) \
  X(VERDICT, QV_IPC_FROM_UNPACK, QV_IPC_TEXT_MAX)

typedef enum {
  QV_IPC_NONE,
#define X(name, senders, cap) QV_IPC_##name,
  QV_IPC_MESSAGES(X)
#undef X
} QvIpcType;

const char *qv_ipc_name(QvIpcType type);

/* Writes the header of a frame with N bytes of payload; N over the type's cap
 * is a bug and ends the process. */
void qv_ipc_header(QvIpcType type, gsize n, guint8 header[QV_IPC_HEADER_BYTES]);

guint32 qv_ipc_u32(const guint8 *bytes);

/* An incremental reader of the frames of one sender. */
typedef struct QvIpcReader QvIpcReader;

QvIpcReader *qv_ipc_reader_new(unsigned sender);
void qv_ipc_reader_free(QvIpcReader *reader);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvIpcReader, qv_ipc_reader_free)

/* Takes bytes in. FALSE with QV_ERROR_FORMAT: the conversation is over. */
gboolean qv_ipc_reader_feed(QvIpcReader *reader, const guint8 *bytes, gsize n, GError **error);

/* The next whole frame, or FALSE when more bytes are needed. *PAYLOAD is
 * valid until the next call. */
gboolean qv_ipc_reader_next(QvIpcReader *reader, QvIpcType *type, const guint8 **payload, gsize *n);

/* Is a part of a frame waiting for its rest? */
gboolean qv_ipc_reader_partial(const QvIpcReader *reader);
