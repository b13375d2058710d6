/* SPDX-License-Identifier: Apache-2.0 */
/* The life of tokens under a clock that the test holds: revocation with and without its message, a Valkey that is away, expiry,
 * a loop that slept; the usage record. */
#include <string.h>

#include "egress/tokens.h"

#define HASH "abababababababababababababababababababababababababababababababab"
enum { START_MS = 1000000 };
static const gint64 unix_start = 1700000000000;

typedef struct {
  QvTokens *tokens;
  gint64 now;
  GBytes *record; /* what Valkey has; NULL: nothing */
  gboolean away;  /* Valkey does not answer */
  guint asked;
  GString *cuts;  /* "reason@ms " */
  char *usage;
  GList tunnel;
} World;

static void on_cut(QvToken *token, QvReason why, gpointer user)
{
  World *world = user;
  gsize n;
  g_string_append_printf(world->cuts, "%s@%d ", qv_reason_code(why), (int)(world->now - START_MS));
  if (token->tunnels.length > 0)
    g_queue_unlink(&token->tunnels, &world->tunnel);
  g_free(world->usage);
  world->usage = qv_token_usage_format(token, &n);
  g_assert_cmpuint(n, ==, strlen(world->usage));
}

static void on_ask(const char *hash, gint64 now_ms, gpointer user)
{
  World *world = user;
  QvReason why;
  world->asked++;
  g_assert_cmpint(now_ms, ==, world->now);
  if (!world->away)
    qv_tokens_answer(world->tokens, hash, world->record, FALSE, now_ms, now_ms, unix_start + now_ms - START_MS, &why);
}

static GBytes *record(gint64 life_ms)
{
  char *hosts[] = {(char *)"a.example:443", NULL};
  gsize n;
  QvTokenRecord made = {.hosts = hosts, .expires_at = unix_start + life_ms};
  strcpy(made.job_id, "00000000-0000-4000-8000-000000000001");
  char *text = qv_token_record_format(&made, &n);
  return g_bytes_new_take(text, n);
}

static QvToken *admit(World *world, QvReason *why)
{
  return qv_tokens_answer(world->tokens, HASH, world->record, TRUE, world->now, world->now, unix_start + world->now - START_MS, why);
}

static void world_init(World *world, gint64 life_ms)
{
  static const QvTokensEvents events = {on_cut, on_ask};
  *world = (World){.now = START_MS, .cuts = g_string_new(NULL), .record = record(life_ms)};
  world->tokens = qv_tokens_new(&events, world);
  qv_tokens_tick(world->tokens, world->now, unix_start);
}

static QvToken *world_tunnel(World *world)
{
  QvReason why;
  QvToken *token = admit(world, &why);
  g_assert_cmpint(why, ==, QV_REASON_NONE);
  world->tunnel = (GList){.data = world};
  g_queue_push_tail_link(&token->tunnels, &world->tunnel);
  return token;
}

static void world_clear(World *world)
{
  qv_tokens_free(world->tokens);
  g_clear_pointer(&world->record, g_bytes_unref);
  g_string_free(world->cuts, TRUE);
  g_free(world->usage);
}

static void run(World *world, gint64 ms)
{
  for (gint64 end = world->now + ms; world->now < end;) {
    world->now += QV_TOKEN_TICK_MS;
    qv_tokens_tick(world->tokens, world->now, unix_start + world->now - START_MS);
  }
}

/* When was the first cut, counted from START? */
static gint64 cut_at(const World *world)
{
  const char *at = strchr(world->cuts->str, '@');
  return at != NULL ? g_ascii_strtoll(at + 1, NULL, 10) : -1;
}

static void test_lives(void)
{
  World world;
  world_init(&world, 3600000);
  world_tunnel(&world);
  run(&world, 60000);
  g_assert_cmpstr(world.cuts->str, ==, "");
  g_assert_cmpuint(world.asked, >=, 60000 / 500); /* section 7: every 500 ms */
  world_clear(&world);
}

static void test_message(void)
{
  World world;
  QvReason why;
  world_init(&world, 3600000);
  world_tunnel(&world);
  run(&world, 700);
  qv_tokens_revoke(world.tokens, HASH, world.now, unix_start + 700);
  g_assert_cmpstr(world.cuts->str, ==, "revoked@700 ");
  g_assert_cmpuint(qv_tokens_n(world.tokens), ==, 0);
  /* An answer that was on its way, or a key that is still there: it does not come back. */
  g_assert_null(admit(&world, &why));
  g_assert_cmpint(why, ==, QV_REASON_TOKEN_UNKNOWN);
  run(&world, 100000);
  g_assert_null(admit(&world, &why));
  /* A message about one that was never seen, before its first CONNECT. */
  world_clear(&world);
  world_init(&world, 3600000);
  qv_tokens_revoke(world.tokens, HASH, world.now, unix_start);
  g_assert_null(admit(&world, &why));
  qv_tokens_revoke(world.tokens, "no hash", world.now, unix_start);
  world_clear(&world);
}

/* For every moment between two questions: the message is lost, the key is gone. */
static void test_lost_message(void)
{
  for (gint64 at = 0; at < 600; at += 10) {
    World world;
    world_init(&world, 3600000);
    world_tunnel(&world);
    run(&world, at / QV_TOKEN_TICK_MS * QV_TOKEN_TICK_MS);
    g_clear_pointer(&world.record, g_bytes_unref);
    run(&world, 2000);
    g_assert_true(g_str_has_prefix(world.cuts->str, "revoked@"));
    g_assert_cmpint(cut_at(&world) - at, <=, 1000);
    world_clear(&world);
  }
}

/* The same with Valkey away from that moment on: the revocation cannot be seen at all. */
static void test_away(void)
{
  for (gint64 at = 0; at < 600; at += 10) {
    World world;
    QvReason why;
    world_init(&world, 3600000);
    world_tunnel(&world);
    run(&world, at / QV_TOKEN_TICK_MS * QV_TOKEN_TICK_MS);
    world.away = TRUE;
    run(&world, 2000);
    g_assert_true(g_str_has_prefix(world.cuts->str, "unconfirmed@"));
    g_assert_cmpint(cut_at(&world) - at, <=, 1000);
    /* Back again with the key still there: new tunnels, the same count. */
    world.away = FALSE;
    g_assert_cmpuint(qv_tokens_n(world.tokens), ==, 1);
    QvToken *token = admit(&world, &why);
    g_assert_nonnull(token);
    gsize cuts = world.cuts->len;
    run(&world, 5000);
    g_assert_cmpuint(world.cuts->len, ==, cuts);
    world_clear(&world);
  }
}

static void test_expiry(void)
{
  World world;
  QvReason why;
  world_init(&world, 5000);
  world_tunnel(&world);
  run(&world, 6000);
  g_assert_cmpstr(world.cuts->str, ==, "expired@5000 ");
  g_assert_null(admit(&world, &why));
  g_assert_cmpint(why, ==, QV_REASON_TOKEN_EXPIRED);
  world_clear(&world);
}

/* A process that was not scheduled for seconds has moved nothing meanwhile: the answer is read before it is judged. */
static void test_sleep(void)
{
  World world;
  world_init(&world, 3600000);
  world_tunnel(&world);
  run(&world, 1000);
  world.now += 5000;
  qv_tokens_tick(world.tokens, world.now, unix_start + 6000);
  g_assert_cmpstr(world.cuts->str, ==, "");
  run(&world, 1000);
  g_assert_cmpstr(world.cuts->str, ==, "");
  world_clear(&world);
}

static void test_records(void)
{
  World world;
  QvReason why;
  world_init(&world, 3600000);
  static const char *const bad[] = {"", "{}", "null", "{\"v\":1}", "[]"};
  for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
    g_autoptr(GBytes) text = g_bytes_new(bad[i], strlen(bad[i]));
    g_assert_null(qv_tokens_answer(world.tokens, HASH, text, TRUE, world.now, world.now, unix_start, &why));
    g_assert_cmpint(why, ==, QV_REASON_TOKEN_UNKNOWN);
  }
  /* One in use that turns bad ends. */
  world_tunnel(&world);
  g_bytes_unref(world.record);
  world.record = g_bytes_new("{}", 2);
  run(&world, 1000);
  g_assert_true(g_str_has_prefix(world.cuts->str, "revoked@"));
  world_clear(&world);
}

static void test_usage(void)
{
  World world;
  world_init(&world, 3600000);
  QvToken *token = world_tunnel(&world);
  for (guint i = 0; i < 200; i++) {
    g_autoptr(GString) name = g_string_new(NULL);
    for (guint j = 0; j < 4; j++)
      g_string_append_printf(name, "%s%060u", j > 0 ? "." : "", i);
    g_string_append(name, ":443");
    QvTokenHost *host = qv_token_host(token, name->str);
    host->refused++;
    host->connections += 2;
    host->bytes_up += 10;
    host->bytes_down += 100;
    g_assert_true(qv_token_host(token, name->str) == host);
  }
  qv_token_host(token, "[::1]:443")->refused++;
  g_assert_cmpuint(token->hosts->len, <=, QV_TOKEN_HOSTS_MAX + 1);
  /* Names that were refused take no row from the job's own. */
  const char *own = token->record->hosts[0];
  g_assert_cmpstr(qv_token_host(token, own)->host_port, ==, own);
  gsize n;
  g_autofree char *text = qv_token_usage_format(token, &n);
  g_assert_cmpuint(n, <=, QV_TOKEN_USAGE_BYTES_MAX);
  QvResult result = {0};
  g_autoptr(GError) error = NULL;
  g_assert_true(qv_token_usage_parse(text, n, HASH, &result, &error));
  gint64 sums[4] = {0};
  for (gsize i = 0; i < result.egress_n; i++) {
    sums[0] += result.egress[i].connections;
    sums[1] += result.egress[i].bytes_up;
    sums[2] += result.egress[i].bytes_down;
    sums[3] += result.egress[i].refused;
    g_free(result.egress[i].host);
  }
  g_free(result.egress);
  g_assert_cmpint(sums[0], ==, 400);
  g_assert_cmpint(sums[1], ==, 2000);
  g_assert_cmpint(sums[2], ==, 20000);
  g_assert_cmpint(sums[3], ==, 201);
  g_queue_unlink(&token->tunnels, &world.tunnel);
  world_clear(&world);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/tokens/lives", test_lives);
  g_test_add_func("/tokens/message", test_message);
  g_test_add_func("/tokens/lost-message", test_lost_message);
  g_test_add_func("/tokens/away", test_away);
  g_test_add_func("/tokens/expiry", test_expiry);
  g_test_add_func("/tokens/sleep", test_sleep);
  g_test_add_func("/tokens/records", test_records);
  g_test_add_func("/tokens/usage", test_usage);
  return g_test_run();
}
