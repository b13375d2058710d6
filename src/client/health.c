/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the look at the pool's runners before a job is queued. */
#include "client/health.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/key_file.h"
#include "queue/stores.h"

void qv_runner_seen_free(gpointer data)
{
  QvRunnerSeen *seen = data;
  g_free(seen->runner_id);
  qv_health_free(seen->health);
  g_clear_error(&seen->error);
  g_free(seen);
}

GPtrArray *qv_runners_verify(guint n, const char *const *ids, GBytes *const *records, const QvKeyring *ring,
                             const char *pool, gint64 now_ms)
{
  GPtrArray *runners = g_ptr_array_new_with_free_func(qv_runner_seen_free);
  for (guint i = 0; i < n; i++) {
    QvRunnerSeen *seen = g_new0(QvRunnerSeen, 1);
    g_ptr_array_add(runners, seen);
    seen->runner_id = g_strdup(ids[i]);
    if (records[i] == NULL) {
      seen->error = g_error_new_literal(QV_ERROR, QV_ERROR_NOT_FOUND, "its health record has expired");
      continue;
    }
    gsize len = 0;
    const char *text = g_bytes_get_data(records[i], &len);
    seen->health = qv_health_verify(text, len, ring, pool, ids[i], now_ms, &seen->current, &seen->error);
  }
  return runners;
}

typedef struct {
  QvCall call;
  QuavonClient *client;
  gint64 now_ms;
  GPtrArray *runners;
} ListCall;

static void on_list(guint n, const char *const *ids, GBytes *const *records, const GError *error, gpointer user)
{
  ListCall *list = user;
  if (error == NULL)
    list->runners = qv_runners_verify(n, ids, records, list->client->ring, list->client->config->pool, list->now_ms);
  qv_call_finish(&list->call, error);
}

static GPtrArray *read_runners(QuavonClient *client, GError **error)
{
  ListCall list = { .client = client, .now_ms = qv_clock_unix_ms() };
  qv_health_list(client->conn, client->prefix, list.now_ms, QV_CALL_DEADLINE_MS, on_list, &list);
  if (!qv_session_wait(client, &list.call, error)) {
    g_prefix_error(error, "health records of pool %s: ", client->config->pool);
    return NULL;
  }
  return list.runners;
}

static gboolean is_auth(const QvRunnerSeen *seen)
{
  return seen->error != NULL && seen->error->code == QV_ERROR_AUTH;
}

GPtrArray *qv_session_runners(QuavonClient *client, GError **error)
{
  GPtrArray *runners = read_runners(client, error);
  gboolean unknown = FALSE;
  for (guint i = 0; runners != NULL && i < runners->len; i++)
    unknown = unknown || is_auth(runners->pdata[i]);
  /* A key of which we have not heard may have come since the files were read. */
  if (!unknown || !qv_session_reload_keys(client))
    return runners;
  g_ptr_array_unref(runners);
  return read_runners(client, error);
}

/* ── Choosing ── */

static gboolean offers(const QvHealth *health, const char *name, const char *digest)
{
  for (gsize i = 0; i < health->images_n; i++) {
    if (strcmp(health->images[i].name, name) == 0 && (digest == NULL || strcmp(health->images[i].digest, digest) == 0))
      return TRUE;
  }
  return FALSE;
}

static gboolean all_offer(const GPtrArray *runners, const char *name, const char *digest)
{
  for (guint i = 0; i < runners->len; i++) {
    const QvRunnerSeen *seen = runners->pdata[i];
    if (seen->health != NULL && !offers(seen->health, name, digest))
      return FALSE;
  }
  return TRUE;
}

/* A digest of the first runner (its current one comes first) that every live runner has. */
static const char *common_digest(const GPtrArray *runners, const QvRunnerWant *want)
{
  if (want->preferred != NULL && all_offer(runners, want->image, want->preferred))
    return want->preferred;
  for (guint i = 0; i < runners->len; i++) {
    const QvHealth *health = ((const QvRunnerSeen *)runners->pdata[i])->health;
    for (gsize k = 0; health != NULL && k < health->images_n; k++) {
      const QvImageRef *image = &health->images[k];
      if (strcmp(image->name, want->image) == 0 && all_offer(runners, want->image, image->digest))
        return image->digest;
    }
  }
  return NULL;
}

/* FALSE with what is wrong with this one. */
static gboolean fits(const QvRunnerSeen *seen, const QvRunnerWant *want, const char *digest, gint64 now_ms,
                     GError **error)
{
  if (seen->health == NULL) {
    g_propagate_error(error, g_error_copy(seen->error));
    return FALSE;
  }
  QvHealthWant need = { .backends = want->backends, .image_name = want->image, .image_digest = digest,
                        .development = want->development };
  return qv_health_fits(seen->health, &need, now_ms, error);
}

static void describe_runner(GString *text, const QvRunnerSeen *seen, const char *why)
{
  g_string_append_printf(text, "\n  runner %s: %s", seen->runner_id, why);
  const QvHealth *health = seen->health;
  if (health == NULL)
    return;
  for (char **name = health->smoke != NULL ? health->smoke->failed : NULL; name != NULL && *name != NULL; name++)
    g_string_append_printf(text, "%s%s", name == health->smoke->failed ? " (failed: " : ", ", *name);
  if (health->smoke != NULL && health->smoke->failed[0] != NULL)
    g_string_append_c(text, ')');
  for (char **problem = health->problems; *problem != NULL; problem++)
    g_string_append_printf(text, "; %s", *problem);
}

/* No digest is the same everywhere: what each has. */
static void describe_offer(GString *text, const QvRunnerSeen *seen, const char *name)
{
  if (seen->health == NULL)
    return;
  g_string_append_printf(text, "\n  runner %s offers", seen->runner_id);
  guint n = 0;
  for (gsize i = 0; i < seen->health->images_n; i++) {
    const QvImageRef *image = &seen->health->images[i];
    if (strcmp(image->name, name) == 0)
      g_string_append_printf(text, "%s %.19s…", n++ == 0 ? "" : ",", image->digest);
  }
  if (n == 0)
    g_string_append(text, " no such image");
}

char *qv_runners_choose(const GPtrArray *runners, const QvRunnerWant *want, gint64 now_ms, GError **error)
{
  const char *digest = want->digest != NULL ? want->digest : common_digest(runners, want);
  g_autoptr(GString) text = g_string_new(NULL);
  guint some = 0;
  for (guint i = 0; i < runners->len; i++) {
    const QvRunnerSeen *seen = runners->pdata[i];
    g_autoptr(GError) why = NULL;
    if (digest != NULL && fits(seen, want, digest, now_ms, &why))
      return g_strdup(digest);
    some += seen->health != NULL && offers(seen->health, want->image, NULL);
    if (digest != NULL)
      describe_runner(text, seen, why->message);
  }
  gboolean split = digest == NULL && some > 0;
  for (guint i = 0; digest == NULL && i < runners->len; i++) {
    const QvRunnerSeen *seen = runners->pdata[i];
    if (seen->health == NULL)
      describe_runner(text, seen, seen->error->message);
    else
      describe_offer(text, seen, want->image);
  }
  g_set_error(error, QV_ERROR, QV_ERROR_NOT_FOUND, "%s image %s in pool %s%s",
              split ? "no healthy sandbox runner: the runners have no common digest of"
                    : "no healthy sandbox runner offers",
              want->image, want->pool,
              runners->len == 0 ? ": none has reported in the last 90 s (is one running, with this Valkey and pool?)" : text->str);
  return NULL;
}
