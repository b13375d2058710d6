/* SPDX-License-Identifier: Apache-2.0 */
/* A fixed job and key for the targets of the protocol room. */
#pragma once

#include <string.h>

#include "format/json.h"
#include "fuzz.h"
#include "protocol/job.h"

#define FUZZ_JOB_ID "00000000-0000-4000-8000-000000000001"
#define FUZZ_HEX64 "abababababababababababababababababababababababababababababababab"

static inline QvKey *fuzz_key(void)
{
  static const guint8 bytes[32] = "0123456789abcdef0123456789abcde";
  return qv_key_new(bytes, sizeof bytes);
}

static inline QvJob *fuzz_job(void)
{
  static const char text[] =
      "{\"v\":1,\"jobId\":\"" FUZZ_JOB_ID "\",\"tenantId\":\"acme\",\"pool\":\"default\",\"kind\":\"check\","
      "\"backends\":[\"runsc\"],\"image\":{\"name\":\"base\",\"digest\":\"sha256:" FUZZ_HEX64 "\"},"
      "\"base\":{\"blobId\":\"" FUZZ_JOB_ID ".base\",\"size\":5,\"chunks\":1,\"sha256\":\"" FUZZ_HEX64 "\","
      "\"salt\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\",\"treeSha256\":\"" FUZZ_HEX64 "\"},\"overlay\":null,"
      "\"deletes\":[],\"setup\":{\"name\":\"prepare\",\"argv\":[\"a\"]},\"egress\":[],"
      "\"run\":[{\"name\":\"lint\",\"argv\":[\"a\"],\"continueOnFailure\":true},{\"name\":\"test\",\"argv\":[\"a\"]}],"
      "\"artefacts\":[\"**\"],\"limits\":{\"logBytes\":100,\"artefactBytes\":1000,\"artefactCount\":3},"
      "\"issuedAt\":1700000000000,\"notAfter\":1700000600000}";
  QvLimitsPolicy policy;
  qv_limits_policy_standard(&policy, 4);
  json_t *body = qv_json_parse(text, strlen(text), sizeof text, QV_JSON_SIGNED, NULL);
  QV_FUZZ_CHECK(body);
  QvJob *job = qv_job_parse(body, &policy, NULL);
  QV_FUZZ_CHECK(job);
  json_decref(body);
  return job;
}
