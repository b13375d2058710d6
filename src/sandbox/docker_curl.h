/* SPDX-License-Identifier: Apache-2.0 */
/* The way to libcurl: loaded when an engine is spoken to for the first time, not when the program starts. Two dozen
 * libraries hang on it, and every process of a runner that starts its sandboxes by itself would link them anew. */
#pragma once

#include <curl/curl.h>
#include <glib.h>

/* X(NAME): the calls that are used, curl_NAME each. */
#define QV_CURL_CALLS(X) \
  X(easy_cleanup) X(easy_getinfo) X(easy_init) X(easy_perform) X(easy_setopt) X(easy_strerror) X(global_init) \
  X(multi_add_handle) X(multi_cleanup) X(multi_info_read) X(multi_init) X(multi_perform) X(multi_poll) \
  X(multi_remove_handle) X(multi_setopt) X(multi_socket_action) X(slist_append) X(slist_free_all)

typedef struct {
#define X(name) __typeof__(&curl_##name) name;
  QV_CURL_CALLS(X)
#undef X
} QvCurl;

/* The same table each time; it stays. NULL: QV_ERROR_POLICY, with the remedy: to try again mends nothing. */
const QvCurl *qv_curl_load(GError **error);

/* From the first of these libraries that has all the calls: for it and for tests. CURL is untouched on failure. */
gboolean qv_curl_load_named(const char *const *list, gsize list_n, QvCurl *curl, GError **error);
