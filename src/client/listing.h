/* SPDX-License-Identifier: Apache-2.0 */
/* The list of files that a snapshot holds, and what was left out of it. Where
 * the files come from (a folder, a commit) is the business of work_tree and git. */
#pragma once

#include <glib.h>

/* One file to be packed. */
typedef struct {
  char *path;          /* relative, parts joined by '/' */
  guint8 oid[20];      /* the object's name; only for the files of a commit */
  gboolean executable; /* only for the files of a commit: a folder's file tells when it is opened */
} QvListingEntry;

/* What was seen and not packed. Protocol section 4 names the first five;
 * submodules are those of a commit (their files are in another repository);
 * ignored counts each ignored file or whole folder once. */
typedef struct {
  guint64 git, links, devices, sockets, fifos, submodules, ignored;
} QvLeftOut;

typedef struct {
  GPtrArray *entries; /* of QvListingEntry, sorted by qv_listing_sort */
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

/* Counts a folder: a tree object may name itself a billion times without holding one file. */
gboolean qv_listing_add_folder(QvListing *listing, const char *path, GError **error);

/* Sorts by memcmp of the whole path. FORMAT: a path that is there twice, or as
 * file and folder (only a commit's tree can be so wrong). */
gboolean qv_listing_sort(QvListing *listing, GError **error);
