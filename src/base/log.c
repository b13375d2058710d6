/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the lines on stderr. */
#include "base/log.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/invisible.h"
#include "base/io.h"

static const gsize line_bytes_max = 8192;

static const char *const level_names[] = {"debug", "info", "warning", "error"};

static struct {
  char *program;
  QvLogLevel least;
  gboolean json;
} settings = {.least = QV_LOG_INFO};

static const char *program_name(void)
{
  return settings.program != NULL ? settings.program : "quavon";
}

/* Escapes of JSON for what is not to be read as it is (base/invisible.h): a value neither leaves its line nor reorders it, and
 * drives no terminal. IS_JSON: within a string of JSON alone such a character can stand, so its own escapes are left. */
static void append_visible(GString *line, const char *value, gboolean is_json)
{
  g_autofree char *valid = g_utf8_make_valid(value, -1);
  for (const char *p = valid; *p != '\0'; p = g_utf8_next_char(p)) {
    gunichar c = g_utf8_get_char(p);
    if (!is_json && (c == '"' || c == '\\'))
      g_string_append_printf(line, "\\%c", (char)c);
    else if (c > 0xffff && qv_invisible_is(c))
      g_string_append_printf(line, "\\u%04x\\u%04x", 0xd7c0 + (c >> 10), 0xdc00 | (c & 0x3ff));
    else if (c == '\n' || c == '\t' || qv_invisible_is(c))
      g_string_append_printf(line, "\\u%04x", c);
    else
      g_string_append_unichar(line, c);
  }
}

static void append_escaped(GString *line, const char *value)
{
  append_visible(line, value, FALSE);
}

static void append_json(GString *line, const char *name, const char *value)
{
  g_string_append_printf(line, "%s\"%s\":\"", line->len > 1 ? "," : "", name);
  append_escaped(line, value);
  g_string_append_c(line, '"');
}

static void append_text(GString *line, const char *name, const char *value)
{
  g_string_append_printf(line, " %s=", name);
  gboolean plain = value[0] != '\0' && strcspn(value, " \"=\\") == strlen(value);
  g_string_append(line, plain ? "" : "\"");
  append_escaped(line, value);
  g_string_append(line, plain ? "" : "\"");
}

static GString *begin_line(gboolean json, const char *program, QvLogLevel level, gint64 at_ms, const char *message)
{
  g_autoptr(GDateTime) at = g_date_time_new_from_unix_utc(at_ms / 1000);
  g_autofree char *seconds = g_date_time_format(at, "%Y-%m-%dT%H:%M:%S");
  g_autofree char *time = g_strdup_printf("%s.%03dZ", seconds, (int)(at_ms % 1000));
  GString *line = g_string_new(json ? "{" : "");
  if (json) {
    append_json(line, "time", time);
    append_json(line, "level", level_names[level]);
    append_json(line, "program", program);
    append_json(line, "message", message);
  } else {
    g_string_append_printf(line, "%s %-7s %s: ", time, level_names[level], program);
    append_escaped(line, message);
  }
  return line;
}

char *qv_log_format_line(gboolean json, const char *program, QvLogLevel level, gint64 at_ms, const char *message,
                         const char *const *pairs)
{
  GString *line = begin_line(json, program, level, at_ms, message);
  for (; pairs[0] != NULL; pairs += 2) {
    if (pairs[1] != NULL)
      (json ? append_json : append_text)(line, pairs[0], pairs[1]);
  }
  if (json)
    g_string_append_c(line, '}');
  return g_string_free(line, FALSE);
}

char *qv_log_format_record(gboolean json, const char *program, gint64 at_ms, const char *message, const QvLogField *fields,
                           gsize n)
{
  GString *line = begin_line(json, program, QV_LOG_INFO, at_ms, message);
  for (gsize i = 0; i < n; i++) {
    const QvLogField *field = &fields[i];
    if (json && (field->value == NULL || field->is_json)) {
      g_string_append_printf(line, ",\"%s\":", field->name);
      append_visible(line, field->value != NULL ? field->value : "null", TRUE);
    } else if (field->value != NULL) {
      (json ? append_json : append_text)(line, field->name, field->value);
    }
  }
  if (json)
    g_string_append_c(line, '}');
  return g_string_free(line, FALSE);
}

static void write_whole(QvLogLevel level, char *line)
{
  gsize n = strlen(line);
  if (n >= line_bytes_max) {
    /* A cut line of JSON would be none. */
    static const char *const none[] = {NULL};
    g_free(line);
    line = qv_log_format_line(settings.json, program_name(), level, qv_clock_unix_ms(), "event too long to be logged", none);
    n = strlen(line);
  }
  line[n] = '\n';
  (void)qv_io_write_full(STDERR_FILENO, line, n + 1);
  g_free(line);
}

static void write_line(QvLogLevel level, const char *message, const char *const *pairs)
{
  write_whole(level, qv_log_format_line(settings.json, program_name(), level, qv_clock_unix_ms(), message, pairs));
}

void qv_log_record(const char *message, const QvLogField *fields, gsize n)
{
  write_whole(QV_LOG_INFO, qv_log_format_record(settings.json, program_name(), qv_clock_unix_ms(), message, fields, n));
}

static GLogWriterOutput write_foreign(GLogLevelFlags flags, const GLogField *fields, gsize fields_n, gpointer data)
{
  QvLogLevel level = flags & (G_LOG_LEVEL_ERROR | G_LOG_LEVEL_CRITICAL) ? QV_LOG_ERROR
                     : flags & G_LOG_LEVEL_WARNING                     ? QV_LOG_WARNING
                                                                       : QV_LOG_DEBUG;
  for (gsize i = 0; i < fields_n && level >= settings.least; i++) {
    if (strcmp(fields[i].key, "MESSAGE") == 0) {
      static const char *const none[] = {NULL};
      write_line(level, fields[i].value, none);
    }
  }
  return G_LOG_WRITER_HANDLED;
}

void qv_log_init(const char *program, const char *level, const char *format)
{
  static gboolean redirected = FALSE;
  g_free(settings.program);
  settings.program = g_strdup(program);
  settings.json = strcmp(format, "json") == 0 || (strcmp(format, "auto") == 0 && !isatty(STDERR_FILENO));
  for (guint i = 0; i < G_N_ELEMENTS(level_names); i++) {
    if (strcmp(level, level_names[i]) == 0)
      settings.least = (QvLogLevel)i;
  }
  if (!redirected)
    g_log_set_writer_func(write_foreign, NULL, NULL);
  redirected = TRUE;
}

void qv_log(QvLogLevel level, const char *message, ...)
{
  if (level < settings.least)
    return;
  g_autoptr(GPtrArray) pairs = g_ptr_array_new();
  va_list args;
  va_start(args, message);
  for (const char *name; (name = va_arg(args, const char *)) != NULL;) {
    g_ptr_array_add(pairs, (gpointer)name);
    g_ptr_array_add(pairs, (gpointer)va_arg(args, const char *));
  }
  va_end(args);
  g_ptr_array_add(pairs, NULL);
  write_line(level, message, (const char *const *)pairs->pdata);
}

void qv_logf(QvLogLevel level, const char *format, ...)
{
  if (level < settings.least)
    return;
  static const char *const none[] = {NULL};
  va_list args;
  va_start(args, format);
  g_autofree char *message = g_strdup_vprintf(format, args);
  va_end(args);
  write_line(level, message, none);
}
