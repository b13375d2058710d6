/* SPDX-License-Identifier: Apache-2.0 */
/* Live chunks and final logs fitted together: what was seen is never claimed where it was not, and where an honest stream
 * was heard from its start, nothing is shown twice. */
#include "cli/live_view.h"
#include "cli/log_rest.h"

#include <string.h>

typedef struct {
  const char *chunks; /* separated by | */
  const char *logs;   /* separated by |; "N>tail": of N bytes in all */
  const char *seen;   /* a number a log; NULL: they do not fit */
} Row;

static const Row rows[] = {
  { "", "abc", "0" },
  { "a|b", "abc", "2" },
  { "abc", "abc", "3" },
  { "a|x", "abc", NULL },
  { "abcd", "abc", NULL },
  { "a|b", "axx|bc", "1 1" },
  { "a|b", "ab|c", "2 0" },
  /* Both fit: the one that shows more again. */
  { "a|a", "aa|aa", "2 0" },
  { "aa", "aa|aa", "2 0" },
  { "x|y|z", "x1|y1|z1", "1 1 1" },
  { "x|z", "x1|y1|z1", "1 0 1" },
  { "z|x", "x1|y1|z1", NULL },
  /* Tails: what came before them nobody can compare. */
  { "1234|56", "10>7890", "0" },
  { "1234|567", "10>7890", "1" },
  { "1234|568", "10>7890", NULL },
  { "1234567890", "10>7890", "4" },
  { "1234567890|", "3>7890", NULL }, /* records contradict each other */
  { "a", "", NULL },
};

static GPtrArray *to_chunks(const char *text)
{
  GPtrArray *chunks = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
  g_auto(GStrv) parts = g_strsplit(text, "|", -1);
  for (guint i = 0; parts[i] != NULL; i++)
    g_ptr_array_add(chunks, g_bytes_new(parts[i], strlen(parts[i])));
  return chunks;
}

static void test_rows(void)
{
  for (gsize r = 0; r < G_N_ELEMENTS(rows); r++) {
    g_autoptr(GPtrArray) chunks = to_chunks(rows[r].chunks);
    g_auto(GStrv) parts = g_strsplit(rows[r].logs, "|", -1);
    QvLogTail logs[4];
    gsize n = 0;
    for (; parts[n] != NULL; n++) {
      const char *tail = strchr(parts[n], '>');
      const char *bytes = tail != NULL ? tail + 1 : parts[n];
      gint64 total = tail != NULL ? g_ascii_strtoll(parts[n], NULL, 10) : (gint64)strlen(bytes);
      logs[n] = (QvLogTail){ .bytes = bytes, .n = strlen(bytes), .total_bytes = total, .seen = 99 };
    }
    gboolean fits = qv_log_rest((GBytes *const *)chunks->pdata, chunks->len, logs, n);
    g_autoptr(GString) seen = g_string_new(NULL);
    for (gsize i = 0; i < n; i++)
      g_string_append_printf(seen, "%s%zu", i > 0 ? " " : "", logs[i].seen);
    if (fits != (rows[r].seen != NULL) || (fits && strcmp(seen->str, rows[r].seen) != 0))
      g_error("row %zu (%s / %s): %s, seen %s", r, rows[r].chunks, rows[r].logs, fits ? "fits" : "does not fit", seen->str);
  }
}

/* Honest streams: random logs, random chunks of a prefix of each. */
static void test_random(void)
{
  for (guint32 seed = 0; seed < 2000; seed++) {
    g_autoptr(GRand) rand = g_rand_new_with_seed(seed);
    g_autoptr(GPtrArray) chunks = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
    gsize n = (gsize)g_rand_int_range(rand, 1, 5);
    QvLogTail logs[4];
    char bytes[4][64];
    gsize prefix[4];
    for (gsize i = 0; i < n; i++) {
      gsize size = (gsize)g_rand_int_range(rand, 0, 64), tail = (gsize)g_rand_int_range(rand, 0, (gint32)size + 1);
      for (gsize k = 0; k < size; k++)
        bytes[i][k] = (char)g_rand_int_range(rand, 'a', seed % 2 == 0 ? 'c' : 'z');
      logs[i] = (QvLogTail){ .bytes = bytes[i] + tail, .n = size - tail, .total_bytes = (gint64)size };
      prefix[i] = (gsize)g_rand_int_range(rand, 0, (gint32)size + 1);
      for (gsize at = 0, step; at < prefix[i]; at += step) {
        step = (gsize)g_rand_int_range(rand, 1, (gint32)(prefix[i] - at) + 1);
        g_ptr_array_add(chunks, g_bytes_new(bytes[i] + at, step));
      }
    }
    g_assert_true(qv_log_rest((GBytes *const *)chunks->pdata, chunks->len, logs, n));
    /* Whichever way they were fitted, what counts as seen of the last log is no more than what was really shown. */
    gint64 shown = (gint64)prefix[n - 1] - (logs[n - 1].total_bytes - (gint64)logs[n - 1].n);
    if (seed % 2 != 0 || n == 1)
      g_assert_cmpuint(logs[n - 1].seen, <=, (gsize)MAX(shown, 0));
    for (gsize i = 0; i < n; i++)
      g_assert_cmpuint(logs[i].seen, <=, logs[i].n);
  }
}

/* A log that fits in very many ways is given up, soon. */
static void test_hostile(void)
{
  g_autofree char *same = g_malloc(1 << 20);
  memset(same, 'a', 1 << 20);
  g_autoptr(GPtrArray) chunks = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
  for (int i = 0; i < 4000; i++)
    g_ptr_array_add(chunks, g_bytes_new(same, 1000));
  QvLogTail logs[17];
  for (int i = 0; i < 17; i++)
    logs[i] = (QvLogTail){ .bytes = same, .n = 1 << 20, .total_bytes = 8 << 20 };
  g_assert_false(qv_log_rest((GBytes *const *)chunks->pdata, chunks->len, logs, 17));
}

static void test_view(void)
{
  char *text = NULL;
  size_t n = 0;
  FILE *out = open_memstream(&text, &n);
  g_auto(QvLiveView) view;
  qv_live_view_init(&view, out, TRUE, FALSE);
  g_assert_true(qv_live_view_empty(&view));
  qv_live_view_add("a\x1b[2", 4, 0, &view); /* a sequence in two pieces is one */
  qv_live_view_add("Jb\n::err", 8, 1, &view);
  qv_live_view_end(&view);
  fflush(out);
  g_assert_cmpstr(text, ==, "a\\x1b[2Jb\n\\x3a:err");
  g_assert_true(view.line_open);
  qv_live_view_break(&view);
  fflush(out);
  g_assert_true(g_str_has_suffix(text, ":err\n"));
  QvLogTail log = { .bytes = "a\x1b[2Jb\n::error::x", .n = 17, .total_bytes = 17 };
  g_assert_true(qv_live_view_rest(&view, &log, 1));
  g_assert_cmpuint(log.seen, ==, 12);
  qv_live_view_add("::x", 3, 3, &view); /* number 2 is missing */
  g_assert_false(qv_live_view_rest(&view, &log, 1));
  g_assert_cmpuint(log.seen, ==, 0);
  fclose(out);
  free(text);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/log-rest/rows", test_rows);
  g_test_add_func("/log-rest/random", test_random);
  g_test_add_func("/log-rest/hostile", test_hostile);
  g_test_add_func("/log-rest/view", test_view);
  return g_test_run();
}
