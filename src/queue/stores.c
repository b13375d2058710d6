/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/stores.h"

#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/random.h"
#include "protocol/fields.h"

#define HEALTH_TTL_MS "90000"
#define HEALTH_AGE_MS 90000
#define RUNNERS_MAX 1000
#define SMOKE_REQUEST_TTL_MS 120000

G_STATIC_ASSERT(QV_CHUNK_GETRANGE_END == QV_CHUNK_MAX_BYTES);

typedef struct {
  QvDoneFunc done;
  QvBytesFunc bytes;
  gsize bytes_max; /* that were asked for */
  gpointer user;
} Call;

static char *number(gint64 n)
{
  return g_strdup_printf("%" G_GINT64_FORMAT, n);
}

static void on_call(const QvReply *reply, const GError *error, gpointer user)
{
  Call *call = user;
  if (call->done) {
    call->done(error, call->user);
  } else if (call->bytes) {
    g_autoptr(GBytes) bytes = NULL;
    gboolean is_value = reply && (reply->type == QV_REPLY_NIL || (reply->type == QV_REPLY_STRING && reply->len <= call->bytes_max));
    g_autoptr(GError) odd = !error && !is_value ? qv_reply_odd("GETRANGE") : NULL;
    if (odd) {
      call->bytes(NULL, odd, call->user);
      return;
    }
    if (reply && qv_reply_text(reply) && reply->len > 0)
      bytes = qv_reply_bytes(reply);
    call->bytes(bytes, error, call->user);
  }
}

static guint64 send_call(QvConn *conn, gint64 deadline_ms, int argc, const char *const *argv, const gsize *lens,
                         QvDoneFunc func, gpointer user)
{
  Call *call = g_new0(Call, 1);
  call->done = func;
  call->user = user;
  return qv_conn_send_full(conn, QV_SEND_AGAIN, deadline_ms, argc, argv, lens, on_call, call, g_free);
}

/* The first bytes_max bytes of KEY's value. */
static guint64 get_bytes(QvConn *conn, gint64 deadline_ms, const char *key, gsize bytes_max, QvBytesFunc func, gpointer user)
{
  g_autofree char *end = number((gint64)bytes_max - 1);
  const char *argv[] = { "GETRANGE", key, "0", end };
  Call *call = g_new0(Call, 1);
  call->bytes = func;
  call->bytes_max = bytes_max;
  call->user = user;
  return qv_conn_send_full(conn, QV_SEND_AGAIN, deadline_ms, G_N_ELEMENTS(argv), argv, NULL, on_call, call, g_free);
}

/* Blobs */

char *qv_blob_key(const char *prefix, const char *blob_id, guint chunk)
{
  return g_strdup_printf("%s:blob:%s:%u", prefix, blob_id, chunk);
}

guint64 qv_blob_put(QvConn *conn, const char *prefix, const char *blob_id, guint chunk, GBytes *bytes, gint64 ttl_ms,
                    gint64 deadline_ms, QvDoneFunc func, gpointer user)
{
  g_autofree char *key = qv_blob_key(prefix, blob_id, chunk), *ttl = number(MAX(ttl_ms, 1));
  gsize n;
  const char *value = g_bytes_get_data(bytes, &n);
  const char *argv[] = { "SET", key, value, "PX", ttl };
  gsize lens[] = { 3, strlen(key), n, 2, strlen(ttl) };
  return send_call(conn, deadline_ms, G_N_ELEMENTS(argv), argv, lens, func, user);
}

guint64 qv_blob_get(QvConn *conn, const char *prefix, const char *blob_id, guint chunk, gint64 deadline_ms,
                    QvBytesFunc func, gpointer user)
{
  g_autofree char *key = qv_blob_key(prefix, blob_id, chunk);
  return get_bytes(conn, deadline_ms, key, QV_CHUNK_GETRANGE_END + 1, func, user);
}

guint64 qv_blob_unlink(QvConn *conn, const char *prefix, const char *blob_id, guint chunks, gint64 deadline_ms,
                       QvDoneFunc func, gpointer user)
{
  g_autoptr(GPtrArray) argv = g_ptr_array_new_with_free_func(g_free);
  g_ptr_array_add(argv, g_strdup("UNLINK"));
  for (guint i = 0; i < MAX(chunks, 1); i++)
    g_ptr_array_add(argv, qv_blob_key(prefix, blob_id, i));
  return send_call(conn, deadline_ms, argv->len, (const char *const *)argv->pdata, NULL, func, user);
}

/* Live logs */

char *qv_live_channel(const char *prefix)
{
  return g_strconcat(prefix, ":live", NULL);
}

typedef struct {
  QvDoneFunc done;
  gpointer user;
  GDestroyNotify destroy;
} LiveCall;

static void on_live(const QvReply *reply, const GError *error, gpointer user)
{
  LiveCall *call = user;
  call->done(error, call->user);
}

static char *live_blob_id(const char *job_id)
{
  return g_strconcat(job_id, ".live", NULL);
}

/* "<prefix>:blob:<jobId>.live:n": the number of chunks, as text. */
static char *live_count_key(const char *prefix, const char *job_id)
{
  return g_strdup_printf("%s:blob:%s.live:n", prefix, job_id);
}

static void live_free(gpointer user)
{
  LiveCall *call = user;
  if (call->destroy)
    call->destroy(call->user);
  g_free(call);
}

guint64 qv_live_put(QvConn *conn, const char *prefix, const char *job_id, guint n, GBytes *sealed, gint64 deadline_ms,
                    QvDoneFunc func, gpointer user, GDestroyNotify destroy)
{
  g_autofree char *blob_id = live_blob_id(job_id), *key = qv_blob_key(prefix, blob_id, n), *ttl = number(QV_LIVE_TTL_MS);
  g_autofree char *channel = qv_live_channel(prefix), *message = g_strdup_printf("%s %u", job_id, n);
  gsize len;
  const char *value = g_bytes_get_data(sealed, &len);
  const char *argv[] = { "SET", key, value, "PX", ttl };
  gsize lens[] = { 3, strlen(key), len, 2, strlen(ttl) };
  LiveCall *call = g_new(LiveCall, 1);
  *call = (LiveCall){ func, user, destroy };
  guint64 id = qv_conn_send_full(conn, QV_SEND_ONCE, deadline_ms, G_N_ELEMENTS(argv), argv, lens, on_live, call, live_free);
  g_autofree char *count_key = live_count_key(prefix, job_id), *count = number(n + 1);
  qv_conn_sendl(conn, QV_SEND_ONCE, deadline_ms, NULL, NULL, "SET", count_key, count, "PX", ttl, NULL);
  qv_conn_sendl(conn, QV_SEND_ONCE, deadline_ms, NULL, NULL, "PUBLISH", channel, message, NULL);
  return id;
}

typedef struct {
  QvLiveCountFunc func;
  gpointer user;
} CountCall;

static void on_live_count(const QvReply *reply, const GError *error, gpointer user)
{
  CountCall *call = user;
  const char *text = reply ? qv_reply_text(reply) : NULL;
  guint64 n = 0;
  if (!text || !g_ascii_string_to_unsigned(text, 10, 0, QV_LIVE_MEMBERS_MAX, &n, NULL))
    n = 0;
  call->func((guint)n, error, call->user);
}

guint64 qv_live_count(QvConn *conn, const char *prefix, const char *job_id, gint64 deadline_ms, QvLiveCountFunc func,
                      gpointer user)
{
  g_autofree char *key = live_count_key(prefix, job_id);
  const char *argv[] = { "GETRANGE", key, "0", "15" };
  CountCall *call = g_new(CountCall, 1);
  *call = (CountCall){ func, user };
  return qv_conn_send_full(conn, QV_SEND_AGAIN, deadline_ms, G_N_ELEMENTS(argv), argv, NULL, on_live_count, call, g_free);
}

/* One a second: older ones have expired. */
static guint live_first(guint n)
{
  const guint alive = QV_LIVE_TTL_MS / QV_LIVE_EVERY_MS + 100;
  return n > alive ? n - alive : 0;
}

void qv_live_expire(QvConn *conn, const char *prefix, const char *job_id, guint n, gint64 ttl_ms)
{
  g_autofree char *blob_id = live_blob_id(job_id), *ttl = number(ttl_ms), *count_key = live_count_key(prefix, job_id);
  if (n > 0)
    qv_conn_sendl(conn, QV_SEND_ONCE, 0, NULL, NULL, "PEXPIRE", count_key, ttl, NULL);
  for (guint i = live_first(n); i < n; i++) {
    g_autofree char *key = qv_blob_key(prefix, blob_id, i);
    qv_conn_sendl(conn, QV_SEND_ONCE, 0, NULL, NULL, "PEXPIRE", key, ttl, NULL);
  }
}

guint64 qv_live_unlink(QvConn *conn, const char *prefix, const char *job_id, guint n, gint64 deadline_ms, QvDoneFunc func,
                       gpointer user)
{
  g_autofree char *blob_id = live_blob_id(job_id);
  g_autoptr(GPtrArray) argv = g_ptr_array_new_with_free_func(g_free);
  g_ptr_array_add(argv, g_strdup("UNLINK"));
  g_ptr_array_add(argv, live_count_key(prefix, job_id));
  for (guint i = live_first(n); i < n; i++)
    g_ptr_array_add(argv, qv_blob_key(prefix, blob_id, i));
  return send_call(conn, deadline_ms, argv->len, (const char *const *)argv->pdata, NULL, func, user);
}

/* Replay guard: SET NX is sent once only, because a second one would meet our own first. */

typedef struct {
  QvConn *conn;
  char *key, *value, *ttl;
  gint64 deadline_us; /* 0: none */
  gboolean asking;    /* GET is on its way, not SET */
  QvGuardFunc func;
  gpointer user;
} Guard;

static void guard_send(Guard *g);

static void guard_end(Guard *g, QvGuard guard, const GError *error)
{
  g->func(guard, error, g->user);
  g_free(g->key);
  g_free(g->value);
  g_free(g->ttl);
  g_free(g);
}

/* SET NX: OK or nil; GET: a text or nil. Whatever else comes back says nothing about the guard, least that it is won. */
static gboolean is_guard_reply(const Guard *g, const QvReply *reply)
{
  if (reply->type == QV_REPLY_NIL)
    return TRUE;
  return g->asking ? reply->type == QV_REPLY_STRING : reply->type == QV_REPLY_STATUS && g_str_equal(reply->text, "OK");
}

static void on_guard(const QvReply *reply, const GError *error, gpointer user)
{
  Guard *g = user;
  if (error && g_error_matches(error, QV_ERROR, QV_ERROR_GONE) && !qv_conn_fail_fast(g->conn)) {
    g->asking = TRUE;
    guard_send(g);
  } else if (error) {
    guard_end(g, QV_GUARD_UNKNOWN, error);
  } else if (!is_guard_reply(g, reply)) {
    g_autoptr(GError) odd = qv_reply_odd(g->asking ? "GET" : "SET");
    guard_end(g, QV_GUARD_UNKNOWN, odd);
  } else if (!g->asking) {
    guard_end(g, reply->type == QV_REPLY_STATUS ? QV_GUARD_WON : QV_GUARD_REPLAYED, NULL);
  } else if (!qv_reply_text(reply)) {
    g->asking = FALSE; /* the first SET never arrived */
    guard_send(g);
  } else {
    guard_end(g, g_str_equal(qv_reply_text(reply), g->value) ? QV_GUARD_WON : QV_GUARD_REPLAYED, NULL);
  }
}

static void guard_send(Guard *g)
{
  gint64 left_ms = g->deadline_us ? MAX((g->deadline_us - g_get_monotonic_time()) / 1000, 1) : 0;
  if (g->asking)
    qv_conn_sendl(g->conn, QV_SEND_PATIENT, left_ms, on_guard, g, "GET", g->key, NULL);
  else
    qv_conn_sendl(g->conn, QV_SEND_PATIENT, left_ms, on_guard, g, "SET", g->key, g->value, "NX", "PX", g->ttl, NULL);
}

void qv_replay_guard_take(QvConn *conn, const char *prefix, const char *job_id, const char *runner_id, gint64 ttl_ms,
                          gint64 deadline_ms, QvGuardFunc func, gpointer user)
{
  guint8 nonce[QV_REPLAY_NONCE_BYTES];
  qv_random_bytes(nonce, sizeof nonce);
  Guard *g = g_new0(Guard, 1);
  g_autoptr(GString) value = g_string_new(runner_id);
  g_string_append_c(value, ':');
  for (gsize i = 0; i < sizeof nonce; i++)
    g_string_append_printf(value, "%02x", nonce[i]);
  g->conn = conn;
  g->key = g_strdup_printf("%s:replay:%s", prefix, job_id);
  g->value = g_strdup(value->str);
  g->ttl = number(MAX(ttl_ms, 1));
  g->deadline_us = deadline_ms > 0 ? g_get_monotonic_time() + deadline_ms * 1000 : 0;
  g->func = func;
  g->user = user;
  guard_send(g);
}

/* Two commands with one end: cancel, egress, health. An answer "not now" may let the second overtake the first. */

typedef struct {
  QvDoneFunc done;
  gpointer user;
  GError *error;
  guint missing_n;
} Pair;

static void on_half(const QvReply *reply, const GError *error, gpointer user)
{
  Pair *pair = user;
  if (error && !pair->error)
    pair->error = g_error_copy(error);
  if (--pair->missing_n > 0)
    return;
  if (pair->done)
    pair->done(pair->error, pair->user);
  g_clear_error(&pair->error);
  g_free(pair);
}

static Pair *pair_new(QvDoneFunc func, gpointer user)
{
  Pair *pair = g_new0(Pair, 1);
  pair->done = func;
  pair->user = user;
  pair->missing_n = 2;
  return pair;
}

char *qv_cancel_channel(const char *prefix)
{
  return g_strconcat(prefix, ":cancel", NULL);
}

static char *record_key(const char *prefix, const char *kind, const char *id)
{
  return g_strdup_printf("%s:%s:%s", prefix, kind, id);
}

/* A record of KIND for ID, and the word of it on the channel of that name. */
static void announce(QvConn *conn, const char *prefix, const char *kind, const char *id, const char *envelope, gsize len,
                     gint64 ttl_ms, gint64 deadline_ms, QvDoneFunc func, gpointer user)
{
  g_autofree char *key = record_key(prefix, kind, id), *ttl = number(MAX(ttl_ms, 1));
  g_autofree char *channel = g_strdup_printf("%s:%s", prefix, kind);
  Pair *pair = pair_new(func, user);
  const char *argv[] = { "SET", key, envelope, "PX", ttl };
  gsize lens[] = { 3, strlen(key), len, 2, strlen(ttl) };
  qv_conn_send(conn, QV_SEND_AGAIN, deadline_ms, G_N_ELEMENTS(argv), argv, lens, on_half, pair);
  qv_conn_sendl(conn, QV_SEND_AGAIN, deadline_ms, on_half, pair, "PUBLISH", channel, id, NULL);
}

static guint64 get_record(QvConn *conn, const char *prefix, const char *kind, const char *id, gint64 deadline_ms,
                          QvBytesFunc func, gpointer user)
{
  g_autofree char *key = record_key(prefix, kind, id);
  return get_bytes(conn, deadline_ms, key, QV_RECORD_JSON_BYTES_MAX + 1, func, user);
}

void qv_cancel_put(QvConn *conn, const char *prefix, const char *job_id, const char *envelope, gsize len, gint64 ttl_ms,
                   gint64 deadline_ms, QvDoneFunc func, gpointer user)
{
  announce(conn, prefix, "cancel", job_id, envelope, len, ttl_ms, deadline_ms, func, user);
}

guint64 qv_cancel_get(QvConn *conn, const char *prefix, const char *job_id, gint64 deadline_ms, QvBytesFunc func,
                      gpointer user)
{
  return get_record(conn, prefix, "cancel", job_id, deadline_ms, func, user);
}

/* Smoke */

char *qv_smoke_channel(const char *prefix)
{
  return g_strconcat(prefix, ":smoke", NULL);
}

void qv_smoke_request_put(QvConn *conn, const char *prefix, const char *runner_id, const char *envelope, gsize len,
                          gint64 deadline_ms, QvDoneFunc func, gpointer user)
{
  announce(conn, prefix, "smoke", runner_id, envelope, len, SMOKE_REQUEST_TTL_MS, deadline_ms, func, user);
}

guint64 qv_smoke_request_get(QvConn *conn, const char *prefix, const char *runner_id, gint64 deadline_ms,
                             QvBytesFunc func, gpointer user)
{
  return get_record(conn, prefix, "smoke", runner_id, deadline_ms, func, user);
}

/* Egress tokens */

char *qv_egress_channel(const char *prefix)
{
  return g_strconcat(prefix, ":egress", NULL);
}

char *qv_egress_usage_channel(const char *prefix)
{
  return g_strconcat(prefix, ":egress-usage", NULL);
}

guint64 qv_egress_token_put(QvConn *conn, const char *prefix, const char *hash, const char *record, gsize len,
                            gint64 ttl_ms, gint64 deadline_ms, QvDoneFunc func, gpointer user)
{
  g_autofree char *key = record_key(prefix, "egress", hash), *ttl = number(MAX(ttl_ms, 1));
  const char *argv[] = { "SET", key, record, "PX", ttl };
  gsize lens[] = { 3, strlen(key), len, 2, strlen(ttl) };
  return send_call(conn, deadline_ms, G_N_ELEMENTS(argv), argv, lens, func, user);
}

void qv_egress_token_revoke(QvConn *conn, const char *prefix, const char *hash, gint64 deadline_ms, QvDoneFunc func,
                            gpointer user)
{
  g_autofree char *key = record_key(prefix, "egress", hash), *channel = qv_egress_channel(prefix);
  Pair *pair = pair_new(func, user);
  qv_conn_sendl(conn, QV_SEND_AGAIN, deadline_ms, on_half, pair, "UNLINK", key, NULL);
  qv_conn_sendl(conn, QV_SEND_AGAIN, deadline_ms, on_half, pair, "PUBLISH", channel, hash, NULL);
}

/* Health */

void qv_health_put(QvConn *conn, const char *prefix, const char *runner_id, gint64 at_ms, const char *envelope, gsize len,
                   gint64 deadline_ms, QvDoneFunc func, gpointer user)
{
  g_autofree char *key = record_key(prefix, "health", runner_id), *at = number(at_ms);
  g_autofree char *runners = g_strconcat(prefix, ":runners", NULL);
  Pair *pair = pair_new(func, user);
  const char *argv[] = { "SET", key, envelope, "PX", HEALTH_TTL_MS };
  gsize lens[] = { 3, strlen(key), len, 2, strlen(HEALTH_TTL_MS) };
  qv_conn_send(conn, QV_SEND_AGAIN, deadline_ms, G_N_ELEMENTS(argv), argv, lens, on_half, pair);
  qv_conn_sendl(conn, QV_SEND_AGAIN, deadline_ms, on_half, pair, "ZADD", runners, at, runner_id, NULL);
}

typedef struct {
  QvConn *conn;
  char *prefix;
  gint64 deadline_ms;
  guint n;
  char **ids; /* n, and a NULL */
  GBytes **records;
  guint missing_n;
  GError *error;
  QvHealthFunc func;
  gpointer user;
} HealthList;

typedef struct {
  HealthList *list;
  guint i;
} HealthRead;

static void health_end(HealthList *h)
{
  h->func(h->error ? 0 : h->n, (const char *const *)h->ids, h->records, h->error, h->user);
  for (guint i = 0; i < h->n; i++)
    g_clear_pointer(&h->records[i], g_bytes_unref);
  g_strfreev(h->ids);
  g_free(h->records);
  g_clear_error(&h->error);
  g_free(h->prefix);
  g_free(h);
}

static void on_record(GBytes *bytes, const GError *error, gpointer user)
{
  g_autofree HealthRead *read = user;
  HealthList *h = read->list;
  if (error && !h->error)
    h->error = g_error_copy(error);
  h->records[read->i] = bytes ? g_bytes_ref(bytes) : NULL;
  if (--h->missing_n == 0)
    health_end(h);
}

static void on_runners(const QvReply *reply, const GError *error, gpointer user)
{
  HealthList *h = user;
  gsize most = reply ? MIN(reply->elements_n, RUNNERS_MAX) : 0;
  h->error = error ? g_error_copy(error) : reply->type != QV_REPLY_ARRAY ? qv_reply_odd("ZRANGEBYSCORE") : NULL;
  h->ids = g_new0(char *, most + 1);
  h->records = g_new0(GBytes *, most + 1);
  /* The set is not signed: what is no runner id gets nowhere. */
  for (gsize i = 0; i < most; i++) {
    const char *id = qv_reply_text(reply->elements[i]);
    if (id && strlen(id) == reply->elements[i]->len && qv_identifier_valid(id))
      h->ids[h->n++] = g_strdup(id);
  }
  h->missing_n = h->n;
  if (h->n == 0) {
    health_end(h);
    return;
  }
  for (guint i = 0; i < h->n; i++) {
    g_autofree char *key = record_key(h->prefix, "health", h->ids[i]);
    HealthRead *read = g_new0(HealthRead, 1);
    read->list = h;
    read->i = i;
    get_bytes(h->conn, h->deadline_ms, key, QV_RECORD_JSON_BYTES_MAX + 1, on_record, read);
  }
}

void qv_health_list(QvConn *conn, const char *prefix, gint64 now_ms, gint64 deadline_ms, QvHealthFunc func, gpointer user)
{
  g_autofree char *runners = g_strconcat(prefix, ":runners", NULL), *from = number(now_ms - HEALTH_AGE_MS);
  HealthList *h = g_new0(HealthList, 1);
  h->conn = conn;
  h->prefix = g_strdup(prefix);
  h->deadline_ms = deadline_ms;
  h->func = func;
  h->user = user;
  qv_conn_sendl(conn, QV_SEND_AGAIN, deadline_ms, on_runners, h, "ZRANGEBYSCORE", runners, from, "+inf", "LIMIT", "0",
                G_STRINGIFY(RUNNERS_MAX), NULL);
}
