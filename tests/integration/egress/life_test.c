/* SPDX-License-Identifier: Apache-2.0 */
/* Tunnels and their tokens: revoked, lost, Valkey gone; how many; what is counted; reload, drain, real TLS. */
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "hello.h"
#include "world.h"

static const char *const hosts[] = {W_HOST ":443", W_HOST ":445", NULL};

static World *open_world(const char *const *more)
{
  g_autoptr(GPtrArray) all = g_ptr_array_new();
  g_ptr_array_add(all, (gpointer)"QUAVON_SANDBOX_REGISTRIES=" W_HOST "," W_HOST ":445,other.allowed.example");
  for (; more != NULL && *more != NULL; more++)
    g_ptr_array_add(all, (gpointer)*more);
  g_ptr_array_add(all, NULL);
  world_name(W_HOST, W_PUBLIC, NULL);
  return world_new((const char *const *)all->pdata);
}

static char *ask_target(World *world, const char *target, const char *token)
{
  int fd = world_connect(world);
  g_autofree char *request = world_request(target, token);
  world_send(fd, request, strlen(request));
  g_autofree char *head = world_head(fd);
  close(fd);
  return world_verdict(head);
}

static void await_cut(int fd, gint64 from_ms, const char *how)
{
  world_await_end(fd);
  close(fd);
  g_test_message("%s: cut after %d ms", how, (int)(qv_clock_mono_ms() - from_ms));
}

static void test_revoked(void)
{
  World *world = open_world(NULL);
  for (guint i = 0; i < 10; i++) {
    gboolean message = i % 2 == 0;
    g_autofree char *token = world_token(world, hosts, NULL, 600000);
    g_autofree char *other = world_token(world, hosts, NULL, 600000);
    int fd = world_tunnel(world, token), kept = world_tunnel(world, other);
    g_assert_true(world_tunnel_lives(fd));
    gint64 from_ms = qv_clock_mono_ms();
    world_revoke(world, token, message);
    await_cut(fd, from_ms, message ? "message" : "message lost");
    g_autofree char *verdict = ask_target(world, W_HOST ":443", token);
    g_assert_cmpstr(verdict, ==, "407 token_unknown");
    g_assert_true(world_tunnel_lives(kept));
    close(kept);
  }
  world_free(world);
}

static void test_expired(void)
{
  World *world = open_world(NULL);
  g_autofree char *token = world_token(world, hosts, NULL, 10000);
  int fd = world_tunnel(world, token);
  await_cut(fd, qv_clock_mono_ms() + 10000, "expired");
  g_autofree char *verdict = ask_target(world, W_HOST ":443", token);
  g_assert_cmpstr(verdict, ==, "407 token_expired");
  world_free(world);
}

static void test_valkey_away(void)
{
  World *world = open_world(NULL);
  g_autofree char *token = world_token(world, hosts, NULL, 600000);
  /* stopped: its connections stay open and nothing answers */
  int fd = world_tunnel(world, token);
  gint64 from_ms = qv_clock_mono_ms();
  kill(qv_test_valkey_pid(world_valkey(world)), SIGSTOP);
  await_cut(fd, from_ms, "Valkey stopped");
  g_autofree char *stopped = ask_target(world, W_HOST ":443", token);
  g_assert_cmpstr(stopped, ==, "503 store_unavailable");
  kill(qv_test_valkey_pid(world_valkey(world)), SIGCONT);
  /* back: the same token, the same count goes on */
  g_autofree char *back = NULL;
  do {
    g_free(back);
    back = ask_target(world, W_HOST ":443", token);
  } while (strcmp(back, "503 store_unavailable") == 0);
  g_assert_cmpstr(back, ==, "200 ");
  fd = world_tunnel(world, token);
  from_ms = qv_clock_mono_ms();
  qv_test_valkey_kill(world_valkey(world));
  await_cut(fd, from_ms, "Valkey killed");
  g_autofree char *killed = ask_target(world, W_HOST ":443", token);
  g_assert_cmpstr(killed, ==, "503 store_unavailable");
  qv_test_valkey_restart(world_valkey(world));
  do {
    g_free(back);
    back = ask_target(world, W_HOST ":443", token);
  } while (strcmp(back, "503 store_unavailable") == 0);
  g_assert_cmpstr(back, ==, "200 ");
  world_free(world);
}

static void test_source(void)
{
  World *world = open_world(NULL);
  g_autofree char *ours = world_token(world, hosts, "127.0.0.1", 600000);
  g_autofree char *theirs = world_token(world, hosts, "10.9.9.9", 600000);
  g_autofree char *good = ask_target(world, W_HOST ":443", ours);
  g_autofree char *bad = ask_target(world, W_HOST ":443", theirs);
  g_assert_cmpstr(good, ==, "200 ");
  g_assert_cmpstr(bad, ==, "403 token_source");
  world_free(world);
}

static void test_limits(void)
{
  static const char *const few[] = {"QUAVON_EGRESS_MAX_TUNNELS=5", "QUAVON_EGRESS_MAX_TUNNELS_PER_TOKEN=3",
                                    "QUAVON_EGRESS_MAX_BYTES=1000000", NULL};
  World *world = open_world(few);
  g_autofree char *one = world_token(world, hosts, NULL, 600000);
  g_autofree char *two = world_token(world, hosts, NULL, 600000);
  int fds[5];
  for (guint i = 0; i < 3; i++)
    fds[i] = world_tunnel(world, one);
  g_autofree char *token_full = ask_target(world, W_HOST ":443", one);
  g_assert_cmpstr(token_full, ==, "429 tunnels_token");
  for (guint i = 3; i < 5; i++)
    fds[i] = world_tunnel(world, two);
  g_autofree char *all_full = ask_target(world, W_HOST ":443", two);
  g_assert_cmpstr(all_full, ==, "503 tunnels_all");
  close(fds[0]);
  g_autofree char *freed = NULL;
  do {
    g_free(freed);
    freed = ask_target(world, W_HOST ":443", one);
  } while (strcmp(freed, "429 tunnels_token") == 0 || strcmp(freed, "503 tunnels_all") == 0);
  g_assert_cmpstr(freed, ==, "200 ");
  for (guint i = 1; i < 5; i++)
    close(fds[i]);
  /* Bytes: the far side sends without end. */
  g_autofree char *three = world_token(world, hosts, NULL, 600000);
  g_autofree char *request = world_request(W_HOST ":445", three);
  char *head = NULL;
  int fd = -1;
  do {
    g_free(head);
    if (fd >= 0)
      close(fd);
    fd = world_connect(world);
    world_send(fd, request, strlen(request));
    head = world_head(fd);
  } while (strstr(head, "tunnels_all") != NULL);
  g_free(head);
  g_autoptr(GByteArray) hello = t_hello(W_HOST);
  world_send(fd, hello->data, hello->len);
  world_await_end(fd);
  close(fd);
  g_autofree char *over = ask_target(world, W_HOST ":443", three);
  g_assert_cmpstr(over, ==, "403 bytes");
  world_free(world);
}

static void test_usage(void)
{
  World *world = open_world(NULL);
  g_autofree char *token = world_token(world, hosts, NULL, 600000);
  g_autoptr(GByteArray) hello = t_hello(W_HOST);
  int fd = world_tunnel(world, token);
  g_assert_true(world_tunnel_lives(fd));
  g_free(ask_target(world, "evil.example:443", token));
  g_free(ask_target(world, "evil.example:443", token));
  g_free(ask_target(world, W_HOST ":80", token));
  g_free(ask_target(world, "other.allowed.example:443", token));
  g_free(ask_target(world, "[::1]:443", token));
  world_revoke(world, token, TRUE);
  world_await_end(fd);
  close(fd);
  g_autofree char *usage = world_usage(world, token);
  g_autofree char *expected = g_strdup_printf("::1:443 0 0 0 1\nevil.example:443 0 0 0 2\nother.allowed.example:443 0 0 0 1\n"
                                              W_HOST ":443 1 %u %u 0\n" W_HOST ":80 0 0 0 1\n",
                                              hello->len + 5, hello->len + 5);
  g_assert_cmpstr(usage, ==, expected);
  world_await_log(world, "\"message\":\"usage\"");
  /* A token is in no log. */
  g_autofree char *log = world_log(world);
  g_assert_null(strstr(log, token));
  g_assert_null(strstr(log, qv_test_valkey_password(world_valkey(world))));
  world_free(world);
}

static guint64 resident_kib(GPid pid)
{
  g_autofree char *path = g_strdup_printf("/proc/%d/status", pid);
  g_autofree char *text = NULL;
  g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
  const char *at = strstr(text, "VmRSS:");
  return g_ascii_strtoull(at + 6, NULL, 10);
}

/* Many tunnels, a far side that never stops, clients that never read: memory stays bounded, others are served. */
static void test_many(void)
{
  enum { TUNNELS = 2000, STUCK = 50 };
  static const char *const many[] = {"QUAVON_EGRESS_MAX_TUNNELS_PER_TOKEN=10000", NULL};
  World *world = open_world(many);
  g_autofree char *token = world_token(world, hosts, NULL, 600000);
  g_autoptr(GByteArray) hello = t_hello(W_HOST);
  g_autofree char *request = world_request(W_HOST ":445", token);
  int stuck[STUCK];
  g_autofree int *fds = g_new(int, TUNNELS);
  for (guint i = 0; i < STUCK; i++) {
    stuck[i] = world_connect(world);
    world_send(stuck[i], request, strlen(request));
    g_free(world_head(stuck[i]));
    world_send(stuck[i], hello->data, hello->len);
  }
  guint64 before = resident_kib(world_proxy_pid(world));
  for (guint i = 0; i < TUNNELS; i++)
    fds[i] = world_tunnel(world, token);
  guint lived = 0;
  for (guint i = 0; i < TUNNELS; i += 97, lived++)
    g_assert_true(world_tunnel_lives(fds[i]));
  guint64 after = resident_kib(world_proxy_pid(world));
  g_test_message("%d tunnels: %" G_GUINT64_FORMAT " KiB more", TUNNELS, after - before);
#if !defined __SANITIZE_ADDRESS__
  g_assert_cmpuint(after - before, <, TUNNELS * 8);
#endif
  world_revoke(world, token, TRUE);
  for (guint i = 0; i < TUNNELS; i++) {
    world_await_end(fds[i]);
    close(fds[i]);
  }
  for (guint i = 0; i < STUCK; i++) {
    world_await_end(stuck[i]);
    close(stuck[i]);
  }
  /* Each is counted, and what went through them, to the byte. */
  g_autofree char *usage = world_usage(world, token);
  g_auto(GStrv) rows = g_strsplit(usage, "\n", -1);
  guint through = TUNNELS * hello->len + lived * W_LIFE_BYTES;
  g_autofree char *row = g_strdup_printf(W_HOST ":443 %d %u %u 0", TUNNELS, through, through);
  g_autofree char *stuck_row = g_strdup_printf(W_HOST ":445 %d %u ", STUCK, STUCK * hello->len);
  g_assert_cmpstr(rows[0], ==, row);
  g_assert_true(g_str_has_prefix(rows[1], stuck_row));
  world_free(world);
}

static guint files_n(GPid pid)
{
  g_autofree char *path = g_strdup_printf("/proc/%d/fd", pid);
  g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
  guint n = 0;
  g_assert_nonnull(dir);
  while (g_dir_read_name(dir) != NULL)
    n++;
  return n;
}

/* Connections that were refused and stay take no descriptor away from others: they wait for their end in so many places as those that
 * have not said who they are. */
static void test_refused(void)
{
  enum { REFUSED = 3000, PLACES = 1024, BESIDE = 64 };
  World *world = open_world(NULL);
  g_autofree char *token = world_token(world, hosts, NULL, 600000);
  g_autofree int *fds = g_new(int, REFUSED);
  int kept = world_tunnel(world, token);
  guint most = 0;
  for (guint i = 0; i < REFUSED; i++) {
    fds[i] = world_connect(world);
    world_send(fds[i], "GET / HTTP/1.1\r\n\r\n", 18);
    g_free(world_head(fds[i]));
    if (i % 50 == 0)
      most = MAX(most, files_n(world_proxy_pid(world)));
  }
  g_test_message("%u descriptors at most", most);
  g_assert_cmpuint(most, <=, PLACES + BESIDE);
  g_assert_true(world_tunnel_lives(kept));
  int fd = world_tunnel(world, token);
  close(fd);
  close(kept);
  for (guint i = 0; i < REFUSED; i++)
    close(fds[i]);
  world_free(world);
}

/* Connections that say nothing do not keep others out. */
static void test_slow(void)
{
  enum { SLOW = 1500 };
  World *world = open_world(NULL);
  g_autofree int *fds = g_new(int, SLOW);
  for (guint i = 0; i < SLOW; i++) {
    fds[i] = world_connect(world);
    world_send(fds[i], "CONNECT ", 8);
  }
  g_autofree char *token = world_token(world, hosts, NULL, 600000);
  int fd = world_tunnel(world, token);
  g_assert_true(world_tunnel_lives(fd));
  close(fd);
  for (guint i = 0; i < SLOW; i++)
    close(fds[i]);
  world_free(world);
}

static void test_reload(void)
{
  g_autofree char *folder = g_dir_make_tmp("qv-egress-XXXXXX", NULL);
  g_autofree char *path = g_build_filename(folder, "registries", NULL);
  g_assert_true(g_file_set_contents(path, W_HOST "\n", -1, NULL));
  g_autofree char *variable = g_strconcat("QUAVON_SANDBOX_REGISTRIES_FILE=", path, NULL);
  const char *environment[] = {variable, NULL};
  world_name(W_HOST, W_PUBLIC, NULL);
  World *world = world_new(environment);
  g_autofree char *token = world_token(world, hosts, NULL, 600000);
  int fd = world_tunnel(world, token);
  /* a bad list changes nothing */
  g_assert_true(g_file_set_contents(path, "*.example\n", -1, NULL));
  kill(world_proxy_pid(world), SIGHUP);
  world_await_log(world, "reload failed");
  g_assert_true(world_tunnel_lives(fd));
  /* one without the host cuts its tunnels */
  g_assert_true(g_file_set_contents(path, "# " W_HOST "\nother.allowed.example\n", -1, NULL));
  kill(world_proxy_pid(world), SIGHUP);
  world_await_end(fd);
  close(fd);
  g_autofree char *verdict = ask_target(world, W_HOST ":443", token);
  g_assert_cmpstr(verdict, ==, "403 host_not_listed");
  g_assert_true(g_file_set_contents(path, W_HOST "\n", -1, NULL));
  kill(world_proxy_pid(world), SIGHUP);
  do {
    g_free(verdict);
    verdict = ask_target(world, W_HOST ":443", token);
  } while (strcmp(verdict, "403 host_not_listed") == 0);
  g_assert_cmpstr(verdict, ==, "200 ");
  world_free(world);
  unlink(path);
  rmdir(folder);
}

static void reload(World *world, const char *path, const char *list)
{
  g_assert_true(g_file_set_contents(path, list, -1, NULL));
  kill(world_proxy_pid(world), SIGHUP);
}

/* Rules that became narrower hold for what is open: a range that went, a host that went, whatever a tunnel is at. */
static void test_reload_narrows(void)
{
#define PRIVATE "private.allowed.example"
#define STALLED "stalled.allowed.example"
  static const char *const all[] = {W_HOST ":443", PRIVATE ":443", PRIVATE ":8443", STALLED ":446", NULL};
  g_autofree char *folder = g_dir_make_tmp("qv-egress-XXXXXX", NULL);
  g_autofree char *path = g_build_filename(folder, "registries", NULL);
  g_assert_true(g_file_set_contents(path, W_HOST "\n" PRIVATE "@10.0.0.0/8\n" PRIVATE ":8443@10.0.0.0/8\n" STALLED ":446\n", -1, NULL));
  g_autofree char *variable = g_strconcat("QUAVON_SANDBOX_REGISTRIES_FILE=", path, NULL);
  const char *environment[] = {variable, "QUAVON_EGRESS_HEAD_MS=300000", "QUAVON_EGRESS_CONNECT_MS=120000", NULL};
  world_name(W_HOST, W_PUBLIC, NULL);
  world_name(PRIVATE, W_PRIVATE, NULL);
  world_name(STALLED, W_PUBLIC, NULL);
  World *world = world_new(environment);
  g_autofree char *token = world_token(world, all, NULL, 600000);
  int public = world_tunnel(world, token), kept = world_tunnel_to(world, token, PRIVATE, 8443, FALSE);
  int open = world_tunnel_to(world, token, PRIVATE, 443, FALSE), silent = world_tunnel_to(world, token, PRIVATE, 443, TRUE);
  int connecting = world_connect(world);
  g_autofree char *request = world_request(STALLED ":446", token);
  world_send(connecting, request, strlen(request));
  QV_TEST_WAIT(world_lookups(STALLED) == 1);

  /* 443 keeps a part of its range that does not hold the address; the host that stalls is gone. */
  gint64 from_ms = qv_clock_mono_ms();
  reload(world, path, W_HOST "\n" PRIVATE "@10.1.0.0/16\n" PRIVATE ":8443@10.0.0.0/24\n");
  await_cut(open, from_ms, "open");
  await_cut(silent, from_ms, "before its hello");
  g_autofree char *head = world_head(connecting);
  g_autofree char *told = world_verdict(head);
  g_assert_cmpstr(told, ==, "403 host_not_listed");
  await_cut(connecting, from_ms, "connecting");
  g_autofree char *verdict = ask_target(world, PRIVATE ":443", token);
  g_assert_cmpstr(verdict, ==, "403 address_refused");
  world_await_log(world, "\"cut\":\"3\"");
  g_assert_true(world_tunnel_lives(public));
  g_assert_true(world_tunnel_lives(kept));

  /* No range at all, and only the other port. */
  from_ms = qv_clock_mono_ms();
  reload(world, path, PRIVATE ":8443\n" W_HOST ":8443\n");
  await_cut(kept, from_ms, "its range is gone");
  await_cut(public, from_ms, "its port is gone");
  world_free(world);
  unlink(path);
  rmdir(folder);
}

static void test_drain(void)
{
  static const char *const short_grace[] = {"QUAVON_SANDBOX_GRACE_MS=10000", NULL};
  World *world = open_world(short_grace);
  g_autofree char *token = world_token(world, hosts, NULL, 600000);
  int fd = world_tunnel(world, token);
  kill(world_proxy_pid(world), SIGTERM);
  world_await_log(world, "draining");
  g_assert_true(world_tunnel_lives(fd)); /* goes on for the grace period */
  world_await_end(fd);
  close(fd);
  g_autofree char *usage = world_usage(world, token);
  g_assert_true(g_str_has_prefix(usage, W_HOST ":443 1 "));
  g_assert_cmpint(world_stop(world), ==, 0);
  world_free(world);
}

/* A resolver process that dies is started again; one question may be lost, not the service. */
static void test_resolver_killed(void)
{
  World *world = open_world(NULL);
  g_autofree char *token = world_token(world, hosts, NULL, 600000);
  g_autofree char *children = g_strdup_printf("/proc/%d/task/%d/children", world_proxy_pid(world), world_proxy_pid(world));
  g_autofree char *pids = NULL;
  g_assert_true(g_file_get_contents(children, &pids, NULL, NULL));
  g_auto(GStrv) all = g_strsplit(g_strstrip(pids), " ", -1);
  g_assert_cmpuint(g_strv_length(all), ==, 4);
  for (guint i = 0; all[i] != NULL; i++)
    kill(atoi(all[i]), SIGKILL);
  world_await_log(world, "a resolver process ended");
  g_autofree char *verdict = NULL;
  do {
    g_free(verdict);
    verdict = ask_target(world, W_HOST ":443", token);
  } while (g_str_has_prefix(verdict, "504"));
  g_assert_cmpstr(verdict, ==, "200 ");
  world_free(world);
}

static void die_with_test(gpointer unused)
{
  prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void test_real_tls(void)
{
  g_autofree char *folder = g_dir_make_tmp("qv-egress-XXXXXX", NULL);
  g_autofree char *script = g_strdup_printf(
    "cd %s && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=" W_HOST
    " -addext subjectAltName=DNS:" W_HOST " 2>log && exec openssl s_server -accept 11.22.33.2:443 -key key.pem -cert cert.pem -www >>log 2>&1",
    folder);
  /* The far side of this test is OpenSSL's, beside the one that echoes. */
  const char *argv[] = {"/bin/sh", "-c", script, NULL};
  g_autoptr(GError) error = NULL;
  GPid server;
  g_assert_true(g_spawn_async(NULL, (char **)argv, NULL, G_SPAWN_DO_NOT_REAP_CHILD, die_with_test, NULL, &server, &error));
  World *world = open_world(NULL);
  world_name(W_HOST, "11.22.33.2", NULL);
  g_autofree char *token = world_token(world, hosts, NULL, 600000);
  g_autofree char *client = g_strdup_printf(
    "cd %s && printf 'GET / HTTP/1.0\\r\\n\\r\\n' | openssl s_client -proxy 127.0.0.1:%u -proxy_user job -proxy_pass pass:%s -connect " W_HOST
    ":443 -servername \"$1\" -CAfile cert.pem -verify_return_error -ign_eof 2>>client.log",
    folder, W_PROXY_PORT, token);
  const char *good[] = {"/bin/sh", "-c", client, "sh", W_HOST, NULL};
  const char *bad[] = {"/bin/sh", "-c", client, "sh", "evil.example", NULL};
  g_autofree char *page = NULL;
  gint64 until_ms = qv_clock_mono_ms() + QV_TEST_DEADLINE_S * 1000;
  do {
    g_free(page);
    g_assert_true(g_spawn_sync(NULL, (char **)good, NULL, G_SPAWN_DEFAULT, NULL, NULL, &page, NULL, NULL, &error));
    qv_test_turn_ms(200);
  } while (strstr(page, "s_server") == NULL && qv_clock_mono_ms() < until_ms); /* the server may not listen yet */
  g_assert_nonnull(strstr(page, "s_server"));
  g_autofree char *refused = NULL;
  g_assert_true(g_spawn_sync(NULL, (char **)bad, NULL, G_SPAWN_DEFAULT, NULL, NULL, &refused, NULL, NULL, &error));
  g_assert_null(strstr(refused, "s_server"));
  world_await_log(world, "\"reason\":\"server_name\"");
  world_free(world);
  kill(server, SIGKILL);
  waitpid(server, NULL, 0);
  g_autofree char *clean = g_strdup_printf("rm -rf %s", folder);
  g_assert_cmpint(system(clean), ==, 0);
}

int main(int argc, char **argv)
{
  if (!world_enter())
    return 0;
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/life/revoked", test_revoked);
  g_test_add_func("/life/expired", test_expired);
  g_test_add_func("/life/valkey-away", test_valkey_away);
  g_test_add_func("/life/source", test_source);
  g_test_add_func("/life/limits", test_limits);
  g_test_add_func("/life/usage", test_usage);
  g_test_add_func("/life/many", test_many);
  g_test_add_func("/life/slow", test_slow);
  g_test_add_func("/life/refused", test_refused);
  g_test_add_func("/life/reload", test_reload);
  g_test_add_func("/life/reload-narrows", test_reload_narrows);
  g_test_add_func("/life/drain", test_drain);
  g_test_add_func("/life/resolver-killed", test_resolver_killed);
  g_test_add_func("/life/real-tls", test_real_tls);
  return g_test_run();
}
