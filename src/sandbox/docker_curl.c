/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the loading of libcurl. What was loaded is never unloaded. */
#include "sandbox/docker_curl.h"

#include <dlfcn.h>

#include "base/error.h"

/* One interface, built with one TLS library or another. */
static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

static const struct {
  const char *name;
  gsize offset;
} calls[] = {
#define X(name) {"curl_" #name, G_STRUCT_OFFSET(QvCurl, name)},
  QV_CURL_CALLS(X)
#undef X
};

/* All of it, or *WHY. */
static gboolean load_one(const char *name, QvCurl *curl, GString *why)
{
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  for (gsize i = 0; i < G_N_ELEMENTS(calls) && library != NULL; i++) {
    gpointer call = dlsym(library, calls[i].name);
    if (call == NULL)
      library = NULL;
    G_STRUCT_MEMBER(gpointer, curl, calls[i].offset) = call;
  }
  if (library == NULL)
    g_string_append_printf(why, "%s%s", why->len > 0 ? "; " : "", dlerror());
  return library != NULL;
}

gboolean qv_curl_load_named(const char *const *list, gsize list_n, QvCurl *curl, GError **error)
{
  QvCurl one;
  g_autoptr(GString) why = g_string_new(NULL);
  for (gsize i = 0; i < list_n; i++) {
    if (load_one(list[i], &one, why)) {
      *curl = one;
      return TRUE;
    }
  }
  g_set_error(error, QV_ERROR, QV_ERROR_POLICY, "docker: libcurl cannot be loaded (%s); install it (apt-get install libcurl4)",
              why->str);
  return FALSE;
}

const QvCurl *qv_curl_load(GError **error)
{
  static GMutex lock;
  static QvCurl curl;
  static gboolean loaded;
  g_autoptr(GMutexLocker) held G_GNUC_UNUSED = g_mutex_locker_new(&lock);
  if (!loaded && qv_curl_load_named(names, G_N_ELEMENTS(names), &curl, error)) {
    curl.global_init(CURL_GLOBAL_NOTHING);
    loaded = TRUE;
  }
  return loaded ? &curl : NULL;
}
