/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a result, any JSON, against a fixed job: what is accepted is built again as the same body, and
 * says success only where every step did. */
#include "fuzz_protocol.h"
#include "protocol/result_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  json_t *body = qv_json_parse(data, size, QV_RESULT_JSON_BYTES_MAX, QV_JSON_SIGNED, NULL);
  if (body == NULL)
    return 0;
  g_autoptr(QvJob) job = fuzz_job();
  g_autoptr(GError) error = NULL;
  g_autoptr(QvResult) result = qv_result_parse(body, job, FUZZ_HEX64, &error);
  QV_FUZZ_CHECK((result == NULL) == (error != NULL));
  if (result != NULL) {
    json_t *again = qv_result_build(result);
    QV_FUZZ_CHECK(json_equal(body, again));
    json_decref(again);
    QV_FUZZ_CHECK(result->status == qv_code_status(result->code) && result->facts.artefacts_n <= 3);
    if (result->status == QV_STATUS_SUCCEEDED)
      QV_FUZZ_CHECK(result->facts.steps_n == 2 && qv_step_record_ok(&result->facts.steps[1]) &&
                    qv_step_record_ok(&result->facts.setup));
  }
  json_decref(body);
  return 0;
}
