/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the list of a snapshot's files and the rules for their names. */
#include "client/listing.h"

#include <string.h>

#include "base/error.h"
#include "client/path.h"

static void entry_free(gpointer data)
{
  QvListingEntry *entry = data;
  g_free(entry->path);
  g_free(entry);
}

QvListing *qv_listing_new(guint64 max_entries)
{
  QvListing *listing = g_new0(QvListing, 1);
  listing->entries = g_ptr_array_new_with_free_func(entry_free);
  listing->max_entries = max_entries;
  return listing;
}

void qv_listing_free(QvListing *listing)
{
  if (listing == NULL)
    return;
  g_ptr_array_unref(listing->entries);
  g_free(listing);
}

gboolean qv_listing_add(QvListing *listing, const char *path, const guint8 *oid, gboolean executable,
                        GError **error)
{
  if (!qv_path_check(path, FALSE, error))
    return FALSE;
  if (listing->entries->len >= listing->max_entries) {
    g_autofree char *shown = qv_path_show(path);
    g_set_error(error, QV_ERROR, QV_ERROR_LIMIT, "%s: more than %" G_GUINT64_FORMAT " files", shown,
                listing->max_entries);
    return FALSE;
  }
  QvListingEntry *entry = g_new0(QvListingEntry, 1);
  entry->path = g_strdup(path);
  if (oid != NULL)
    memcpy(entry->oid, oid, sizeof entry->oid);
  entry->executable = executable;
  g_ptr_array_add(listing->entries, entry);
  return TRUE;
}

gboolean qv_listing_add_folder(QvListing *listing, const char *path, GError **error)
{
  if (listing->folders_n >= listing->max_entries) {
    g_autofree char *shown = qv_path_show(path);
    g_set_error(error, QV_ERROR, QV_ERROR_LIMIT, "%s: more than %" G_GUINT64_FORMAT " folders", shown,
                listing->max_entries);
    return FALSE;
  }
  listing->folders_n++;
  return TRUE;
}

static gint compare_entries(gconstpointer a, gconstpointer b)
{
  const QvListingEntry *const *left = a;
  const QvListingEntry *const *right = b;
  return strcmp((*left)->path, (*right)->path);
}

gboolean qv_listing_sort(QvListing *listing, GError **error)
{
  g_ptr_array_sort(listing->entries, compare_entries);
  /* `a` and `a/b` need not be neighbours (`a-b` sorts between them), so folders are looked up. */
  g_autoptr(GHashTable) files = g_hash_table_new(g_str_hash, g_str_equal);
  for (guint i = 0; i < listing->entries->len; i++) {
    const QvListingEntry *entry = g_ptr_array_index(listing->entries, i);
    const char *twice = g_hash_table_add(files, entry->path) ? NULL : entry->path;
    g_autofree char *folder = g_strdup(entry->path);
    for (char *slash; twice == NULL && (slash = strrchr(folder, '/')) != NULL;) {
      *slash = '\0';
      if (g_hash_table_contains(files, folder))
        twice = folder;
    }
    if (twice != NULL) {
      g_autofree char *shown = qv_path_show(twice);
      g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "%s: the tree has this name twice", shown);
      return FALSE;
    }
  }
  return TRUE;
}
