/* SPDX-License-Identifier: Apache-2.0 */
/* The list of files that a snapshot holds, and what was left out of it. Where
 * the files come from (a folder, a commit) is the business of work_tree and git. */
#pragma once

#include <glib.h>
#include <sys/types.h>

enum { QV_OID_BYTES = 20 };

/* One file to be packed, a view. */
typedef struct {
  const char *path;    /* relative, parts joined by '/' */
  const guint8 *oid;   /* the object's name; NULL for the files of a folder */
  gboolean executable; /* only for the files of a commit: a folder's file tells when it is opened */
} QvListingEntry;

/* What was seen and not packed. Protocol section 4 names the first five;
 * submodules are those of a commit (their files are in another repository);
 * ignored counts each ignored file or whole folder once. */
typedef struct {
  guint64 git, links, devices, sockets, fifos, submodules, ignored;
} QvLeftOut;

/* One that is neither file nor folder, by its S_IF… */
void qv_left_out_count(QvLeftOut *left_out, mode_t mode);

typedef struct {
  GPtrArray *paths;    /* sorted by qv_listing_sort; what else is known of a file lies in front of its path */
  GStringChunk *arena; /* holds all of it: a million files are little more than their names */
  QvLeftOut left_out;
  guint64 folders_n;
  guint64 max_entries; /* cap of entries, and of folders */
} QvListing;

QvListing *qv_listing_new(guint64 max_entries);
void qv_listing_free(QvListing *listing);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvListing, qv_listing_free)

/* Adds a file; the name is checked against section 4's rules for paths.
 * LIMIT: one file more than the cap, or a path that is too long. FORMAT: a name
 * that is not UTF-8, has control characters, or empty, `.` or `..` parts. Each names the path. */
gboolean qv_listing_add(QvListing *listing, const char *path, const guint8 *oid, gboolean executable,
                        GError **error);

guint qv_listing_n(const QvListing *listing);
QvListingEntry qv_listing_entry(const QvListing *listing, guint i);

/* Counts a folder: a tree object may name itself a billion times without holding one file. */
gboolean qv_listing_add_folder(QvListing *listing, const char *path, GError **error);

/* Sorts by memcmp of the whole path. FORMAT: a path that is there twice, or as
 * file and folder (only a commit's tree can be so wrong). */
gboolean qv_listing_sort(QvListing *listing, GError **error);
