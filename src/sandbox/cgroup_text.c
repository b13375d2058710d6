/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/cgroup_text.h"

#include <string.h>

/* Digits alone, no sign, no blank, no overflow. */
static gboolean digits(const char *text, gsize n, guint64 *value)
{
  guint64 sum = 0;
  if (n == 0)
    return FALSE;
  for (gsize i = 0; i < n; i++) {
    guint64 digit = (guint64)(text[i] - '0');
    if (text[i] < '0' || text[i] > '9' || sum > (G_MAXUINT64 - digit) / 10)
      return FALSE;
    sum = sum * 10 + digit;
  }
  *value = sum;
  return TRUE;
}

gboolean qv_cgroup_text_number(const char *text, gsize n, guint64 *value)
{
  if (n > 0 && text[n - 1] == '\n')
    n--;
  if (n == 3 && memcmp(text, "max", 3) == 0) {
    *value = G_MAXUINT64;
    return TRUE;
  }
  return digits(text, n, value);
}

/* The next line without its LF; FALSE at the end. */
static gboolean next_line(const char **text, gsize *n, const char **line, gsize *line_n)
{
  if (*n == 0)
    return FALSE;
  const char *lf = memchr(*text, '\n', *n);
  *line = *text;
  *line_n = lf != NULL ? (gsize)(lf - *text) : *n;
  gsize used = *line_n + (lf != NULL ? 1 : 0);
  *text += used;
  *n -= used;
  return TRUE;
}

gboolean qv_cgroup_text_keyed(const char *text, gsize n, const char *key, guint64 *value)
{
  gsize key_n = strlen(key);
  const char *line;
  gsize line_n;
  guint64 found = 0;
  gboolean seen = FALSE;
  while (next_line(&text, &n, &line, &line_n)) {
    if (line_n <= key_n || line[key_n] != ' ' || memcmp(line, key, key_n) != 0)
      continue;
    if (seen || !digits(line + key_n + 1, line_n - key_n - 1, &found))
      return FALSE;
    seen = TRUE;
  }
  if (seen)
    *value = found;
  return seen;
}

gboolean qv_cgroup_text_pids(const char *text, gsize n, GArray *pids)
{
  const char *line;
  gsize line_n;
  guint before = pids->len;
  while (next_line(&text, &n, &line, &line_n)) {
    guint64 value;
    /* 1 is init, or the runner itself in a container: never ours to kill. */
    if (!digits(line, line_n, &value) || value <= 1 || value > G_MAXINT) {
      g_array_set_size(pids, before);
      return FALSE;
    }
    gint pid = (gint)value;
    g_array_append_val(pids, pid);
  }
  return TRUE;
}

gboolean qv_cgroup_text_has_word(const char *text, gsize n, const char *word)
{
  gsize word_n = strlen(word);
  gsize start = 0;
  for (gsize i = 0; i <= n; i++) {
    if (i < n && text[i] != ' ' && text[i] != '\n')
      continue;
    if (i - start == word_n && memcmp(text + start, word, word_n) == 0)
      return TRUE;
    start = i + 1;
  }
  return FALSE;
}
