/* SPDX-License-Identifier: Apache-2.0 */
/* The one door to libgit2: what a repository tracks and ignores, and what a
 * commit's tree holds.
 *
 * The repository is hostile. Its configuration is never read (core.worktree,
 * include.path, filters, hooks and the like have no effect), no program is
 * started, no file is checked out, nothing is written. Used of it: index, refs,
 * objects, .gitignore files and info/exclude; each must be a regular file, so that
 * a FIFO in its place cannot hang us. The user's own excludes file counts as it does for git. */
#pragma once

#include <glib.h>

#include "client/listing.h"

typedef struct QvGit QvGit;

/* Opens the repository whose work tree is `top`, an absolute path of a folder with
 * a `.git`; a bare repository where `bare`. NOT_FOUND: there is none. FORMAT: it is damaged or of a
 * kind that libgit2 does not know. */
QvGit *qv_git_open(const char *top, gboolean bare, GError **error);
void qv_git_free(QvGit *git);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvGit, qv_git_free)

/* Reads the index: needed before the three questions below. */
gboolean qv_git_load_index(QvGit *git, GError **error);

/* Whether the index has the path, or something below the folder. Paths are relative to the top. */
gboolean qv_git_tracks(const QvGit *git, const char *path);
gboolean qv_git_tracks_below(const QvGit *git, const char *folder);

/* Whether the ignore rules leave the path out, tracked or not. */
gboolean qv_git_ignores(QvGit *git, const char *path, gboolean is_folder, gboolean *ignored, GError **error);

/* Lists the files of the tree that `rev` names, below `prefix` ("" for all).
 * NOT_FOUND: no such revision or folder. */
gboolean qv_git_list_tree(QvGit *git, const char *rev, const char *prefix, QvListing *listing, GError **error);

/* The bytes of one file of a commit; LIMIT when there are more than max_bytes (asked before it is read). */
GBytes *qv_git_read_blob(QvGit *git, const QvListingEntry *entry, guint64 max_bytes, GError **error);
