/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the files of a folder: of a git work tree those that are tracked or not
 * ignored, of a plain folder all. Links are never followed. */
#pragma once

#include <glib.h>

#include "client/git.h"
#include "client/listing.h"

/* Fills `listing` from the folder open as root_fd, whose absolute path is `root`. With
 * `git` (its index loaded), `prefix` is the folder's path inside the work tree
 * ("" or "a/b"); a folder below with a usable `.git` of its own follows its own rules.
 * git NULL: everything. SYSTEM: a folder that cannot be read. */
gboolean qv_work_tree_list(int root_fd, const char *root, QvGit *git, const char *prefix, QvListing *listing,
                           GError **error);
