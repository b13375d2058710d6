/* SPDX-License-Identifier: Apache-2.0 */
/* Pool keys on disk (protocol section 1). */
#pragma once

#include <glib.h>

#include "protocol/key.h"

/* Reads a key file under the rule on its permissions. NOT_FOUND, AUTH (with the chmod that is
 * needed), FORMAT; each names the path. */
QvKey *qv_key_file_read(const char *path, GError **error);

/* The current key and the previous ones; NULL-terminated list, or NULL. Where CURRENT has neighbours CURRENT.next and
 * CURRENT.previous (a rotation is under way: quavon-keys(1)), they verify as well. */
QvKeyring *qv_key_files_read(const char *current, const char *const *previous, GError **error);

/* What these files are at this moment (devices, inodes, sizes, times), to be compared. Free with g_free. */
char *qv_key_files_stamp(const char *current, const char *const *previous);

/* The steps of a rotation (quavon-keys(1)), each for the holder of the files; those of workers and runners are the same files or
 * copies of them.
 *   prepare: makes CURRENT.next, or says that it is there (*MADE FALSE)
 *   switch:  CURRENT becomes CURRENT.previous, CURRENT.next becomes CURRENT; at no moment is there no CURRENT
 *   finish:  CURRENT.previous is gone */
QvKey *qv_key_rotate_prepare(const char *current, gboolean *made, GError **error);
gboolean qv_key_rotate_switch(const char *current, GError **error);
gboolean qv_key_rotate_finish(const char *current, GError **error);
/* When the switch was made, Unix ms; -1: there is no CURRENT.previous. */
gint64 qv_key_rotate_switched_at(const char *current);

/* Makes a key of 32 random bytes in a new file of mode 0600; a file that exists is left alone (SYSTEM). */
QvKey *qv_key_file_create(const char *path, GError **error);
