/* SPDX-License-Identifier: Apache-2.0 */
/* Owns health records and smoke requests: form, signature, age, and what makes
 * a runner healthy for a job. Source: section 8. */
#include "protocol/health.h"

#include <string.h>

#include "base/error.h"
#include "format/text.h"
#include "protocol/crypto.h"
#include "protocol/envelope.h"
#include "protocol/fields.h"
#include "protocol/images_lock.h"
#include "protocol/job_internal.h"

enum { TEXT_BYTES_MAX = 256, PROBLEMS_MAX = 32, PROBLEM_BYTES_MAX = 512, FAILED_MAX = 256, COUNT_MAX = 100000 };

/* One line of text that is safe to store; how to show it is the reader's matter. */
static gboolean line_valid(const char *text, gsize max)
{
  gsize n = strlen(text);
  for (gsize i = 0; i < n; i++)
    if ((guchar)text[i] < 0x20 || text[i] == 0x7f)
      return FALSE;
  return n >= 1 && n <= max && qv_text_is_utf8(text, n);
}

static gboolean text_valid(const char *text)
{
  return line_valid(text, TEXT_BYTES_MAX);
}

static gboolean problem_valid(const char *text)
{
  return line_valid(text, PROBLEM_BYTES_MAX);
}

QvHealth *qv_health_new(void)
{
  QvHealth *health = g_new0(QvHealth, 1);
  health->problems = g_new0(char *, 1);
  return health;
}

void qv_smoke_report_free(QvSmokeReport *smoke)
{
  if (smoke == NULL)
    return;
  g_strfreev(smoke->failed);
  g_free(smoke->request_id);
  g_free(smoke);
}

QvSmokeReport *qv_smoke_report_copy(const QvSmokeReport *smoke)
{
  QvSmokeReport *copy = g_memdup2(smoke, sizeof *smoke);
  copy->failed = g_strdupv(smoke->failed);
  copy->request_id = g_strdup(smoke->request_id);
  return copy;
}

void qv_health_free(QvHealth *health)
{
  if (health == NULL)
    return;
  g_free(health->runner_id);
  g_free(health->pool);
  g_free(health->version);
  g_free(health->backend);
  g_free(health->runtime_name);
  g_free(health->runtime_version);
  g_free(health->platform);
  for (gsize i = 0; i < health->images_n; i++)
    qv_image_ref_clear(&health->images[i]);
  g_free(health->images);
  g_free(health->host_id);
  g_free(health->kernel);
  g_free(health->cgroup);
  g_strfreev(health->problems);
  qv_smoke_report_free(health->smoke);
  g_free(health);
}

void qv_host_id_format(const char *boot_id, char hex[65])
{
  static const char domain[] = "quavon/host/v1\n";
  g_autoptr(QvDigest) digest = qv_digest_new_sha256();
  qv_digest_update(digest, domain, sizeof domain - 1);
  qv_digest_update(digest, boot_id, strlen(boot_id));
  qv_digest_final_hex(digest, hex);
}

/* ---- building ---- */

static json_t *build_smoke(const QvSmokeReport *smoke)
{
  if (smoke == NULL)
    return json_null();
  json_t *json = json_object();
  json_object_set_new(json, "at", json_integer(smoke->at));
  json_object_set_new(json, "passed", json_boolean(smoke->passed));
  json_object_set_new(json, "probes", json_integer(smoke->probes));
  json_object_set_new(json, "failed", qv_texts_build(smoke->failed));
  json_object_set_new(json, "requestId", qv_text_or_null(smoke->request_id));
  return json;
}

static json_t *build_health(const QvHealth *health)
{
  json_t *json = json_object();
  json_t *runtime = json_object();
  json_t *images = json_array();
  for (gsize i = 0; i < health->images_n; i++)
    json_array_append_new(images, qv_image_ref_build(&health->images[i]));
  json_object_set_new(runtime, "name", qv_text_or_null(health->runtime_name));
  json_object_set_new(runtime, "version", qv_text_or_null(health->runtime_version));
  json_object_set_new(json, "v", json_integer(1));
  json_object_set_new(json, "runnerId", qv_text_or_null(health->runner_id));
  json_object_set_new(json, "pool", qv_text_or_null(health->pool));
  json_object_set_new(json, "version", qv_text_or_null(health->version));
  json_object_set_new(json, "backend", qv_text_or_null(health->backend));
  json_object_set_new(json, "runtime", runtime);
  json_object_set_new(json, "platform", qv_text_or_null(health->platform));
  json_object_set_new(json, "images", images);
  json_object_set_new(json, "hostId", qv_text_or_null(health->host_id));
  json_object_set_new(json, "kernel", qv_text_or_null(health->kernel));
  json_object_set_new(json, "cgroup", qv_text_or_null(health->cgroup));
  json_object_set_new(json, "concurrency", json_integer(health->concurrency));
  json_object_set_new(json, "busy", json_integer(health->busy));
  json_object_set_new(json, "startedAt", json_integer(health->started_at));
  json_object_set_new(json, "at", json_integer(health->at));
  json_object_set_new(json, "problems", qv_texts_build(health->problems));
  json_object_set_new(json, "smoke", build_smoke(health->smoke));
  json_object_set_new(json, "insecure", json_boolean(health->insecure));
  return json;
}

/* ---- parsing ---- */

/* A text or null, into *OUT. */
static gboolean text_or_null(const json_t *json, const char *path, const char *name, QvTextRule rule, char **out,
                             GError **error)
{
  if (qv_field_is_null(json, name))
    return TRUE;
  *out = qv_field_text(json, path, name, rule, error);
  return *out != NULL;
}

static gboolean parse_smoke(const json_t *json, QvHealth *health, GError **error)
{
  static const QvJsonMember table[] = {
    { "at", QV_JSON_INTEGER },   { "passed", QV_JSON_BOOL },
    { "probes", QV_JSON_INTEGER }, { "failed", QV_JSON_ARRAY },
    { "requestId", QV_JSON_STRING | QV_JSON_NULL },
  };
  QvSmokeReport *smoke = health->smoke = g_new0(QvSmokeReport, 1);
  if (!qv_fields_shape(json, "smoke", table, G_N_ELEMENTS(table), error) ||
      !qv_field_integer(json, "smoke", "at", 0, QV_JSON_INTEGER_MAX, &smoke->at, error) ||
      !qv_field_integer(json, "smoke", "probes", 0, COUNT_MAX, &smoke->probes, error) ||
      (smoke->failed = qv_field_texts(json, "smoke", "failed", 0, FAILED_MAX, qv_identifier_valid, error)) == NULL ||
      !text_or_null(json, "smoke", "requestId", qv_identifier_valid, &smoke->request_id, error))
    return FALSE;
  smoke->passed = qv_field_bool(json, "passed");
  if (smoke->passed && (smoke->failed[0] != NULL || smoke->probes == 0))
    return qv_fields_fail(error, "smoke", "says passed with a failed probe, or with none at all");
  return TRUE;
}

static gboolean parse_images(const json_t *array, QvHealth *health, GError **error)
{
  gsize n = json_array_size(array);
  if (n > QV_IMAGES_MAX)
    return qv_fields_fail(error, "images", "has %zu entries, not up to %d", n, QV_IMAGES_MAX);
  health->images = g_new0(QvImageRef, n + 1);
  while (health->images_n < n) {
    g_autofree char *path = g_strdup_printf("images[%zu]", health->images_n);
    gsize i = health->images_n++;
    if (!qv_image_ref_parse(json_array_get(array, i), path, &health->images[i], error))
      return FALSE;
  }
  return TRUE;
}

static gboolean parse_names(const json_t *json, QvHealth *health, GError **error)
{
  static const QvJsonMember table[] = { { "name", QV_JSON_STRING }, { "version", QV_JSON_STRING | QV_JSON_NULL } };
  const json_t *runtime = json_object_get(json, "runtime");
  gint64 version = 0;
  return qv_field_integer(json, "", "v", 1, 1, &version, error) &&
         (health->runner_id = qv_field_text(json, "", "runnerId", qv_identifier_valid, error)) != NULL &&
         (health->pool = qv_field_text(json, "", "pool", qv_identifier_valid, error)) != NULL &&
         (health->version = qv_field_text(json, "", "version", text_valid, error)) != NULL &&
         (health->backend = qv_field_text(json, "", "backend", qv_backend_name_valid, error)) != NULL &&
         qv_fields_shape(runtime, "runtime", table, G_N_ELEMENTS(table), error) &&
         (health->runtime_name = qv_field_text(runtime, "runtime", "name", text_valid, error)) != NULL &&
         text_or_null(runtime, "runtime", "version", text_valid, &health->runtime_version, error) &&
         (health->platform = qv_field_text(json, "", "platform", qv_identifier_valid, error)) != NULL &&
         text_or_null(json, "", "hostId", qv_sha256_hex_valid, &health->host_id, error) &&
         (health->kernel = qv_field_text(json, "", "kernel", text_valid, error)) != NULL &&
         (health->cgroup = qv_field_text(json, "", "cgroup", text_valid, error)) != NULL;
}

static gboolean parse_health(const json_t *json, QvHealth *health, GError **error)
{
  static const QvJsonMember table[] = {
    { "v", QV_JSON_INTEGER },
    { "runnerId", QV_JSON_STRING },
    { "pool", QV_JSON_STRING },
    { "version", QV_JSON_STRING },
    { "backend", QV_JSON_STRING },
    { "runtime", QV_JSON_OBJECT },
    { "platform", QV_JSON_STRING },
    { "images", QV_JSON_ARRAY },
    { "hostId", QV_JSON_STRING | QV_JSON_NULL },
    { "kernel", QV_JSON_STRING },
    { "cgroup", QV_JSON_STRING },
    { "concurrency", QV_JSON_INTEGER },
    { "busy", QV_JSON_INTEGER },
    { "startedAt", QV_JSON_INTEGER },
    { "at", QV_JSON_INTEGER },
    { "problems", QV_JSON_ARRAY },
    { "smoke", QV_JSON_OBJECT | QV_JSON_NULL },
    { "insecure", QV_JSON_BOOL },
  };
  if (!qv_fields_shape(json, "", table, G_N_ELEMENTS(table), error) || !parse_names(json, health, error) ||
      !parse_images(json_object_get(json, "images"), health, error) ||
      !qv_field_integer(json, "", "concurrency", 1, COUNT_MAX, &health->concurrency, error) ||
      !qv_field_integer(json, "", "busy", 0, COUNT_MAX, &health->busy, error) ||
      !qv_field_integer(json, "", "startedAt", 0, QV_JSON_INTEGER_MAX, &health->started_at, error) ||
      !qv_field_integer(json, "", "at", 0, QV_JSON_INTEGER_MAX, &health->at, error))
    return FALSE;
  g_strfreev(health->problems);
  health->problems = qv_field_texts(json, "", "problems", 0, PROBLEMS_MAX, problem_valid, error);
  health->insecure = qv_field_bool(json, "insecure");
  if (health->problems == NULL)
    return FALSE;
  return qv_field_is_null(json, "smoke") || parse_smoke(json_object_get(json, "smoke"), health, error);
}

char *qv_health_sign(const QvHealth *health, const QvKey *key, gsize *n, GError **error)
{
  json_t *body = build_health(health);
  g_autoptr(QvHealth) again = qv_health_new();
  char *text = parse_health(body, again, error) ? qv_envelope_sign(QV_ENVELOPE_HEALTH, key, body, n, error) : NULL;
  json_decref(body);
  return text;
}

QvHealth *qv_health_verify(const char *text, gsize n, const QvKeyring *ring, const char *pool, const char *runner_id,
                           gint64 now_ms, gboolean *current, GError **error)
{
  json_t *body = NULL;
  g_autoptr(QvKey) key = NULL;
  g_autoptr(QvHealth) health = qv_health_new();
  if (qv_envelope_verify(QV_ENVELOPE_HEALTH, ring, text, n, &body, &key, error) != QV_ENVELOPE_OK)
    return NULL;
  gboolean good = parse_health(body, health, error) && qv_field_is(body, "", "pool", pool, error) &&
                  qv_field_is(body, "", "runnerId", runner_id, error);
  json_decref(body);
  if (!good)
    return NULL;
  gint64 age_ms = now_ms - health->at;
  if (age_ms < -QV_HEALTH_AHEAD_MS_MAX || age_ms > QV_HEALTH_AGE_MS_MAX) {
    qv_fields_fail(error, "at", "the record is %" G_GINT64_FORMAT " ms old", age_ms);
    return NULL;
  }
  if (current != NULL)
    *current = qv_keyring_is_current(ring, key);
  return g_steal_pointer(&health);
}

static gboolean offers(const QvHealth *health, const QvHealthWant *want)
{
  for (gsize i = 0; i < health->images_n; i++)
    if (strcmp(health->images[i].name, want->image_name) == 0 &&
        strcmp(health->images[i].digest, want->image_digest) == 0)
      return TRUE;
  return FALSE;
}

gboolean qv_health_fits(const QvHealth *health, const QvHealthWant *want, gint64 now_ms, GError **error)
{
  const QvSmokeReport *smoke = health->smoke;
  const char *fault = NULL;
  if (smoke == NULL)
    fault = "has run no smoke test";
  else if (!smoke->passed)
    fault = "did not pass its smoke test";
  else if (now_ms - smoke->at > QV_SMOKE_AGE_MS_MAX || smoke->at - now_ms > QV_HEALTH_AHEAD_MS_MAX)
    fault = "passed its smoke test too long ago";
  else if (!g_strv_contains((const char *const *)want->backends, health->backend))
    fault = "has another backend than the job allows";
  else if (health->insecure && !want->development)
    fault = "is insecure";
  else if (!offers(health, want))
    fault = "does not offer the image";
  if (fault != NULL)
    g_set_error(error, QV_ERROR, QV_ERROR_POLICY, "runner %s %s", health->runner_id, fault);
  return fault == NULL;
}

/* ---- smoke requests ---- */

char *qv_smoke_request_sign(const char *pool, const char *runner_id, const char *request_id, gint64 at_ms,
                            const QvKey *key, gsize *n, GError **error)
{
  json_t *body = json_object();
  json_object_set_new(body, "v", json_integer(1));
  json_object_set_new(body, "pool", qv_text_or_null(pool));
  json_object_set_new(body, "runnerId", qv_text_or_null(runner_id));
  json_object_set_new(body, "requestId", qv_text_or_null(request_id));
  json_object_set_new(body, "at", json_integer(at_ms));
  char *text = qv_envelope_sign(QV_ENVELOPE_SMOKE, key, body, n, error);
  json_decref(body);
  return text;
}

static char *read_request(const json_t *body, const char *pool, const char *runner_id, gint64 now_ms, GError **error)
{
  static const QvJsonMember table[] = {
    { "v", QV_JSON_INTEGER },         { "pool", QV_JSON_STRING }, { "runnerId", QV_JSON_STRING },
    { "requestId", QV_JSON_STRING }, { "at", QV_JSON_INTEGER },
  };
  gint64 version = 0;
  gint64 at = 0;
  if (!qv_fields_shape(body, "", table, G_N_ELEMENTS(table), error) ||
      !qv_field_integer(body, "", "v", 1, 1, &version, error) || !qv_field_is(body, "", "pool", pool, error) ||
      !qv_field_is(body, "", "runnerId", runner_id, error) ||
      !qv_field_integer(body, "", "at", 0, QV_JSON_INTEGER_MAX, &at, error))
    return NULL;
  if (at - now_ms > QV_HEALTH_AHEAD_MS_MAX || now_ms - at > QV_SMOKE_REQUEST_TTL_MS) {
    qv_fields_fail(error, "at", "the request is %" G_GINT64_FORMAT " ms old", now_ms - at);
    return NULL;
  }
  return qv_field_text(body, "", "requestId", qv_identifier_valid, error);
}

char *qv_smoke_request_verify(const char *text, gsize n, const QvKeyring *ring, const char *pool, const char *runner_id,
                              gint64 now_ms, GError **error)
{
  json_t *body = NULL;
  if (qv_envelope_verify(QV_ENVELOPE_SMOKE, ring, text, n, &body, NULL, error) != QV_ENVELOPE_OK)
    return NULL;
  char *request_id = read_request(body, pool, runner_id, now_ms, error);
  json_decref(body);
  return request_id;
}
