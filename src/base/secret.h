/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that must not leak: in pages of their own that are locked into memory
 * (as far as RLIMIT_MEMLOCK allows), left out of core dumps, absent in a
 * forked child, and wiped before they are given back. */
#pragma once

#include <glib.h>

typedef struct QvSecret QvSecret;

/* N bytes (1 to 1 MiB), zero, or a copy of BYTES. Never NULL: no memory ends the process. */
QvSecret *qv_secret_new(gsize n);
QvSecret *qv_secret_new_copy(const void *bytes, gsize n);
/* Copies and wipes the source. */
QvSecret *qv_secret_new_take(void *bytes, gsize n);
QvSecret *qv_secret_dup(const QvSecret *secret);
void qv_secret_free(QvSecret *secret);

const guint8 *qv_secret_bytes(const QvSecret *secret);
guint8 *qv_secret_bytes_mut(QvSecret *secret);
gsize qv_secret_len(const QvSecret *secret);

/* Same length and same bytes, in a time that depends on the lengths alone. */
gboolean qv_secret_equal(const QvSecret *a, const QvSecret *b);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvSecret, qv_secret_free)
