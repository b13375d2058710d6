/* SPDX-License-Identifier: Apache-2.0 */
/* The reasons of this room as GError, for those who use GLib: caps and
 * memory are QV_ERROR_LIMIT, all else QV_ERROR_FORMAT. WHAT names the thing ("job data"). All return FALSE. */
#pragma once

#include <glib.h>

#include "base/error.h"
#include "format/inflate.h"
#include "format/json.h"
#include "format/tar.h"

gboolean qv_json_set_error(GError **error, const QvJsonError *why, const char *what);
/* PATH may be NULL; it is made printable. */
gboolean qv_tar_set_error(GError **error, QvTarReason why, const char *what, const char *path);
gboolean qv_gzip_set_error(GError **error, QvGzipReason why, const char *what);

/* qv_json_parse with its error set. */
json_t *qv_json_load(const void *text, gsize n, gsize max_bytes, QvJsonKind kind, const char *what, GError **error);
