/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks go on, random bytes differ and fill the whole buffer, UUIDs have their form. */
#include <glib.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"

static void test_clocks(void)
{
  gint64 glib_ms = g_get_real_time() / 1000;
  gint64 ms = qv_clock_unix_ms();
  g_assert_cmpint(ms, >=, glib_ms);
  g_assert_cmpint(ms, <, glib_ms + 600000);
  gint64 us = qv_clock_mono_us();
  gint64 mono_ms = qv_clock_mono_ms();
  g_assert_cmpint(mono_ms, >=, us / 1000);
  gint64 later = us;
  while (later == us)
    later = qv_clock_mono_us();
  g_assert_cmpint(later, >, us);
}

static void test_random(void)
{
  guint8 a[4096] = {0};
  guint8 b[4096] = {0};
  qv_random_bytes(a, sizeof a);
  qv_random_bytes(b, sizeof b);
  g_assert_true(memcmp(a, b, sizeof a) != 0);
  /* The last 32 of them still zero: a chance of one in 2^256. */
  static const guint8 zero[32];
  g_assert_true(memcmp(a + sizeof a - 32, zero, 32) != 0);
  qv_random_bytes(a, 0);
}

static void test_uuid(void)
{
  char last[QV_UUID_LEN + 1] = "";
  for (int i = 0; i < 1000; i++) {
    char text[QV_UUID_LEN + 1];
    qv_random_uuid(text);
    g_assert_true(g_regex_match_simple("^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$", text,
                                       G_REGEX_DOLLAR_ENDONLY, 0));
    g_assert_cmpstr(text, !=, last);
    strcpy(last, text);
  }
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/clock/both", test_clocks);
  g_test_add_func("/random/bytes", test_random);
  g_test_add_func("/random/uuid", test_uuid);
  return g_test_run();
}
