/* SPDX-License-Identifier: Apache-2.0 */
/* What the protocol's tests share: vector files, hex, fixed keys. */
#pragma once

#include <glib.h>
#include <jansson.h>

#include "protocol/job.h"
#include "protocol/key.h"

#define T_NOW G_GINT64_CONSTANT(1700000000000)
#define T_JOB_ID "00000000-0000-4000-8000-000000000001"
#define T_HEX64 "abababababababababababababababababababababababababababababababab"
#define T_DIGEST "sha256:" T_HEX64

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

/* A valid body with every member in use: two run steps, setup, overlay, limits. */
json_t *t_job_body(void);
/* The same, parsed with the contract's limits and 4 cores. */
QvJob *t_job(void);
void t_policy(QvLimitsPolicy *policy);

/* Edits a member by its path ("run[0].argv"): VALUE (stolen) in its place, or
 * none where it is NULL. Fails the test where the path leads nowhere. */
void t_edit(json_t *root, const char *path, json_t *value);
/* From JSON text, ' for ". */
json_t *t_json(const char *text);
/* An array of N times VALUE (stolen). */
json_t *t_repeat(gsize n, json_t *value);
/* A text of N times C. */
json_t *t_text(gsize n, char c);
