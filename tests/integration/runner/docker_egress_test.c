/* SPDX-License-Identifier: Apache-2.0 */
/* Egress with an engine: what a runner refuses to start with, what a setup step reaches and a run step does not, and that
 * containers, tokens and tunnels go with a job, however it ends. */
#include <glib.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/exit.h"
#include "base/random.h"
#include "runner/egress_trial.h"
#include "way_job.h"

#define REGISTRIES "QUAVON_SANDBOX_REGISTRIES=good.example,refused.example:8443"

/* With `setup`: what but the proxy can be reached while there is a network. Without: not even the proxy. */
#define PROBE \
  "import socket, sys\n" \
  "from concurrent.futures import ThreadPoolExecutor\n" \
  "gateway, port = '10.89.213.1', 3128\n" \
  "def tcp(target):\n" \
  "  name, host, port = target\n" \
  "  try:\n" \
  "    socket.create_connection((host, port), 3).close(); return '%%s OPEN %%s %%d' %% target\n" \
  "  except ConnectionRefusedError: return '%%s OPEN but closed %%s %%d' %% target\n" \
  "  except OSError: return name + ' closed'\n" \
  "def up():\n" \
  "  try: socket.create_connection((gateway, port), 3).close(); return True\n" \
  "  except OSError: return False\n" \
  "def own():\n" \
  "  s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n" \
  "  try: s.connect((gateway, 9)); return s.getsockname()[0]\n" \
  "  except OSError: return ''\n" \
  "if sys.argv[1] == 'setup': print('proxy', up())\n" \
  "else: print(tcp(('proxy', gateway, port)))\n" \
  "targets = [('gateway', gateway, p) for p in (22, 53, 80, 3127, 3129, 6379)]\n" \
  "targets += [('host', host, p) for host in (%s,) for p in (22, 443)]\n" \
  "targets += [('neighbour', a, 1) for a in ('10.89.213.%%d' %% n for n in range(2, 7)) if a != own()]\n" \
  "targets += [('metadata', '169.254.169.254', 80), ('registry', '192.0.2.1', 443)]\n" \
  "with ThreadPoolExecutor(8) as pool:\n" \
  "  for line in pool.map(tcp, targets): print(line)\n" \
  "for name in ('good.example', 'example.com'):\n" \
  "  try: socket.getaddrinfo(name, 443); print('name', name, 'OPEN')\n" \
  "  except OSError: print('name closed')\n" \
  "print('done')\n"

static World *world;
static EngineWay *way;
static FakeProxy *proxy;

static void start(void)
{
  const char *extra[] = {REGISTRIES, NULL};
  g_auto(GStrv) settings = engine_way_settings(way, extra);
  world_start(world, (const char *const *)settings);
}

/* ---- the start */

static void expect_refused(const char *words)
{
  g_autofree char *before = world_log(world);
  start();
  int status = world_stop(world, 0);
  g_autofree char *after = world_log(world);
  const char *told = after + strlen(before);
  if (status == 0 || strstr(told, words) == NULL || strstr(told, "runner is ready") != NULL)
    g_error("exit %d, no '%s' in: %s", status, words, told);
}

/* Each is mended again, so that the next one is the only fault. */
#define NETWORK(more) "docker network create --internal --subnet 10.89.213.0/24 --gateway 10.89.213.1 " more " quavon-egress"
#define TABLE "quavon_egress_quavon_2degress"
#define RULE(rule) "nft insert rule inet " TABLE " input iifname quavon-egress " rule " accept"
#define HOST_FIREWALL(policy, rule) \
  "nft 'add table inet host; add chain inet host input { type filter hook input priority 0; policy " policy "; }; " \
  "add rule inet host input iifname quavon-egress " rule "'"
#define NO_HOST_FIREWALL "nft delete table inet host 2>/dev/null || true"

static const struct {
  const char *name;
  const char *script;
  const char *words;
} faults[] = {
  {"no-network", "docker network rm quavon-egress", "quavon-egress-network up makes it"},
  {"neighbours", "docker network rm quavon-egress; " NETWORK("-o com.docker.network.bridge.enable_ip_masquerade=false"),
   "enable_icc is not false"},
  {"masquerade", "docker network rm quavon-egress; " NETWORK("-o com.docker.network.bridge.enable_icc=false"),
   "enable_ip_masquerade is not false"},
  {"bridge-name", "docker network rm quavon-egress; " NETWORK("-o com.docker.network.bridge.enable_icc=false "
   "-o com.docker.network.bridge.enable_ip_masquerade=false"), "its bridge has another name (com.docker.network.bridge.name); "
   "quavon-egress-network down, then up"},
  {"not-internal", "docker network rm quavon-egress; docker network create quavon-egress", "it is not internal"},
  {"no-rules", "nft delete table inet " TABLE, "reaches tcp:10.89.213.1:1 (ECONNREFUSED)"},
  {"one-port", RULE("tcp dport 22"), "reaches tcp:10.89.213.1:22 (ECONNREFUSED)"},
  {"names", RULE("udp dport 53"), "reaches udp:10.89.213.1:53 (ECONNREFUSED)"},
  {"neighbour-rules", "nft flush chain inet " TABLE " forward; iptables -D FORWARD -i quavon-egress -o quavon-egress -j DROP",
   "reaches tcp:10.89.213.2:1 (ECONNREFUSED)"},
  {"no-rules-dropping-host", HOST_FIREWALL("drop", "tcp dport 3128 accept") "; nft delete table inet " TABLE,
   "is not refused tcp:10.89.213.1:2 (SILENT)"},
  {"another-firewall", HOST_FIREWALL("accept", "drop"), "does not reach the proxy"},
  {"dropped-before", "nft insert rule inet " TABLE " input iifname quavon-egress drop", "is not refused tcp:10.89.213.1:2 (SILENT)"},
};

static void test_fault(gconstpointer data)
{
  gsize i = GPOINTER_TO_SIZE(data);
  engine_way_inside(way, faults[i].script);
  engine_way_relay(way, strstr(faults[i].script, "network rm") == NULL ? fake_proxy_path(proxy) : NULL);
  expect_refused(faults[i].words);
  engine_way_relay(way, NULL);
  engine_way_inside(way, NO_HOST_FIREWALL);
  engine_way_network(way, "down");
  engine_way_network(way, "up");
  engine_way_expect_clean(way);
}

static void test_no_proxy(void)
{
  expect_refused("nobody listens there; start quavon-sandbox-egress");
}

/* The smoke test asks again: a runner whose rules were flushed later fetches nothing from then on, on a host
 * that drops by itself too. */
static void test_smoke(void)
{
  g_autofree char *program = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src", "runner", "quavon-sandbox-runner", NULL);
  const char *extra[] = {REGISTRIES, NULL};
  g_auto(GStrv) settings = engine_way_settings(way, extra);
  g_auto(GStrv) environment = world_environment(world, (const char *const *)settings);
  char *argv[] = {program, (char *)"--smoke", NULL};
  static const char *const expected[] = {"ok    egress ", "FAIL  egress "};
  engine_way_relay(way, fake_proxy_path(proxy));
  engine_way_inside(way, HOST_FIREWALL("drop", "tcp dport 3128 accept"));
  for (gsize i = 0; i < G_N_ELEMENTS(expected); i++) {
    g_autofree char *out = NULL, *err = NULL;
    int status;
    g_assert_true(g_spawn_sync(NULL, argv, environment, 0, NULL, NULL, &out, &err, &status, NULL));
    if (strstr(out, expected[i]) == NULL)
      g_error("no '%s' in: %s%s", expected[i], out, err);
    if (i == 0)
      engine_way_inside(way, "nft delete table inet " TABLE);
  }
  engine_way_relay(way, NULL);
  engine_way_inside(way, NO_HOST_FIREWALL);
  engine_way_network(way, "rules");
}

/* What --check refuses does not pass here either, whatever the network is like. */
static void test_smoke_settings(void)
{
  static const char *const missing[] = {"QUAVON_SANDBOX_EGRESS_PROXY", "QUAVON_SANDBOX_EGRESS_NETWORK"};
  g_autofree char *program = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src", "runner", "quavon-sandbox-runner", NULL);
  const char *extra[] = {REGISTRIES, NULL};
  g_auto(GStrv) settings = engine_way_settings(way, extra);
  char *argv[] = {program, (char *)"--smoke", NULL};
  for (gsize i = 0; i < G_N_ELEMENTS(missing); i++) {
    g_auto(GStrv) environment = g_environ_unsetenv(world_environment(world, (const char *const *)settings), missing[i]);
    g_autofree char *err = NULL, *words = g_strconcat(missing[i], " is not set", NULL);
    int status;
    g_assert_true(g_spawn_sync(NULL, argv, environment, G_SPAWN_STDOUT_TO_DEV_NULL, NULL, NULL, NULL, &err, &status, NULL));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != QV_EXIT_CONFIG || strstr(err, words) == NULL)
      g_error("status %d, no '%s' in: %s", status, words, err);
  }
}

/* A trial that was not held says nothing of the proxy. */
static void test_not_tried(void)
{
  g_autofree char *socket = g_build_filename(world->dir, "engine.sock", NULL);
  g_assert_cmpint(symlink(qv_test_dockerd_socket(way->engine), socket), ==, 0);
  char id[QV_UUID_LEN + 1];
  qv_random_uuid(id);
  g_assert_cmpint(g_mkdir_with_parents(world->state_dir, 0700), ==, 0);
  QvBackendOptions options = {.state_dir = world->state_dir, .runner_id = id, .docker_socket = socket,
                              .egress_network = "quavon-egress"};
  g_autoptr(GError) error = NULL;
  g_autoptr(QvBackend) backend = qv_backend_open(way->backend, &options, &error);
  g_assert_no_error(error);
  char *digests[] = {(char *)"", NULL};
  QvTrialImages image = {.digests = digests};
  gboolean away = TRUE;
  g_assert_false(qv_egress_trial(backend, &image, NULL, &away, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_POLICY);
  g_assert_false(away);
  g_clear_error(&error);
  away = TRUE;
  unlink(socket);
  g_assert_false(qv_egress_trial(backend, &image, ENGINE_WAY_PROXY, &away, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_GONE);
  g_assert_false(away);
}

/* Until no container is on the network: one whose trial or job has ended may be there for a moment longer. */
static void await_empty_network(void)
{
  engine_way_inside(way, "for i in $(seq 1800); do test -n \"$(docker network inspect --format '{{range .Containers}}{{.Name}} {{end}}' "
                         "quavon-egress)\" || exit 0; sleep 0.1; done; exit 1");
}

/* ---- jobs; the runner runs */

static QvJob *egress_job(const char *setup, const char *run)
{
  g_autofree char *hosts = way_job_host_addresses(), *probe = g_strdup_printf(PROBE, hosts);
  return way_job_new(world, way, "good.example:443", (const char *const[]){"probe.py", probe, NULL}, setup, run);
}

static void expect_nothing_left(void)
{
  g_autofree char *key = way_job_token_key(proxy);
  AWAIT(!world_key_exists(world, key));
  engine_way_expect_clean(way);
  await_empty_network();
}

static void test_ready(void)
{
  engine_way_relay(way, fake_proxy_path(proxy));
  start();
  world_await_log(world, "runner is ready");
}

static void test_way(void)
{
  g_autoptr(QvJob) job = egress_job("dial good.example:443 ping; dial refused.example:8443 none; env | grep -ci token; "
                                    "python3 probe.py setup", "python3 probe.py run; env | grep -i proxy; true");
  char sha256[65];
  world_add(world, job, sha256);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_autofree char *setup = world_payload_log(world, job, result, -1);
  g_test_message("%s", setup);
  g_assert_true(g_str_has_prefix(setup, "HTTP/1.1 200 OK\nping\nquavon: refused.example:8443 refused: not_listed: no\n"
                                        "HTTP/1.1 403 Forbidden\n0\nproxy True\n"));
  g_assert_null(strstr(setup, "OPEN"));
  g_assert_true(g_str_has_suffix(setup, "done\n"));
  g_autofree char *log = world_payload_log(world, job, result, 0);
  g_test_message("%s", log);
  g_assert_true(g_str_has_prefix(log, "proxy closed\n"));
  g_assert_null(strstr(log, "OPEN"));
  g_assert_true(g_str_has_suffix(log, "done\n"));
  g_assert_null(qv_code_text(result->code));
  expect_nothing_left();
}

/* A job without egress has no network at all, beside one that has. */
static void test_without(void)
{
  g_autoptr(QvJob) job = world_job(world, "ls /sys/class/net 2>/dev/null; tail -n +3 /proc/net/dev | grep -v ' lo:'; echo end");
  engine_way_adopt(way, job);
  char sha256[65];
  world_add(world, job, sha256);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_assert_null(qv_code_text(result->code));
  g_autofree char *log = world_payload_log(world, job, result, 0);
  g_assert_true(g_str_has_suffix(log, "end\n"));
  g_assert_null(strstr(log, "eth"));
  expect_nothing_left();
}

/* A container that is off the network or was killed sends nothing any more: the other end of what it had open is the proxy's to
 * cut, by the token, and this proxy cuts nothing. */
static void drop_tunnels(void)
{
  engine_way_relay(way, NULL);
  AWAIT(fake_proxy_open_n(proxy) == 0);
  engine_way_relay(way, fake_proxy_path(proxy));
}

/* What holds a tunnel in the background when setup ends: the token is taken back and the container is off the network, while the
 * run step goes on. */
static void test_background(void)
{
  guint seen = fake_proxy_seen_n(proxy);
  g_autoptr(QvJob) job = egress_job(WAY_JOB_HOLDS("good.example:443"), "while :; do sleep 1; done");
  char sha256[65];
  world_add(world, job, sha256);
  AWAIT(fake_proxy_seen_n(proxy) == seen + 1);
  g_autofree char *key = way_job_token_key(proxy);
  AWAIT(!world_key_exists(world, key));
  await_empty_network();
  world_await_state(world, job->job_id, QV_JOB_ACTIVE);
  GPid process = world_child(world->runner, "job");
  g_assert_cmpint(process, !=, 0);
  kill(process, SIGKILL);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_assert_cmpstr(qv_code_text(result->code), ==, "sandbox_lost");
  expect_nothing_left();
  drop_tunnels();
}

static void test_cancelled(void)
{
  char sha256[65];
  g_autoptr(QvJob) job = egress_job("dial good.example:443 hold", "true");
  world_add(world, job, sha256);
  AWAIT(fake_proxy_open_n(proxy) == 1);
  world_cancel(world, job);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_assert_cmpstr(qv_code_text(result->code), ==, "cancelled");
  expect_nothing_left();
  drop_tunnels();
}

static void test_runner_killed(void)
{
  char sha256[65];
  g_autoptr(QvJob) job = egress_job("dial good.example:443 hold", "true");
  world_add(world, job, sha256);
  AWAIT(fake_proxy_open_n(proxy) == 1);
  g_assert_cmpint(world_stop(world, SIGKILL), ==, 128 + SIGKILL);
  start();
  world_await_log(world, "egress tokens of an earlier run are taken back");
  expect_nothing_left();
  drop_tunnels();
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  const char *missing = engine_way_missing();
  world = missing == NULL ? world_new(QV_TEST_VALKEY_PERSIST) : NULL;
  if (world == NULL)
    return 77;
  proxy = fake_proxy_start(world->dir);
  way = engine_way_new(world, "docker-runsc", "base");
  engine_way_network(way, "up");
  for (gsize i = 0; i < G_N_ELEMENTS(faults); i++) {
    g_autofree char *path = g_strconcat("/docker-egress-start/", faults[i].name, NULL);
    g_test_add_data_func(path, GSIZE_TO_POINTER(i), test_fault);
  }
  g_test_add_func("/docker-egress-start/no-proxy", test_no_proxy);
  g_test_add_func("/docker-egress-start/smoke", test_smoke);
  g_test_add_func("/docker-egress-start/smoke-settings", test_smoke_settings);
  g_test_add_func("/docker-egress-start/not-tried", test_not_tried);
  g_test_add_func("/docker-egress/ready", test_ready);
  g_test_add_func("/docker-egress/way", test_way);
  g_test_add_func("/docker-egress/without", test_without);
  g_test_add_func("/docker-egress/background", test_background);
  g_test_add_func("/docker-egress/cancelled", test_cancelled);
  g_test_add_func("/docker-egress/runner-killed", test_runner_killed);
  int status = g_test_run();
  if (status == 0 && world->runner != 0)
    g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  engine_way_free(way);
  fake_proxy_free(proxy);
  world_free(world);
  return status;
}
