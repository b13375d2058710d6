/* SPDX-License-Identifier: Apache-2.0 */
/* What whoever may write to Valkey can put into our hands unsigned: a job's options and progress, the message of a live log,
 * records and usage of egress tokens. Nothing more than its own few values comes out, each within its bounds. */
#include "fuzz_protocol.h"
#include "protocol/egress_token.h"
#include "protocol/live.h"
#include "protocol/progress.h"
#include "queue/keep.h"

static void check_options(const char *text, gsize n)
{
  QvJobOptions options;
  qv_job_options_parse(text, n, &options);
  QV_FUZZ_CHECK(options.attempts >= 0);
  QV_FUZZ_CHECK(options.completed.count >= -1 && options.completed.age_s >= -1);
  QV_FUZZ_CHECK(options.failed.count >= -1 && options.failed.age_s >= -1);
}

static void check_progress(const char *text, gsize n)
{
  QvRunProgress progress = {0}, again = {0};
  if (!qv_run_progress_parse(text, n, &progress))
    return;
  QV_FUZZ_CHECK(progress.stage < QV_RUN_STAGES_N && progress.name == NULL && progress.elapsed_ms >= 0);
  QV_FUZZ_CHECK(progress.step <= progress.steps_n);
  progress.name = progress.stage == QV_RUN_STAGE_SETUP || progress.stage == QV_RUN_STAGE_STEP ? "name" : NULL;
  g_autofree char *formatted = qv_run_progress_format(&progress);
  QV_FUZZ_CHECK(qv_run_progress_parse(formatted, strlen(formatted), &again));
  QV_FUZZ_CHECK(again.stage == progress.stage && again.step == progress.step && again.elapsed_ms == progress.elapsed_ms);
}

static void check_token(const char *text, gsize n)
{
  g_autoptr(QvTokenRecord) record = qv_token_record_parse(text, n, NULL);
  if (record) {
    gsize formatted_n;
    g_autofree char *formatted = qv_token_record_format(record, &formatted_n);
    g_autoptr(QvTokenRecord) again = qv_token_record_parse(formatted, formatted_n, NULL);
    QV_FUZZ_CHECK(again && again->expires_at == record->expires_at && g_strv_equal((const char *const *)again->hosts, (const char *const *)record->hosts));
  }
  g_autoptr(QvJob) job = fuzz_job();
  g_autoptr(QvResult) result = qv_result_new(job, FUZZ_HEX64, "r", "runsc");
  g_autoptr(GError) error = NULL;
  if (qv_token_usage_parse(text, n, FUZZ_HEX64, result, &error))
    QV_FUZZ_CHECK(result->egress_n <= QV_JOB_EGRESS_MAX);
  else
    QV_FUZZ_CHECK(error != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  g_autofree char *text = g_strndup((const char *)data, size);
  guint n = 0;
  if (qv_live_message_parse(text, size, FUZZ_JOB_ID, &n))
    QV_FUZZ_CHECK(n < QV_LIVE_MEMBERS_MAX && size > QV_JOB_ID_BYTES + 1 && memcmp(text, FUZZ_JOB_ID, QV_JOB_ID_BYTES) == 0);
  check_options(text, size);
  check_progress(text, size);
  check_token(text, size);
  return 0;
}
