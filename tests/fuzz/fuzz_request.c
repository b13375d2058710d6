/* SPDX-License-Identifier: Apache-2.0 */
/* The entry's reader of its request line: any bytes, and what the runner writes for any job that it admits. The two
 * rooms know each other by section 5 alone: a line that one writes and the other refuses would be found here. */
#include "entry/request.h"
#include "fuzz_protocol.h"
#include "protocol/entry_request.h"

static void check_line(const QvJob *job, const QvEntryProxy *proxy)
{
  static const guint8 stream_key[QV_STREAM_KEY_BYTES] = "fuzz";
  QvSecret *line = qv_entry_request_format(job, stream_key, proxy, TRUE, NULL);
  if (!line)
    return; /* over the cap of a line */
  const char *why = NULL;
  QvEntryRequest *request = qv_entry_request_parse((const char *)qv_secret_bytes(line), qv_secret_len(line) - 1, &why);
  if (!request)
    fprintf(stderr, "refused: %s\n", why);
  QV_FUZZ_CHECK(request);
  QV_FUZZ_CHECK(memcmp(request->stream_key, stream_key, sizeof stream_key) == 0);
  QV_FUZZ_CHECK(request->run_n == job->run_n && !request->setup == !job->setup && request->live);
  QV_FUZZ_CHECK(request->deletes_n == g_strv_length(job->deletes) && request->artefacts_n == g_strv_length(job->artefacts));
  QV_FUZZ_CHECK(request->base_bytes == (guint64)job->base.size && request->has_overlay == (job->overlay != NULL));
  QV_FUZZ_CHECK(request->log_bytes == job->limits.log_bytes && request->artefact_count == job->limits.artefact_count);
  for (gsize i = 0; i < job->run_n; i++) {
    QV_FUZZ_CHECK(strcmp(request->run[i].name, job->run[i].name) == 0);
    QV_FUZZ_CHECK(g_strv_length(request->run[i].argv) == g_strv_length(job->run[i].argv));
    QV_FUZZ_CHECK(request->run[i].timeout_ms == qv_job_step_timeout_ms(job, &job->run[i]));
    QV_FUZZ_CHECK(request->run[i].continue_on_failure == (job->run[i].continue_on_failure != 0));
  }
  qv_entry_request_wipe_proxy(request);
  qv_entry_request_free(request);
  qv_secret_free(line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  const char *why = NULL;
  QvEntryRequest *request = qv_entry_request_parse((const char *)data, size, &why);
  QV_FUZZ_CHECK((request == NULL) == (why != NULL));
  qv_entry_request_free(request);

  QvLimitsPolicy policy;
  qv_limits_policy_standard(&policy, 4);
  json_t *body = qv_json_parse(data, size, QV_JOB_JSON_BYTES_MAX, QV_JSON_SIGNED, NULL);
  g_autoptr(QvJob) job = body ? qv_job_parse(body, &policy, NULL) : NULL;
  json_decref(body);
  if (job && !qv_limits_over(&policy, &job->limits)) {
    check_line(job, NULL);
    if (job->setup) {
      const QvEntryProxy proxy = {.token = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", .socket = "/run/quavon/egress.sock"};
      check_line(job, &proxy);
    }
  }
  return 0;
}
