/* SPDX-License-Identifier: Apache-2.0 */
/* The small texts: key file, images lock, facts of a run, egress record and usage, cancel. Each reader gets the input as it
 * is; what is accepted is written and read back the same. */
#include "fuzz_protocol.h"
#include "protocol/cancel.h"
#include "protocol/egress_token.h"
#include "protocol/images_lock.h"
#include "protocol/record.h"

static void check_key(const char *text, gsize n)
{
  g_autoptr(QvKey) key = qv_key_parse(text, n, NULL);
  if (key == NULL)
    return;
  g_autoptr(QvSecret) again = qv_key_format(key);
  gsize bare_n = n - (text[n - 1] == '\n');
  QV_FUZZ_CHECK(qv_secret_len(again) == bare_n + 1 && memcmp(qv_secret_bytes(again), text, bare_n) == 0);
}

static void check_lock(const char *text, gsize n)
{
  gsize again_n = 0;
  g_autoptr(GError) error = NULL;
  g_autoptr(QvImagesLock) lock = qv_images_lock_parse(text, n, &error);
  QV_FUZZ_CHECK((lock == NULL) == (error != NULL));
  if (lock == NULL)
    return;
  g_autofree char *again = qv_images_lock_format(lock, &again_n, &error);
  QV_FUZZ_CHECK(again);
  json_t *a = qv_json_parse(text, n, n, QV_JSON_SIGNED, NULL), *b = qv_json_parse(again, again_n, again_n, QV_JSON_SIGNED, NULL);
  QV_FUZZ_CHECK(json_equal(a, b));
  json_decref(a);
  json_decref(b);
  for (gsize i = 0; i < lock->n; i++) {
    const QvImage *image = &lock->images[i];
    QV_FUZZ_CHECK(qv_images_lock_find(lock, image->name, image->digest, image->platform) == image);
  }
}

static void check_facts(const char *text, gsize n)
{
  gsize again_n = 0;
  g_autoptr(QvEntryFacts) facts = qv_entry_facts_parse(text, n, NULL);
  if (facts == NULL)
    return;
  g_autofree char *again = qv_entry_facts_format(facts, &again_n);
  json_t *a = qv_json_parse(text, n, n, QV_JSON_SIGNED, NULL), *b = qv_json_parse(again, again_n, again_n, QV_JSON_SIGNED, NULL);
  QV_FUZZ_CHECK(json_equal(a, b));
  json_decref(a);
  json_decref(b);
}

static void check_egress(const char *text, gsize n)
{
  gsize again_n = 0;
  g_autoptr(QvTokenRecord) record = qv_token_record_parse(text, n, NULL);
  if (record != NULL) {
    g_autofree char *again = qv_token_record_format(record, &again_n);
    g_autoptr(QvTokenRecord) read = qv_token_record_parse(again, again_n, NULL);
    QV_FUZZ_CHECK(read && read->expires_at == record->expires_at && g_strv_equal((const char *const *)read->hosts, (const char *const *)record->hosts));
  }
  g_autoptr(QvJob) job = fuzz_job();
  g_autoptr(QvKey) key = fuzz_key();
  g_autoptr(QvResult) result = qv_result_new(job, FUZZ_HEX64, "r", "runsc");
  QV_FUZZ_CHECK(qv_token_usage_parse(text, n, FUZZ_HEX64, result, NULL) == result->has_egress);
  /* Nobody here can sign one. */
  qv_cancel_verify(text, n, job, key, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  const char *text = (const char *)data;
  check_key(text, size);
  check_lock(text, size);
  check_facts(text, size);
  check_egress(text, size);
  (void)qv_token_valid(text, size);
  return 0;
}
