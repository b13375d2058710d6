/* SPDX-License-Identifier: Apache-2.0 */
/* One connection against a real server: pipelining, losses, deadlines, refusals. */
#include <signal.h>
#include <string.h>

#include "base/error.h"
#include "queue/ask.h"
#include "queue/conn.h"
#include "support/loop.h"
#include "support/proxy.h"
#include "support/valkey.h"

typedef struct {
  guint n;
  QvReplyType type;
  char text[64];
  gsize len;
  gint64 integer;
  gint code; /* of the error, or -1 */
  char message[512];
} Seen;

static void see(const QvReply *reply, const GError *error, gpointer user)
{
  Seen *seen = user;
  seen->n++;
  seen->code = error ? error->code : -1;
  g_assert_true(!reply != !error);
  if (error)
    g_strlcpy(seen->message, error->message, sizeof seen->message);
  if (!reply)
    return;
  seen->type = reply->type;
  seen->integer = reply->integer;
  seen->len = reply->len;
  g_strlcpy(seen->text, reply->text ? reply->text : "", sizeof seen->text);
}

static QvConn *open_conn(const char *url)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvAddress) address = qv_address_parse(url, &error);
  g_assert_no_error(error);
  return qv_conn_new(address, "test-client");
}

static QvConn *open_proxied(QvTestValkey *v, QvTestProxy *p, const char *user)
{
  g_autofree char *url = g_strdup_printf("unix://%s:%s@%s", user, qv_test_valkey_password(v), qv_test_proxy_socket(p));
  return open_conn(url);
}

static void test_pipeline(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_TCP);
  const char *urls[] = { qv_test_valkey_url(v, "admin"), qv_test_valkey_tcp_url(v, "admin") };
  for (gsize u = 0; u < G_N_ELEMENTS(urls); u++) {
    g_autoptr(QvConn) conn = open_conn(urls[u]);
    Seen seen[200] = { 0 };
    for (int i = 0; i < 200; i++)
      qv_conn_sendl(conn, QV_SEND_ONCE, 0, see, &seen[i], "INCR", u ? "b" : "a", NULL);
    g_assert_cmpuint(seen[0].n, ==, 0);
    QV_TEST_WAIT(seen[199].n == 1);
    for (int i = 0; i < 200; i++)
      g_assert_cmpint(seen[i].integer, ==, i + 1);
    g_autofree char *list = qv_test_valkey_cli(v, "CLIENT", "LIST", NULL);
    g_assert_nonnull(strstr(list, "name=test-client"));
  }
}

static void test_big_value(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  g_autoptr(QvConn) conn = open_conn(qv_test_valkey_url(v, "admin"));
  gsize n = 8 * 1024 * 1024;
  g_autofree char *big = g_malloc(n);
  memset(big, 'x', n);
  big[7] = '\0';
  Seen set = { 0 }, get = { 0 };
  const char *argv[] = { "SET", "big", big };
  gsize lens[] = { 3, 3, n };
  qv_conn_send(conn, QV_SEND_AGAIN, 0, 3, argv, lens, see, &set);
  qv_conn_sendl(conn, QV_SEND_AGAIN, 0, see, &get, "GET", "big", NULL);
  QV_TEST_WAIT(get.n == 1);
  g_assert_cmpuint(get.len, ==, n);
  g_assert_cmpstr(get.text, ==, "xxxxxxx");
}

static void test_restart(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_PERSIST);
  g_autoptr(QvConn) conn = open_conn(qv_test_valkey_url(v, "admin"));
  Seen first = { 0 }, blocked = { 0 }, again = { 0 }, cancelled = { 0 };
  qv_conn_sendl(conn, QV_SEND_AGAIN, 0, see, &first, "SET", "k", "v", NULL);
  QV_TEST_WAIT(first.n == 1);
  qv_conn_sendl(conn, QV_SEND_ONCE, 0, see, &blocked, "BLPOP", "nothing", "0", NULL);
  qv_test_turn_ms(200);
  qv_test_valkey_kill(v);
  QV_TEST_WAIT(blocked.n == 1);
  g_assert_cmpint(blocked.code, ==, QV_ERROR_GONE);
  guint64 id = qv_conn_sendl(conn, QV_SEND_AGAIN, 0, see, &cancelled, "GET", "k", NULL);
  qv_conn_sendl(conn, QV_SEND_AGAIN, 0, see, &again, "GET", "k", NULL);
  qv_conn_cancel(conn, id);
  qv_test_turn_ms(500);
  g_assert_cmpuint(again.n, ==, 0);
  qv_test_valkey_restart(v);
  QV_TEST_WAIT(again.n == 1);
  g_assert_cmpstr(again.text, ==, "v");
  g_assert_cmpuint(cancelled.n, ==, 0);
  g_assert_cmpuint(blocked.n, ==, 1);
}

/* A reply that was lost: AGAIN is sent again, ONCE and PATIENT fail with GONE and were carried out once. */
static void test_lost_reply(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  g_autoptr(QvTestProxy) p = qv_test_proxy_start(qv_test_valkey_dir(v), qv_test_valkey_socket(v));
  g_autoptr(QvConn) conn = open_proxied(v, p, "admin");
  const QvSend sends[] = { QV_SEND_ONCE, QV_SEND_PATIENT, QV_SEND_AGAIN };
  const char *counters[] = { "once", "patient", "again" };
  for (int i = 0; i < 3; i++) {
    Seen seen = { 0 }, value = { 0 };
    qv_test_proxy_lose_reply_to(p, counters[i], 1);
    qv_conn_sendl(conn, sends[i], 0, see, &seen, "INCR", counters[i], NULL);
    QV_TEST_WAIT(seen.n == 1);
    g_assert_cmpint(seen.code, ==, i < 2 ? QV_ERROR_GONE : -1);
    qv_conn_sendl(conn, QV_SEND_AGAIN, 0, see, &value, "GET", counters[i], NULL);
    QV_TEST_WAIT(value.n == 1);
    g_assert_cmpstr(value.text, ==, i < 2 ? "1" : "2");
  }
  g_assert_cmpuint(qv_test_proxy_lost_n(p), ==, 3);
}

typedef struct {
  guint timeouts, ups;
} States;

static void count_states(QvConn *conn, QvConnState state, const GError *why, gpointer user)
{
  States *s = user;
  s->ups += state == QV_CONN_UP;
  s->timeouts += why && g_error_matches(why, QV_ERROR, QV_ERROR_TIMEOUT);
}

/* Nothing is closed, no byte moves: an idle connection, one that waits for an answer and one that goes on sending all see it
 * by themselves. Within 10 s is what unit test queue/silence shows; this allows five times that on a slow machine. */
static void test_half_open(void)
{
  const gint64 found_s = 50;
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  g_autoptr(QvTestProxy) p = qv_test_proxy_start(qv_test_valkey_dir(v), qv_test_valkey_socket(v));
  g_autoptr(QvConn) idle = open_proxied(v, p, "worker"), busy = open_proxied(v, p, "admin"),
                    talking = open_proxied(v, p, "admin");
  States idle_states = { 0 }, busy_states = { 0 }, talking_states = { 0 };
  qv_conn_set_state_func(idle, count_states, &idle_states);
  qv_conn_set_state_func(busy, count_states, &busy_states);
  qv_conn_set_state_func(talking, count_states, &talking_states);
  QV_TEST_WAIT(idle_states.ups == 1 && busy_states.ups == 1 && talking_states.ups == 1);
  qv_test_turn_ms(QV_SILENCE_ASK_MS * 2);
  g_assert_cmpuint(idle_states.timeouts, ==, 0);
  qv_test_proxy_freeze(p, TRUE);
  Seen seen = { 0 };
  qv_conn_sendl(busy, QV_SEND_AGAIN, 0, see, &seen, "GET", "k", NULL);
  gint64 end_us = g_get_monotonic_time() + found_s * G_USEC_PER_SEC;
  while (idle_states.timeouts == 0 || busy_states.timeouts == 0 || talking_states.timeouts == 0) {
    g_assert_cmpint(g_get_monotonic_time(), <, end_us);
    qv_conn_sendl(talking, QV_SEND_AGAIN, 0, NULL, NULL, "GET", "k", NULL);
    qv_test_turn_ms(300);
  }
  g_assert_cmpuint(seen.n, ==, 0);
  qv_test_proxy_freeze(p, FALSE);
  qv_test_proxy_cut(p);
  QV_TEST_WAIT(seen.n == 1 && idle_states.ups >= 2);
  g_assert_cmpint(seen.code, ==, -1);
}

static void test_stopped_server(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  g_autoptr(QvConn) conn = open_conn(qv_test_valkey_url(v, "worker"));
  States states = { 0 };
  Seen seen = { 0 };
  qv_conn_set_state_func(conn, count_states, &states);
  QV_TEST_WAIT(states.ups == 1);
  kill(qv_test_valkey_pid(v), SIGSTOP);
  QV_TEST_WAIT(states.timeouts > 0);
  kill(qv_test_valkey_pid(v), SIGCONT);
  qv_conn_sendl(conn, QV_SEND_AGAIN, 0, see, &seen, "PING", NULL);
  QV_TEST_WAIT(seen.n == 1);
  g_assert_cmpstr(seen.text, ==, "PONG");
}

static void test_deadline(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  g_autoptr(QvConn) conn = open_conn(qv_test_valkey_url(v, "admin"));
  Seen blocked = { 0 }, after = { 0 };
  qv_conn_sendl(conn, QV_SEND_ONCE, 100, see, &blocked, "BLPOP", "nothing", "1", NULL);
  qv_conn_sendl(conn, QV_SEND_ONCE, 0, see, &after, "ECHO", "hello", NULL);
  QV_TEST_WAIT(blocked.n == 1);
  g_assert_cmpint(blocked.code, ==, QV_ERROR_TIMEOUT);
  /* The late reply of the first is not taken for the second's. */
  QV_TEST_WAIT(after.n == 1);
  g_assert_cmpstr(after.text, ==, "hello");
  qv_test_valkey_kill(v);
  Seen down = { 0 };
  qv_conn_sendl(conn, QV_SEND_AGAIN, 500, see, &down, "PING", NULL);
  QV_TEST_WAIT(down.n == 1);
  g_assert_cmpint(down.code, ==, QV_ERROR_TIMEOUT);
  g_assert_nonnull(strstr(down.message, "valkey.sock"));
}

static void test_refusals(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  g_autofree char *url = g_strdup_printf("unix://worker:wrong@%s", qv_test_valkey_socket(v));
  g_autoptr(QvConn) conn = open_conn(url), good = open_conn(qv_test_valkey_url(v, "worker"));
  Seen seen = { 0 };
  qv_conn_set_fail_fast(conn, TRUE);
  qv_conn_sendl(conn, QV_SEND_AGAIN, 0, see, &seen, "PING", NULL);
  QV_TEST_WAIT(seen.n == 1);
  g_assert_cmpint(seen.code, ==, QV_ERROR_AUTH);
  g_assert_nonnull(strstr(seen.message, "worker"));
  g_assert_null(strstr(seen.message, "wrong@"));
  Seen config = { 0 }, foreign = { 0 };
  qv_conn_sendl(good, QV_SEND_AGAIN, 0, see, &config, "CONFIG", "GET", "*", NULL);
  qv_conn_sendl(good, QV_SEND_AGAIN, 0, see, &foreign, "GET", "somebody:else", NULL);
  QV_TEST_WAIT(config.n == 1 && foreign.n == 1);
  g_assert_cmpint(config.code, ==, QV_ERROR_AUTH);
  g_assert_cmpint(foreign.code, ==, QV_ERROR_AUTH);
  g_assert_nonnull(strstr(foreign.message, "NOPERM"));
}

static void test_nobody_there(void)
{
  g_autoptr(QvConn) conn = open_conn("unix:///tmp/qv-no-such-folder/valkey.sock");
  Seen seen = { 0 };
  qv_conn_set_fail_fast(conn, TRUE);
  qv_conn_sendl(conn, QV_SEND_AGAIN, 0, see, &seen, "PING", NULL);
  QV_TEST_WAIT(seen.n == 1);
  g_assert_cmpint(seen.code, ==, QV_ERROR_GONE);
}

/* "Not now" of two kinds from the real server: OOM, READONLY. (LOADING and MASTERDOWN: test_life.c.) */
static void test_not_now(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_PERSIST);
  g_autoptr(QvConn) conn = open_conn(qv_test_valkey_url(v, "admin"));
  Seen once = { 0 }, again = { 0 }, patient = { 0 };
  g_free(qv_test_valkey_cli(v, "CONFIG", "SET", "maxmemory", "1", NULL));
  qv_conn_sendl(conn, QV_SEND_ONCE, 0, see, &once, "SET", "k", "1", NULL);
  qv_conn_sendl(conn, QV_SEND_AGAIN, 0, see, &again, "SET", "k", "2", NULL);
  qv_conn_sendl(conn, QV_SEND_PATIENT, 0, see, &patient, "SET", "l", "2", NULL);
  QV_TEST_WAIT(once.n == 1);
  g_assert_cmpint(once.code, ==, QV_ERROR_PEER);
  qv_test_turn_ms(300);
  g_assert_cmpuint(again.n + patient.n, ==, 0);
  g_free(qv_test_valkey_cli(v, "CONFIG", "SET", "maxmemory", "0", NULL));
  QV_TEST_WAIT(again.n == 1 && patient.n == 1);
  g_assert_cmpstr(again.text, ==, "OK");

  Seen readonly = { 0 };
  g_free(qv_test_valkey_cli(v, "REPLICAOF", "127.0.0.1", "1", NULL));
  qv_conn_sendl(conn, QV_SEND_AGAIN, 0, see, &readonly, "SET", "k", "3", NULL);
  qv_test_turn_ms(300);
  g_assert_cmpuint(readonly.n, ==, 0);
  g_free(qv_test_valkey_cli(v, "REPLICAOF", "NO", "ONE", NULL));
  QV_TEST_WAIT(readonly.n == 1);
  g_assert_cmpint(readonly.code, ==, -1);
}

typedef struct {
  QvConn *conn;
  Seen seen;
} Next;

static void ask_next(const QvReply *reply, const GError *error, gpointer user)
{
  Next *next = user;
  g_assert_nonnull(error);
  qv_conn_sendl(next->conn, QV_SEND_ONCE, 0, see, &next->seen, "PING", NULL);
}

/* The link is given up after this answer: what its callback sends is not lost with it. */
static void test_send_while_moving(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  g_autoptr(QvConn) conn = open_conn(qv_test_valkey_url(v, "admin"));
  Next next = { .conn = conn };
  g_free(qv_test_valkey_cli(v, "REPLICAOF", "127.0.0.1", "1", NULL));
  qv_conn_sendl(conn, QV_SEND_ONCE, 0, ask_next, &next, "SET", "k", "1", NULL);
  QV_TEST_WAIT(next.seen.n == 1);
  g_assert_cmpint(next.seen.code, ==, -1);
  g_assert_cmpstr(next.seen.text, ==, "PONG");
}

static void free_conn(const QvReply *reply, const GError *error, gpointer user)
{
  QvConn **conn = user;
  qv_conn_free(g_steal_pointer(conn));
}

static void test_free_in_callback(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  QvConn *conn = open_conn(qv_test_valkey_url(v, "worker"));
  Seen pending = { 0 };
  qv_conn_sendl(conn, QV_SEND_AGAIN, 0, free_conn, &conn, "PING", NULL);
  qv_conn_sendl(conn, QV_SEND_AGAIN, 0, see, &pending, "PING", NULL);
  QV_TEST_WAIT(pending.n == 1);
  g_assert_cmpint(pending.code, ==, QV_ERROR_CANCELLED);
  g_assert_null(conn);
}

typedef struct {
  QvConn *conn;
  Seen seen[2];
  guint turns_n;
} Slow;

static void send_late(const QvReply *reply, const GError *error, gpointer user)
{
  Slow *slow = user;
  g_assert_no_error(error);
  qv_conn_sendl(slow->conn, QV_SEND_ONCE, 0, see, &slow->seen[0], "INCR", "n", NULL);
  g_usleep((QV_SILENCE_DEAD_MS + 200) * 1000);
  qv_conn_sendl(slow->conn, QV_SEND_ONCE, 0, see, &slow->seen[1], "INCR", "n", NULL);
}

/* A callback, or the whole process, stands still for longer than a peer may be silent. What it sent is written after that, and
 * the wait for its answers begins then. */
static void test_slow_callback(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  g_autoptr(QvConn) conn = open_conn(qv_test_valkey_url(v, "admin"));
  States states = { 0 };
  Slow slow = { .conn = conn };
  qv_conn_set_state_func(conn, count_states, &states);
  qv_conn_sendl(conn, QV_SEND_ONCE, 0, send_late, &slow, "PING", NULL);
  QV_TEST_WAIT(slow.seen[0].n == 1 && slow.seen[1].n == 1);
  for (int i = 0; i < 2; i++) {
    g_assert_cmpint(slow.seen[i].code, ==, -1);
    g_assert_cmpint(slow.seen[i].integer, ==, i + 1);
  }
  g_assert_cmpuint(states.timeouts, ==, 0);
  g_assert_cmpuint(states.ups, ==, 1);
}

/* The answers to what was sent before, which came with this one or come later, are handed out first. */
static void ask_inside(const QvReply *reply, const GError *error, gpointer user)
{
  Slow *slow = user;
  g_autoptr(GError) asked = NULL;
  g_assert_no_error(error);
  g_assert_cmpuint(slow->seen[0].n, ==, 0);
  g_assert_true(qv_conn_ask(slow->conn, 0, &asked, "INCR", "n", NULL));
  g_assert_no_error(asked);
  g_assert_cmpuint(slow->seen[0].n, ==, 1);
  g_assert_cmpuint(slow->seen[1].n, ==, 1);
}

/* Of the client's functions those that a callback may call wait for their answer. */
static void test_loop_in_callback(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_TCP);
  const char *urls[] = { qv_test_valkey_url(v, "admin"), qv_test_valkey_tcp_url(v, "admin") };
  for (gsize u = 0; u < G_N_ELEMENTS(urls); u++) {
    g_autoptr(QvConn) conn = open_conn(urls[u]);
    States states = { 0 };
    Slow slow = { .conn = conn };
    Seen last = { 0 };
    qv_conn_set_state_func(conn, count_states, &states);
    qv_conn_sendl(conn, QV_SEND_ONCE, 0, NULL, NULL, "SET", "n", "0", NULL);
    qv_conn_sendl(conn, QV_SEND_ONCE, 0, ask_inside, &slow, "PING", NULL);
    qv_conn_sendl(conn, QV_SEND_ONCE, 0, see, &slow.seen[0], "INCR", "n", NULL);
    qv_conn_sendl(conn, QV_SEND_ONCE, 0, see, &slow.seen[1], "BLPOP", "nothing", "0.2", NULL);
    QV_TEST_WAIT(slow.seen[1].n == 1);
    qv_conn_sendl(conn, QV_SEND_ONCE, 0, see, &last, "GET", "n", NULL);
    QV_TEST_WAIT(last.n == 1);
    g_assert_cmpint(slow.seen[0].integer, ==, 1);
    g_assert_cmpstr(last.text, ==, "2");
    g_assert_cmpuint(states.timeouts, ==, 0);
    g_assert_cmpuint(states.ups, ==, 1);
  }
}

static void dwell(const QvReply *reply, const GError *error, gpointer user)
{
  Slow *slow = user;
  g_assert_no_error(error);
  qv_conn_sendl(slow->conn, QV_SEND_ONCE, 0, see, &slow->seen[0], "BLPOP", "nothing", "0.2", NULL);
  guint wake = g_timeout_add(20, qv_test_wake, NULL);
  for (gint64 end = g_get_monotonic_time() + (QV_SILENCE_FOUND_MS + 500) * 1000; g_get_monotonic_time() < end; slow->turns_n++)
    g_main_context_iteration(NULL, TRUE);
  g_source_remove(wake);
  g_assert_cmpuint(slow->seen[0].n, ==, 1);
}

/* There the server is asked for signs of life as anywhere, and the loop sleeps between two events. */
static void test_long_loop_in_callback(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  g_autoptr(QvConn) conn = open_conn(qv_test_valkey_url(v, "admin"));
  States states = { 0 };
  Slow slow = { .conn = conn };
  qv_conn_set_state_func(conn, count_states, &states);
  qv_conn_sendl(conn, QV_SEND_ONCE, 0, dwell, &slow, "PING", NULL);
  QV_TEST_WAIT(slow.turns_n > 0);
  qv_conn_sendl(conn, QV_SEND_ONCE, 0, see, &slow.seen[1], "PING", NULL);
  QV_TEST_WAIT(slow.seen[1].n == 1);
  g_assert_cmpint(slow.seen[0].code, ==, -1);
  g_assert_cmpint(slow.seen[1].code, ==, -1);
  g_assert_cmpuint(slow.turns_n, <, 5000); /* the timer alone: 475 */
  g_assert_cmpuint(states.timeouts, ==, 0);
  g_assert_cmpuint(states.ups, ==, 1);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/queue/conn/pipeline", test_pipeline);
  g_test_add_func("/queue/conn/big-value", test_big_value);
  g_test_add_func("/queue/conn/restart", test_restart);
  g_test_add_func("/queue/conn/lost-reply", test_lost_reply);
  g_test_add_func("/queue/conn/half-open", test_half_open);
  g_test_add_func("/queue/conn/stopped-server", test_stopped_server);
  g_test_add_func("/queue/conn/deadline", test_deadline);
  g_test_add_func("/queue/conn/refusals", test_refusals);
  g_test_add_func("/queue/conn/nobody-there", test_nobody_there);
  g_test_add_func("/queue/conn/not-now", test_not_now);
  g_test_add_func("/queue/conn/send-while-moving", test_send_while_moving);
  g_test_add_func("/queue/conn/free-in-callback", test_free_in_callback);
  g_test_add_func("/queue/conn/slow-callback", test_slow_callback);
  g_test_add_func("/queue/conn/loop-in-callback", test_loop_in_callback);
  g_test_add_func("/queue/conn/long-loop-in-callback", test_long_loop_in_callback);
  return g_test_run();
}
