/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's texts as they were seen, then every cut of them, then bytes that are no such text. */
#include <locale.h>
#include <string.h>

#include "sandbox/cgroup_text.h"

#define OOM_CONTROL "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
#define MEMORY_EVENTS "low 0\nhigh 0\nmax 1817\noom 2\noom_kill 1\noom_group_kill 0\n"
#define CPU_STAT "usage_usec 5025\nuser_usec 1010\nsystem_usec 4015\nnr_periods 0\n"
#define UNTOUCHED 77

static gboolean keyed(const char *text, const char *key, guint64 *value)
{
  return qv_cgroup_text_keyed(text, strlen(text), key, value);
}

static void test_keyed(void)
{
  static const struct {
    const char *text, *key;
    guint64 value;
  } ROWS[] = {{OOM_CONTROL, "oom_kill", 3}, {OOM_CONTROL, "oom_kill_disable", 0}, {MEMORY_EVENTS, "oom_kill", 1},
              {MEMORY_EVENTS, "max", 1817}, {CPU_STAT, "user_usec", 1010}, {"max 0\n", "max", 0},
              {"max 18446744073709551615", "max", G_MAXUINT64}};
  for (gsize i = 0; i < G_N_ELEMENTS(ROWS); i++) {
    guint64 value = UNTOUCHED;
    g_assert_true(keyed(ROWS[i].text, ROWS[i].key, &value));
    g_assert_cmpuint(value, ==, ROWS[i].value);
  }
}

static void test_keyed_refuses(void)
{
  static const char *const TEXTS[] = {
    "", "\n", "max", "max ", "max \n", "max\n", "max -1\n", "max +1\n", "max 1 2\n", "max 0x1\n", "max  1\n", " max 1\n",
    "max 1x\n", "max 18446744073709551616\n", "max 99999999999999999999999\n", "maximum 1\n", "ma 1\n", "max 1\nmax 1\n",
    "max 1\nmax x\n", "max 1\r\n", "MAX 1\n",
  };
  guint64 value = UNTOUCHED;
  for (gsize i = 0; i < G_N_ELEMENTS(TEXTS); i++) {
    g_assert_false(keyed(TEXTS[i], "max", &value));
    g_assert_cmpuint(value, ==, UNTOUCHED);
  }
  /* A NUL in the text is a byte like another. */
  g_assert_false(qv_cgroup_text_keyed("max 1\0", 6, "max", &value));
  g_assert_cmpuint(value, ==, UNTOUCHED);
}

/* Every prefix, in a block of exactly its size: the number of a whole line, or nothing. */
static void test_keyed_cut(void)
{
  static const char *const TEXTS[] = {OOM_CONTROL, MEMORY_EVENTS, CPU_STAT};
  static const char *const KEYS[] = {"oom_kill", "oom_kill", "system_usec"};
  for (gsize t = 0; t < G_N_ELEMENTS(TEXTS); t++)
    for (gsize n = 0; n <= strlen(TEXTS[t]); n++) {
      g_autofree char *cut = g_malloc(MAX(n, 1));
      guint64 value = UNTOUCHED, whole;
      memcpy(cut, TEXTS[t], n);
      g_assert_true(keyed(TEXTS[t], KEYS[t], &whole));
      if (qv_cgroup_text_keyed(cut, n, KEYS[t], &value))
        g_assert_cmpuint(value, <=, whole); /* cut inside of the digits at worst */
      else
        g_assert_cmpuint(value, ==, UNTOUCHED);
    }
}

static void test_number(void)
{
  static const struct {
    const char *text;
    guint64 value;
  } GOOD[] = {{"0\n", 0}, {"570425344\n", 570425344}, {"1", 1}, {"max\n", G_MAXUINT64}, {"max", G_MAXUINT64},
              {"9223372036854771712\n", 9223372036854771712u}};
  static const char *const BAD[] = {"", "\n", "-1\n", "1\n\n", "1 2\n", "x\n", "maxx\n", "ma", "MAX", " 1\n", "1 \n",
                                    "18446744073709551616"};
  for (gsize i = 0; i < G_N_ELEMENTS(GOOD); i++) {
    guint64 value = UNTOUCHED;
    g_assert_true(qv_cgroup_text_number(GOOD[i].text, strlen(GOOD[i].text), &value));
    g_assert_cmpuint(value, ==, GOOD[i].value);
  }
  for (gsize i = 0; i < G_N_ELEMENTS(BAD); i++) {
    guint64 value = UNTOUCHED;
    g_assert_false(qv_cgroup_text_number(BAD[i], strlen(BAD[i]), &value));
    g_assert_cmpuint(value, ==, UNTOUCHED);
  }
}

static void test_pids(void)
{
  static const char TEXT[] = "12\n2147483647\n13";
  static const char *const BAD[] = {"0\n", "1\n", "12\n0\n", "12\nx\n", "12\n\n13\n", "-12\n", "2147483648\n", "12 13\n"};
  g_autoptr(GArray) pids = g_array_new(FALSE, FALSE, sizeof(gint));
  g_assert_true(qv_cgroup_text_pids("", 0, pids));
  g_assert_cmpuint(pids->len, ==, 0);
  g_assert_true(qv_cgroup_text_pids(TEXT, strlen(TEXT), pids));
  g_assert_cmpuint(pids->len, ==, 3);
  g_assert_cmpint(g_array_index(pids, gint, 0), ==, 12);
  g_assert_cmpint(g_array_index(pids, gint, 1), ==, G_MAXINT);
  g_assert_cmpint(g_array_index(pids, gint, 2), ==, 13);
  for (gsize i = 0; i < G_N_ELEMENTS(BAD); i++) {
    g_assert_false(qv_cgroup_text_pids(BAD[i], strlen(BAD[i]), pids));
    g_assert_cmpuint(pids->len, ==, 3); /* nothing half added: these numbers get killed */
  }
}

static void test_words(void)
{
  static const char LINE[] = "cpuset cpu io memory hugetlb pids\n";
  static const char *const THERE[] = {"cpuset", "cpu", "io", "memory", "pids"};
  static const char *const NOT_THERE[] = {"cp", "cpuse", "mem", "pid", "rdma", "pids\n"};
  for (gsize i = 0; i < G_N_ELEMENTS(THERE); i++)
    g_assert_true(qv_cgroup_text_has_word(LINE, strlen(LINE), THERE[i]));
  for (gsize i = 0; i < G_N_ELEMENTS(NOT_THERE); i++)
    g_assert_false(qv_cgroup_text_has_word(LINE, strlen(LINE), NOT_THERE[i]));
  g_assert_true(qv_cgroup_text_has_word("cpu", 3, "cpu"));
  g_assert_false(qv_cgroup_text_has_word("", 0, "cpu"));
  g_assert_false(qv_cgroup_text_has_word("\n", 1, "cpu"));
}

/* Bytes of the alphabet that these files have: no crash, no number that is not in the text. */
static void test_noise(void)
{
  static const char ALPHABET[] = "0123456789max \n-_";
  for (guint round = 0; round < 20000; round++) {
    gsize n = (gsize)g_test_rand_int_range(0, 40);
    g_autofree char *text = g_malloc(MAX(n, 1));
    for (gsize i = 0; i < n; i++)
      text[i] = ALPHABET[g_test_rand_int_range(0, sizeof ALPHABET)]; /* its NUL too */
    guint64 value;
    g_autoptr(GArray) pids = g_array_new(FALSE, FALSE, sizeof(gint));
    if (qv_cgroup_text_number(text, n, &value) && value != G_MAXUINT64)
      g_assert_true(g_ascii_isdigit(text[0]));
    if (qv_cgroup_text_keyed(text, n, "max", &value))
      g_assert_nonnull(memmem(text, n, "max ", 4));
    if (qv_cgroup_text_pids(text, n, pids))
      for (guint i = 0; i < pids->len; i++)
        g_assert_cmpint(g_array_index(pids, gint, i), >, 1);
    if (qv_cgroup_text_has_word(text, n, "max"))
      g_assert_nonnull(memmem(text, n, "max", 3));
  }
}

int main(int argc, char **argv)
{
  setlocale(LC_ALL, "");
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/sandbox/cgroup-text/keyed", test_keyed);
  g_test_add_func("/sandbox/cgroup-text/keyed-refuses", test_keyed_refuses);
  g_test_add_func("/sandbox/cgroup-text/keyed-cut", test_keyed_cut);
  g_test_add_func("/sandbox/cgroup-text/number", test_number);
  g_test_add_func("/sandbox/cgroup-text/pids", test_pids);
  g_test_add_func("/sandbox/cgroup-text/words", test_words);
  g_test_add_func("/sandbox/cgroup-text/noise", test_noise);
  return g_test_run();
}
