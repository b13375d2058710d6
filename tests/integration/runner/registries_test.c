/* SPDX-License-Identifier: Apache-2.0 */
/* Package managers in setup, through forwarder, relay and the real proxy: npm and apt against the registries that
 * this machine's own clients are set to, git and python against a TLS server of our own. What setup fetched the run
 * step uses, without a network. npm on an engine as well, through its network. */
#include <glib.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "engine_way.h"
#include "way_out.h"

typedef struct {
  World *world;
  EngineWay *way; /* NULL: the backend runsc */
  GPid proxy;
} Scene;

static void scene_start(Scene *scene, const char *registries, const char *ca_file)
{
  g_autofree char *socket = way_out_start_proxy(scene->world, registries, &scene->proxy);
  g_autofree char *proxy = g_strconcat("QUAVON_SANDBOX_EGRESS_PROXY=", socket, NULL);
  g_autofree char *list = g_strconcat("QUAVON_SANDBOX_REGISTRIES=", registries, NULL);
  g_autofree char *ca = ca_file != NULL ? g_strconcat("QUAVON_SANDBOX_CA_FILE=", ca_file, NULL) : NULL;
  const char *extra[] = {list, ca != NULL ? ca : proxy, ca != NULL ? proxy : NULL, NULL};
  if (scene->way == NULL) {
    world_start(scene->world, extra);
    return;
  }
  extra[2] = NULL; /* the proxy is at an address of the engine's host */
  engine_way_network(scene->way, "up");
  engine_way_relay(scene->way, socket);
  g_auto(GStrv) settings = engine_way_settings(scene->way, extra);
  world_start(scene->world, (const char *const *)settings);
}

static void scene_end(Scene *scene)
{
  if (scene->way != NULL)
    engine_way_expect_clean(scene->way);
  else
    world_expect_clean(scene->world);
  g_assert_cmpint(world_stop(scene->world, SIGTERM), ==, 0);
  way_out_stop(scene->proxy);
  engine_way_free(scene->way);
  world_free(scene->world);
}

static void set_setup(QvJob *job, const char *script, const char *host_port)
{
  const char *argv[] = {"/bin/sh", "-c", script, NULL};
  job->setup = g_new0(QvStep, 1);
  *job->setup = (QvStep){.name = g_strdup("setup"), .argv = g_strdupv((char **)argv)};
  g_strfreev(job->egress);
  job->egress = g_strdupv((char *[]){(char *)host_port, NULL});
  job->given = (QvLimits){.wall_ms = 900000, .memory_mib = 1024, .work_mib = 768, .milli_cpus = 2000, .pids = 256};
}

/* Runs JOB, which must succeed, and returns the log of its only step; RESULT has the proxy's account. */
static char *run_job(World *world, QvJob *job, QvResult **result)
{
  char sha256[65];
  world->deadline_ms = 900000;
  world_add(world, job, sha256);
  *result = world_result(world, job, sha256);
  if ((*result)->payload != NULL) {
    g_autofree char *setup = world_payload_log(world, job, *result, -1);
    g_test_message("setup: %s", setup);
  }
  g_assert_cmpstr(qv_code_text((*result)->code), ==, NULL);
  return world_payload_log(world, job, *result, 0);
}

static char *read_source(const char *name)
{
  g_autofree char *path = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "tests", "integration", "runner", name, NULL);
  char *text = NULL;
  g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
  return text;
}

static char *output_of(const char *const *argv)
{
  g_autofree char *text = NULL;
  int status = 0;
  if (!g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_SEARCH_PATH | G_SPAWN_STDERR_TO_DEV_NULL, NULL, NULL, &text, NULL, &status,
                    NULL) ||
      !g_spawn_check_wait_status(status, NULL))
    return NULL;
  return g_strstrip(g_steal_pointer(&text));
}

/* What accepts connections may still speak no TLS, or have nothing to give: asked from here, before a job is. */
static gboolean answers(const char *url, const char *path)
{
  static const char script[] =
    "import platform, ssl, sys, urllib.request\n"
    "suite = platform.freedesktop_os_release().get('VERSION_CODENAME', '')\n"
    "context = ssl.create_default_context(cafile=sys.argv[3])\n"
    "urllib.request.urlopen(sys.argv[1].rstrip('/') + '/' + sys.argv[2].replace('SUITE', suite), timeout=60, context=context)\n"
    "print('yes')\n";
  g_autofree char *said = output_of((const char *const[]){"python3", "-c", script, url, path, way_out_ca_file(), NULL});
  if (g_strcmp0(said, "yes") == 0)
    return TRUE;
  g_test_skip("the registry that this machine's client is set to does not answer by https");
  return FALSE;
}

static void check_account(const QvResult *result, const char *host_port, gint64 at_least)
{
  g_assert_true(result->has_egress);
  g_assert_cmpuint(result->egress_n, ==, 1);
  g_assert_cmpstr(result->egress[0].host, ==, host_port);
  g_assert_cmpint(result->egress[0].connections, >=, 1);
  g_assert_cmpint(result->egress[0].bytes_down, >=, at_least);
}

/* What a run step finds when it asks for the registry all the same: NAME ADDRESS [HOST:PORT of the proxy]. On an engine it may
 * begin before its container is off the network: it waits for that. */
#define STILL_OUT \
  "const net = require('net'), dns = require('dns'), [name, address, proxy] = process.argv.slice(2);\n" \
  "const [host, port] = (proxy || '').split(':');\n" \
  "const open = at => new Promise(done => { const s = net.connect(at); s.setTimeout(5000, () => { s.destroy(); done(false) });\n" \
  "  s.on('error', () => done(false)); s.on('connect', () => { s.destroy(); done(true) }) });\n" \
  "const say = (what, is) => console.log(what, is ? 'OPEN' : 'closed');\n" \
  "(async () => {\n" \
  "  for (const end = Date.now() + 120000; proxy && await open({host, port}) && Date.now() < end;) await new Promise(go => setTimeout(go, 100));\n" \
  "  say('proxy', await open(proxy ? {host, port} : {path: '/run/quavon/egress.sock'}));\n" \
  "  if (proxy) for (const p of [22, 53, 80, 443]) say('gateway', await open({host, port: p}));\n" \
  "  say('registry', await open({host: address, port: 443}));\n" \
  "  dns.lookup(name, e => { say('name', !e); process.exit(0) });\n" \
  "})();\n"

static void test_npm(gconstpointer backend)
{
  g_autofree char *cache = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "npm-cache", NULL);
  g_autofree char *registry = output_of((const char *const[]){"npm", "config", "get", "registry", "--cache", cache, NULL});
  g_auto(WayOut) out = {0};
  if (registry == NULL) {
    g_test_skip("there is no npm on this machine to ask for its registry");
    return;
  }
  if (!way_out_find(registry, &out) || !answers(registry, "express"))
    return;
  const char *missing = backend != NULL ? engine_way_missing() : NULL;
  Scene scene = {.world = missing == NULL ? world_new(QV_TEST_VALKEY_PLAIN) : NULL};
  if (missing != NULL)
    g_test_skip(missing);
  if (scene.world == NULL)
    return;
  if (backend != NULL)
    scene.way = engine_way_new(scene.world, backend, "node");
  else
    world_use_image(scene.world, "node");
  scene_start(&scene, out.registries, way_out_ca_file());
  g_autofree char *package = read_source("npm/package.json"), *lock = read_source("npm/package-lock.json");
  g_autofree char *host = g_strndup(out.host_port, strcspn(out.host_port, ":"));
  const char *address = strchr(out.registries, '@') + 1;
  g_autofree char *first = g_strndup(address, strcspn(address, ","));
  g_autofree char *run = g_strdup_printf("node use.js && sleep 1 && node out.js %s %s %s", host, first,
                                          backend != NULL ? ENGINE_WAY_PROXY : "");
  g_autoptr(QvJob) job = world_job(scene.world, run);
  if (scene.way != NULL)
    engine_way_adopt(scene.way, job);
  static const char use[] = "const e = require('express'); const app = e(); app.get('/', (q, r) => r.send('served'));\n"
                            "const s = app.listen(0, '127.0.0.1', () => fetch('http://127.0.0.1:' + s.address().port)\n"
                            "  .then(r => r.text()).then(t => { console.log(t); s.close() }));\n";
  const char *files[] = {"out.js", STILL_OUT, "package-lock.json", lock, "package.json", package, "use.js", use, NULL};
  g_autoptr(GBytes) plain = world_snapshot(files);
  world_put_base(scene.world, job, plain);
  g_autofree char *setup = g_strdup_printf("npm ci --registry '%s' --fetch-retries 5 --fetch-timeout 600000 "
                                           "--no-audit --no-fund --loglevel=http 2>&1 && ls node_modules | wc -l", out.url);
  set_setup(job, setup, out.host_port);
  g_autoptr(QvResult) result = NULL;
  g_autofree char *log = run_job(scene.world, job, &result);
  g_test_message("%s", log);
  g_assert_true(g_str_has_prefix(log, "served\n"));
  g_assert_null(strstr(log, "OPEN"));
  g_assert_nonnull(strstr(log, "proxy closed"));
  g_assert_nonnull(strstr(log, "name closed"));
  g_assert_nonnull(strstr(log, "registry closed"));
  check_account(result, out.host_port, 500000);
  scene_end(&scene);
}

/* The machine's mirror by https: what its own sources say by http, it answers so as well, or the test is skipped. */
static char *debian_mirror(void)
{
  g_autofree char *script = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "scripts", "debian-mirror.sh", NULL);
  g_autofree char *line = output_of((const char *const[]){
    "/bin/sh", "-c", "exec \"$0\" deb \"$(. /etc/os-release; echo $VERSION_CODENAME)\"", script, NULL});
  const char *from = line != NULL ? strstr(line, " http") : NULL;
  if (from == NULL)
    return NULL;
  g_autofree char *first = g_strndup(from + 1, strcspn(from + 1, " "));
  return g_str_has_prefix(first, "http://") ? g_strconcat("https://", first + strlen("http://"), NULL) : g_steal_pointer(&first);
}

/* contrib: its index is small. The package is whatever is the smallest there. */
#define APT \
  "set -e; d=$PWD/apt; mkdir -p $d/lists/partial $d/archives/partial $d/etc\n" \
  "suite=$(. /etc/os-release; echo $VERSION_CODENAME)\n" \
  "echo \"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $1 $suite contrib\" > $d/etc/sources.list\n" \
  "cat > $d/apt.conf <<EOF\n" \
  "Dir::Etc \"$d/etc\"; Dir::State \"$d\"; Dir::State::Lists \"$d/lists\"; Dir::Cache \"$d\"; Dir::Cache::Archives \"$d/archives\";\n" \
  "Dir::State::status \"/var/lib/dpkg/status\"; Dir::Log \"$d\"; Debug::NoLocking \"true\"; APT::Sandbox::User \"\";\n" \
  "Acquire::Retries \"5\"; Acquire::https::CaInfo \"$SSL_CERT_FILE\"; Acquire::Languages \"none\";\n" \
  "Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled \"false\";\n" \
  "EOF\n" \
  "export APT_CONFIG=$d/apt.conf\n" \
  "apt-get update && name=$(apt-cache dumpavail | awk '/^Package:/ {p = $2} /^Size:/ {print $2, p}' | sort -n | awk 'NR == 1 {print $2}')\n" \
  "apt-get download $name && dpkg-deb -x *.deb tree && id -u\n"

static void test_apt(void)
{
  g_autofree char *mirror = debian_mirror();
  g_auto(WayOut) out = {0};
  if (mirror == NULL) {
    g_test_skip("apt has no sources on this machine");
    return;
  }
  if (!way_out_find(mirror, &out) || !answers(mirror, "dists/SUITE/Release"))
    return;
  Scene scene = {.world = world_new(QV_TEST_VALKEY_PLAIN)};
  if (scene.world == NULL)
    return;
  scene_start(&scene, out.registries, way_out_ca_file());
  g_autoptr(QvJob) job = world_job(scene.world, "ls *.deb && find tree -type f | grep -q . && echo unpacked");
  g_autofree char *setup = g_strdup_printf("set -- '%s'\n" APT, out.url);
  set_setup(job, setup, out.host_port);
  g_autoptr(QvResult) result = NULL;
  g_autofree char *log = run_job(scene.world, job, &result);
  g_assert_nonnull(strstr(log, ".deb\nunpacked\n"));
  check_account(result, out.host_port, 50000);
  scene_end(&scene);
}

/* A registry of our own behind a CA of our own, the plain clients that package managers are made of (libcurl in git,
 * python's), and what the log says of one that is not listed. */
#define PLAIN \
  "set -e; export NO_PROXY= no_proxy=\n" \
  "python3 -c 'import urllib.request, sys; print(urllib.request.urlopen(sys.argv[1]).read().decode())' https://localhost:$1/hello.txt\n" \
  "git clone -q https://localhost:$1/repo.git cloned && cat cloned/in-git.txt\n" \
  "python3 -c 'import urllib.request, sys; urllib.request.urlopen(sys.argv[1])' https://unlisted.example/ 2>&1 | tail -n 1\n" \
  "test ! -e $HOME/.netrc && env -u HTTPS_PROXY -u https_proxy git ls-remote https://localhost:$1/repo.git 2>&1 | tail -n 1\n"

static void make_repo(const char *folder)
{
  static const char script[] = "set -e; cd \"$1\"; echo hello > hello.txt\n"
                               "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null\n"
                               "git init -q work && cd work && echo from git > in-git.txt && git add . &&\n"
                               "git -c user.name=n -c user.email=e@example.org commit -qm one && cd .. && git clone -q --bare work repo.git\n"
                               "git --git-dir=repo.git update-server-info\n";
  const char *argv[] = {"/bin/sh", "-c", script, "sh", folder, NULL};
  g_autofree char *done = output_of(argv);
  g_assert_nonnull(done);
}

static void test_plain(void)
{
  Scene scene = {.world = world_new(QV_TEST_VALKEY_PLAIN)};
  if (scene.world == NULL)
    return;
  g_autofree char *folder = g_build_filename(scene.world->dir, "served", NULL), *ca_file = NULL;
  g_assert_cmpint(g_mkdir_with_parents(folder, 0755), ==, 0);
  make_repo(folder);
  GPid server;
  guint16 port = way_out_serve(scene.world, folder, &ca_file, &server);
  g_autofree char *registries = g_strdup_printf("localhost:%u@127.0.0.0/8,localhost:%u@::1", port, port);
  g_autofree char *host_port = g_strdup_printf("localhost:%u", port);
  scene_start(&scene, registries, ca_file);
  g_autoptr(QvJob) job = world_job(scene.world, "cat cloned/in-git.txt; ls /workspace");
  g_autofree char *setup = g_strdup_printf("set -- %u\n" PLAIN, port);
  set_setup(job, setup, host_port);
  g_autoptr(QvResult) result = NULL;
  g_autofree char *log = run_job(scene.world, job, &result);
  g_assert_cmpstr(log, ==, "from git\nhome\nrepo\n");
  g_autofree char *told = world_payload_log(scene.world, job, result, -1);
  g_assert_true(g_str_has_prefix(told, "hello\n\nfrom git\n"));
  g_assert_nonnull(strstr(told, "\nquavon: unlisted.example:443 refused: host_not_listed: "));
  g_assert_true(result->has_egress);
  way_out_stop(server);
  scene_end(&scene);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/registries/plain", test_plain);
  g_test_add_data_func("/registries/npm", NULL, test_npm);
  g_test_add_data_func("/registries/docker-runsc/npm", "docker-runsc", test_npm);
  g_test_add_func("/registries/apt", test_apt);
  return g_test_run();
}
