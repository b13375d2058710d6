/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the JSON texts between supervisor, job process and sweeper. */
#include "runner/setup.h"

#include <jansson.h>
#include <string.h>

#include "base/error.h"
#include "base/hex.h"
#include "base/limits.h"
#include "runner/setup_private.h"

static const char *const end_texts[] = {
#define X(name, text) text,
  QV_HOST_ENDS(X)
#undef X
};

const char *qv_host_end_text(QvHostEnd end)
{
  return (guint)end < G_N_ELEMENTS(end_texts) ? end_texts[end] : "?";
}

char *qv_setup_dump(json_t *root, gsize *n)
{
  char *dumped = json_dumps(root, JSON_COMPACT);
  g_assert(dumped != NULL);
  char *text = g_strdup(dumped);
  free(dumped);
  json_decref(root);
  if (n != NULL)
    *n = strlen(text);
  return text;
}

static gboolean bad(const char *what, const json_error_t *why, GError **error)
{
  g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "%s between processes: %s", what, why->text);
  return FALSE;
}

json_t *qv_setup_place_build(const QvPlace *place)
{
  json_t *json = json_pack("{s:i}", "engineMin", (int)place->engine_min);
#define X(field, name) json_object_set_new(json, name, place->field != NULL ? json_string(place->field) : json_null());
  QV_PLACE_TEXTS(X)
#undef X
  return json;
}

gboolean qv_setup_place_parse(json_t *json, QvPlace *place, json_error_t *why)
{
  json_int_t engine_min = 0;
  gsize members = 1;
  if (json_unpack_ex(json, why, 0, "{s:I}", "engineMin", &engine_min) != 0)
    return FALSE;
#define X(field, name) \
  members++; \
  if (json_unpack_ex(json, why, 0, "{s:o}", name, &(json_t *){NULL}) != 0) \
    return FALSE;
  QV_PLACE_TEXTS(X)
#undef X
  const char *backend = json_string_value(json_object_get(json, "backend"));
  const char *state_dir = json_string_value(json_object_get(json, "stateDir"));
  const char *runner_id = json_string_value(json_object_get(json, "runnerId"));
  if (json_object_size(json) != members || engine_min < 0 || engine_min > G_MAXINT || backend == NULL ||
      state_dir == NULL || runner_id == NULL) {
    g_strlcpy(why->text, "a place that is none", sizeof why->text);
    return FALSE;
  }
#define X(field, name) place->field = g_strdup(json_string_value(json_object_get(json, name)));
  QV_PLACE_TEXTS(X)
#undef X
  place->engine_min = (guint)engine_min;
  return TRUE;
}

void qv_place_clear(QvPlace *place)
{
#define X(field, name) g_free(place->field);
  QV_PLACE_TEXTS(X)
#undef X
  *place = (QvPlace){0};
}

static QvBackendOptions options_of(const QvPlace *place)
{
  return (QvBackendOptions){.state_dir = place->state_dir,
                            .runner_id = place->runner_id,
                            .runsc = place->runsc,
                            .pool = place->pool,
                            .docker_socket = place->docker_socket,
                            .engine_min = place->engine_min,
                            .runtime = place->runtime,
                            .runtime_offline = place->runtime_offline,
                            .egress_network = place->egress_network,
                            .docker_allow = place->docker_allow,
                            .engine = place->engine};
}

QvBackend *qv_place_open(const QvPlace *place, GError **error)
{
  QvBackendOptions options = options_of(place);
  return qv_backend_open(place->backend, &options, error);
}

void qv_place_tidy(const QvPlace *place)
{
  QvBackendOptions options = options_of(place);
  qv_backend_tidy(place->backend, &options);
}

void qv_trial_images_clear(QvTrialImages *images)
{
  g_free(images->rootfs_file);
  g_strfreev(images->digests);
  *images = (QvTrialImages){0};
}

char *qv_setup_format(const QvSetup *setup, gsize *n)
{
  json_t *limits = json_object();
#define X(field, name) json_object_set_new(limits, name, json_integer(setup->job->limits.field));
  QV_LIMITS_TABLE(X)
#undef X
  return qv_setup_dump(json_pack("{s:o,s:o,s:o,s:s,s:s?,s:s?,s:s?,s:s?,s:b}", "place", qv_setup_place_build(&setup->place), "job",
                        qv_job_build(setup->job), "limits", limits, "sandboxId", setup->sandbox_id, "rootfsFile",
                        setup->rootfs_file, "imageDigest", setup->image_digest, "egressProxy", setup->egress_proxy,
                        "caPem", setup->ca_pem, "live", setup->live),
              n);
}

/* The effective limits are the defaults of this job: what it names itself is among them. */
static gboolean policy_of(json_t *limits, QvLimitsPolicy *policy)
{
  gboolean fine = TRUE;
#define X(field, name) \
  policy->defaults.field = policy->ceilings.field = json_integer_value(json_object_get(limits, name)); \
  fine = fine && policy->defaults.field > 0;
  QV_LIMITS_TABLE(X)
#undef X
  policy->max_blob_bytes = G_MAXINT64 / 2;
  return fine;
}

QvSetup *qv_setup_parse(const char *text, gsize n, GError **error)
{
  json_error_t why = {0};
  json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
  json_t *place = NULL, *job = NULL, *limits = NULL, *rootfs_file = NULL, *image_digest = NULL, *egress_proxy = NULL;
  json_t *ca_pem = NULL;
  const char *sandbox_id = NULL;
  int live = 0;
  g_autoptr(QvSetup) setup = g_new0(QvSetup, 1);
  QvLimitsPolicy policy = {0};
  gboolean fine = root != NULL &&
                  json_unpack_ex(root, &why, 0, "{s:o,s:o,s:o,s:s,s:o,s:o,s:o,s:o,s:b !}", "place", &place, "job", &job,
                                 "limits", &limits, "sandboxId", &sandbox_id, "rootfsFile", &rootfs_file, "imageDigest",
                                 &image_digest, "egressProxy", &egress_proxy, "caPem", &ca_pem, "live", &live) == 0 &&
                  qv_setup_place_parse(place, &setup->place, &why);
  if (!fine)
    bad("SETUP", &why, error);
  else if (!policy_of(limits, &policy)) {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "SETUP between processes: limits");
    fine = FALSE;
  } else {
    setup->sandbox_id = g_strdup(sandbox_id);
    setup->rootfs_file = g_strdup(json_string_value(rootfs_file));
    setup->image_digest = g_strdup(json_string_value(image_digest));
    setup->egress_proxy = g_strdup(json_string_value(egress_proxy));
    setup->ca_pem = g_strdup(json_string_value(ca_pem));
    setup->live = live;
    setup->job = qv_job_parse(job, &policy, error);
    fine = setup->job != NULL;
  }
  json_decref(root);
  return fine ? g_steal_pointer(&setup) : NULL;
}

void qv_setup_free(QvSetup *setup)
{
  if (setup == NULL)
    return;
  qv_place_clear(&setup->place);
  qv_job_free(setup->job);
  g_free(setup->sandbox_id);
  g_free(setup->rootfs_file);
  g_free(setup->image_digest);
  g_free(setup->egress_proxy);
  g_free(setup->ca_pem);
  g_free(setup);
}

char *qv_host_report_format(const QvHostReport *report, gsize *n)
{
  return qv_setup_dump(json_pack("{s:s,s:I,s:I,s:I,s:b,s:b,s:I,s:s}", "end", qv_host_end_text(report->end), "userMs",
                        (json_int_t)report->user_ms, "sysMs", (json_int_t)report->sys_ms, "maxMemoryBytes",
                        (json_int_t)report->max_memory_bytes, "oom", report->oom, "pids", report->pids,
                        "payloadBytes", (json_int_t)report->payload_bytes, "payloadSha256", report->payload_sha256),
              n);
}

gboolean qv_host_report_parse(const char *text, gsize n, QvHostReport *report, GError **error)
{
  json_error_t why = {0};
  json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
  const char *end = NULL, *sha256 = NULL;
  json_int_t user_ms, sys_ms, memory, payload;
  int oom, pids;
  gboolean fine = root != NULL &&
                  json_unpack_ex(root, &why, 0, "{s:s,s:I,s:I,s:I,s:b,s:b,s:I,s:s !}", "end", &end, "userMs", &user_ms,
                                 "sysMs", &sys_ms, "maxMemoryBytes", &memory, "oom", &oom, "pids", &pids,
                                 "payloadBytes", &payload, "payloadSha256", &sha256) == 0;
  gsize which = 0;
  while (fine && which < G_N_ELEMENTS(end_texts) && strcmp(end, end_texts[which]) != 0)
    which++;
  if (!fine)
    bad("HOST", &why, error);
  else if (which == G_N_ELEMENTS(end_texts) || user_ms < 0 || sys_ms < 0 || memory < 0 || payload < 0 || payload > QV_PAYLOAD_BYTES_MAX ||
           (payload > 0 && (strlen(sha256) != 64 || !qv_hex_valid(sha256, 64)))) {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "HOST between processes: a value is out of range");
    fine = FALSE;
  } else {
    *report = (QvHostReport){.end = which,
                             .user_ms = user_ms,
                             .sys_ms = sys_ms,
                             .max_memory_bytes = memory,
                             .oom = oom,
                             .pids = pids,
                             .payload_bytes = payload};
    g_strlcpy(report->payload_sha256, sha256, sizeof report->payload_sha256);
  }
  json_decref(root);
  return fine;
}

char *qv_sweep_order_format(const QvSweepOrder *order)
{
  json_t *digests = json_array();
  for (char **digest = order->trial.digests; digest != NULL && *digest != NULL; digest++)
    json_array_append_new(digests, json_string(*digest));
  return qv_setup_dump(json_pack("{s:o,s:s?,s:s?,s:o}", "place", qv_setup_place_build(&order->place), "sandboxId", order->sandbox_id,
                        "rootfsFile", order->trial.rootfs_file, "digests", digests),
              NULL);
}

gboolean qv_sweep_order_parse(const char *text, QvSweepOrder *order, GError **error)
{
  json_error_t why = {0};
  json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &why), *place = NULL, *sandbox_id = NULL;
  json_t *rootfs_file = NULL, *digests = NULL;
  gboolean fine = root != NULL &&
                  json_unpack_ex(root, &why, 0, "{s:o,s:o,s:o,s:o !}", "place", &place, "sandboxId", &sandbox_id,
                                 "rootfsFile", &rootfs_file, "digests", &digests) == 0 &&
                  qv_setup_place_parse(place, &order->place, &why);
  if (fine) {
    order->sandbox_id = g_strdup(json_string_value(sandbox_id));
    order->trial.rootfs_file = g_strdup(json_string_value(rootfs_file));
    order->trial.digests = g_new0(char *, json_array_size(digests) + 1);
    for (gsize i = 0; i < json_array_size(digests); i++)
      order->trial.digests[i] = g_strdup(json_string_value(json_array_get(digests, i)));
  } else {
    bad("sweep order", &why, error);
  }
  json_decref(root);
  return fine;
}

void qv_sweep_order_clear(QvSweepOrder *order)
{
  qv_place_clear(&order->place);
  g_free(order->sandbox_id);
  qv_trial_images_clear(&order->trial);
  *order = (QvSweepOrder){0};
}

QvBackendFacts *qv_backend_facts_copy(const QvBackendFacts *facts)
{
  QvBackendFacts *copy = g_new0(QvBackendFacts, 1);
  copy->runtime_version = g_strdup(facts->runtime_version);
  copy->platform = g_strdup(facts->platform);
  copy->cgroup = g_strdup(facts->cgroup);
  return copy;
}

void qv_backend_facts_free(QvBackendFacts *facts)
{
  if (facts == NULL)
    return;
  g_free(facts->runtime_version);
  g_free(facts->platform);
  g_free(facts->cgroup);
  g_free(facts);
}

char *qv_sweep_word_format(const QvSweepWord *word, gsize *n)
{
  const QvBackendFacts *facts = word->facts;
  json_t *tried = facts != NULL ? json_pack("{s:s,s:s,s:s}", "runtimeVersion", facts->runtime_version, "platform", facts->platform,
                                            "cgroup", facts->cgroup)
                                : json_null();
  g_autofree char *error = word->error != NULL ? g_utf8_make_valid(word->error, strnlen(word->error, QV_SWEEP_ERROR_BYTES_MAX)) : NULL;
  return qv_setup_dump(json_pack("{s:s?,s:o,s:s?,s:s?}", "engine", word->engine, "facts", tried, "event", word->event, "error",
                                 error),
                       n);
}

QvSweepWord *qv_sweep_word_parse(const char *text, gsize n, GError **error)
{
  json_error_t why = {0};
  json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why), *engine = NULL, *tried = NULL, *event = NULL,
         *failure = NULL;
  g_autoptr(QvSweepWord) word = g_new0(QvSweepWord, 1);
  const char *version, *platform, *cgroup;
  gboolean fine = root != NULL && json_unpack_ex(root, &why, 0, "{s:o,s:o,s:o,s:o !}", "engine", &engine, "facts", &tried,
                                                 "event", &event, "error", &failure) == 0;
  if (fine && !json_is_null(tried)) {
    fine = json_unpack_ex(tried, &why, 0, "{s:s,s:s,s:s !}", "runtimeVersion", &version, "platform", &platform, "cgroup", &cgroup) == 0;
    if (fine)
      word->facts = qv_backend_facts_copy(&(QvBackendFacts){(char *)version, (char *)platform, (char *)cgroup});
  }
  if (fine) {
    word->engine = g_strdup(json_string_value(engine));
    word->event = g_strdup(json_string_value(event));
    word->error = g_strdup(json_string_value(failure));
  } else {
    bad("a sweeper's word", &why, error);
  }
  json_decref(root);
  return fine ? g_steal_pointer(&word) : NULL;
}

void qv_sweep_word_free(QvSweepWord *word)
{
  if (word == NULL)
    return;
  g_free(word->engine);
  g_free(word->event);
  g_free(word->error);
  qv_backend_facts_free(word->facts);
  g_free(word);
}
