/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the request line. Source: section 5. */
#include "protocol/entry_request.h"

#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/error.h"
#include "protocol/fields.h"

static json_t *build_size(const QvBlobDescriptor *blob)
{
  json_t *json = json_object();
  json_object_set_new(json, "size", json_integer(blob->size));
  return json;
}

static json_t *build_proxy(const QvEntryProxy *proxy)
{
  json_t *json = json_object();
  json_object_set_new(json, "token", qv_text_or_null(proxy->token));
  json_object_set_new(json, "address", qv_text_or_null(proxy->address));
  json_object_set_new(json, "socket", qv_text_or_null(proxy->socket));
  json_object_set_new(json, "caPem", qv_text_or_null(proxy->ca_pem));
  return json;
}

static json_t *build_request(const QvJob *job, const guint8 *stream_key, const QvEntryProxy *proxy, gboolean live)
{
  char key_text[QV_BASE64_LEN(QV_STREAM_KEY_BYTES) + 1];
  json_t *json = json_object();
  json_t *run = json_array();
  json_t *limits = json_object();
  for (gsize i = 0; i < job->run_n; i++)
    json_array_append_new(run, qv_step_build(&job->run[i]));
#define WRITE(field, name) json_object_set_new(limits, name, json_integer(job->limits.field));
  QV_LIMITS_TABLE(WRITE)
#undef WRITE
  qv_base64_encode(stream_key, QV_STREAM_KEY_BYTES, key_text);
  json_object_set_new(json, "v", json_integer(1));
  json_object_set_new(json, "streamKey", json_string(key_text));
  json_object_set_new(json, "base", build_size(&job->base));
  json_object_set_new(json, "overlay", job->overlay != NULL ? build_size(job->overlay) : json_null());
  json_object_set_new(json, "deletes", qv_texts_build(job->deletes));
  json_object_set_new(json, "setup", job->setup != NULL ? qv_step_build(job->setup) : json_null());
  json_object_set_new(json, "proxy", proxy != NULL ? build_proxy(proxy) : json_null());
  json_object_set_new(json, "run", run);
  json_object_set_new(json, "artefacts", qv_texts_build(job->artefacts));
  json_object_set_new(json, "limits", limits);
  if (live)
    json_object_set_new(json, "live", json_true());
  explicit_bzero(key_text, sizeof key_text);
  return json;
}

QvSecret *qv_entry_request_format(const QvJob *job, const guint8 stream_key[QV_STREAM_KEY_BYTES],
                                  const QvEntryProxy *proxy, gboolean live, GError **error)
{
  json_t *json = build_request(job, stream_key, proxy, live);
  char *text = json_dumps(json, JSON_COMPACT);
  json_decref(json);
  gsize n = strlen(text);
  if (n + 1 > QV_REQUEST_LINE_BYTES_MAX) {
    g_set_error(error, QV_ERROR, QV_ERROR_LIMIT, "the request line has %zu bytes, its cap is %d", n + 1,
                QV_REQUEST_LINE_BYTES_MAX);
    explicit_bzero(text, n);
    free(text);
    return NULL;
  }
  /* The terminating NUL's place takes the line feed. */
  text[n] = '\n';
  QvSecret *line = qv_secret_new_take(text, n + 1);
  free(text);
  return line;
}
