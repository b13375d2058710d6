/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a job, any JSON: what is accepted is within every bound that later code relies on, is
 * built again as a body that gives the same job, and passes a runner's checks when signed. And the same bytes as an
 * envelope, which nobody signed. */
#include "fuzz_protocol.h"
#include "protocol/admission.h"
#include "protocol/entry_request.h"
#include "protocol/envelope.h"

static void check_bounds(const QvJob *job)
{
  QV_FUZZ_CHECK(strlen(job->job_id) == QV_JOB_ID_BYTES && job->run_n >= 1 && job->run_n <= QV_JOB_STEPS_MAX);
  QV_FUZZ_CHECK(g_strv_length(job->backends) >= 1 && g_strv_length(job->backends) <= QV_JOB_BACKENDS_MAX);
  QV_FUZZ_CHECK(g_strv_length(job->deletes) <= QV_JOB_DELETES_MAX && g_strv_length(job->egress) <= QV_JOB_EGRESS_MAX);
  QV_FUZZ_CHECK(job->egress[0] == NULL || job->setup != NULL);
  QV_FUZZ_CHECK(job->base.size >= 1 && job->base.chunks == qv_blob_chunks(job->base.size));
  QV_FUZZ_CHECK(job->base.size + (job->overlay ? job->overlay->size : 0) <= (gint64)QV_BLOB_MIB_DEFAULT << 20);
  for (gsize i = 0; job->deletes[i]; i++)
    QV_FUZZ_CHECK(job->deletes[i][0] != '/' && strlen(job->deletes[i]) <= QV_PATH_BYTES_MAX);
  for (gsize i = 0; i < job->run_n; i++) {
    const QvStep *step = &job->run[i];
    QV_FUZZ_CHECK(step->argv[0] && g_strv_length(step->argv) <= QV_STEP_ARGV_MAX && step->env_n <= QV_STEP_ENV_MAX);
    QV_FUZZ_CHECK(qv_job_step_timeout_ms(job, step) >= 1 && step->timeout_ms <= job->limits.wall_ms);
  }
}

static void check_again(const QvJob *job, const QvLimitsPolicy *limits)
{
  g_autoptr(QvKey) key = fuzz_key();
  g_autoptr(QvKeyring) ring = qv_keyring_new(key);
  gsize n = 0;
  char digest[65];
  g_auto(QvAdmission) admission = { 0 };
  g_autofree char *text = qv_job_sign(job, limits, key, &n, digest, NULL);
  if (text == NULL)
    return; /* over the cap of job data */
  const QvAdmissionFields fields = { .bullmq_id = job->job_id, .data = text, .data_n = n };
  const QvAdmissionPolicy policy = { .ring = ring, .pool = job->pool, .backend = job->backends[0], .limits = limits };
  QvReject reject = qv_admission_before_guard(&fields, &policy, job->issued_at, &admission);
  QV_FUZZ_CHECK(reject == QV_REJECT_NONE || reject == QV_REJECT_NOT_AFTER_TOO_FAR || reject == QV_REJECT_EXPIRED);
  json_t *body = qv_job_build(job);
  g_autoptr(QvJob) read = qv_job_parse(body, limits, NULL);
  QV_FUZZ_CHECK(read);
  json_t *again = qv_job_build(read);
  QV_FUZZ_CHECK(json_equal(body, again));
  json_decref(body);
  json_decref(again);
}

static void check_request(const QvJob *job)
{
  static const guint8 stream_key[QV_STREAM_KEY_BYTES] = { 1 };
  g_autoptr(QvSecret) line = qv_entry_request_format(job, stream_key, NULL, FALSE, NULL);
  if (line == NULL)
    return;
  gsize n = qv_secret_len(line);
  const char *text = (const char *)qv_secret_bytes(line);
  QV_FUZZ_CHECK(n <= QV_REQUEST_LINE_BYTES_MAX && text[n - 1] == '\n' && !memchr(text, '\n', n - 1));
  json_t *json = qv_json_parse(text, n - 1, n, QV_JSON_SIGNED, NULL);
  QV_FUZZ_CHECK(json);
  json_decref(json);
}

static void check_envelope(const char *data, gsize size)
{
  g_autoptr(QvKey) key = fuzz_key();
  g_autoptr(GError) error = NULL;
  json_t *body = NULL;
  QvEnvelopeVerdict verdict = qv_envelope_verify_key(QV_ENVELOPE_JOB, key, data, size, &body, &error);
  /* Accepted only where the signature is a real one: then signing its body gives one that verifies too. */
  QV_FUZZ_CHECK((verdict == QV_ENVELOPE_OK) == (body != NULL) && (verdict == QV_ENVELOPE_OK) == (error == NULL));
  json_decref(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  QvLimitsPolicy policy;
  qv_limits_policy_standard(&policy, 4);
  check_envelope((const char *)data, size);
  json_t *body = qv_json_parse(data, size, QV_JOB_JSON_BYTES_MAX, QV_JSON_SIGNED, NULL);
  if (body == NULL)
    return 0;
  g_autoptr(GError) error = NULL;
  g_autoptr(QvJob) job = qv_job_parse(body, &policy, &error);
  QV_FUZZ_CHECK((job == NULL) == (error != NULL));
  json_decref(body);
  if (job == NULL)
    return 0;
  check_bounds(job);
  check_again(job, &policy);
  check_request(job);
  return 0;
}
