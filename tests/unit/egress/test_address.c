/* SPDX-License-Identifier: Apache-2.0 */
/* The table of addresses: each row's first and last address, forms that carry another, what ranges open. */
#include <string.h>

#include "egress/address.h"

static const char *verdict(const char *address, const char *list)
{
  g_autoptr(GError) error = NULL;
  g_autofree char *text = g_strconcat("a.example", list != NULL ? "@" : NULL, list, NULL);
  g_autoptr(QvRegistries) registries = qv_registries_parse(text, &error);
  g_assert_no_error(error);
  QvIp ip;
  g_assert_true(qv_ip_parse(address, &ip));
  return qv_ip_refused(&ip, qv_registries_at(registries, 0));
}

static void test_every_row(void)
{
  QvIpRow row;
  guint n = 0;
  for (; qv_ip_row(n, &row); n++) {
    g_autofree char *range = g_strdup_printf("%s/%u", row.prefix, row.bits);
    QvCidr cidr;
    QvIp last;
    g_assert_true(qv_cidr_parse(range, &cidr, NULL));
    last = (QvIp){.v6 = cidr.v6};
    memcpy(last.bytes, cidr.bytes, 16);
    for (guint bit = cidr.bits; bit < (cidr.v6 ? 128u : 32u); bit++)
      last.bytes[bit / 8] |= (guint8)(0x80 >> (bit % 8));
    g_test_message("%s %s", row.kind, range);
    g_assert_nonnull(verdict(row.prefix, NULL));
    if (strcmp(row.kind, "WITHIN") != 0)
      g_assert_nonnull(qv_ip_refused(&last, NULL));
    if (strcmp(row.kind, "NEVER") == 0)
      g_assert_nonnull(verdict(row.prefix, range));
    /* A range wider than all rows names none of them. */
    g_assert_nonnull(verdict(row.prefix, cidr.v6 ? "::/0" : "0.0.0.0/0"));
  }
  g_assert_cmpuint(n, >, 40);
}

static void test_addresses(void)
{
  static const struct {
    const char *address, *range;
    gboolean allowed;
  } rows[] = {
    {"1.1.1.1", NULL, TRUE}, {"8.8.8.8", NULL, TRUE}, {"9.255.255.255", NULL, TRUE}, {"11.0.0.0", NULL, TRUE},
    {"100.63.255.255", NULL, TRUE}, {"100.128.0.0", NULL, TRUE}, {"172.15.255.255", NULL, TRUE}, {"172.32.0.0", NULL, TRUE},
    {"192.167.255.255", NULL, TRUE}, {"198.20.0.0", NULL, TRUE}, {"223.255.255.255", NULL, TRUE}, {"126.255.255.255", NULL, TRUE},
    {"2606:4700::1111", NULL, TRUE}, {"2a00::1", NULL, TRUE}, {"2001:200::1", NULL, TRUE}, {"3fff:1000::", NULL, TRUE},
    /* IPv4 inside IPv6 */
    {"::ffff:127.0.0.1", NULL, FALSE}, {"::ffff:10.0.0.1", NULL, FALSE}, {"::ffff:8.8.8.8", NULL, TRUE},
    {"::127.0.0.1", NULL, FALSE}, {"::8.8.8.8", NULL, FALSE}, {"::ffff:0:127.0.0.1", NULL, FALSE}, {"::ffff:0:8.8.8.8", NULL, FALSE},
    {"64:ff9b::7f00:1", NULL, FALSE}, {"64:ff9b::808:808", NULL, TRUE}, {"64:ff9b::a00:1", NULL, FALSE}, {"64:ff9b:1::808:808", NULL, FALSE},
    {"2002:7f00:1::", NULL, FALSE}, {"2002:808:808::1", NULL, FALSE}, {"2001:0:808:808::f7f7:f7f7", NULL, FALSE},
    {"2001:0:808:808:0:0:80ff:fffe", NULL, FALSE},
    /* outside of 2000::/3 */
    {"4000::1", NULL, FALSE}, {"1fff::1", NULL, FALSE}, {"9000::1", NULL, FALSE}, {"fe00::1", NULL, FALSE},
    /* opened */
    {"10.1.2.3", "10.0.0.0/8", TRUE}, {"10.1.2.3", "10.1.0.0/16", TRUE}, {"10.2.2.3", "10.1.0.0/16", FALSE}, {"10.1.2.3", "10.1.2.3", TRUE},
    {"192.168.1.1", "10.0.0.0/8", FALSE}, {"127.0.0.1", "127.0.0.0/8", TRUE}, {"203.0.113.9", "203.0.113.9/32", TRUE},
    {"203.0.113.9", "203.0.112.0/20", FALSE}, {"10.0.0.1", "0.0.0.0/1", FALSE}, {"fd00::1", "fd00::/8", TRUE}, {"fe80::1", "fe80::/10", TRUE},
    {"::1", "::1", TRUE}, {"9000::1", "9000::/16", TRUE},
    /* a name for more than one row takes a range for each */
    {"169.254.1.1", "169.254.0.0/16", TRUE}, {"169.254.169.254", "169.254.0.0/16", FALSE}, {"169.254.169.254", "169.254.169.254", TRUE},
    {"100.100.100.200", "100.64.0.0/10", FALSE}, {"fd00:ec2::254", "fd00::/8", FALSE}, {"fd00:ec2::254", "fd00:ec2::254", TRUE},
    {"192.0.0.192", "192.0.0.0/24", FALSE}, {"168.63.129.16", NULL, FALSE},
    /* never */
    {"0.0.0.0", "0.0.0.0/8", FALSE}, {"224.0.0.1", "224.0.0.1", FALSE}, {"255.255.255.255", "255.255.255.255", FALSE},
    {"ff02::1", "ff02::1", FALSE}, {"::", "::/128", FALSE}, {"::ffff:0.0.0.0", "0.0.0.0/8", FALSE},
    /* opened outside, closed inside, and the other way round */
    {"2002:7f00:1::", "2002::/16", FALSE}, {"2002:808:808::1", "2002::/16", TRUE}, {"64:ff9b::a00:1", "10.0.0.0/8", TRUE},
    {"::ffff:10.0.0.1", "10.0.0.0/8", TRUE}, {"::ffff:10.0.0.1", "::ffff:0:0/96", FALSE}, {"::10.0.0.1", "10.0.0.0/8", FALSE},
  };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    const char *row = verdict(rows[i].address, rows[i].range);
    g_test_message("%s @ %s: %s", rows[i].address, rows[i].range ?: "-", row ?: "allowed");
    g_assert_cmpint(row == NULL, ==, rows[i].allowed);
  }
  const char *row = verdict("2002:a00:1::", "2002::/16,a.example@10.0.0.0/8");
  g_assert_null(row);
}

static void test_ranges_that_open(void)
{
  static const struct {
    const char *range;
    gboolean opens;
  } rows[] = {{"10.0.0.0/8", TRUE}, {"8.8.8.0/24", FALSE}, {"0.0.0.0/0", FALSE}, {"224.0.0.0/8", FALSE},
              {"fd00::/8", TRUE}, {"::/0", FALSE}, {"2000::/3", FALSE}, {"127.0.0.1", TRUE}, {"::1", TRUE}};
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    QvCidr range;
    g_assert_true(qv_cidr_parse(rows[i].range, &range, NULL));
    g_assert_cmpint(qv_ip_range_opens(&range), ==, rows[i].opens);
  }
}

static void test_unwrap(void)
{
  QvIp ip;
  char text[46];
  g_assert_true(qv_ip_parse("::ffff:192.0.2.1", &ip));
  ip = qv_ip_unwrap(&ip);
  g_assert_false(ip.v6);
  qv_ip_format(&ip, text);
  g_assert_cmpstr(text, ==, "192.0.2.1");
  g_assert_true(qv_ip_parse("64:ff9b::808:808", &ip));
  ip = qv_ip_unwrap(&ip);
  g_assert_true(ip.v6);
  g_assert_false(qv_ip_parse("1.2.3", &ip));
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/address/every-row", test_every_row);
  g_test_add_func("/address/addresses", test_addresses);
  g_test_add_func("/address/ranges-that-open", test_ranges_that_open);
  g_test_add_func("/address/unwrap", test_unwrap);
  return g_test_run();
}
