/* SPDX-License-Identifier: Apache-2.0 */
/* The proxy before a Valkey that answers whatever it likes: wrong types, giant and half replies, silence. The server is real;
 * a relay puts lies in the place of its answers. While it lies nobody is admitted and what is open is cut; its memory
 * keeps its bound; once it tells the truth again the same tokens are good again. The room below is asked about more lies
 * by queue/hostile. */
#include <string.h>
#include <unistd.h>

#include "hello.h"
#include "world.h"

/* One reply at its cap of 96 MiB, twice where it grew, and the proxy. */
enum { PEAK_MAX_KIB = 256 * 1024 };

#define GIB (G_GUINT64_CONSTANT(1) << 30)
#define AWAY "503 store_unavailable"
#define UNKNOWN "407 token_unknown"

static const char *const hosts[] = {W_HOST ":443", NULL};

static const QvTestAnswer lies[] = {
  {.name = "bulk-8-eib", .bytes = "$9223372036854775807\r\n", .again = "x", .again_n = GIB},
  {.name = "bulk-at-the-cap", .bytes = "$94371840\r\n", .again = "x", .again_n = GIB},
  {.name = "half-and-gone", .bytes = "$600\r\n{\"v\":1,\"jobId\":\"", .after = QV_TEST_AFTER_HANG_UP},
  {.name = "half-and-silence", .bytes = "$600\r\n{\"v\":1,\"jobId\":\"", .after = QV_TEST_AFTER_HUSH},
  {.name = "not-now", .bytes = "-LOADING it may take a while\r\n"},
  {.name = "error", .bytes = "-WRONGTYPE \x1b[2J\xff evil\r\n"},
  {.name = "array", .bytes = "*2\r\n$1\r\na\r\n*0\r\n"},
  {.name = "integer", .bytes = ":9223372036854775807\r\n"},
  {.name = "no-record", .bytes = "$14\r\n{\"hosts\":[\"*\"]\r\n"},
};

/* Where one lie is told: to a greeting, to a subscription, to a usage record that is published. */
static const struct {
  const char *name, *mark;
  gboolean at_connect;
} places[] = {
  {"greeting", "\r\nHELLO\r\n", TRUE},
  {"subscription", "\r\nSUBSCRIBE\r\n", TRUE},
  {"usage", ":egress-usage\r\n", FALSE},
};
static const char *const told_once[] = {"error", "array"};

static World *world;


static char *ask(const char *token)
{
  int fd = world_connect(world);
  g_autofree char *request = world_request(W_HOST ":443", token);
  world_send(fd, request, strlen(request));
  g_autofree char *head = world_head(fd);
  close(fd);
  return world_verdict(head);
}

/* Until Valkey is believed again. */
static void await_admission(const char *token)
{
  g_autofree char *verdict = NULL;
  QV_TEST_WAIT((g_free(verdict), verdict = ask(token), strcmp(verdict, "200 ") == 0));
}

static gboolean is_subscribed(void)
{
  g_autofree char *said = qv_test_valkey_cli(world_valkey(world), "PUBSUB", "NUMSUB", "quavon-sandbox:egress", NULL);
  return g_str_has_suffix(said, "\n1");
}

static void begin(void)
{
  world_name(W_HOST, W_PUBLIC, NULL);
  world = world_new_relayed((const char *const[]){"QUAVON_SANDBOX_REGISTRIES=" W_HOST, NULL});
}

/* All that Valkey says is this lie. */
static void test_lie(gconstpointer data)
{
  const QvTestAnswer *lie = data;
  g_autofree char *open = world_token(world, hosts, NULL, 600000), *other = world_token(world, hosts, NULL, 600000);
  int fd = world_tunnel(world, open);
  qv_test_proxy_answer(world_relay(world), "", lie, G_MAXUINT);
  g_autofree char *verdict = ask(other);
  if (strcmp(verdict, AWAY) != 0 && strcmp(verdict, UNKNOWN) != 0)
    g_error("%s: %s", lie->name, verdict);
  g_test_message("%s: %s", lie->name, verdict);
  world_await_end(fd);
  close(fd);
  qv_test_proxy_answer(world_relay(world), "", lie, 0);
  qv_test_proxy_cut(world_relay(world));
  await_admission(other);
  await_admission(open);
  world_revoke(world, open, TRUE);
  world_revoke(world, other, TRUE);
}

static void test_place(gconstpointer data)
{
  gsize at = GPOINTER_TO_SIZE(data);
  for (gsize i = 0, told = 0; i < G_N_ELEMENTS(lies) && told < G_N_ELEMENTS(told_once); i++) {
    if (strcmp(lies[i].name, told_once[told]) != 0)
      continue;
    told++;
    g_autofree char *token = world_token(world, hosts, NULL, 600000);
    int fd = world_tunnel(world, token);
    guint before = qv_test_proxy_answered_n(world_relay(world));
    qv_test_proxy_answer(world_relay(world), places[at].mark, &lies[i], 1);
    if (places[at].at_connect) {
      qv_test_proxy_cut(world_relay(world));
    } else {
      world_revoke(world, token, TRUE);
      world_await_end(fd);
    }
    close(fd);
    QV_TEST_WAIT(qv_test_proxy_answered_n(world_relay(world)) > before);
    QV_TEST_WAIT(is_subscribed());
    g_autofree char *other = world_token(world, hosts, NULL, 600000);
    await_admission(other);
    world_revoke(world, other, TRUE);
  }
}

static void test_end(void)
{
  g_autofree char *path = g_strdup_printf("/proc/%d/status", world_proxy_pid(world)), *text = NULL, *log = world_log(world);
  g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
  const char *line = strstr(text, "VmHWM:");
  guint64 peak_kib = g_ascii_strtoull(line + strlen("VmHWM:"), NULL, 10);
  g_test_message("peak of the proxy: %" G_GUINT64_FORMAT " KiB", peak_kib);
#if !defined __SANITIZE_ADDRESS__
  g_assert_cmpuint(peak_kib, <, PEAK_MAX_KIB);
#endif
  g_assert_true(g_utf8_validate(log, -1, NULL));
  g_assert_null(strchr(log, '\x1b'));
  g_assert_null(strstr(log, qv_test_valkey_password(world_valkey(world))));
  world_free(world); /* it ends as it is told, with status 0 */
}

int main(int argc, char **argv)
{
  if (!world_enter())
    return 0;
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/egress/hostile/begin", begin);
  for (gsize i = 0; i < G_N_ELEMENTS(lies); i++) {
    g_autofree char *path = g_strconcat("/egress/hostile/lie-", lies[i].name, NULL);
    g_test_add_data_func(path, &lies[i], test_lie);
  }
  for (gsize i = 0; i < G_N_ELEMENTS(places); i++) {
    g_autofree char *path = g_strconcat("/egress/hostile/", places[i].name, NULL);
    g_test_add_data_func(path, GSIZE_TO_POINTER(i), test_place);
  }
  g_test_add_func("/egress/hostile/end", test_end);
  return g_test_run();
}
