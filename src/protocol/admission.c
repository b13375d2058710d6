/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the order of the runner's checks (section 2.1) and the codes that a
 * rejected job gets. Two tables of pure functions; the first that fails decides. */
#include "protocol/admission.h"

#include <string.h>

#include "protocol/envelope.h"

const char *qv_reject_code(QvReject reject)
{
  static const char *const codes[] = {
    [QV_REJECT_NONE] = "none",
#define CODE(name, code) [QV_REJECT_##name] = code,
    QV_REJECT_TABLE(CODE)
#undef CODE
  };
  return codes[reject];
}

const char *qv_reject_failed_reason(QvReject reject)
{
  static const char *const reasons[] = {
    [QV_REJECT_NONE] = NULL,
#define REASON(name, code) [QV_REJECT_##name] = "rejected: " code,
    QV_REJECT_TABLE(REASON)
#undef REASON
  };
  return reject == QV_REJECT_STALLED ? "stalled" : reasons[reject];
}

void qv_admission_clear(QvAdmission *admission)
{
  qv_job_free(admission->job);
  qv_key_unref(admission->key);
  g_free(admission->detail);
  memset(admission, 0, sizeof *admission);
}

/* One run of the checks 1 to 5. */
typedef struct {
  const QvAdmissionFields *fields;
  const QvAdmissionPolicy *policy;
  gint64 now_ms;
  json_t *body;
  QvAdmission *out;
} Run;

static QvReject because(Run *run, QvReject reject, char *detail)
{
  g_free(run->out->detail);
  run->out->detail = detail;
  return reject;
}

static QvReject because_error(Run *run, QvReject reject, GError *error)
{
  because(run, reject, g_strdup(error->message));
  g_error_free(error);
  return reject;
}

static QvReject check_stalled(Run *run)
{
  return run->fields->has_defa ? because(run, QV_REJECT_STALLED, g_strdup("an earlier runner lost it")) : QV_REJECT_NONE;
}

static QvReject check_unsupported(Run *run)
{
  return run->fields->has_unsupported
             ? because(run, QV_REJECT_UNSUPPORTED, g_strdup("one of rjk, parent, parentKey, deid is set"))
             : QV_REJECT_NONE;
}

static QvReject check_envelope(Run *run)
{
  static const QvReject rejects[] = {
    [QV_ENVELOPE_OK] = QV_REJECT_NONE,
    [QV_ENVELOPE_MALFORMED] = QV_REJECT_MALFORMED,
    [QV_ENVELOPE_UNKNOWN_KEY] = QV_REJECT_UNKNOWN_KEY,
    [QV_ENVELOPE_BAD_SIGNATURE] = QV_REJECT_BAD_SIGNATURE,
  };
  GError *error = NULL;
  if (run->fields->data == NULL)
    return because(run, QV_REJECT_MALFORMED, g_strdup("no job data, or too much of it"));
  QvEnvelopeVerdict verdict = qv_envelope_verify(QV_ENVELOPE_JOB, run->policy->ring, run->fields->data,
                                                 run->fields->data_n, &run->body, &run->out->key, &error);
  return verdict == QV_ENVELOPE_OK ? QV_REJECT_NONE : because_error(run, rejects[verdict], error);
}

static QvReject check_body(Run *run)
{
  GError *error = NULL;
  run->out->job = qv_job_parse(run->body, run->policy->limits, &error);
  if (run->out->job == NULL)
    return because_error(run, QV_REJECT_MALFORMED, error);
  if (!qv_envelope_body_sha256(run->body, run->out->job_sha256, &error))
    return because_error(run, QV_REJECT_MALFORMED, error);
  return QV_REJECT_NONE;
}

static QvReject check_pool(Run *run)
{
  if (strcmp(run->out->job->pool, run->policy->pool) == 0)
    return QV_REJECT_NONE;
  return because(run, QV_REJECT_WRONG_POOL, g_strdup_printf("it is for pool %s", run->out->job->pool));
}

static QvReject check_job_id(Run *run)
{
  const char *id = run->fields->bullmq_id;
  if (id != NULL && strcmp(run->out->job->job_id, id) == 0)
    return QV_REJECT_NONE;
  return because(run, QV_REJECT_JOB_ID_MISMATCH, g_strdup_printf("it was signed as %s", run->out->job->job_id));
}

static QvReject check_expired(Run *run)
{
  gint64 late_ms = run->now_ms - run->out->job->not_after;
  if (late_ms <= QV_EXPIRY_GRACE_MS)
    return QV_REJECT_NONE;
  return because(run, QV_REJECT_EXPIRED, g_strdup_printf("by %" G_GINT64_FORMAT " ms", late_ms));
}

static QvReject check_not_after(Run *run)
{
  const QvJob *job = run->out->job;
  gint64 validity = job->not_after - job->issued_at;
  if (job->not_after > run->now_ms + QV_NOT_AFTER_AHEAD_MS_MAX)
    return because(run, QV_REJECT_NOT_AFTER_TOO_FAR, g_strdup("notAfter is too far ahead"));
  if (job->issued_at > run->now_ms + QV_ISSUED_AHEAD_MS_MAX)
    return because(run, QV_REJECT_NOT_AFTER_TOO_FAR, g_strdup("issuedAt is ahead of this clock"));
  if (validity < 0 || validity > QV_VALIDITY_MS_MAX)
    return because(run, QV_REJECT_NOT_AFTER_TOO_FAR, g_strdup_printf("valid for %" G_GINT64_FORMAT " ms", validity));
  return QV_REJECT_NONE;
}

typedef QvReject (*Check)(Run *run);

static QvReject run_checks(Run *run, const Check *checks, gsize n)
{
  for (gsize i = 0; i < n; i++) {
    QvReject reject = checks[i](run);
    if (reject != QV_REJECT_NONE)
      return reject;
  }
  return QV_REJECT_NONE;
}

QvReject qv_admission_before_guard(const QvAdmissionFields *fields, const QvAdmissionPolicy *policy, gint64 now_ms,
                                   QvAdmission *admission)
{
  static const Check checks[] = { check_stalled, check_unsupported, check_envelope, check_body,
                                  check_pool,    check_job_id,      check_expired,  check_not_after };
  /* What makes a stalled job's chunks ours to unlink: it is what it says, whatever its times. */
  static const Check identity[] = { check_envelope, check_body, check_pool, check_job_id };
  Run run = { .fields = fields, .policy = policy, .now_ms = now_ms, .out = admission };
  memset(admission, 0, sizeof *admission);
  QvReject reject = run_checks(&run, checks, G_N_ELEMENTS(checks));
  QvReject holder = reject == QV_REJECT_STALLED ? run_checks(&run, identity, G_N_ELEMENTS(identity)) : reject;
  json_decref(run.body);
  if (holder != QV_REJECT_NONE) {
    g_clear_pointer(&admission->job, qv_job_free);
    g_clear_pointer(&admission->key, qv_key_unref);
    admission->job_sha256[0] = '\0';
  }
  return reject;
}

static QvReject refuse(char **detail, QvReject reject, char *text)
{
  if (detail != NULL)
    *detail = text;
  else
    g_free(text);
  return reject;
}

QvReject qv_admission_after_guard(const QvJob *job, const QvAdmissionPolicy *policy, const QvImage **image,
                                  char **detail)
{
  if (detail != NULL)
    *detail = NULL;
  if (!g_strv_contains((const char *const *)job->backends, policy->backend))
    return refuse(detail, QV_REJECT_BACKEND_NOT_ALLOWED, g_strdup_printf("%s is none of the job's", policy->backend));
  const QvImage *found = qv_images_lock_find(policy->images, job->image.name, job->image.digest, policy->platform);
  if (found == NULL)
    return refuse(detail, QV_REJECT_UNKNOWN_IMAGE, g_strdup_printf("%s %s", job->image.name, job->image.digest));
  const char *over = qv_limits_over(policy->limits, &job->limits);
  if (over != NULL)
    return refuse(detail, QV_REJECT_LIMITS, g_strdup_printf("%s is over its ceiling", over));
  for (gsize i = 0; job->egress[i] != NULL; i++)
    if (qv_registries_find(policy->registries, job->egress[i]) == NULL)
      return refuse(detail, QV_REJECT_EGRESS_NOT_ALLOWED, g_strdup(job->egress[i]));
  *image = found;
  return QV_REJECT_NONE;
}

gint64 qv_admission_guard_ttl_ms(const QvJob *job, gint64 now_ms)
{
  return MAX(job->not_after - now_ms + QV_KEY_TTL_EXTRA_MS, 1);
}
