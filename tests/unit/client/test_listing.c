/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a listing, what it keeps of a file, and every way in which a tree can use a name twice. */
#include <string.h>

#include "base/error.h"
#include "client/listing.h"

static void add(QvListing *listing, const char *path)
{
  g_autoptr(GError) error = NULL;
  qv_listing_add(listing, path, NULL, FALSE, &error);
  g_assert_no_error(error);
}

static void test_names_twice(void)
{
  static const struct {
    const char *paths[4];
    const char *twice; /* NULL: fine */
  } cases[] = {
    { { "a", "b", "a" }, "a" },
    { { "a/b", "a-b", "a" }, "a" },
    { { "a/b/c", "a/b", "a/b-", "a/a" }, "a/b" },
    { { "a/b/c/d", "a" }, "a" },
    { { "ab/c", "a", "a-/c" }, NULL },
    { { "a/b", "a/c", "b/a", "b-" }, NULL },
  };
  for (gsize i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(QvListing) listing = qv_listing_new(100);
    g_autoptr(GError) error = NULL;
    for (gsize j = 0; j < 4 && cases[i].paths[j] != NULL; j++)
      add(listing, cases[i].paths[j]);
    g_assert_true(qv_listing_sort(listing, &error) == (cases[i].twice == NULL));
    if (cases[i].twice == NULL)
      continue;
    g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
    g_autofree char *start = g_strconcat(cases[i].twice, ": ", NULL);
    g_assert_true(g_str_has_prefix(error->message, start));
  }
}

static gboolean clash(const char *a, const char *b)
{
  gsize n = strlen(a);
  return strncmp(a, b, n) == 0 && (b[n] == '\0' || b[n] == '/');
}

/* Against every pair, one by one. */
static void test_random_names(void)
{
  static const char letters[] = "ab-";
  for (guint round = 0; round < 3000; round++) {
    char paths[8][16];
    g_autoptr(QvListing) listing = qv_listing_new(100);
    guint n = (guint)g_test_rand_int_range(1, 9);
    gboolean fine = TRUE;
    for (guint i = 0; i < n; i++) {
      gsize len = 0;
      for (gint parts = g_test_rand_int_range(1, 5); parts > 0; parts--) {
        for (gint left = g_test_rand_int_range(1, 3); left > 0; left--)
          paths[i][len++] = letters[g_test_rand_int_range(0, 3)];
        paths[i][len++] = parts > 1 ? '/' : '\0';
      }
      for (guint j = 0; j < i; j++)
        fine = fine && !clash(paths[i], paths[j]) && !clash(paths[j], paths[i]);
      add(listing, paths[i]);
    }
    g_assert_true(qv_listing_sort(listing, NULL) == fine);
    for (guint i = 1; i < n; i++)
      g_assert_cmpint(strcmp(qv_listing_entry(listing, i - 1).path, qv_listing_entry(listing, i).path), <=, 0);
  }
}

static void test_entries(void)
{
  g_autoptr(QvListing) listing = qv_listing_new(3);
  g_autoptr(GError) error = NULL;
  guint8 oid[QV_OID_BYTES];
  memset(oid, 0, sizeof oid); /* NULs in the object's name end nothing */
  g_assert_true(qv_listing_add(listing, "c", oid, TRUE, NULL));
  memset(oid, 0xff, sizeof oid);
  g_assert_true(qv_listing_add(listing, "b", oid, FALSE, NULL));
  add(listing, "a");
  g_assert_false(qv_listing_add(listing, "d", NULL, FALSE, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_LIMIT);
  g_assert_true(qv_listing_sort(listing, NULL));
  g_assert_cmpuint(qv_listing_n(listing), ==, 3);
  QvListingEntry a = qv_listing_entry(listing, 0), b = qv_listing_entry(listing, 1), c = qv_listing_entry(listing, 2);
  g_assert_cmpstr(a.path, ==, "a");
  g_assert_true(a.oid == NULL && !a.executable);
  g_assert_cmpstr(b.path, ==, "b");
  g_assert_cmpmem(b.oid, QV_OID_BYTES, oid, sizeof oid);
  g_assert_false(b.executable);
  memset(oid, 0, sizeof oid);
  g_assert_cmpmem(c.oid, QV_OID_BYTES, oid, sizeof oid);
  g_assert_true(c.executable);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/listing/entries", test_entries);
  g_test_add_func("/listing/names-twice", test_names_twice);
  g_test_add_func("/listing/random-names", test_random_names);
  return g_test_run();
}
