/* SPDX-License-Identifier: Apache-2.0 */
/* What the probes printed inside a sandbox that may be none: never passed without every answer, never twice the same one; and
 * the texts of control groups. */
#include <string.h>

#include "fuzz.h"
#include "sandbox/cgroup_text.h"
#include "sandbox/probe_judge.h"

static void check_judge(const char *text, size_t size)
{
  g_autoptr(GHashTable) host = g_hash_table_new(g_str_hash, g_str_equal);
  g_autoptr(QvProbeJudge) judge = qv_probe_judge_new("runsc", host);
  QV_FUZZ_CHECK(judge);
  qv_probe_judge_text(judge, text, size, 1);
  g_auto(GStrv) failed = qv_probe_judge_failed(judge);
  QV_FUZZ_CHECK(g_strv_length(failed) > 0); /* the host's own were never told */
  for (guint i = 0; i < qv_probe_count(); i++) {
    gboolean ok = FALSE;
    QvProbeRow row;
    if (!qv_probe_row(i, "runsc", &row))
      break;
    const char *answer = qv_probe_judge_row(judge, i, &ok);
    QV_FUZZ_CHECK(answer || !ok);
    QV_FUZZ_CHECK(ok || g_strv_contains((const char *const *)failed, row.name));
  }
}

static void check_cgroup(const char *text, size_t size)
{
  guint64 value = 0;
  g_autoptr(GArray) pids = g_array_new(FALSE, FALSE, sizeof(gint));
  qv_cgroup_text_number(text, size, &value);
  qv_cgroup_text_keyed(text, size, "oom_kill", &value);
  qv_cgroup_text_has_word(text, size, "memory");
  if (qv_cgroup_text_pids(text, size, pids))
    for (guint i = 0; i < pids->len; i++)
      QV_FUZZ_CHECK(g_array_index(pids, gint, i) > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  g_autofree char *text = g_strndup((const char *)data, size);
  check_judge((const char *)data, size);
  check_cgroup(text, size);
  return 0;
}
