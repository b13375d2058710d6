/* SPDX-License-Identifier: Apache-2.0 */
/* The system calls that are left to the unpack process once its configuration
 * is read: reading, writing, memory and the end. Everything else kills it. */
#pragma once

#include <glib.h>

/* Needs no privilege (sets no_new_privs). There is no way back. */
gboolean qv_unpack_filter_enter(GError **error);
