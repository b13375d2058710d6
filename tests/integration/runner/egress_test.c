/* SPDX-License-Identifier: Apache-2.0 */
/* A setup step's way to the proxy through a real sandbox, and its end: by setup's end, by the job
 * process's, by the runner's, and with Valkey away. The proxy is a fake that never cuts anything:
 * whatever ends was ended by the runner. */
#include <glib.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "way_job.h"

#define REGISTRIES "QUAVON_SANDBOX_REGISTRIES=good.example,refused.example:8443"

/* In the run step: everything that might be a way out must fail, each with a line of its own. */
#define PROBE \
  "import os, socket, glob\n" \
  "def tcp(name, host, port):\n" \
  "  try:\n" \
  "    socket.create_connection((host, port), 3); print(name, 'OPEN')\n" \
  "  except OSError as e: print(name, 'closed')\n" \
  "def unix(name, path):\n" \
  "  s = socket.socket(socket.AF_UNIX); s.settimeout(3)\n" \
  "  try:\n" \
  "    s.connect(path)\n" \
  "    s.sendall(b'CONNECT good.example:443 HTTP/1.1\\r\\n\\r\\n')\n" \
  "    print(name, 'OPEN' if s.recv(1) else 'closed')\n" \
  "  except OSError: print(name, 'closed')\n" \
  "unix('socket', '/run/quavon/egress.sock')\n" \
  "for p in open('port').read().split(): tcp('forwarder', '127.0.0.1', int(p))\n" \
  "try:\n" \
  "  socket.getaddrinfo('good.example', 443); print('name OPEN')\n" \
  "except OSError: print('name closed')\n" \
  "for a in [%s]: tcp('host', a, 22); tcp('host', a, 443)\n" \
  "tcp('metadata', '169.254.169.254', 80)\n" \
  "print('proxy', [n for n in os.environ if 'proxy' in n.lower()])\n" \
  "print('routes', len(open('/proc/net/route').readlines()) - 1)\n"

static World *world;
static FakeProxy *proxy;

static void start(void)
{
  g_autofree char *address = g_strconcat("QUAVON_SANDBOX_EGRESS_PROXY=", fake_proxy_path(proxy), NULL);
  const char *extra[] = {REGISTRIES, address, NULL};
  world_start(world, extra);
}

static QvJob *egress_job(const char *setup, const char *run)
{
  return way_job_new(world, NULL, "good.example:443", NULL, setup, run);
}

static guint notes_n(void)
{
  g_autofree char *folder = g_build_filename(world->state_dir, "tokens", NULL);
  g_autoptr(GDir) dir = g_dir_open(folder, 0, NULL);
  guint n = 0;
  while (dir != NULL && g_dir_read_name(dir) != NULL)
    n++;
  return n;
}

static void expect_nothing_left(void)
{
  g_autofree char *key = way_job_token_key(proxy);
  AWAIT(!world_key_exists(world, key));
  AWAIT(notes_n() == 0);
  AWAIT(fake_proxy_open_n(proxy) == 0);
  g_autofree char *sockets = g_build_filename(world->state_dir, "egress", NULL);
  g_autoptr(GDir) dir = g_dir_open(sockets, 0, NULL);
  g_assert_nonnull(dir);
  g_assert_null(g_dir_read_name(dir));
  world_expect_clean(world);
}

static void test_way(void)
{
  g_autofree char *addresses = way_job_host_addresses(), *probe = g_strdup_printf(PROBE, addresses);
  g_autofree char *run = g_strdup_printf("cat > probe.py <<'EOF'\n%sEOF\npython3 probe.py", probe);
  g_autoptr(QvJob) job = egress_job(
                                    "echo ${HTTP_PROXY##*:} > port; dial good.example:443 ping; dial refused.example:8443 none;"
                                    "grep -c . /proc/self/environ; env | grep -ci token; ls -ln /run/quavon | tail -1", run);
  char sha256[65];
  world_add(world, job, sha256);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_autofree char *setup = world_payload_log(world, job, result, -1);
  g_test_message("%s", setup);
  g_assert_true(g_str_has_prefix(setup, "HTTP/1.1 200 OK\nping\nquavon: refused.example:8443 refused: not_listed: no\nHTTP/1.1 403 Forbidden\n"));
  g_autofree char *log = world_payload_log(world, job, result, 0);
  g_test_message("%s", log);
  g_assert_null(strstr(log, "OPEN"));
  g_assert_nonnull(strstr(log, "socket closed\nforwarder closed\nname closed\nhost closed\n"));
  g_assert_nonnull(strstr(log, "metadata closed\nproxy []\nroutes 0\n"));
  g_assert_null(qv_code_text(result->code));
  g_assert_false(result->has_egress); /* this proxy gives no account */
  expect_nothing_left();
  g_autofree char *hash = fake_proxy_token_hash(proxy), *all = world_log(world);
  g_assert_cmpuint(strlen(hash), ==, 64);
  g_assert_null(strstr(all, hash));
}

/* What holds a tunnel in the background is cut when setup ends, long before the run step does. */
static void test_background(void)
{
  guint seen = fake_proxy_seen_n(proxy);
  g_autoptr(QvJob) job = egress_job(WAY_JOB_HOLDS("good.example:443"), "while :; do sleep 1; done");
  char sha256[65];
  world_add(world, job, sha256);
  AWAIT(fake_proxy_seen_n(proxy) == seen + 1);
  AWAIT(fake_proxy_open_n(proxy) == 0);
  g_autofree char *key = way_job_token_key(proxy);
  AWAIT(!world_key_exists(world, key));
  world_await_state(world, job->job_id, QV_JOB_ACTIVE);
  GPid process = world_child(world->runner, "job");
  g_assert_cmpint(process, !=, 0); /* the run step goes on */
  kill(process, SIGKILL);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_assert_cmpstr(qv_code_text(result->code), ==, "sandbox_lost");
  expect_nothing_left();
}

static QvJob *holding_job(char sha256[65])
{
  QvJob *job = egress_job("dial good.example:443 hold", "true");
  world_add(world, job, sha256);
  AWAIT(fake_proxy_open_n(proxy) == 1);
  g_autofree char *key = way_job_token_key(proxy);
  g_assert_true(world_key_exists(world, key));
  g_assert_cmpuint(notes_n(), ==, 1);
  return job;
}

static void test_job_process_killed(void)
{
  char sha256[65];
  g_autoptr(QvJob) job = holding_job(sha256);
  GPid process = world_child(world->runner, "job");
  g_assert_cmpint(process, >, 0);
  kill(process, SIGKILL);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_assert_cmpstr(qv_code_text(result->code), ==, "sandbox_lost");
  expect_nothing_left();
}

/* The token has minutes to live: what takes it back is the next start. */
static void test_runner_killed(void)
{
  char sha256[65];
  g_autoptr(QvJob) job = holding_job(sha256);
  g_assert_cmpint(world_stop(world, SIGKILL), ==, 128 + SIGKILL);
  AWAIT(fake_proxy_open_n(proxy) == 0); /* the job process has seen it */
  g_autofree char *key = way_job_token_key(proxy);
  g_assert_true(world_key_exists(world, key));
  start();
  expect_nothing_left();
  world_await_log(world, "egress tokens of an earlier run are taken back");
}

static guint ready_n(void)
{
  g_autofree char *log = world_log(world);
  g_auto(GStrv) parts = g_strsplit(log, "runner is ready", -1);
  return g_strv_length(parts);
}

/* Setup that never ends, as far as the runner hears: its entry is stopped, with a tunnel open. The runner's own clock ends token and
 * tunnel: as the token's time is over (the job goes on), and at wallMs. */
static void test_never_ends(gconstpointer data)
{
  enum { CUT_MS = 5 * 1000 }; /* of the contract's second, five times */
  gboolean wall = GPOINTER_TO_INT(data);
  char sha256[65];
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  g_autofree char *address = g_strconcat("QUAVON_SANDBOX_EGRESS_PROXY=", fake_proxy_path(proxy), NULL);
  g_auto(GStrv) settings = way_job_jumping(world, (const char *const[]){REGISTRIES, address, NULL});
  world_start(world, (const char *const *)settings);
  g_autoptr(QvJob) job = egress_job(WAY_JOB_HOLDS("good.example:443") "; kill -STOP 1; while :; do sleep 1; done", "true");
  way_job_never_ends(job, wall);
  world_add(world, job, sha256);
  AWAIT(fake_proxy_open_n(proxy) == 1);
  g_autofree char *key = way_job_token_key(proxy);
  g_assert_true(world_key_exists(world, key));
  GPid process = world_child(world->runner, "job");

  gint64 from_ms = qv_clock_mono_ms();
  way_job_jump(world);
  do /* what wakes it lets it see the time */
    g_free(qv_test_valkey_cli(world->valkey, "PUBLISH", "quavon-sandbox:egress-usage", "wake", NULL));
  while (fake_proxy_open_n(proxy) > 0 && qv_clock_mono_ms() - from_ms < WORLD_DEADLINE_MS);
  gint64 cut_ms = qv_clock_mono_ms() - from_ms;
  AWAIT(!world_key_exists(world, key));
  g_test_message("tunnel cut after %d ms, token gone after %d", (int)cut_ms, (int)(qv_clock_mono_ms() - from_ms));
  g_assert_cmpint(qv_clock_mono_ms() - from_ms, <, CUT_MS);

  if (!wall) {
    world_await_state(world, job->job_id, QV_JOB_ACTIVE);
    kill(process, SIGKILL);
  }
  world_expect_code(world, job, sha256, wall ? "wall" : "sandbox_lost");
  expect_nothing_left();
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  way_job_unjump(world);
  guint before = ready_n();
  start();
  AWAIT(ready_n() > before);
}

/* The tunnel is cut although nothing can be told to Valkey, and the token goes when it is back. */
static void test_valkey_away(void)
{
  char sha256[65];
  g_autoptr(QvJob) job = egress_job(WAY_JOB_HOLDS("good.example:443") "; dial good.example:443 wait", "true");
  world_add(world, job, sha256);
  AWAIT(fake_proxy_open_n(proxy) == 2);
  kill(qv_test_valkey_pid(world->valkey), SIGSTOP);
  fake_proxy_end_newest(proxy);
  AWAIT(fake_proxy_open_n(proxy) == 0);
  kill(qv_test_valkey_pid(world->valkey), SIGCONT);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_assert_null(qv_code_text(result->code));
  expect_nothing_left();
}

/* The proxy's account reaches the signed result; one that is about another token or is nonsense does not. */
static void test_usage(void)
{
  guint seen = fake_proxy_seen_n(proxy);
  char sha256[65];
  g_autoptr(QvJob) job = egress_job("dial good.example:443 wait", "true");
  world_add(world, job, sha256);
  AWAIT(fake_proxy_seen_n(proxy) == seen + 1);
  g_autofree char *hash = fake_proxy_token_hash(proxy);
  g_autofree char *other = g_strnfill(64, 'a');
#define ROW "[{\"host\":\"good.example:443\",\"connections\":%d,\"bytesUp\":5,\"bytesDown\":6,\"refused\":0}]"
  g_autofree char *nonsense = g_strdup_printf("{\"v\":1,\"token\":\"%s\",\"hosts\":7}", hash);
  g_autofree char *stranger = g_strdup_printf("{\"v\":1,\"token\":\"%s\",\"hosts\":" ROW "}", other, 9);
  g_autofree char *ours = g_strdup_printf("{\"v\":1,\"token\":\"%s\",\"hosts\":" ROW "}", hash, 3);
  const char *messages[] = {nonsense, stranger, ours, nonsense};
  for (gsize i = 0; i < G_N_ELEMENTS(messages); i++)
    g_free(qv_test_valkey_cli(world->valkey, "PUBLISH", "quavon-sandbox:egress-usage", messages[i], NULL));
  fake_proxy_end_newest(proxy);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_assert_null(qv_code_text(result->code));
  g_assert_true(result->has_egress);
  g_assert_cmpuint(result->egress_n, ==, 1);
  g_assert_cmpstr(result->egress[0].host, ==, "good.example:443");
  g_assert_cmpint(result->egress[0].connections, ==, 3);
  g_assert_true(world_log_has(world, "an egress account is ignored"));
  expect_nothing_left();
}

static void test_not_allowed(void)
{
  world->keeps_input = TRUE;
  g_autoptr(QvJob) job = egress_job("true", "true");
  g_strfreev(job->egress);
  job->egress = g_strdupv((char *[]){(char *)"good.example:443", (char *)"refused.example:443", NULL});
  world_expect_failed(world, job, "rejected: egress_not_allowed");
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  /* Without registries there is no egress at all. */
  world_start(world, NULL);
  g_autoptr(QvJob) again = egress_job("true", "true");
  world_expect_failed(world, again, "rejected: egress_not_allowed");
  g_assert_cmpuint(notes_n(), ==, 0);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  world = world_new(QV_TEST_VALKEY_PERSIST);
  if (world == NULL)
    return 77;
  proxy = fake_proxy_start(world->dir);
  start();
  g_test_add_func("/egress/way", test_way);
  g_test_add_func("/egress/background", test_background);
  g_test_add_data_func("/egress/never-ends-token", GINT_TO_POINTER(FALSE), test_never_ends);
  g_test_add_data_func("/egress/never-ends-wall", GINT_TO_POINTER(TRUE), test_never_ends);
  g_test_add_func("/egress/valkey-away", test_valkey_away);
  g_test_add_func("/egress/usage", test_usage);
  g_test_add_func("/egress/job-process-killed", test_job_process_killed);
  g_test_add_func("/egress/runner-killed", test_runner_killed);
  g_test_add_func("/egress/not-allowed", test_not_allowed);
  int status = g_test_run();
  if (status == 0 && world->runner != 0)
    g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  g_clear_pointer(&proxy, fake_proxy_free);
  g_clear_pointer(&world, world_free);
  return status;
}
