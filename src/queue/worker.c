/* SPDX-License-Identifier: Apache-2.0 */
/* Theory of operation. One loop fetches for all slots (see Loop): fetch while slots
 * are free; when the answer is "nothing", block on the marker; a popped marker is only a
 * hint and leads to a fetch. A finish brings the next job along in the same
 * round trip. A fetch whose reply was lost is asked again with the same token, and the
 * script then finds the job that the first one took. A change of the tenants' order is
 * a reason to look again, beside a blocked read: that one stays, and is the next block. Who owes
 * whom a look: worker_wake.c. */
#include "queue/worker.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "queue/worker_private.h"

#define TAKEN_N 15 /* what take.lua says of a job */
#define BLOCK_MAX_MS 3000 /* well below QV_SILENCE_DEAD_MS */
#define BLOCK_MIN_MS 2
#define REST_TRANSIENT_MS 250
#define REST_ERROR_MS 2000
#define REST_LIMIT_MAX_MS 10000
/* Woken for nothing that often, and each time at once: others are quicker, or the server lies. */
#define FRUITLESS_N 32
#define FRUITLESS_MS 20
#define REST_FRUITLESS_MS 50

static void send_fetch(QvWorker *w);
static void block(QvWorker *w);
static void rest(QvWorker *w, gint64 ms);
static void look_in(QvWorker *w, gint64 ms);

void qv_worker_ref(QvWorker *w)
{
  w->refs++;
}

void qv_worker_unref(QvWorker *w)
{
  if (--w->refs)
    return;
  g_hash_table_unref(w->jobs);
  g_free(w->queue);
  g_free(w->name);
  g_free(w->uuid);
  g_free(w->fetch_token);
  g_free(w->order);
  qv_wake_clear(w);
  qv_options_memo_clear(&w->memo);
  g_free(w);
}

gint64 qv_worker_now_ms(void)
{
  return qv_clock_unix_ms();
}

gsize qv_worker_number(char out[QV_NUMBER_SIZE], gint64 n)
{
  char digits[QV_NUMBER_SIZE];
  gsize len = 0, from = sizeof digits;
  guint64 left = n < 0 ? -(guint64)n : (guint64)n;
  do
    digits[--from] = (char)('0' + left % 10);
  while ((left /= 10) > 0);
  if (n < 0)
    out[len++] = '-';
  memcpy(out + len, digits + from, sizeof digits - from);
  len += sizeof digits - from;
  out[len] = '\0';
  return len;
}

char *qv_worker_next_token(QvWorker *w)
{
  char n[QV_NUMBER_SIZE];
  qv_worker_number(n, (gint64)++w->token_n);
  return g_strconcat(w->uuid, ":", n, NULL);
}

void qv_worker_say(QvWorker *w, const GError *why)
{
  if (!why && !w->troubled)
    return;
  w->troubled = why != NULL;
  if (w->events.state && !w->freed)
    w->events.state(w, why, w->user);
}

/* Jobs */

static void job_free(gpointer data)
{
  Job *job = data;
  g_free(job->pub.id);
  g_free(job->pub.name);
  g_free(job->pub.deferred_failure);
  g_clear_pointer(&job->pub.data, g_bytes_unref);
  g_free(job->token);
  g_free(job->text);
  g_strfreev(job->keys);
  g_free(job->next_token);
  qv_timer_free(job->retry);
  g_free(job);
}

void qv_worker_forget(QvWorker *w, Job *job)
{
  if (w->keeper)
    qv_lock_keeper_remove(w->keeper, job->token);
  g_hash_table_remove(w->jobs, job->token);
  if (w->draining && !w->freed)
    qv_timer_arm_before_us(w->drained, 0);
}

static Job *job_new(QvWorker *w, const QvReply *r, const char *token)
{
  Job *job = g_new0(Job, 1);
  const char *opts = qv_reply_text(qv_reply_at(r, 5));
  job->worker = w;
  job->token = g_strdup(token);
  job->pub.id = g_strdup(qv_reply_text(qv_reply_at(r, 1)));
  job->pub.name = g_strdup(qv_reply_text(qv_reply_at(r, 2)));
  job->pub.data = qv_reply_bytes(qv_reply_at(r, 3));
  job->pub.data_bytes = qv_reply_int(qv_reply_at(r, 4), 0);
  qv_job_options_recall(&w->memo, opts, opts ? qv_reply_at(r, 5)->len : 0, job->pub.id, &job->options);
  job->pub.timestamp_ms = qv_reply_int(qv_reply_at(r, 6), -1);
  job->pub.processed_on_ms = qv_reply_int(qv_reply_at(r, 7), -1);
  job->pub.attempts_started = qv_reply_int(qv_reply_at(r, 8), 0);
  job->pub.stalled_n = qv_reply_int(qv_reply_at(r, 9), 0);
  job->pub.deferred_failure = g_strdup(qv_reply_text(qv_reply_at(r, 10)));
  job->pub.has_scheduler = qv_reply_int(qv_reply_at(r, 11), 0) == 1;
  job->pub.has_parent = qv_reply_int(qv_reply_at(r, 12), 0) == 1;
  job->pub.has_parent_key = qv_reply_int(qv_reply_at(r, 13), 0) == 1;
  job->pub.has_dedup = qv_reply_int(qv_reply_at(r, 14), 0) == 1;
  return job;
}

static void lose_job(QvWorker *w, Job *job, const char *why)
{
  qv_lock_keeper_remove(w->keeper, job->token);
  if (job->state != JOB_HELD)
    return;
  job->state = JOB_LOST;
  w->events.lock_lost(w, &job->pub, why, w->user);
}

/* A job that we hold comes back to us: it stalled under our hands. */
static void lose_older_holder(QvWorker *w, const char *id, const Job *except)
{
  GHashTableIter iter;
  gpointer value;
  Job *older = NULL;
  g_hash_table_iter_init(&iter, w->jobs);
  while (g_hash_table_iter_next(&iter, NULL, &value)) {
    Job *job = value;
    if (job != except && job->state == JOB_HELD && g_str_equal(job->pub.id, id))
      older = job;
  }
  if (older)
    lose_job(w, older, "the job stalled and was fetched again");
}

static void on_lost(const char *token, const char *why, gpointer user)
{
  QvWorker *w = user;
  Job *job = g_hash_table_lookup(w->jobs, token);
  qv_worker_ref(w);
  if (job)
    lose_job(w, job, why);
  qv_worker_unref(w);
}

static void on_cancel_seen(const char *token, gpointer user)
{
  QvWorker *w = user;
  Job *job = g_hash_table_lookup(w->jobs, token);
  if (job && job->state == JOB_HELD && w->events.cancel_seen)
    w->events.cancel_seen(w, &job->pub, w->user);
}

gboolean qv_worker_is_take(const QvReply *r)
{
  const QvReply *kind = qv_reply_at(r, 0);
  if (kind->type != QV_REPLY_INTEGER)
    return FALSE;
  if (kind->integer == 1)
    return r->elements_n == TAKEN_N && qv_reply_text(qv_reply_at(r, 1)) != NULL;
  return kind->integer == 0 && qv_reply_at(r, 1)->type == QV_REPLY_INTEGER && qv_reply_at(r, 2)->type == QV_REPLY_INTEGER;
}

void qv_worker_took(QvWorker *w, const QvReply *r, const char *token, gint64 sent_us, guint order_n)
{
  w->fetched_at_ms = g_get_monotonic_time() / 1000;
  if (qv_reply_int(qv_reply_at(r, 0), 0) != 1) {
    gint64 wait_ms = qv_reply_int(qv_reply_at(r, 1), -1);
    w->next_due_ms = qv_reply_int(qv_reply_at(r, 2), -1);
    if (w->loop != LOOP_FETCHING && order_n == w->order_n)
      w->fetch_order_n = order_n; /* a look as good as the loop's own */
    if (w->loop == LOOP_BLOCKED && wait_ms > 0)
      look_in(w, MIN(wait_ms, REST_LIMIT_MAX_MS));
    else if (w->loop == LOOP_BLOCKED && w->next_due_ms >= 0)
      look_in(w, CLAMP(w->next_due_ms - qv_worker_now_ms(), BLOCK_MIN_MS, BLOCK_MAX_MS));
    if (w->loop != LOOP_READY)
      return;
    if (w->wake.owed || order_n != w->order_n)
      return; /* something is new since: look again at once */
    if (wait_ms > 0) {
      w->loop = LOOP_RESTING;
      qv_timer_arm_ms(w->rest, MIN(wait_ms, REST_LIMIT_MAX_MS));
    } else {
      block(w);
    }
    return;
  }
  w->fruitless_n = 0;
  Job *job = job_new(w, r, token);
  g_hash_table_insert(w->jobs, job->token, job);
  qv_lock_keeper_add(w->keeper, token, job->pub.id, sent_us);
  lose_older_holder(w, job->pub.id, job);
  if (w->freed)
    return;
  if (w->paused)
    qv_worker_release(w, &job->pub, NULL, NULL, NULL);
  else
    w->events.job(w, &job->pub, w->user);
}

/* The loop */

static void rest(QvWorker *w, gint64 ms)
{
  w->loop = LOOP_RESTING;
  qv_timer_arm_ms(w->rest, ms);
}

/* Beside a read that is older than what is known now. */
static void look_in(QvWorker *w, gint64 ms)
{
  qv_timer_arm_before_us(w->rest, g_get_monotonic_time() + ms * 1000);
}

static void on_rest(gpointer user)
{
  QvWorker *w = user;
  if (w->loop != LOOP_RESTING && w->loop != LOOP_BLOCKED)
    return;
  w->loop = LOOP_READY;
  if (w->fetch_token)
    send_fetch(w); /* the unanswered one, also when paused meanwhile: it may hold a job */
  else
    qv_worker_pump(w);
}

static void fetched(QvWorker *w, const QvReply *reply, const GError *error)
{
  w->loop = LOOP_READY;
  if (!error) {
    g_autofree char *token = g_steal_pointer(&w->fetch_token);
    if (qv_reply_int(qv_reply_at(reply, 0), 0) == 1 || qv_reply_int(qv_reply_at(reply, 1), -1) <= 0)
      g_clear_pointer(&w->wake.pass, g_free); /* else it goes with the look after the wait */
    qv_worker_took(w, reply, token, w->fetch_sent_us, w->fetch_order_n);
  } else if (g_error_matches(error, QV_ERROR, QV_ERROR_GONE)) {
    send_fetch(w);
  } else {
    qv_wake_refused(w);
    rest(w, qv_reply_error_is_transient(error) ? REST_TRANSIENT_MS : REST_ERROR_MS);
  }
}

static void on_fetched(const QvReply *reply, const GError *error, gpointer user)
{
  QvWorker *w = user;
  if (w->freed) {
    qv_worker_unref(w);
    return;
  }
  g_autoptr(GError) odd = !error && !qv_worker_is_take(reply) ? qv_reply_odd("the fetch of a job") : NULL;
  error = odd ? odd : error;
  /* GONE: the script may have run. Every other answer says that it did not end well; that it did nothing at all is not
   * certain (a command denied in its middle), and asking again finds out. */
  w->fetch_again = error != NULL;
  qv_worker_say(w, error); /* still LOOP_FETCHING: whatever that calls sends no second fetch */
  if (!w->freed)
    fetched(w, reply, error);
  if (!w->freed)
    qv_worker_pump(w);
  if (!w->freed && w->draining)
    qv_timer_arm_before_us(w->drained, 0);
  qv_worker_unref(w);
}

static void send_fetch(QvWorker *w)
{
  char now[QV_NUMBER_SIZE];
  qv_worker_number(now, qv_worker_now_ms());
  if (!w->fetch_token)
    w->fetch_token = qv_worker_next_token(w);
  qv_wake_look(w);
  const char *args[] = { w->queue, w->fetch_token, w->lock_ms_text, now, w->name ? w->name : "", w->data_max_text,
                         w->fetch_again ? "1" : "0", w->order, w->wake.pass };
  w->loop = LOOP_FETCHING;
  w->fetch_order_n = w->order_n;
  w->fetch_sent_us = g_get_monotonic_time();
  qv_worker_ref(w);
  qv_script_call(w->conn, &qv_script_fetch, QV_SEND_ONCE, 0, G_N_ELEMENTS(args), args, NULL, on_fetched, w);
}

static void on_unblocked(const QvReply *reply, const GError *error, gpointer user)
{
  QvWorker *w = user;
  if (w->freed)
    return;
  w->blocked_id = 0;
  w->fruitless_n = g_get_monotonic_time() - w->blocked_us < FRUITLESS_MS * 1000 ? w->fruitless_n + 1 : 0;
  qv_wake_note(w, reply, error);
  qv_worker_ref(w);
  if (w->loop == LOOP_BLOCKED) {
    w->loop = LOOP_READY;
    if (error && !qv_wake_is_no_answer(error)) {
      rest(w, qv_reply_error_is_transient(error) ? REST_TRANSIENT_MS : REST_ERROR_MS);
      qv_worker_say(w, error);
    }
  }
  if (!w->freed)
    qv_worker_pump(w);
  qv_worker_unref(w);
}

static void block(QvWorker *w)
{
  gint64 ms = BLOCK_MAX_MS;
  if (w->next_due_ms >= 0)
    ms = CLAMP(w->next_due_ms - qv_worker_now_ms(), BLOCK_MIN_MS, BLOCK_MAX_MS);
  if (w->paused || qv_worker_taken(w) >= w->concurrency)
    return;
  if (w->fruitless_n >= FRUITLESS_N) {
    w->fruitless_n = FRUITLESS_N - 1; /* the next one is real again: if it lasts, all is well */
    rest(w, REST_FRUITLESS_MS);
    return;
  }
  g_autofree char *seconds = g_strdup_printf("%" G_GINT64_FORMAT ".%03d", ms / 1000, (int)(ms % 1000));
  w->loop = LOOP_BLOCKED;
  if (w->blocked_id != 0) {
    if (ms < BLOCK_MAX_MS)
      look_in(w, ms);
    return;
  }
  w->blocked_us = g_get_monotonic_time();
  /* The deadline is for a connection that cannot be made: fetching must go on as long as commands work. */
  w->blocked_id = qv_conn_sendl(w->blocking, QV_SEND_ONCE, ms + QV_SILENCE_DEAD_MS, on_unblocked, w, "BZPOPMIN",
                                w->wake.marker, seconds, NULL);
}

guint qv_worker_taken(const QvWorker *w)
{
  return g_hash_table_size(w->jobs) + w->held;
}

/* A blocked loop looks again where the order has changed while no slot was free. A wake-up that no look follows is another's. */
void qv_worker_pump(QvWorker *w)
{
  gboolean may = w->loop == LOOP_READY || (w->loop == LOOP_BLOCKED && w->order_n != w->fetch_order_n);
  if (w->freed)
    return;
  if (!w->paused && may && qv_worker_taken(w) < w->concurrency)
    send_fetch(w);
  else if (w->loop != LOOP_FETCHING)
    qv_wake_give_back(w);
}

/* Stalled jobs */

static void on_checked(const QvReply *reply, const GError *error, gpointer user)
{
  QvWorker *w = user;
  if (w->freed)
    return;
  if (error && !g_error_matches(error, QV_ERROR, QV_ERROR_TIMEOUT))
    qv_worker_say(w, error);
  /* A little late, so that the gate of the last check has gone. */
  if (!w->freed)
    qv_timer_arm_ms(w->stalled, w->stalled_ms + 10);
}

static void check_stalled(gpointer user)
{
  QvWorker *w = user;
  g_autofree char *interval = g_strdup_printf("%" G_GINT64_FORMAT, w->stalled_ms);
  const char *args[] = { w->queue, interval };
  qv_script_call(w->conn, &qv_script_stalled, QV_SEND_AGAIN, w->stalled_ms, G_N_ELEMENTS(args), args, NULL, on_checked, w);
}

/* Public */

static void on_drained(gpointer user)
{
  QvWorker *w = user;
  if (!w->draining || g_hash_table_size(w->jobs) > 0 || w->fetch_token)
    return;
  QvDoneFunc func = g_steal_pointer(&w->drained_func);
  if (func)
    func(NULL, w->drained_user);
}

QvWorker *qv_worker_new(const QvWorkerOptions *options, const QvWorkerEvents *events, gpointer user)
{
  static const QvLockKeeperEvents keeper_events = { on_lost, on_cancel_seen };
  char uuid[QV_UUID_LEN + 1];
  qv_random_uuid(uuid);
  QvWorker *w = g_new0(QvWorker, 1);
  w->refs = 1;
  w->events = *events;
  w->user = user;
  w->queue = qv_queue_prefix(options->prefix);
  qv_wake_init(w);
  w->name = g_strdup(options->name);
  w->uuid = g_strdup(uuid);
  w->concurrency = MAX(options->concurrency, 1);
  w->lock_ms = MAX(options->lock_ms, 1000);
  w->stalled_ms = MAX(options->stalled_ms, 1000);
  w->data_max_bytes = options->data_max_bytes;
  qv_worker_number(w->lock_ms_text, w->lock_ms);
  qv_worker_number(w->data_max_text, (gint64)w->data_max_bytes);
  w->jobs = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, job_free);
  w->paused = TRUE;
  w->next_due_ms = -1;
  w->order = g_strdup("");
  w->rest = qv_timer_new(on_rest, w);
  w->stalled = qv_timer_new(check_stalled, w);
  w->drained = qv_timer_new(on_drained, w);
  g_autofree char *queue64 = g_base64_encode((const guchar *)QV_WORKER_QUEUE, strlen(QV_WORKER_QUEUE));
  g_autofree char *client_name = w->name ? g_strdup_printf("%s:%s:w:%s", options->prefix, queue64, w->name)
                                         : g_strdup_printf("%s:%s", options->prefix, queue64);
  g_autofree char *cancel = g_strconcat(options->prefix, ":cancel:", NULL);
  w->conn = qv_conn_new(options->address, NULL);
  w->blocking = qv_conn_new(options->address, client_name);
  w->keeper = qv_lock_keeper_new(options->address, w->queue, cancel, w->lock_ms, &keeper_events, w);
  qv_timer_arm_ms(w->stalled, 0);
  return w;
}

void qv_worker_free(QvWorker *w)
{
  if (!w || w->freed)
    return;
  w->freed = TRUE;
  g_clear_pointer(&w->keeper, qv_lock_keeper_free);
  g_clear_pointer(&w->blocking, qv_conn_free);
  g_clear_pointer(&w->conn, qv_conn_free);
  g_clear_pointer(&w->rest, qv_timer_free);
  g_clear_pointer(&w->stalled, qv_timer_free);
  g_clear_pointer(&w->drained, qv_timer_free);
  /* What is left of ending jobs waits for its next try. */
  g_autoptr(GError) error = g_error_new_literal(QV_ERROR, QV_ERROR_CANCELLED, "the worker was closed");
  g_autoptr(GList) jobs = g_hash_table_get_values(w->jobs);
  for (GList *l = jobs; l; l = l->next) {
    Job *job = l->data;
    QvFinishFunc func = g_steal_pointer(&job->func);
    w->held += job->holds;
    if (job->state == JOB_ENDING && func)
      func(QV_FINISH_LOST, error, job->user);
  }
  qv_worker_unref(w);
}

void qv_worker_pause(QvWorker *w)
{
  w->paused = TRUE;
  if (w->loop == LOOP_BLOCKED)
    w->loop = LOOP_READY; /* the read stays: closing its connection could lose the wake-up that it has popped */
}

void qv_worker_resume(QvWorker *w)
{
  if (w->draining)
    return;
  w->paused = FALSE;
  qv_worker_pump(w);
}

void qv_worker_drain(QvWorker *w, QvDoneFunc func, gpointer user)
{
  w->draining = TRUE;
  w->drained_func = func;
  w->drained_user = user;
  qv_worker_pause(w);
  qv_timer_arm_ms(w->drained, 0);
}

void qv_worker_set_concurrency(QvWorker *w, guint concurrency)
{
  w->concurrency = MAX(concurrency, 1);
  qv_worker_pump(w);
}

void qv_worker_set_tenants(QvWorker *w, const char *const *skip, const char *const *served)
{
  g_autoptr(GString) order = g_string_new("\n"); /* not empty, whatever is in it */
  for (; *served; served++)
    g_string_append_printf(order, "=%s\n", *served);
  for (; *skip; skip++) /* behind: who is in both is passed over */
    g_string_append_printf(order, "-%s\n", *skip);
  if (g_str_equal(order->str, w->order))
    return;
  g_free(w->order);
  w->order = g_strdup(order->str);
  w->order_n++;
  if (w->loop == LOOP_BLOCKED)
    qv_worker_pump(w);
}

void qv_worker_hold_slot(QvWorker *w, QvFetchedJob *pub)
{
  ((Job *)pub)->holds = TRUE;
}

void qv_worker_free_slot(QvWorker *w, QvFetchedJob *pub)
{
  if (pub != NULL)
    ((Job *)pub)->holds = FALSE;
  else
    w->held--;
  qv_worker_pump(w);
}

guint qv_worker_busy(const QvWorker *w)
{
  return g_hash_table_size(w->jobs);
}

gint64 qv_worker_fetched_at_ms(const QvWorker *w)
{
  return w->fetched_at_ms;
}

QvConn *qv_worker_conn(QvWorker *w)
{
  return w->conn;
}

void qv_worker_drop(QvWorker *w, QvFetchedJob *pub)
{
  qv_worker_forget(w, (Job *)pub);
  qv_worker_pump(w);
}

void qv_worker_progress(QvWorker *w, QvFetchedJob *pub, const char *json)
{
  Job *job = (Job *)pub;
  const char *args[] = { w->queue, pub->id, job->token, json };
  if (job->state == JOB_HELD)
    qv_script_call(w->conn, &qv_script_progress, QV_SEND_ONCE, 10000, G_N_ELEMENTS(args), args, NULL, NULL, NULL);
}
