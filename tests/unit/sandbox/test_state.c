/* SPDX-License-Identifier: Apache-2.0 */
/* runsc's state file, as release 20240729 writes it: it may be read at any moment, also half written. */
#include <locale.h>
#include <string.h>

#include "sandbox/runsc_private.h"

#define RUNNING "{\"id\":\"x\",\"spec\":{},\"status\":\"running\",\"goferPid\":0,\"sandbox\":{\"id\":\"x\",\"pid\":13066,\"uid\":65534}}"

static void test_running(void)
{
  gint pid = 0;
  g_assert_true(qv_runsc_state_parse(RUNNING, strlen(RUNNING), &pid));
  g_assert_cmpint(pid, ==, 13066);
}

static void test_not_running(void)
{
  static const char *const TEXTS[] = {
    "", "{}", "[]", "null", "{\"status\":\"running\"}", "{\"status\":\"created\",\"sandbox\":{\"pid\":13066}}",
    "{\"status\":\"stopped\",\"sandbox\":{\"pid\":13066}}", "{\"status\":2,\"sandbox\":{\"pid\":13066}}",
    "{\"status\":\"running\",\"sandbox\":null}", "{\"status\":\"running\",\"sandbox\":{\"pid\":\"13066\"}}",
    "{\"status\":\"running\",\"sandbox\":{\"pid\":0}}", "{\"status\":\"running\",\"sandbox\":{\"pid\":1}}",
    "{\"status\":\"running\",\"sandbox\":{\"pid\":-1}}", "{\"status\":\"running\",\"sandbox\":{\"pid\":4294967298}}",
    "{\"status\":\"running\",\"status\":\"running\",\"sandbox\":{\"pid\":13066}}",
  };
  for (gsize i = 0; i < G_N_ELEMENTS(TEXTS); i++) {
    gint pid = 77;
    g_assert_false(qv_runsc_state_parse(TEXTS[i], strlen(TEXTS[i]), &pid));
    g_assert_cmpint(pid, ==, 77);
  }
}

static void test_half_written(void)
{
  for (gsize n = 0; n < strlen(RUNNING); n++) {
    g_autofree char *cut = g_malloc(MAX(n, 1));
    gint pid = 77;
    memcpy(cut, RUNNING, n);
    g_assert_false(qv_runsc_state_parse(cut, n, &pid));
    g_assert_cmpint(pid, ==, 77);
  }
}

int main(int argc, char **argv)
{
  setlocale(LC_ALL, "");
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/sandbox/state/running", test_running);
  g_test_add_func("/sandbox/state/not-running", test_not_running);
  g_test_add_func("/sandbox/state/half-written", test_half_written);
  return g_test_run();
}
