/* SPDX-License-Identifier: Apache-2.0 */
/* The payload of a result, any bytes: one verdict however it is cut; what is accepted has exactly the members, sizes
 * and digests of the result. */
#include "base/hex.h"
#include "base/sha256.h"
#include "fuzz_protocol.h"
#include "protocol/payload.h"

/* printf hello | sha256sum */
#define HELLO "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"

static gboolean on_begin(void *user, const char *path, gint64 size, gboolean executable, GError **error)
{
  g_string_append_printf(user, "%s;", path);
  return TRUE;
}

static gboolean on_bytes(void *user, const guint8 *bytes, gsize n, GError **error)
{
  return TRUE;
}

static gboolean on_end(void *user, GError **error)
{
  return TRUE;
}

static gboolean run(const QvResult *result, const QvJob *job, const uint8_t *data, gsize size, gsize portion, GString *heard)
{
  static const QvPayloadSinkTable table = { on_begin, on_bytes, on_end };
  g_autoptr(QvPayloadReader) reader = qv_payload_reader_new(result, job, &table, heard);
  for (gsize at = 0; at < size; at += portion) {
    g_autoptr(GError) error = NULL;
    if (!qv_payload_reader_feed(reader, data + at, MIN(portion, size - at), &error)) {
      QV_FUZZ_CHECK(error);
      return FALSE;
    }
  }
  g_autoptr(GError) error = NULL;
  gboolean good = qv_payload_reader_finish(reader, &error);
  QV_FUZZ_CHECK(good == (error == NULL));
  return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  g_autoptr(QvJob) job = fuzz_job();
  g_autoptr(QvResult) result = qv_result_new(job, FUZZ_HEX64, "r", "runsc");
  result->facts.has_setup = TRUE;
  result->facts.steps = g_new0(QvStepRecord, 1);
  result->facts.steps_n = 1;
  result->facts.artefacts = g_new0(QvArtefact, 1);
  result->facts.artefacts_n = 1;
  result->facts.artefacts[0] = (QvArtefact){ .path = g_strdup("build/a"), .size = 5, .sha256 = HELLO };
  g_autoptr(GString) whole = g_string_new(NULL);
  g_autoptr(GString) pieces = g_string_new(NULL);
  gboolean good = run(result, job, data, size, MAX(size, 1), whole);
  QV_FUZZ_CHECK(run(result, job, data, size, 7, pieces) == good);
  QV_FUZZ_CHECK(!good || (g_string_equal(whole, pieces) && strcmp(whole->str, "artefacts/build/a;logs/0.log;logs/setup.log;") == 0));
  return 0;
}
