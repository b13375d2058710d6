/* SPDX-License-Identifier: Apache-2.0 */
/* What everybody really sends to Valkey, against what the shipped ACL file lets them: MONITOR over jobs with setup and
 * egress, live logs, progress, a cancel, health, doctor and the verbs of a pool. Each user comes through a relay with an address of its
 * own, by which MONITOR's lines are told apart; a line of a script belongs to the EVAL before it. What was refused is in no MONITOR: it is in
 * the server's ACL log, which must be empty but for the key that doctor must not be able to read. */
#include <glib.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/fd.h"
#include "support/proxy.h"
#include "way_out.h"

enum { SANDBOX, EGRESS, WORKER, USERS_N };

typedef struct {
  const char *name, *source;
  QvTestProxy *relay;
  char *url;
  GHashTable *allowed, *seen;
} User;

static User users[USERS_N] = {
  {.name = "sandbox", .source = "127.0.0.11"}, {.name = "egress", .source = "127.0.0.12"}, {.name = "worker", .source = "127.0.0.13"}};
static World *world;
static char *repo, *monitor_file;
static GPid monitor;

/* What needs no permission. */
static const char *const free_commands[] = {"hello", "auth", "quit", "reset"};

static void read_allowed(void)
{
  g_autofree char *file = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "deploy", "valkey", "users.acl", NULL), *text = NULL;
  g_assert_true(g_file_get_contents(file, &text, NULL, NULL));
  for (int u = 0; u < USERS_N; u++) {
    g_autofree char *start = g_strdup_printf("user %s ", users[u].name);
    const char *line = strstr(text, start);
    g_assert_nonnull(line);
    g_autofree char *one = g_strndup(line, strcspn(line, "\n"));
    g_auto(GStrv) words = g_strsplit(one, " ", -1);
    users[u].allowed = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    users[u].seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    for (char **word = words; *word != NULL; word++)
      if (**word == '+')
        g_hash_table_add(users[u].allowed, g_strdup(*word + 1));
    for (gsize i = 0; i < G_N_ELEMENTS(free_commands); i++)
      g_hash_table_add(users[u].allowed, g_strdup(free_commands[i]));
  }
}

static void die_with_parent(gpointer user)
{
  prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void start_monitor(void)
{
  const char *password = qv_test_valkey_password(world->valkey);
  const char *script = "exec valkey-cli -s \"$1\" --user admin --pass \"$2\" --no-auth-warning MONITOR > \"$3\"";
  const char *argv[] = {"/bin/sh", "-c", script, "sh", qv_test_valkey_socket(world->valkey), password, monitor_file, NULL};
  g_autoptr(GError) error = NULL;
  g_spawn_async(NULL, (char **)argv, NULL, G_SPAWN_DO_NOT_REAP_CHILD, die_with_parent, NULL, &monitor, &error);
  g_assert_no_error(error);
}

/* Waits until what was sent up to now is in the file, and returns it. */
static char *monitored(void)
{
  static guint n;
  g_autofree char *mark = g_strdup_printf("mark-%u-", ++n);
  for (gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;; g_usleep(50000)) {
    char *text = NULL;
    g_free(qv_test_valkey_cli(world->valkey, "ECHO", mark, NULL)); /* again: it may not be listening yet */
    if (g_file_get_contents(monitor_file, &text, NULL, NULL) && strstr(text, mark) != NULL)
      return text;
    g_free(text);
    g_assert_cmpint(qv_clock_mono_ms(), <, end);
  }
}

/* `quavon WORDS` as the user worker, in the repository; its status. OUT may be NULL. */
static int quavon(char **out, const char *const *words)
{
  g_autofree char *program = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src", "cli", "quavon", NULL);
  g_autofree char *url = g_strconcat("VALKEY_URL=", users[WORKER].url, NULL);
  const char *extra[] = {url, "QUAVON_SANDBOX_IMAGES_FILE=/nonexistent/images.lock.json", NULL};
  g_auto(GStrv) env = world_environment(world, extra);
  g_autoptr(GPtrArray) argv = g_ptr_array_new();
  g_autofree char *text = NULL, *complaint = NULL;
  g_autoptr(GError) error = NULL;
  int status = 0;
  g_ptr_array_add(argv, program);
  for (; *words != NULL; words++)
    g_ptr_array_add(argv, (gpointer)*words);
  g_ptr_array_add(argv, NULL);
  g_spawn_sync(repo, (char **)argv->pdata, env, 0, NULL, NULL, &text, &complaint, &status, &error);
  g_assert_no_error(error);
  g_test_message("quavon %s: %d\n%s%s", (char *)argv->pdata[1], status, text, complaint);
  if (out != NULL)
    *out = g_strstrip(g_steal_pointer(&text));
  return status;
}

#define QUAVON(out, ...) quavon(out, (const char *const[]){__VA_ARGS__, NULL})

/* ---- jobs */

static void job_with_everything(guint16 port)
{
  g_autofree char *host = g_strdup_printf("localhost:%u", port), *out = NULL;
  g_autofree char *setup = g_strdup_printf(
    "NO_PROXY= no_proxy= python3 -c \"import urllib.request; print(urllib.request.urlopen('https://%s/hello.txt').read())\"", host);
  int status = QUAVON(&out, "run", "--live", "--setup", setup, "--egress", host, "--artefact", "made/*", "--output", "got", "--", "sh",
                      "-c", "mkdir made; echo x > made/x; echo begun; sleep 3; echo done");
  g_assert_cmpint(status, ==, 0);
  g_assert_nonnull(strstr(out, "done"));
}

static void job_that_is_cancelled(void)
{
  g_autofree char *id = NULL, *listed = NULL;
  g_assert_cmpint(QUAVON(&id, "run", "--detach", "--", "sh", "-c", "echo begun; sleep 600"), ==, 0);
  world_await_state(world, id, QV_JOB_ACTIVE);
  g_assert_cmpint(QUAVON(&listed, "ps", "--json"), ==, 0);
  g_assert_nonnull(strstr(listed, id));
  g_assert_cmpint(QUAVON(NULL, "cancel", id), ==, 0);
  g_assert_cmpint(QUAVON(NULL, "wait", id), !=, 0);
  QUAVON(NULL, "logs", id);
  QUAVON(NULL, "result", id);
}

static void pool_and_doctor(void)
{
  g_autofree char *found = NULL;
  g_assert_cmpint(QUAVON(NULL, "pool", "pause"), ==, 0);
  g_assert_cmpint(QUAVON(NULL, "pool", "status"), ==, 0);
  g_assert_cmpint(QUAVON(NULL, "pool", "resume"), ==, 0);
  g_assert_cmpint(QUAVON(NULL, "runners"), ==, 0);
  QUAVON(&found, "doctor", "--json"); /* its verdict is about this machine too */
  g_assert_nonnull(strstr(found, "may not read a foreign key"));
}

/* ---- judgement */

static User *user_of(const char *address)
{
  for (int u = 0; u < USERS_N; u++)
    if (g_str_has_prefix(address, users[u].source) && address[strlen(users[u].source)] == ':')
      return &users[u];
  return NULL;
}

/* TIME [DB ADDRESS] "COMMAND" "ARGUMENT" … */
static gboolean parse(const char *line, char **address, char **command)
{
  g_autoptr(GRegex) regex = g_regex_new("^[0-9.]+ \\[[0-9]+ ([^\\]]+)\\] \"([^\"]+)\"(?: \"([^\"]*)\")?", 0, 0, NULL);
  g_autoptr(GMatchInfo) match = NULL;
  if (!g_regex_match(regex, line, 0, &match))
    return FALSE;
  g_autofree char *verb = g_match_info_fetch(match, 2), *second = g_match_info_fetch(match, 3);
  g_autofree char *whole = g_ascii_strcasecmp(verb, "client") == 0 ? g_strconcat(verb, "|", second, NULL) : g_strdup(verb);
  *address = g_match_info_fetch(match, 1);
  *command = g_ascii_strdown(whole, -1);
  return TRUE;
}

static void judge(const char *text)
{
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  User *caller = NULL;
  guint scripted_n = 0;
  for (char **line = lines; *line != NULL; line++) {
    g_autofree char *address = NULL, *command = NULL;
    if (!parse(*line, &address, &command))
      continue;
    gboolean scripted = strcmp(address, "lua") == 0;
    if (!scripted)
      caller = user_of(address);
    if (caller == NULL)
      continue; /* this program's own, over the unix socket */
    scripted_n += scripted;
    if (!g_hash_table_contains(caller->allowed, command))
      g_error("%s sent a command that is not in its list: %s", caller->name, *line);
    g_hash_table_add(caller->seen, g_strdup(command));
  }
  g_assert_cmpuint(scripted_n, >, 100);
  static const struct {
    int user;
    const char *command;
  } must[] = {{SANDBOX, "bzpopmin"}, {SANDBOX, "hincrby"}, {SANDBOX, "getrange"}, {SANDBOX, "publish"}, {SANDBOX, "subscribe"},
              {SANDBOX, "pexpire"},  {SANDBOX, "ping"},    {EGRESS, "get"},       {EGRESS, "publish"},  {EGRESS, "subscribe"},
              {EGRESS, "ping"},      {WORKER, "xread"},    {WORKER, "lpush"},     {WORKER, "info"},     {WORKER, "subscribe"},
              {WORKER, "publish"},   {WORKER, "lindex"},   {WORKER, "hdel"},      {WORKER, "zrangebyscore"}};
  for (gsize i = 0; i < G_N_ELEMENTS(must); i++)
    if (!g_hash_table_contains(users[must[i].user].seen, must[i].command))
      g_error("%s never sent %s: this run shows too little", users[must[i].user].name, must[i].command);
  for (int u = 0; u < USERS_N; u++)
    g_test_message("%s: %u commands of %u", users[u].name, g_hash_table_size(users[u].seen), g_hash_table_size(users[u].allowed));
}

/* valkey-cli prints an entry as name, value, name, value, a line each. */
static void judge_refusals(void)
{
  g_autofree char *log = qv_test_valkey_cli(world->valkey, "ACL", "LOG", NULL);
  g_auto(GStrv) lines = g_strsplit(log, "\n", -1);
  for (char **line = lines; *line != NULL; line++)
    if (strcmp(*line, "object") == 0 && g_strcmp0(line[1], "quavon:doctor-may-not-read-this") != 0)
      g_error("something was refused: %s", log);
}

/* ---- the test */

static void begin(void)
{
  read_allowed();
  repo = g_build_filename(world->dir, "repo", NULL);
  monitor_file = g_build_filename(world->dir, "monitor", NULL);
  g_autofree char *file = g_build_filename(repo, "hello.txt", NULL);
  g_assert_cmpint(g_mkdir_with_parents(repo, 0755), ==, 0);
  g_assert_true(qv_fd_write_file(file, "hello\n", 6, 0644, NULL));
  for (int u = 0; u < USERS_N; u++) {
    users[u].relay = qv_test_proxy_start_tcp("127.0.0.1", users[u].source, qv_test_valkey_port(world->valkey));
    users[u].url = g_strdup_printf("redis://%s:%s@127.0.0.1:%u", users[u].name, qv_test_valkey_password(world->valkey),
                                   qv_test_proxy_port(users[u].relay));
  }
  start_monitor();
  g_free(monitored());
}

static void end(void)
{
  way_out_stop(monitor);
  for (int u = 0; u < USERS_N; u++) {
    qv_test_proxy_free(users[u].relay);
    g_free(users[u].url);
    g_hash_table_unref(users[u].allowed);
    g_hash_table_unref(users[u].seen);
  }
  g_free(repo);
  g_free(monitor_file);
  world_free(world);
}

static gboolean has_passed(const QvHealth *health)
{
  return health->smoke != NULL && health->smoke->passed;
}

static void test_commands(void)
{
  world = world_new(QV_TEST_VALKEY_TCP);
  if (world == NULL)
    return;
  begin();
  g_autofree char *ca_file = NULL;
  GPid server, proxy;
  guint16 port = way_out_serve(world, repo, &ca_file, &server);
  g_autofree char *registries = g_strdup_printf("localhost:%u@127.0.0.0/8,localhost:%u@::1", port, port);
  world->egress_url = g_strdup(users[EGRESS].url);
  g_autofree char *socket = way_out_start_proxy(world, registries, &proxy);
  g_autofree char *url = g_strconcat("VALKEY_URL=", users[SANDBOX].url, NULL);
  g_autofree char *at = g_strconcat("QUAVON_SANDBOX_EGRESS_PROXY=", socket, NULL);
  g_autofree char *list = g_strconcat("QUAVON_SANDBOX_REGISTRIES=", registries, NULL);
  g_autofree char *ca = g_strconcat("QUAVON_SANDBOX_CA_FILE=", ca_file, NULL);
  world_start(world, (const char *const[]){url, at, list, ca, NULL});
  g_autoptr(QvHealth) health G_GNUC_UNUSED = world_await_health(world, has_passed);
  job_with_everything(port);
  job_that_is_cancelled();
  pool_and_doctor();
  g_autofree char *text = monitored();
  world_expect_clean(world);
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  judge_refusals();
  judge(text);
  way_out_stop(proxy);
  way_out_stop(server);
  end();
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/runner/commands", test_commands);
  return g_test_run();
}
