/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the reading of configuration variables. One pass over the environment
 * refuses what is not in the table, one pass over the table fills the fields. */
#include "base/config.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/limits.h"

typedef enum { KIND_TEXT, KIND_PATH, KIND_PATHS, KIND_NUMBER, KIND_CHOICE, KIND_SECRET } Kind;

typedef struct {
  Kind kind;
  gsize offset;
  QvConfigRow row;
} Variable;

static const Variable variables[] = {
#define QV_CONFIG(kind, field, name, standard, form, doc) \
  {KIND_##kind, offsetof(QvConfig, field), {name, standard, form, doc, KIND_##kind == KIND_SECRET}},
#include "base/config.def"
#undef QV_CONFIG
};

/* Longest value that is read from a secret's file, bytes. */
static const gsize secret_file_bytes_max = 8192;
/* Longest list of registries, bytes. */
static const gsize registries_file_bytes_max = 64 * 1024;

/* Ours by prefix, but not configuration: what the test suite sets, and what a
 * step finds in a sandbox. Programs pass them by. */
static const char *const foreign_names[] = {"QUAVON_CPUS", "QUAVON_VECTORS", "QUAVON_SOURCE_ROOT",
                                            "QUAVON_BUILD_ROOT"};
static const char foreign_prefix[] = "QUAVON_TEST_";

static gpointer field_of(QvConfig *config, const Variable *v)
{
  return (char *)config + v->offset;
}

static gboolean refuse(GError **error, const char *name, const char *problem, const char *accepted)
{
  g_set_error(error, QV_ERROR, QV_ERROR_POLICY, "%s: %s; accepted: %s", name, problem, accepted);
  return FALSE;
}

/* Number of single edits between two names, for "did you mean". */
static guint distance(const char *a, const char *b)
{
  gsize b_n = strlen(b);
  g_autofree guint *row = g_new(guint, b_n + 1);
  for (gsize j = 0; j <= b_n; j++)
    row[j] = (guint)j;
  for (gsize i = 0; a[i] != '\0'; i++) {
    guint diagonal = row[0];
    row[0] = (guint)i + 1;
    for (gsize j = 0; j < b_n; j++) {
      guint kept = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = MIN(kept, MIN(row[j], diagonal) + 1);
    }
  }
  return row[b_n];
}

static gboolean is_name(const char *name, const Variable *v)
{
  if (strcmp(name, v->row.name) == 0)
    return TRUE;
  gsize n = strlen(v->row.name);
  return v->row.secret && strncmp(name, v->row.name, n) == 0 && strcmp(name + n, "_FILE") == 0;
}

static gboolean check_name(const char *name, GError **error)
{
  if (g_str_has_prefix(name, foreign_prefix))
    return TRUE;
  for (gsize i = 0; i < G_N_ELEMENTS(foreign_names); i++) {
    if (strcmp(name, foreign_names[i]) == 0)
      return TRUE;
  }
  const char *closest = variables[0].row.name;
  guint least = G_MAXUINT;
  for (gsize i = 0; i < G_N_ELEMENTS(variables); i++) {
    if (is_name(name, &variables[i]))
      return TRUE;
    guint edits = distance(name, variables[i].row.name);
    if (edits < least) {
      least = edits;
      closest = variables[i].row.name;
    }
  }
  g_set_error(error, QV_ERROR, QV_ERROR_POLICY, "%.80s: unknown variable; the closest known one is %s", name, closest);
  return FALSE;
}

static gboolean check_names(const char *const *environment, GError **error)
{
  for (; *environment != NULL; environment++) {
    if (!g_str_has_prefix(*environment, "QUAVON_"))
      continue;
    g_autofree char *name = g_strndup(*environment, strcspn(*environment, "="));
    if (!check_name(name, error))
      return FALSE;
  }
  return TRUE;
}

/* The value, or NULL where it is absent or empty. The first one counts, as
 * with getenv. */
static const char *lookup(const char *const *environment, const char *name)
{
  gsize n = strlen(name);
  for (; *environment != NULL; environment++) {
    if (strncmp(*environment, name, n) == 0 && (*environment)[n] == '=')
      return (*environment)[n + 1] != '\0' ? *environment + n + 1 : NULL;
  }
  return NULL;
}

static gboolean is_identifier(const char *text)
{
  gsize n = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
  return n >= 1 && n <= QV_IDENTIFIER_BYTES_MAX && text[n] == '\0' && g_ascii_isalnum(text[0]);
}

static gboolean set_text(const Variable *v, const char *value, char **field, GError **error)
{
  if (!g_utf8_validate(value, -1, NULL))
    return refuse(error, v->row.name, "is not UTF-8", "UTF-8 text");
  if (strcmp(v->row.form, "identifier") == 0 && !is_identifier(value)) {
    return refuse(error, v->row.name, "is not an identifier",
                  "a letter or digit, then up to 127 letters, digits, '.', '_' or '-'");
  }
  *field = g_strdup(value);
  return TRUE;
}

static gboolean set_number(const Variable *v, const char *value, gint64 *field, GError **error)
{
  char *end;
  gint64 least = g_ascii_strtoll(v->row.form, &end, 10);
  gint64 most = g_ascii_strtoll(end + strlen(".."), NULL, 10);
  gsize digits = strspn(value, "0123456789");
  errno = 0;
  gint64 number = g_ascii_strtoll(value, NULL, 10);
  gboolean canonical = digits > 0 && value[digits] == '\0' && (value[0] != '0' || digits == 1);
  if (!canonical || errno != 0 || number < least || number > most) {
    g_autofree char *accepted = g_strdup_printf("a whole number, %s", v->row.form);
    return refuse(error, v->row.name, canonical ? "is out of range" : "is not a number", accepted);
  }
  *field = number;
  return TRUE;
}

static gboolean set_choice(const Variable *v, const char *value, char **field, GError **error)
{
  g_auto(GStrv) choices = g_strsplit(v->row.form, "|", -1);
  if (!g_strv_contains((const char *const *)choices, value)) {
    g_autofree char *accepted = g_strjoinv(", ", choices);
    return refuse(error, v->row.name, "is not one of the known values", accepted);
  }
  *field = g_strdup(value);
  return TRUE;
}

static QvSecret *read_secret(const char *name, const char *path, GError **error)
{
  gsize n;
  struct stat info;
  if (stat(path, &info) == 0 && (info.st_mode & 077) != 0) {
    refuse(error, name, "the file may be used by others", "a file of mode 0600 or 0400");
    return NULL;
  }
  g_autofree char *bytes = qv_fd_read_file(path, secret_file_bytes_max, &n, error);
  if (bytes == NULL) {
    g_prefix_error(error, "%s: ", name);
    return NULL;
  }
  if (n > 0 && bytes[n - 1] == '\n')
    bytes[--n] = '\0';
  QvSecret *secret = NULL;
  if (n == 0 || memchr(bytes, '\0', n) != NULL || memchr(bytes, '\n', n) != NULL)
    refuse(error, name, "the file does not hold one line of text", "one line with at most one final LF");
  else
    secret = qv_secret_new_copy(bytes, n + 1);
  explicit_bzero(bytes, n);
  return secret;
}

static gboolean set_secret(const Variable *v, const char *value, const char *file, QvSecret **field, GError **error)
{
  g_autofree char *file_name = g_strconcat(v->row.name, "_FILE", NULL);
  if (value != NULL && file != NULL)
    return refuse(error, v->row.name, "is set twice", "either the value or the file, not both");
  if (value != NULL)
    *field = qv_secret_new_copy(value, strlen(value) + 1);
  else if (file != NULL)
    *field = read_secret(file_name, file, error);
  return *field != NULL || (value == NULL && file == NULL);
}

static gboolean set_field(QvConfig *config, const Variable *v, const char *const *environment, GError **error)
{
  const char *value = lookup(environment, v->row.name);
  gpointer field = field_of(config, v);
  if (v->kind == KIND_SECRET) {
    g_autofree char *file_name = g_strconcat(v->row.name, "_FILE", NULL);
    return set_secret(v, value, lookup(environment, file_name), field, error);
  }
  if (value == NULL && g_strcmp0(v->row.standard, "auto") == 0 && v->kind == KIND_NUMBER)
    return TRUE;
  if (value == NULL)
    value = v->row.standard;
  if (value == NULL)
    return TRUE;
  switch (v->kind) {
  case KIND_NUMBER:
    return set_number(v, value, field, error);
  case KIND_CHOICE:
    return set_choice(v, value, field, error);
  case KIND_PATHS:
    *(char ***)field = g_strsplit(value, ":", -1);
    return TRUE;
  default:
    return set_text(v, value, field, error);
  }
}

/* Fills the numbers whose default depends on the machine. */
static void set_computed(QvConfig *config)
{
  gint64 cores = MAX(1, sysconf(_SC_NPROCESSORS_ONLN));
  gint64 memory_mib = (gint64)sysconf(_SC_PHYS_PAGES) * (sysconf(_SC_PAGESIZE) / 1024) / 1024;
  if (config->concurrency == 0)
    config->concurrency = MAX(1, cores / 2);
  if (config->memory_budget_mib == 0)
    config->memory_budget_mib = MAX(1, memory_mib - 1024);
  if (config->max_milli_cpus == 0)
    config->max_milli_cpus = QV_MILLI_CPUS_PER_CORE * cores;
  if (config->default_milli_cpus == 0)
    config->default_milli_cpus = MIN(QV_MILLI_CPUS_DEFAULT, config->max_milli_cpus);
}

static gboolean check_default(const char *name, gint64 standard, gint64 ceiling, GError **error)
{
  if (standard <= ceiling)
    return TRUE;
  g_autofree char *default_name = g_strconcat("QUAVON_SANDBOX_DEFAULT_", name, NULL);
  g_autofree char *accepted = g_strdup_printf("at most QUAVON_SANDBOX_MAX_%s, which is %" G_GINT64_FORMAT, name, ceiling);
  return refuse(error, default_name, "is above its ceiling", accepted);
}

static gboolean check_defaults(const QvConfig *c, GError **error)
{
  return check_default("WALL_MS", c->default_wall_ms, c->max_wall_ms, error) &&
         check_default("MEMORY_MIB", c->default_memory_mib, c->max_memory_mib, error) &&
         check_default("MILLI_CPUS", c->default_milli_cpus, c->max_milli_cpus, error) &&
         check_default("PIDS", c->default_pids, c->max_pids, error) &&
         check_default("WORK_MIB", c->default_work_mib, c->max_work_mib, error) &&
         check_default("LOG_BYTES", c->default_log_bytes, c->max_log_bytes, error) &&
         check_default("ARTEFACT_BYTES", c->default_artefact_bytes, c->max_artefact_bytes, error) &&
         check_default("ARTEFACT_COUNT", c->default_artefact_count, c->max_artefact_count, error);
}

QvConfig *qv_config_load(const char *const *environment, GError **error)
{
  if (!check_names(environment, error))
    return NULL;
  g_autoptr(QvConfig) config = g_new0(QvConfig, 1);
  for (gsize i = 0; i < G_N_ELEMENTS(variables); i++) {
    if (!set_field(config, &variables[i], environment, error))
      return NULL;
  }
  set_computed(config);
  if (!check_defaults(config, error))
    return NULL;
  return g_steal_pointer(&config);
}

void qv_config_free(QvConfig *config)
{
  if (config == NULL)
    return;
  for (gsize i = 0; i < G_N_ELEMENTS(variables); i++) {
    gpointer field = field_of(config, &variables[i]);
    if (variables[i].kind == KIND_SECRET)
      qv_secret_free(*(QvSecret **)field);
    else if (variables[i].kind == KIND_PATHS)
      g_strfreev(*(char ***)field);
    else if (variables[i].kind != KIND_NUMBER)
      g_free(*(char **)field);
  }
  g_free(config);
}

char *qv_config_images_file(const QvConfig *config)
{
  if (g_path_is_absolute(config->images_file))
    return g_strdup(config->images_file);
  return g_build_filename(config->state_dir, "images", config->images_file, NULL);
}

/* Comments become blanks and line ends commas; lines that are empty then leave no entry. */
static char *join_lines(const char *text)
{
  GString *list = g_string_new(NULL);
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  for (guint i = 0; lines[i] != NULL; i++) {
    lines[i][strcspn(lines[i], "#")] = '\0';
    g_strstrip(lines[i]);
    gsize n = strlen(lines[i]);
    if (n > 0 && lines[i][n - 1] == ',')
      lines[i][n - 1] = '\0';
    if (n > 0)
      g_string_append_printf(list, "%s%s", list->len > 0 ? "," : "", lines[i]);
  }
  return g_string_free(list, FALSE);
}

char *qv_config_registries(const QvConfig *config, GError **error)
{
  const char *name = "QUAVON_SANDBOX_REGISTRIES_FILE";
  gsize n;
  if (config->registries_file == NULL)
    return g_strdup(config->registries != NULL ? config->registries : "");
  if (config->registries != NULL) {
    refuse(error, "QUAVON_SANDBOX_REGISTRIES", "is set twice", "either the value or the file, not both");
    return NULL;
  }
  g_autofree char *text = qv_fd_read_file(config->registries_file, registries_file_bytes_max, &n, error);
  if (text == NULL)
    g_prefix_error(error, "%s: ", name);
  else if (memchr(text, '\0', n) != NULL || !g_utf8_validate(text, (gssize)n, NULL))
    refuse(error, name, "the file is not text", "UTF-8 text without NUL");
  else
    return join_lines(text);
  return NULL;
}

char *qv_config_prefix(const char *pool)
{
  return strcmp(pool, "default") == 0 ? g_strdup("quavon-sandbox") : g_strconcat("quavon-sandbox-", pool, NULL);
}

gboolean qv_config_row(guint i, QvConfigRow *row)
{
  if (i >= G_N_ELEMENTS(variables))
    return FALSE;
  *row = variables[i].row;
  return TRUE;
}

char *qv_config_markdown(void)
{
  GString *text = g_string_new("| variable | default | accepted | meaning |\n| --- | --- | --- | --- |\n");
  QvConfigRow row;
  for (guint i = 0; qv_config_row(i, &row); i++) {
    g_string_append_printf(text, "| `%s`", row.name);
    if (row.secret)
      g_string_append_printf(text, ", `%s_FILE`", row.name);
    g_auto(GStrv) choices = g_strsplit(row.form, "|", -1);
    g_autofree char *accepted = g_strjoinv("`, `", choices);
    g_string_append_printf(text, " | %s%s%s | `%s` | %s |\n", row.standard != NULL ? "`" : "",
                           row.standard != NULL ? row.standard : "–", row.standard != NULL ? "`" : "", accepted, row.doc);
  }
  return g_string_free(text, FALSE);
}

/* In scdoc's text `_` marks underlining and a backquote is itself. */
static void append_escaped(GString *text, const char *plain)
{
  for (; *plain != '\0'; plain++) {
    if (*plain == '_' || *plain == '*' || *plain == '\\')
      g_string_append_c(text, '\\');
    if (*plain != '`')
      g_string_append_c(text, *plain);
  }
}

char *qv_config_scdoc(void)
{
  GString *text = g_string_new(NULL);
  QvConfigRow row;
  for (guint i = 0; qv_config_row(i, &row); i++) {
    g_autofree char *file = row.secret ? g_strconcat(row.name, "_FILE", NULL) : NULL;
    g_string_append_c(text, '*');
    append_escaped(text, row.name);
    g_string_append(text, file != NULL ? "*, *" : "*");
    if (file != NULL) {
      append_escaped(text, file);
      g_string_append_c(text, '*');
    }
    g_string_append(text, "\n\t");
    append_escaped(text, row.doc);
    if (strcmp(row.form, "any") != 0) {
      g_string_append(text, ". Accepted: ");
      append_escaped(text, row.form);
    }
    if (row.standard != NULL) {
      g_string_append(text, ". Default: ");
      append_escaped(text, row.standard);
    }
    g_string_append(text, ".\n\n");
  }
  return g_string_free(text, FALSE);
}
