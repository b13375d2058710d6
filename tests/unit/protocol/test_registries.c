/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's list: what is an entry, what is not, and which addresses a range holds. */
#include <arpa/inet.h>
#include <string.h>

#include "base/error.h"
#include "protocol/registries.h"
#include "support.h"

static void test_accepted(void)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvRegistries) list = qv_registries_parse(
    " Registry.Example.org ,other.example.org:8443@10.0.0.0/8,registry.example.org:443@fd00:1::/32,"
    "registry.example.org@192.168.7.9,xn--bcher-kva.example:1\n", &error);
  g_assert_no_error(error);
  g_assert_cmpuint(qv_registries_n(list), ==, 3);
  const QvRegistry *first = qv_registries_find(list, "registry.example.org:443");
  g_assert_true(first == qv_registries_at(list, 0));
  g_assert_cmpuint(first->port, ==, 443);
  g_assert_cmpuint(first->host_n, ==, 20);
  g_assert_cmpuint(first->cidrs_n, ==, 2);
  g_assert_true(first->cidrs[0].v6);
  g_assert_cmpuint(first->cidrs[0].bits, ==, 32);
  g_assert_cmpuint(first->cidrs[1].bits, ==, 32);
  const QvRegistry *other = qv_registries_find(list, "other.example.org:8443");
  g_assert_cmpuint(other->cidrs_n, ==, 1);
  g_assert_nonnull(qv_registries_find(list, "xn--bcher-kva.example:1"));
  static const char *const absent[] = { "registry.example.org", "registry.example.org:80", "Registry.example.org:443",
                                        "xregistry.example.org:443", "registry.example.org:4430", "example.org:443",
                                        "other.example.org:443", "", ":443" };
  for (gsize i = 0; i < G_N_ELEMENTS(absent); i++)
    g_assert_null(qv_registries_find(list, absent[i]));
  g_assert_true(qv_registries_has_name(list, "other.example.org:1", 17));
  g_assert_false(qv_registries_has_name(list, "other.example.org", 16));
  g_assert_false(qv_registries_has_name(list, "example.org", 11));
}

static void test_empty(void)
{
  static const char *const rows[] = { NULL, "", " ", "\n" };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autoptr(QvRegistries) list = qv_registries_parse(rows[i], NULL);
    g_assert_nonnull(list);
    g_assert_cmpuint(qv_registries_n(list), ==, 0);
    g_assert_null(qv_registries_find(list, "a.example:443"));
  }
  g_assert_null(qv_registries_find(NULL, "a.example:443"));
}

static void test_refused(void)
{
  static const char *const rows[][2] = {
    { ",", "entry 1" }, { "a.example,", "entry 2" }, { "a.example,,b.example", "entry 2" }, { "a.example b.example", "host name" },
    { "*.example.org", "pattern" }, { ".example.org", "host name" }, { "a.example.", "host name" }, { "a..example", "host name" },
    { "-a.example", "host name" }, { "a-.example", "host name" }, { "a_b.example", "host name" }, { "127.0.0.1", "host name" },
    { "127.1", "host name" }, { "0x7f000001", "host name" }, { "2130706433", "host name" }, { "[::1]:443", "port" },
    { "::1", "port" }, { "b\xc3\xbc" "cher.example", "host name" }, { "user@a.example", "address" }, { "a.example:", "port" },
    { "a.example:0", "port" }, { "a.example:0443", "port" }, { "a.example:65536", "port" }, { "a.example:+443", "port" },
    { "a.example:443:443", "port" }, { "a.example: 443", "port" }, { "https:" "//a.example", "port" }, { "a.example/", "host name" },
    { "a.example@", "address" }, { "a.example@10.0.0.0/33", "bits" }, { "a.example@10.0.0.0/", "bits" },
    { "a.example@10.0.0.0/08", "bits" }, { "a.example@10.0.0.0/-1", "bits" }, { "a.example@::/129", "bits" },
    { "a.example@10.1.0.0/8", "10.0.0.0/8" }, { "a.example@fd00::1/64", "fd00::/64" }, { "a.example@10.0.0/8", "address" },
    { "a.example@010.0.0.0/8", "address" }, { "a.example@::ffff:1.2.3/8", "address" }, { "a.example@@10.0.0.0/8", "address" },
    { "a.example@10.0.0.0/8@10.0.0.0/8", "bits" }, { "a.example@10.0.0.0/8:443", "bits" },
  };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    GError *error = NULL;
    g_test_message("%s", rows[i][0]);
    g_assert_null(qv_registries_parse(rows[i][0], &error));
    t_assert_error(&error, QV_ERROR_FORMAT, rows[i][1]);
  }
}

static void test_bounds(void)
{
  g_autoptr(GString) names = g_string_new("n0.example");
  for (guint i = 1; i < QV_REGISTRIES_MAX; i++)
    g_string_append_printf(names, ",n%u.example", i);
  g_autoptr(QvRegistries) full = qv_registries_parse(names->str, NULL);
  g_assert_cmpuint(qv_registries_n(full), ==, QV_REGISTRIES_MAX);
  g_string_append(names, ",one.more.example");
  GError *error = NULL;
  g_assert_null(qv_registries_parse(names->str, &error));
  t_assert_error(&error, QV_ERROR_LIMIT, "names");
  g_string_assign(names, "a.example@10.0.0.0/32");
  for (guint i = 1; i < QV_REGISTRY_CIDRS_MAX; i++)
    g_string_append_printf(names, ",a.example@10.0.0.%u", i);
  g_autoptr(QvRegistries) ranges = qv_registries_parse(names->str, NULL);
  g_assert_cmpuint(qv_registries_at(ranges, 0)->cidrs_n, ==, QV_REGISTRY_CIDRS_MAX);
  g_string_append(names, ",a.example@10.0.1.0");
  g_assert_null(qv_registries_parse(names->str, &error));
  t_assert_error(&error, QV_ERROR_LIMIT, "ranges");
  g_autofree char *long_text = g_strnfill(QV_REGISTRIES_TEXT_BYTES_MAX + 1, 'a');
  g_assert_null(qv_registries_parse(long_text, &error));
  t_assert_error(&error, QV_ERROR_LIMIT, "longer");
}

static void test_ranges(void)
{
  static const struct {
    const char *cidr, *address;
    gboolean within;
  } rows[] = {
    { "10.0.0.0/8", "10.255.255.255", TRUE }, { "10.0.0.0/8", "11.0.0.0", FALSE }, { "10.0.0.0/9", "10.127.255.255", TRUE },
    { "10.0.0.0/9", "10.128.0.0", FALSE }, { "0.0.0.0/0", "255.255.255.255", TRUE }, { "0.0.0.0/0", "::", FALSE },
    { "192.0.2.7", "192.0.2.7", TRUE }, { "192.0.2.7/32", "192.0.2.6", FALSE }, { "192.0.2.6/31", "192.0.2.7", TRUE },
    { "fc00::/7", "fdff::1", TRUE }, { "fc00::/7", "fe00::", FALSE },
    { "::/0", "10.0.0.1", FALSE }, { "::/0", "ff02::1", TRUE }, { "2001:db8::1", "2001:db8::1", TRUE },
    { "2001:db8::1/128", "2001:db8::2", FALSE }, { "2001:db8::/33", "2001:db8:8000::", FALSE },
  };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    QvCidr cidr;
    guint8 address[16];
    GError *error = NULL;
    gboolean v6 = strchr(rows[i].address, ':') != NULL;
    g_assert_true(qv_cidr_parse(rows[i].cidr, &cidr, &error));
    g_assert_cmpint(inet_pton(v6 ? AF_INET6 : AF_INET, rows[i].address, address), ==, 1);
    g_test_message("%s in %s", rows[i].address, rows[i].cidr);
    g_assert_cmpint(qv_cidr_contains(&cidr, v6, address), ==, rows[i].within);
  }
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/registries/accepted", test_accepted);
  g_test_add_func("/registries/empty", test_empty);
  g_test_add_func("/registries/refused", test_refused);
  g_test_add_func("/registries/bounds", test_bounds);
  g_test_add_func("/registries/ranges", test_ranges);
  return g_test_run();
}
