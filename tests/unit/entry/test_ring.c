/* SPDX-License-Identifier: Apache-2.0 */
#include <glib.h>
#include <string.h>

#include "entry/ring.h"

static char *contents(const QvEntryRing *ring, gsize *n)
{
  GString *all = g_string_new(NULL);
  uint64_t at = 0;
  for (;;) {
    size_t part;
    const char *view = qv_entry_ring_view(ring, &at, &part);
    if (part == 0)
      break;
    g_string_append_len(all, view, (gssize)part);
    at += part;
  }
  *n = all->len;
  return g_string_free(all, FALSE);
}

/* Whatever the portions: the kept bytes are the last CAP of all. */
static void test_tail(void)
{
  for (int round = 0; round < 300; round++) {
    const gsize cap = (gsize)g_test_rand_int_range(1, 40);
    char bytes[40], portion[120];
    QvEntryRing ring;
    qv_entry_ring_init(&ring, bytes, cap);
    g_autoptr(GString) all = g_string_new(NULL);
    for (int i = g_test_rand_int_range(0, 12); i > 0; i--) {
      gsize n = (gsize)g_test_rand_int_range(0, 120);
      for (gsize k = 0; k < n; k++)
        portion[k] = (char)g_test_rand_int_range(0, 256);
      qv_entry_ring_append(&ring, portion, n);
      g_string_append_len(all, portion, (gssize)n);
    }
    gsize n, kept = MIN(all->len, cap);
    g_autofree char *got = contents(&ring, &n);
    g_assert_cmpuint(ring.total, ==, all->len);
    g_assert_cmpuint(qv_entry_ring_len(&ring), ==, kept);
    g_assert_cmpmem(got, n, all->str + all->len - kept, kept);
  }
}

static void test_clear(void)
{
  char bytes[4];
  QvEntryRing ring;
  qv_entry_ring_init(&ring, bytes, sizeof bytes);
  qv_entry_ring_append(&ring, "abcdef", 6);
  qv_entry_ring_clear(&ring);
  g_assert_cmpuint(ring.total, ==, 0);
  g_assert_cmpuint(qv_entry_ring_len(&ring), ==, 0);
  qv_entry_ring_append(&ring, "xy", 2);
  gsize n;
  g_autofree char *got = contents(&ring, &n);
  g_assert_cmpmem(got, n, "xy", 2);
}

/* A reader that fell behind is moved up to the oldest byte that is kept; one that is ahead gets nothing. */
static void test_view_behind(void)
{
  char bytes[4];
  QvEntryRing ring;
  qv_entry_ring_init(&ring, bytes, sizeof bytes);
  qv_entry_ring_append(&ring, "abcdefgh", 8);
  uint64_t at = 1;
  size_t n;
  const char *view = qv_entry_ring_view(&ring, &at, &n);
  g_assert_cmpuint(at, ==, 4);
  g_assert_cmpmem(view, n, "efgh", 4);
  at = 99;
  qv_entry_ring_view(&ring, &at, &n);
  g_assert_cmpuint(n, ==, 0);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/entry/ring/tail", test_tail);
  g_test_add_func("/entry/ring/clear", test_clear);
  g_test_add_func("/entry/ring/view-behind", test_view_behind);
  return g_test_run();
}
