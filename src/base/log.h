/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a program, on stderr, one line an event. Only programs log, and
 * once an event; libraries return GError. Never a secret, token or key. */
#pragma once

#include <glib.h>

typedef enum { QV_LOG_DEBUG, QV_LOG_INFO, QV_LOG_WARNING, QV_LOG_ERROR } QvLogLevel;

/* LEVEL and FORMAT: the values of QUAVON_LOG_LEVEL and QUAVON_LOG_FORMAT. Not called at all: level
 * info, as text. Messages of GLib and its libraries go the same way from then on. */
void qv_log_init(const char *program, const char *level, const char *format);

/* An event with a message and pairs of name and value, NULL at the end; a
 * NULL value leaves its pair out. Names are lower camel case. A line is one write of at most 8 KiB; what is
 * not UTF-8 is replaced; control characters, those that reorder a line and those that show nothing (base/invisible.h) are escaped. */
void qv_log(QvLogLevel level, const char *message, ...) G_GNUC_NULL_TERMINATED;

/* The same, with a message alone that is formatted. */
void qv_logf(QvLogLevel level, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* A record: an event whose fields are always the same, written whatever the level is. VALUE NULL is null, and left out of a
 * line of text. IS_JSON: the value is JSON itself (a number, true, an array) and stands as it is. */
typedef struct {
  const char *name;
  const char *value;
  gboolean is_json;
} QvLogField;

void qv_log_record(const char *message, const QvLogField *fields, gsize n);
/* The line without its LF. */
char *qv_log_format_record(gboolean json, const char *program, gint64 at_ms, const char *message, const QvLogField *fields,
                           gsize n);

/* One line without its LF, as qv_log writes it: for tests. AT_MS: Unix time. */
char *qv_log_format_line(gboolean json, const char *program, QvLogLevel level, gint64 at_ms, const char *message,
                         const char *const *pairs);
