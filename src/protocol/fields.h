/* SPDX-License-Identifier: Apache-2.0 */
/* Typed reads of the members of a strict JSON object, with the member's path in
 * every error: for the files of this room. All errors are QV_ERROR_FORMAT. */
#pragma once

#include <glib.h>
#include <jansson.h>

#include "format/json.h"

/* A rule on a text without NUL. */
typedef gboolean (*QvTextRule)(const char *text);

/* Section 0: identifiers, jobId, 64 and 16 hex digits. */
gboolean qv_identifier_valid(const char *text);
gboolean qv_job_id_valid(const char *text);
gboolean qv_sha256_hex_valid(const char *text);
gboolean qv_key_id_valid(const char *text);
/* Relative, section 4's rules. */
gboolean qv_relative_path_valid(const char *text);
/* "name:port", lower-case, no address literal. */
gboolean qv_host_port_valid(const char *text);
/* Dotted decimal, no leading zeros. */
gboolean qv_ipv4_valid(const char *text);

/* Sets "PATH: TEXT" and returns FALSE. */
gboolean qv_fields_fail(GError **error, const char *path, const char *format, ...) G_GNUC_PRINTF(3, 4);

/* OBJECT has exactly the members of TABLE. PATH "" is the top. */
gboolean qv_fields_shape(const json_t *object, const char *path, const QvJsonMember *table, gsize table_n,
                         GError **error);

/* The readers below presume that the shape was checked: the member is there, with its type. */
gboolean qv_field_integer(const json_t *object, const char *path, const char *name, gint64 min, gint64 max, gint64 *out,
                          GError **error);
/* A copy. RULE may be NULL; a NUL inside is always refused. */
char *qv_field_text(const json_t *object, const char *path, const char *name, QvTextRule rule, GError **error);
/* Into a buffer of CAP bytes, the NUL included; RULE must bound the length. */
gboolean qv_field_text_into(const json_t *object, const char *path, const char *name, QvTextRule rule, char *out,
                            gsize cap, GError **error);
/* Is it exactly TEXT? */
gboolean qv_field_is(const json_t *object, const char *path, const char *name, const char *text, GError **error);
gboolean qv_field_bool(const json_t *object, const char *name);
gboolean qv_field_is_null(const json_t *object, const char *name);
/* Base64 of exactly N bytes. */
gboolean qv_field_bytes(const json_t *object, const char *path, const char *name, guint8 *out, gsize n, GError **error);
/* An array of MIN to MAX texts, as a NULL-terminated vector. */
char **qv_field_texts(const json_t *object, const char *path, const char *name, gsize min, gsize max, QvTextRule rule,
                      GError **error);

/* A NULL-terminated vector as a JSON array. */
json_t *qv_texts_build(char *const *texts);
/* A JSON string; null for NULL and for what is not UTF-8, so that a reader refuses it: nothing is ever
 * left out in silence. */
json_t *qv_text_or_null(const char *text);
