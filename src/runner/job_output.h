/* SPDX-License-Identifier: Apache-2.0 */
/* What comes out of a sandbox, seen from the job process: it starts the unpack
 * process, when it can before there is a sandbox, gives it the sandbox's stdout, and hears from it a verdict, the facts as
 * opaque bytes, and the payload, which is kept in memory that has no name. */
#pragma once

#include <glib.h>

#include "runner/setup.h"
#include "runner/unpack.h"

typedef struct QvJobOutput QvJobOutput;

typedef struct {
  /* Exactly once: the stream is decided. A crash of the unpack process counts as QV_UNPACK_BAD, also before there is a
   * stream. TEXT is for the log. */
  void (*verdict)(QvUnpackVerdict verdict, const char *text, gpointer data);
  /* Member N of the live logs. FALSE: it comes too early, which is a breach. May be NULL where none are asked for. */
  gboolean (*live)(guint32 n, const guint8 *bytes, gsize bytes_n, gpointer data);
  /* MEMBERS of the output are complete; QV_IPC_COLLECTING: all those of steps. */
  void (*progress)(guint32 members, gpointer data);
  /* After QV_UNPACK_COMPLETE, exactly once: the payload is whole. FACTS NULL: the unpack process died after its
   * verdict. */
  void (*report)(GBytes *facts, gpointer data);
} QvJobOutputEvents;

/* The process is started, and waits for a stream. */
QvJobOutput *qv_job_output_new(const QvJobOutputEvents *events, gpointer data, GError **error);
/* The same of a process that was started before; all of *UNPACK is the output's from now on. NULL of NULL. */
QvJobOutput *qv_job_output_new_of(const QvUnpackProcess *unpack, const QvJobOutputEvents *events, gpointer data);
/* It still does; FALSE also where it died meanwhile, and of NULL. */
gboolean qv_job_output_waits(const QvJobOutput *output);
/* The stream, once. GUEST_FD stays the caller's, and is unread where this fails. The stream key is in KEY; LIVE: the entry was asked for live logs. */
gboolean qv_job_output_begin(QvJobOutput *output, int guest_fd, const QvJob *job, gboolean live,
                             const guint8 key[QV_STREAM_KEY_BYTES], GError **error);
/* Kills the unpack process where it still lives; one that does not end for that is not waited for. */
void qv_job_output_free(QvJobOutput *output);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvJobOutput, qv_job_output_free)

/* An unpack process of this job process ended by a signal of its own making: a try at it may be behind that. Asked when all are freed. */
gboolean qv_job_output_has_crashed(void);

/* Bytes of the payload, 0: there is none; SHA256: hex of them. After `report`. */
gint64 qv_job_output_payload(QvJobOutput *output, char sha256[65]);
/* Reads payload bytes: exactly N at OFFSET. FALSE is QV_ERROR_SYSTEM. */
gboolean qv_job_output_read(QvJobOutput *output, gint64 offset, guint8 *bytes, gsize n, GError **error);
