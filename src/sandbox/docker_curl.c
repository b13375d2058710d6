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

static gboolean load(QvCurl *curl, GError **error)
{
  void *library = NULL;
  for (gsize i = 0; i < G_N_ELEMENTS(names) && library == NULL; i++)
    library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  for (gsize i = 0; i < G_N_ELEMENTS(calls) && library != NULL; i++) {
    gpointer call = dlsym(library, calls[i].name);
    if (call == NULL)
      library = NULL;
    G_STRUCT_MEMBER(gpointer, curl, calls[i].offset) = call;
  }
  if (library != NULL)
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "docker: libcurl cannot be loaded (%s); install it (apt-get install libcurl4)",
              dlerror());
  return FALSE;
}

const QvCurl *qv_curl_load(GError **error)
{
  static GMutex lock;
  static QvCurl curl;
  static gboolean loaded;
  g_autoptr(GMutexLocker) held G_GNUC_UNUSED = g_mutex_locker_new(&lock);
  if (!loaded && load(&curl, error)) {
    curl.global_init(CURL_GLOBAL_NOTHING);
    loaded = TRUE;
  }
  return loaded ? &curl : NULL;
}
