/* SPDX-License-Identifier: Apache-2.0 */
/* The whole runner behind a relay that answers in Valkey's place: at the fetch, at the end, at a chunk, at the guard. The job
 * is run once and ends once, the runner's memory keeps its bound, its log is text. What each client of the queue room says to
 * each lie is told by queue/hostile. QUAVON_TEST_LONG=1. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "support/proxy.h"
#include "world.h"

enum { PEAK_MAX_KIB = 384 * 1024 }; /* one reply of 96 MiB, what it was read from, and the runner */

static const QvTestAnswer lies[] = {
  {.name = "none"},
  {.name = "bulk-512-mib", .bytes = "$536870912\r\n", .again = "x", .again_n = 1 << 30},
  {.name = "wide", .bytes = "*1048576\r\n", .again = "*1\r\n:1\r\n", .again_n = 1048576},
  {.name = "three-for-one", .bytes = "+OK\r\n+OK\r\n+OK\r\n"},
  {.name = "push", .bytes = ">2\r\n+invalidate\r\n*0\r\n"},
  {.name = "integer", .bytes = ":9223372036854775807\r\n"},
};

/* Where it comes; NULL: each lie does. That a guard with an odd answer is not run is told by queue/hostile. */
static const struct {
  const char *name, *mark, *only;
} places[] = {
  {"fetch", "\r\n1048576\r\n", NULL},
  {"chunk", ".base:0\r\n", "integer"},
  {"finish", "\r\ncompleted\r\n", NULL},
  {"guard", ":replay:", "push"},
};

static World *world;
static QvTestProxy *relay;

static gint64 peak_kib(GPid pid)
{
  g_autofree char *path = g_strdup_printf("/proc/%d/status", pid), *text = NULL;
  g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
  const char *line = strstr(text, "VmHWM:");
  g_assert_nonnull(line);
  return g_ascii_strtoll(line + 6 + strspn(line + 6, " \t"), NULL, 10);
}

static void begin(void)
{
  relay = qv_test_proxy_start(world->dir, qv_test_valkey_socket(world->valkey));
  g_autofree char *url = g_strdup_printf("VALKEY_URL=unix://sandbox:%s@%s", qv_test_valkey_password(world->valkey),
                                         qv_test_proxy_socket(relay));
  world_start(world, (const char *const[]){url, "QUAVON_SANDBOX_CONCURRENCY=1", NULL});
  world_await_log(world, "ready");
}

static void test_place(gconstpointer data)
{
  gsize p = GPOINTER_TO_SIZE(data);
  for (gsize i = 0; i < G_N_ELEMENTS(lies); i++) {
    if (places[p].only != NULL && strcmp(places[p].only, lies[i].name) != 0)
      continue;
    g_autoptr(QvJob) job = world_job(world, "echo once");
    char sha256[65];
    guint before = qv_test_proxy_answered_n(relay);
    g_autofree char *text = NULL;
    if (lies[i].bytes != NULL)
      qv_test_proxy_answer(relay, places[p].mark, &lies[i], 1);
    world_add(world, job, sha256);
    QvJobState state = world_wait(world, job->job_id, &text);
    if (state != QV_JOB_COMPLETED)
      g_error("%s at the %s: ended with %s", lies[i].name, places[p].name, text);
    g_assert_cmpuint(world_ends(world, job->job_id), ==, 1);
    /* The job may be over in Valkey before the lie about that is told. */
    guint told = lies[i].bytes != NULL ? 1 : 0;
    for (gint64 end_us = g_get_monotonic_time() + 60 * G_USEC_PER_SEC; qv_test_proxy_answered_n(relay) - before < told;) {
      g_assert_cmpint(g_get_monotonic_time(), <, end_us);
      g_usleep(10000);
    }
    g_assert_cmpuint(qv_test_proxy_answered_n(relay) - before, ==, told);
    g_autofree char *key = g_strconcat("quavon-sandbox:sandbox:", job->job_id, NULL);
    g_autofree char *started = qv_test_valkey_cli(world->valkey, "HGET", key, "ats", NULL);
    g_assert_cmpstr(started, ==, "1");
  }
}

static void end(void)
{
  gint64 peak = peak_kib(world->runner);
  g_test_message("peak of the supervisor: %" G_GINT64_FORMAT " KiB", peak);
  g_autofree char *log = world_log(world);
  g_assert_true(g_utf8_validate(log, -1, NULL));
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  qv_test_proxy_free(relay);
#if !defined(__SANITIZE_ADDRESS__)
  g_assert_cmpint(peak, <, PEAK_MAX_KIB);
#endif
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  if (g_strcmp0(g_getenv("QUAVON_TEST_LONG"), "1") != 0) {
    printf("1..0 # SKIP QUAVON_TEST_LONG is not 1\n");
    return 0;
  }
  world = world_new(QV_TEST_VALKEY_PLAIN);
  if (world == NULL)
    return 77;
  world->keeps_input = TRUE;
  g_test_add_func("/runner/hostile-valkey/begin", begin);
  for (gsize i = 0; i < G_N_ELEMENTS(places); i++) {
    g_autofree char *path = g_strconcat("/runner/hostile-valkey/", places[i].name, NULL);
    g_test_add_data_func(path, GSIZE_TO_POINTER(i), test_place);
  }
  g_test_add_func("/runner/hostile-valkey/end", end);
  int status = g_test_run();
  world_free(world);
  return status;
}
