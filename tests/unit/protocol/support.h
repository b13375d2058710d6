/* SPDX-License-Identifier: Apache-2.0 */
/* What the protocol's tests share: vector files, hex, fixed keys. */
#pragma once

#include <glib.h>
#include <jansson.h>

#include "protocol/key.h"

/* A file below vectors/ of the source tree. Fails the test where it is missing. */
char *t_vector_text(const char *name, gsize *n);
/* The same of the shared vectors. Where their folder is missing as a whole, which a bare clone's
 * is, the test is skipped and this is NULL. */
json_t *t_shared_json(const char *name);

/* The rows of a TSV file, each a GStrv. */
GPtrArray *t_vector_rows(const char *name);

/* Bytes of a hex text; "-" and "" are none. */
GByteArray *t_hex(const char *hex);
char *t_to_hex(const void *bytes, gsize n);

/* A key of N times FILL. */
QvKey *t_key(guint8 fill);

/* Fails unless *ERROR is of CODE (of QV_ERROR) and its text has PART; frees it. */
void t_assert_error(GError **error, int code, const char *part);
