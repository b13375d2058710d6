/* SPDX-License-Identifier: Apache-2.0 */
/* When a peer has been silent for too long. Pure: moments come in (monotonic microseconds).
 *
 * Signs of life are bytes that arrive, and room in a buffer that was full. Bytes that were written are none: a
 * half-open socket takes them until its buffer is full, and who goes on talking to it must not wait for that.
 *
 * A dead peer is found QV_SILENCE_DEAD_MS after the wait for an answer began. With nothing awaited the wait begins
 * QV_SILENCE_ASK_MS after the last sign, with a question: QV_SILENCE_FOUND_MS in all, below the 10 s that are promised. */
#pragma once

#include <glib.h>

#define QV_SILENCE_ASK_MS 2000
#define QV_SILENCE_DEAD_MS 7000
#define QV_SILENCE_FOUND_MS (QV_SILENCE_ASK_MS + QV_SILENCE_DEAD_MS)

typedef struct {
  gint64 since_us; /* the last sign of life, or the moment at which the present wait began */
  guint awaited_n; /* answers that must come */
  gboolean up;     /* before that (connecting, TLS, login) something is always awaited */
} QvSilence;

typedef enum {
  QV_SILENCE_REST, /* nothing to do before qv_silence_due_us */
  QV_SILENCE_ASK,  /* nothing is awaited and nothing was heard: ask, so that something is */
  QV_SILENCE_DEAD,
} QvSilenceVerdict;

/* A sign of life, or a new stage of connecting. */
void qv_silence_heard(QvSilence *silence, gint64 now_us);
/* Something was written that N answers follow. */
void qv_silence_await(QvSilence *silence, gint64 now_us, guint n);
/* One of the awaited answers came. TRUE: it was the last one. */
gboolean qv_silence_answered(QvSilence *silence);
/* The moment of the next verdict other than REST, unless something happens before. */
gint64 qv_silence_due_us(const QvSilence *silence);
QvSilenceVerdict qv_silence_judge(const QvSilence *silence, gint64 now_us);
