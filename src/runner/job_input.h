/* SPDX-License-Identifier: Apache-2.0 */
/* What goes into a sandbox's stdin: the request line, then the plaintext of
 * base and overlay as their sealed chunks arrive. Not one byte of a chunk is
 * passed on before its tag was verified (protocol.md 3). */
#pragma once

#include <glib.h>

#include "base/secret.h"
#include "protocol/job.h"
#include "runner/setup.h"

typedef struct QvJobInput QvJobInput;

typedef struct {
  void (*written)(gpointer data);  /* one more chunk is wholly in the sandbox */
  void (*done)(gpointer data);     /* all of it */
  void (*stuck)(gpointer data);    /* the sandbox closed its stdin: it will say why on stdout; may be NULL */
} QvJobInputEvents;

/* Owns FD (non-blocking); takes REQUEST. KEYS are copied as far as needed. */
QvJobInput *qv_job_input_new(int fd, QvSecret *request, const QvJob *job, const QvJobKeys *keys,
                             const QvJobInputEvents *events, gpointer data);
void qv_job_input_free(QvJobInput *input);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvJobInput, qv_job_input_free)

/* The next sealed chunk of base (OVERLAY FALSE) or overlay. Every error is blob_corrupt (QV_ERROR_AUTH). */
gboolean qv_job_input_chunk(QvJobInput *input, gboolean overlay, guint32 index, const guint8 *sealed, gsize n,
                            GError **error);
