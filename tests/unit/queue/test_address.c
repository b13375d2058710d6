/* SPDX-License-Identifier: Apache-2.0 */
#include <glib.h>
#include <string.h>

#include "base/error.h"
#include "queue/address.h"
#include "queue/address_private.h"

/* GLib 2.74 loses the host of a URI whose port is none. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#define LEAKS_OF_GLIB(on) ((on) ? __lsan_disable() : __lsan_enable())
#else
#define LEAKS_OF_GLIB(on) ((void)0)
#endif

static const struct {
  const char *url, *display, *user, *password;
  guint db;
  gboolean tls;
} good[] = {
  { "redis://localhost", "redis://localhost:6379", "default", NULL, 0, FALSE },
  { "redis://h:7000", "redis://h:7000", "default", NULL, 0, FALSE },
  { "redis://h:7000/", "redis://h:7000", "default", NULL, 0, FALSE },
  { "redis://h:7000/3", "redis://h:7000", "default", NULL, 3, FALSE },
  { "redis://:pw@h", "redis://h:6379", "default", "pw", 0, FALSE },
  { "redis://worker:pw@h", "redis://h:6379", "worker", "pw", 0, FALSE },
  { "rediss://worker:p%40w%3A%2F@h:1", "rediss://h:1", "worker", "p@w:/", 0, TRUE },
  { "redis://u:p@[::1]:5", "redis://[::1]:5", "u", "p", 0, FALSE },
  { "unix:///run/v.sock", "unix:///run/v.sock", "default", NULL, 0, FALSE },
  { "unix://u:p@/run/v.sock", "unix:///run/v.sock", "u", "p", 0, FALSE },
  { "unix:///run/v.sock?db=2", "unix:///run/v.sock", "default", NULL, 2, FALSE },
};

static void test_good(void)
{
  for (gsize i = 0; i < G_N_ELEMENTS(good); i++) {
    g_autoptr(GError) error = NULL;
    g_autoptr(QvAddress) a = qv_address_parse(good[i].url, &error);
    g_assert_no_error(error);
    g_assert_cmpstr(qv_address_display(a), ==, good[i].display);
    g_assert_cmpstr(qv_address_user(a), ==, good[i].user);
    g_assert_cmpuint(a->db, ==, good[i].db);
    g_assert_cmpint(a->tls, ==, good[i].tls);
    if (good[i].password)
      g_assert_cmpmem(qv_secret_bytes(a->password), qv_secret_len(a->password), good[i].password, strlen(good[i].password));
    else
      g_assert_null(a->password);
  }
}

static void test_bad(void)
{
  const char *bad[] = { "",
                        "localhost",
                        "localhost:6379",
                        "http://secret:secret@h",
                        "redis://",
                        "redis://u@h",
                        "redis://secret:secret@h:0",
                        "redis://secret:secret@h:65536",
                        "redis://secret:secret@h:x",
                        "redis://secret:secret@h/x",
                        "redis://secret:secret@h/-1",
                        "redis://secret:secret@h/65536",
                        "redis://secret:secret@h?db=1",
                        "redis://secret:se#cret@h",
                        "redis://secret:%zzsecret@h",
                        "unix://secret:secret@host/run/v.sock",
                        "unix://",
                        "unix:run/v.sock",
                        "unix:///run/v.sock?x=1",
                        ("unix:///aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa") };
  for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
    g_autoptr(GError) error = NULL;
    LEAKS_OF_GLIB(TRUE);
    g_autoptr(QvAddress) a = qv_address_parse(bad[i], &error);
    LEAKS_OF_GLIB(FALSE);
    if (a)
      g_error("accepted: %s", bad[i]);
    g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
    g_assert_null(strstr(error->message, "secret"));
  }
}

static void test_tls_files(void)
{
  g_autoptr(QvAddress) plain = qv_address_parse("redis://h", NULL), tls = qv_address_parse("rediss://h", NULL);
  g_autoptr(GError) error = NULL;
  g_assert_true(qv_address_set_tls(plain, NULL, NULL, NULL, &error));
  g_assert_false(qv_address_set_tls(plain, "/ca", NULL, NULL, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
  g_clear_error(&error);
  g_assert_true(qv_address_set_tls(tls, "/ca", NULL, NULL, &error));
  g_assert_true(qv_address_set_tls(tls, "/ca", "/cert", "/key", &error));
  g_assert_false(qv_address_set_tls(tls, "/ca", "/cert", NULL, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/queue/address/good", test_good);
  g_test_add_func("/queue/address/bad", test_bad);
  g_test_add_func("/queue/address/tls-files", test_tls_files);
  return g_test_run();
}
