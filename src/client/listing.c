/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the list of a snapshot's files and the rules for their names. */
#include "client/listing.h"

#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/limits.h"
#include "client/path.h"

/* In the arena a path stands behind one byte, its kind, and the path of an object behind the object's name too. */
typedef enum { KIND_FILE, KIND_OBJECT, KIND_EXECUTABLE_OBJECT } Kind;

enum { ARENA_BLOCK_BYTES = 64 * 1024 };

void qv_left_out_count(QvLeftOut *left_out, mode_t mode)
{
  switch (mode & S_IFMT) {
  case S_IFLNK:
    left_out->links++;
    break;
  case S_IFSOCK:
    left_out->sockets++;
    break;
  case S_IFIFO:
    left_out->fifos++;
    break;
  default:
    left_out->devices++;
  }
}

QvListing *qv_listing_new(guint64 max_entries)
{
  QvListing *listing = g_new0(QvListing, 1);
  listing->paths = g_ptr_array_new();
  listing->arena = g_string_chunk_new(ARENA_BLOCK_BYTES);
  listing->max_entries = max_entries;
  return listing;
}

void qv_listing_free(QvListing *listing)
{
  if (listing == NULL)
    return;
  g_ptr_array_unref(listing->paths);
  g_string_chunk_free(listing->arena);
  g_free(listing);
}

guint qv_listing_n(const QvListing *listing)
{
  return listing->paths->len;
}

QvListingEntry qv_listing_entry(const QvListing *listing, guint i)
{
  const char *path = g_ptr_array_index(listing->paths, i);
  Kind kind = (Kind)path[-1];
  return (QvListingEntry){
    .path = path,
    .oid = kind == KIND_FILE ? NULL : (const guint8 *)path - 1 - QV_OID_BYTES,
    .executable = kind == KIND_EXECUTABLE_OBJECT,
  };
}

gboolean qv_listing_add(QvListing *listing, const char *path, const guint8 *oid, gboolean executable,
                        GError **error)
{
  if (!qv_path_check(path, FALSE, error))
    return FALSE;
  if (listing->paths->len >= listing->max_entries) {
    g_autofree char *shown = qv_path_show(path);
    g_set_error(error, QV_ERROR, QV_ERROR_LIMIT, "%s: more than %" G_GUINT64_FORMAT " files", shown,
                listing->max_entries);
    return FALSE;
  }
  char record[QV_OID_BYTES + 1 + QV_PATH_BYTES_MAX];
  gsize head = 0, path_n = strlen(path);
  if (oid != NULL) {
    memcpy(record, oid, QV_OID_BYTES);
    head = QV_OID_BYTES;
  }
  record[head++] = oid == NULL ? KIND_FILE : executable ? KIND_EXECUTABLE_OBJECT : KIND_OBJECT;
  memcpy(record + head, path, path_n);
  g_ptr_array_add(listing->paths, g_string_chunk_insert_len(listing->arena, record, (gssize)(head + path_n)) + head);
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

static gint compare_paths(gconstpointer a, gconstpointer b)
{
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Whether a file among the first I, which are sorted, has the first N bytes of PATH as its path. */
static gboolean is_file(const QvListing *listing, guint i, const char *path, gsize n)
{
  guint low = 0;
  while (low < i) {
    guint middle = low + (i - low) / 2;
    const char *file = g_ptr_array_index(listing->paths, middle);
    int order = strncmp(file, path, n);
    if (order == 0 && file[n] == '\0')
      return TRUE;
    if (order < 0)
      low = middle + 1;
    else
      i = middle;
  }
  return FALSE;
}

/* The name that file I has in common with a file before it, as a file or as a folder; 0 bytes: none. Folders that the
 * file before is in as well were looked up then. `a` and `a/b` need not be neighbours: `a-b` sorts between them. */
static gsize twice_bytes(const QvListing *listing, guint i)
{
  const char *path = g_ptr_array_index(listing->paths, i);
  const char *before = i > 0 ? g_ptr_array_index(listing->paths, i - 1) : "";
  gsize same = 0;
  while (path[same] != '\0' && path[same] == before[same])
    same++;
  if (path[same] == '\0')
    return same;
  for (const char *slash = strchr(path + same, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
    if (is_file(listing, i, path, (gsize)(slash - path)))
      return (gsize)(slash - path);
  }
  return 0;
}

gboolean qv_listing_sort(QvListing *listing, GError **error)
{
  g_ptr_array_sort(listing->paths, compare_paths);
  for (guint i = 0; i < listing->paths->len; i++) {
    gsize n = twice_bytes(listing, i);
    if (n == 0)
      continue;
    g_autofree char *name = g_strndup(g_ptr_array_index(listing->paths, i), n);
    g_autofree char *shown = qv_path_show(name);
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "%s: the tree has this name twice", shown);
    return FALSE;
  }
  return TRUE;
}
