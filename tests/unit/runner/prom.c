/* SPDX-License-Identifier: Apache-2.0 */
#include "prom.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  Prom *prom;
  char *family, *type;   /* of the lines that are being read */
  gboolean help;         /* HELP was there, TYPE not yet */
  double bucket, le;     /* of the histogram: the last ones */
  double count;
  gboolean infinite, sum, counted;
  char *why;
} Reader;

static gboolean fail(Reader *r, const char *what, const char *line)
{
  if (r->why == NULL)
    r->why = g_strdup_printf("%s: %s", what, line);
  return FALSE;
}

static gsize name_len(const char *text)
{
  gsize n = 0;
  while (g_ascii_isalnum(text[n]) || text[n] == '_' || text[n] == ':')
    n++;
  return n > 0 && !g_ascii_isdigit(text[0]) ? n : 0;
}

static gboolean end_family(Reader *r, const char *line)
{
  if (r->help)
    return fail(r, "a HELP without TYPE", line);
  if (g_strcmp0(r->type, "histogram") == 0 && (!r->infinite || !r->sum || !r->counted || r->bucket != r->count))
    return fail(r, "the histogram before is not whole", line);
  r->bucket = 0;
  r->le = -INFINITY;
  r->infinite = r->sum = r->counted = FALSE;
  return TRUE;
}

static gboolean take_comment(Reader *r, const char *line)
{
  gboolean help = g_str_has_prefix(line, "# HELP "), type = g_str_has_prefix(line, "# TYPE ");
  if (!help && !type)
    return fail(r, "a comment that is none of the two", line);
  const char *name = line + 7;
  gsize n = name_len(name);
  if (n == 0 || name[n] != ' ' || name[n + 1] == '\0')
    return fail(r, "no name, or nothing behind it", line);
  g_autofree char *family = g_strndup(name, n);
  if (help) {
    if (!end_family(r, line) || g_hash_table_contains(r->prom->families, family))
      return fail(r, "a family in two pieces", line);
    g_free(r->family);
    r->family = g_steal_pointer(&family);
    g_clear_pointer(&r->type, g_free);
    r->help = TRUE;
    return TRUE;
  }
  static const char *const types[] = {"counter", "gauge", "histogram", NULL};
  if (!r->help || g_strcmp0(family, r->family) != 0 || !g_strv_contains(types, name + n + 1))
    return fail(r, "a TYPE that is not this family's", line);
  r->type = g_strdup(name + n + 1);
  if (strcmp(r->type, "counter") == 0 && !g_str_has_suffix(family, "_total"))
    return fail(r, "a counter's name ends with _total", line);
  r->help = FALSE;
  g_hash_table_insert(r->prom->families, g_strdup(r->family), g_strdup(r->type));
  return TRUE;
}

/* From "{" to behind "}"; NULL. LE: the value of that label, where it is there. */
static const char *skip_labels(const char *at, char **le)
{
  do {
    at++;
    gsize n = name_len(at);
    if (n == 0 || at[n] != '=' || at[n + 1] != '"')
      return NULL;
    gboolean is_le = n == 2 && memcmp(at, "le", 2) == 0;
    const char *value = at = at + n + 2;
    for (; *at != '"'; at++) {
      if (*at == '\0' || *at == '\n' || (*at == '\\' && strchr("\\\"n", *++at) == NULL))
        return NULL;
    }
    if (is_le)
      *le = g_strndup(value, (gsize)(at - value));
    at++;
  } while (*at == ',');
  return *at == '}' ? at + 1 : NULL;
}

static gboolean take_bucket(Reader *r, const char *le, double value, const char *line)
{
  double bound = g_strcmp0(le, "+Inf") == 0 ? INFINITY : le != NULL ? g_ascii_strtod(le, NULL) : NAN;
  if (!(bound > r->le) || value < r->bucket)
    return fail(r, "buckets grow, and so do their bounds", line);
  r->le = bound;
  r->bucket = value;
  r->infinite = isinf(bound);
  return TRUE;
}

static gboolean take_sample(Reader *r, const char *line)
{
  gsize n = name_len(line);
  g_autofree char *name = g_strndup(line, n), *le = NULL;
  const char *at = line + n;
  if (*at == '{')
    at = skip_labels(at, &le);
  if (n == 0 || at == NULL || *at != ' ' || r->type == NULL)
    return fail(r, "no sample, or one before its TYPE", line);
  char *end = NULL;
  double value = g_ascii_strtod(at + 1, &end);
  if (end == at + 1 || *end != '\0' || g_ascii_isspace(at[1]) || !isfinite(value))
    return fail(r, "no number, or something behind it", line);
  if (strcmp(r->type, "gauge") != 0 && value < 0)
    return fail(r, "less than nothing", line);
  const char *suffix = g_str_has_prefix(name, r->family) ? name + strlen(r->family) : "?";
  gboolean histogram = strcmp(r->type, "histogram") == 0;
  if (histogram && strcmp(suffix, "_bucket") == 0) {
    if (!take_bucket(r, le, value, line))
      return FALSE;
  } else if (histogram && strcmp(suffix, "_sum") == 0) {
    r->sum = TRUE;
  } else if (histogram && strcmp(suffix, "_count") == 0) {
    r->counted = TRUE;
    r->count = value;
  } else if (histogram || *suffix != '\0') {
    return fail(r, "a sample of another family", line);
  }
  g_autofree char *key = g_strndup(line, (gsize)(at - line));
  if (g_hash_table_contains(r->prom->samples, key))
    return fail(r, "a sample twice", line);
  g_hash_table_insert(r->prom->samples, g_steal_pointer(&key), g_memdup2(&value, sizeof value));
  return TRUE;
}

Prom *prom_parse(const char *text, char **why)
{
  Reader r = {.prom = g_new0(Prom, 1), .le = -INFINITY};
  r.prom->samples = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
  r.prom->families = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  guint n = g_strv_length(lines);
  gboolean fine = n > 1 && *lines[n - 1] == '\0' ? TRUE : fail(&r, "no line feed at the end", "");
  for (guint i = 0; fine && i + 1 < n; i++)
    fine = lines[i][0] == '#' ? take_comment(&r, lines[i]) : take_sample(&r, lines[i]);
  fine = fine && end_family(&r, "end");
  g_free(r.family);
  g_free(r.type);
  if (!fine) {
    *why = r.why;
    prom_free(r.prom);
    return NULL;
  }
  return r.prom;
}

void prom_free(Prom *prom)
{
  g_hash_table_unref(prom->samples);
  g_hash_table_unref(prom->families);
  g_free(prom);
}

double prom_value(const Prom *prom, const char *sample)
{
  const double *value = g_hash_table_lookup(prom->samples, sample);
  return value != NULL ? *value : NAN;
}

gboolean prom_has(const Prom *prom, const char *name)
{
  static const char *const suffixes[] = {"_bucket", "_sum", "_count"};
  const char *type = g_hash_table_lookup(prom->families, name);
  if (type != NULL)
    return strcmp(type, "histogram") != 0;
  for (gsize i = 0; i < G_N_ELEMENTS(suffixes); i++) {
    if (!g_str_has_suffix(name, suffixes[i]))
      continue;
    g_autofree char *family = g_strndup(name, strlen(name) - strlen(suffixes[i]));
    if (g_strcmp0(g_hash_table_lookup(prom->families, family), "histogram") == 0)
      return TRUE;
  }
  return FALSE;
}
