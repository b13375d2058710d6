/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the JSON texts between supervisor, job process and sweeper. */
#include "runner/setup.h"

#include <jansson.h>
#include <string.h>

#include "base/error.h"
#include "base/hex.h"
#include "base/limits.h"

static const char *const end_texts[] = {
#define X(name, text) text,
  QV_HOST_ENDS(X)
#undef X
};

const char *qv_host_end_text(QvHostEnd end)
{
  return (guint)end < G_N_ELEMENTS(end_texts) ? end_texts[end] : "?";
}

static char *dump(json_t *root, gsize *n)
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

static json_t *place_build(const QvPlace *place)
{
  return json_pack("{s:s,s:s,s:s,s:s}", "backend", place->backend, "stateDir", place->state_dir, "runnerId",
                   place->runner_id, "runsc", place->runsc);
}

static gboolean place_parse(json_t *json, QvPlace *place, json_error_t *why)
{
  const char *backend, *state_dir, *runner_id, *runsc;
  if (json_unpack_ex(json, why, 0, "{s:s,s:s,s:s,s:s !}", "backend", &backend, "stateDir", &state_dir, "runnerId",
                     &runner_id, "runsc", &runsc) != 0)
    return FALSE;
  *place = (QvPlace){g_strdup(backend), g_strdup(state_dir), g_strdup(runner_id), g_strdup(runsc)};
  return TRUE;
}

void qv_place_clear(QvPlace *place)
{
  g_free(place->backend);
  g_free(place->state_dir);
  g_free(place->runner_id);
  g_free(place->runsc);
  *place = (QvPlace){0};
}

char *qv_setup_format(const QvSetup *setup, gsize *n)
{
  json_t *limits = json_object();
#define X(field, name) json_object_set_new(limits, name, json_integer(setup->job->limits.field));
  QV_LIMITS_TABLE(X)
#undef X
  return dump(json_pack("{s:o,s:o,s:o,s:s}", "place", place_build(&setup->place), "job", qv_job_build(setup->job),
                        "limits", limits, "rootfsFile", setup->rootfs_file),
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
  json_t *place = NULL, *job = NULL, *limits = NULL;
  const char *rootfs_file = NULL;
  g_autoptr(QvSetup) setup = g_new0(QvSetup, 1);
  QvLimitsPolicy policy = {0};
  gboolean fine = root != NULL &&
                  json_unpack_ex(root, &why, 0, "{s:o,s:o,s:o,s:s !}", "place", &place, "job", &job, "limits", &limits,
                                 "rootfsFile", &rootfs_file) == 0 &&
                  place_parse(place, &setup->place, &why);
  if (!fine)
    bad("SETUP", &why, error);
  else if (!policy_of(limits, &policy)) {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "SETUP between processes: limits");
    fine = FALSE;
  } else {
    setup->rootfs_file = g_strdup(rootfs_file);
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
  g_free(setup->rootfs_file);
  g_free(setup);
}

char *qv_host_report_format(const QvHostReport *report, gsize *n)
{
  return dump(json_pack("{s:s,s:I,s:I,s:I,s:b,s:b,s:I,s:s}", "end", qv_host_end_text(report->end), "userMs",
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
  return dump(json_pack("{s:o,s:s?,s:s?}", "place", place_build(&order->place), "sandboxId", order->sandbox_id,
                        "checkRootfs", order->check_rootfs),
              NULL);
}

gboolean qv_sweep_order_parse(const char *text, QvSweepOrder *order, GError **error)
{
  json_error_t why = {0};
  json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &why), *place = NULL, *sandbox_id = NULL, *check_rootfs = NULL;
  gboolean fine = root != NULL &&
                  json_unpack_ex(root, &why, 0, "{s:o,s:o,s:o !}", "place", &place, "sandboxId", &sandbox_id,
                                 "checkRootfs", &check_rootfs) == 0 &&
                  place_parse(place, &order->place, &why);
  if (fine) {
    order->sandbox_id = g_strdup(json_string_value(sandbox_id));
    order->check_rootfs = g_strdup(json_string_value(check_rootfs));
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
  g_free(order->check_rootfs);
  *order = (QvSweepOrder){0};
}
