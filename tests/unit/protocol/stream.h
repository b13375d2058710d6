/* SPDX-License-Identifier: Apache-2.0 */
/* An entry's output stream, made by hand: right where nothing else is asked for. */
#pragma once

#include <glib.h>

typedef struct {
  GByteArray *bytes;
} TStream;

extern const guint8 t_stream_key[32];

void t_stream_init(TStream *stream);
void t_stream_clear(TStream *stream);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(TStream, t_stream_clear)

void t_stream_raw(TStream *stream, const void *bytes, gsize n);
void t_stream_member(TStream *stream, const char *path, const void *bytes, gsize n);
void t_stream_text(TStream *stream, const char *path, const char *text);
/* Record and log of a step that exited; I -1 is setup. LOG is kept whole. */
void t_stream_step(TStream *stream, int i, const char *name, int exit_code, const char *log);
/* exit.json over what is there so far; FIELDS without braces and mac, ' for ", members in canonical order. */
void t_stream_exit(TStream *stream, const char *before_mac, const char *behind_mac);
/* The common one: done, null, no drops. */
void t_stream_done(TStream *stream);
void t_stream_end(TStream *stream);
