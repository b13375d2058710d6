/* SPDX-License-Identifier: Apache-2.0 */
/* The system calls that are left to the unpack process once its configuration
 * is read: reading, writing, memory and the end. Everything else kills it. */
#pragma once

#include <glib.h>

/* What is left to the process while it still sets itself up: no capability and no user of the host's (where it is root
 * now), no new process, no new file, at most QV_UNPACK_MEMORY_BYTES of address space (not under a sanitizer) and
 * QV_UNPACK_CPU_SECONDS of processor time. FALSE with QV_ERROR_SYSTEM. */
#define QV_UNPACK_MEMORY_BYTES ((gsize)512 * 1024 * 1024)
enum { QV_UNPACK_CPU_SECONDS = 600, QV_UNPACK_UID = 65534 };
gboolean qv_unpack_limits_enter(GError **error);

/* Needs no privilege (sets no_new_privs). There is no way back. */
gboolean qv_unpack_filter_enter(GError **error);
