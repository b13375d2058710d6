/* SPDX-License-Identifier: Apache-2.0 */
/* Pool keys and keyrings (section 1). Pure: the file's bytes and its
 * description come in as arguments. */
#pragma once

#include <glib.h>

#include "base/limits.h"
#include "base/secret.h"

/* Beside the file of the current key while it is being replaced: the one that comes, the one that was. Both verify;
 * a runner signs with the one that comes, a worker does not yet. */
#define QV_KEY_NEXT_SUFFIX ".next"
#define QV_KEY_PREVIOUS_SUFFIX ".previous"

/* One pool key; immutable, shared by reference (not between threads). */
typedef struct QvKey QvKey;

/* What the permission rule looks at: fstat's st_mode and st_gid. */
typedef struct {
  guint mode; /* st_mode, type bits included */
  guint gid;
} QvKeyFile;

/* The groups of the process that reads the file. */
typedef struct {
  guint egid;
  const guint *groups; /* supplementary */
  gsize groups_n;
} QvKeyReader;

/* The rule on the file: regular; nothing for others; not writable by the
 * group; readable by the group only where that is one of the reader's.
 * QV_ERROR_AUTH; the text says what to chmod. */
gboolean qv_key_file_check(const QvKeyFile *file, const QvKeyReader *reader, GError **error);

/* One base64 text of 32 to 64 bytes and at most one final LF: QV_ERROR_FORMAT; the text
 * of the error holds nothing of the content. */
QvKey *qv_key_parse(const char *text, gsize n, GError **error);

/* From decoded bytes (copied), 32 to 64 of them, which is the caller's duty. */
QvKey *qv_key_new(const void *bytes, gsize n);

/* The text of a key file, with its LF. A secret: wipe it. */
QvSecret *qv_key_format(const QvKey *key);

QvKey *qv_key_ref(QvKey *key);
void qv_key_unref(QvKey *key);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvKey, qv_key_unref)

/* 16 lower-case hex digits. */
const char *qv_key_id(const QvKey *key);
const QvSecret *qv_key_secret(const QvKey *key);

/* The current key of a pool and its previous ones. Immutable once it is
 * shared: a reload makes a new one. */
typedef struct QvKeyring QvKeyring;

QvKeyring *qv_keyring_new(QvKey *current);
/* The same key twice is harmless. */
void qv_keyring_add_previous(QvKeyring *ring, QvKey *previous);
QvKeyring *qv_keyring_ref(QvKeyring *ring);
void qv_keyring_unref(QvKeyring *ring);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvKeyring, qv_keyring_unref)

QvKey *qv_keyring_current(const QvKeyring *ring);
/* Borrowed; NULL where no key has that id. */
QvKey *qv_keyring_find(const QvKeyring *ring, const char *key_id);
/* A previous key verified it (a warning for doctor)? */
gboolean qv_keyring_is_current(const QvKeyring *ring, const QvKey *key);
