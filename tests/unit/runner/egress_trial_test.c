/* SPDX-License-Identifier: Apache-2.0 */
/* What is made of the answers of a network's trial: the proxy must be open, the canary refused, everything else must stay without any answer. */
#include <glib.h>
#include <string.h>

#include "base/error.h"
#include "runner/egress_trial.h"

static char *const targets[] = {(char *)"tcp:10.0.0.1:3128", (char *)"tcp:10.0.0.1:2", (char *)"tcp:10.0.0.1:22", (char *)"resolver:example.com",
                                NULL};

static void test_judge(void)
{
#define PROXY "reach tcp:10.0.0.1:3128 "
#define CANARY "\nreach tcp:10.0.0.1:2 "
#define SSH_ALONE "\nreach tcp:10.0.0.1:22 "
#define SSH CANARY "ECONNREFUSED" SSH_ALONE
#define NAMES "\nreach resolver:example.com "
  static const struct {
    const char *report;
    int code; /* -1: it is good */
    const char *words;
  } cases[] = {
    {PROXY "OPEN" SSH "SILENT" NAMES "CLOSED\n", -1, NULL},
    {PROXY "OPEN" SSH "EHOSTUNREACH" NAMES "CLOSED\n", -1, NULL},
    {PROXY "OPEN" SSH "ENETUNREACH" NAMES "ENETUNREACH\n", -1, NULL},
    {PROXY "SILENT" SSH "SILENT" NAMES "CLOSED\n", QV_ERROR_GONE, "quavon-egress-network up"},
    {PROXY "ECONNREFUSED" SSH "SILENT" NAMES "CLOSED\n", QV_ERROR_GONE, "start quavon-sandbox-egress"},
    {PROXY "ECONNREFUSED" SSH "ECONNREFUSED" NAMES "CLOSED\n", QV_ERROR_POLICY, "reaches tcp:10.0.0.1:22"},
    {PROXY "OPEN" SSH "OPEN" NAMES "CLOSED\n", QV_ERROR_POLICY, "reaches tcp:10.0.0.1:22 (OPEN)"},
    {PROXY "OPEN" SSH "ECONNREFUSED" NAMES "CLOSED\n", QV_ERROR_POLICY, "quavon-egress-network rules"},
    {PROXY "OPEN" SSH "ECONNRESET" NAMES "CLOSED\n", QV_ERROR_POLICY, "(ECONNRESET)"},
    {PROXY "OPEN" SSH "SILENT" NAMES "OPEN\n", QV_ERROR_POLICY, "reaches resolver:example.com (OPEN)"},
    {PROXY "OPEN" SSH "SILENT" NAMES "SOMETHING NEW\n", QV_ERROR_POLICY, "resolver"},
    /* Without that proof even a proxy that is away is no good news. */
    {PROXY "OPEN" CANARY "SILENT" SSH_ALONE "SILENT" NAMES "CLOSED\n", QV_ERROR_POLICY, "is not refused tcp:10.0.0.1:2 (SILENT)"},
    {PROXY "OPEN" CANARY "OPEN" SSH_ALONE "SILENT" NAMES "CLOSED\n", QV_ERROR_POLICY, "is not refused tcp:10.0.0.1:2 (OPEN)"},
    {PROXY "SILENT" CANARY "SILENT" SSH_ALONE "SILENT" NAMES "CLOSED\n", QV_ERROR_POLICY, "quavon-egress-network rules"},
    {PROXY "ECONNREFUSED" CANARY "EHOSTUNREACH" SSH_ALONE "SILENT" NAMES "CLOSED\n", QV_ERROR_POLICY, "(EHOSTUNREACH)"},
    {PROXY "OPEN" SSH_ALONE "SILENT" NAMES "CLOSED\n", QV_ERROR_PEER, "no answer for tcp:10.0.0.1:2"},
    {PROXY "OPEN" SSH "SILENT", QV_ERROR_PEER, "no answer for resolver:example.com"},
    {PROXY "OPEN" CANARY "ECONNREFUSED" NAMES "CLOSED" SSH_ALONE "SILENT\n", QV_ERROR_PEER, "no answer for tcp:10.0.0.1:22"},
    {PROXY "OPEN" CANARY "ECONNREFUSED\nreach tcp:10.0.0.1:221 SILENT" NAMES "CLOSED\n", QV_ERROR_PEER, "no answer for tcp:10.0.0.1:22"},
    {"", QV_ERROR_PEER, "no answer for tcp:10.0.0.1:3128"},
  };
  for (gsize i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(GError) error = NULL;
    gboolean away, ok = qv_egress_trial_judge("net", targets, cases[i].report, &away, &error);
    g_assert_cmpint(away, ==, cases[i].code == QV_ERROR_GONE);
    if (cases[i].code < 0) {
      g_assert_no_error(error);
      g_assert_true(ok);
      continue;
    }
    g_assert_false(ok);
    g_assert_error(error, QV_ERROR, cases[i].code);
    if (strstr(error->message, cases[i].words) == NULL)
      g_error("case %zu: '%s' is not in: %s", i, cases[i].words, error->message);
  }
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/egress-trial/judge", test_judge);
  return g_test_run();
}
