/* SPDX-License-Identifier: Apache-2.0 */
/* Owns when the record is written, and the look at Valkey's clock that goes with it.
 *
 * Valkey's TIME is in no list of allowed commands. An entry that the server itself numbers tells the same: its id starts
 * with the server's clock. It goes to a stream of our own beside the record, which is gone again in the same breath. */
#include "runner/health.h"

#include <sys/utsname.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "queue/stores.h"
#include "queue/timer.h"

enum {
  EVERY_MS = 30000,
  APART_MS = 200,      /* between two records: a busy runner changes with every job */
  DEADLINE_MS = 20000, /* the next one says more */
  CLOCK_RTT_MS_MAX = 2000,
};

struct QvHealthLoop {
  QvConn *conn;
  const char *prefix;
  char *runner_id;
  QvHealthSource source;
  gpointer user;
  QvTimer *timer;
  gint64 put_us;        /* when the last record was written, 0: never */
  gint64 renewed_us;    /* when the clock was last looked at */
  guint on_its_way;     /* commands that will call back */
  gint64 asked_unix_ms, asked_mono_ms;
  gboolean freed, failed;
};

static void loop_unref(QvHealthLoop *loop)
{
  if (!loop->freed || loop->on_its_way > 0)
    return;
  g_free(loop->runner_id);
  g_free(loop);
}

static void on_put(const GError *error, gpointer user)
{
  QvHealthLoop *loop = user;
  loop->on_its_way--;
  if (!loop->freed && error != NULL && !loop->failed && error->code != QV_ERROR_TIMEOUT)
    qv_log(QV_LOG_ERROR, "health record was refused", "error", error->message, NULL);
  loop->failed = error != NULL;
  loop_unref(loop);
}

/* The id of the entry: "<ms>-<n>". */
static void on_clock(const QvReply *reply, const GError *error, gpointer user)
{
  QvHealthLoop *loop = user;
  loop->on_its_way--;
  gint64 trip_ms = qv_clock_mono_ms() - loop->asked_mono_ms;
  const char *id = reply != NULL ? qv_reply_text(reply) : NULL;
  if (!loop->freed && id != NULL && trip_ms <= CLOCK_RTT_MS_MAX) {
    gint64 theirs_ms = g_ascii_strtoll(id, NULL, 10);
    gint64 ours_ms = loop->asked_unix_ms + trip_ms / 2;
    gint64 ahead_ms = theirs_ms - ours_ms;
    /* What the way there and back could have hidden is no difference. */
    loop->source.clock(ABS(ahead_ms) > trip_ms ? ahead_ms : 0, loop->user);
  }
  loop_unref(loop);
}

static void look_at_clock(QvHealthLoop *loop)
{
  g_autofree char *key = g_strdup_printf("%s:health:%s:clock", loop->prefix, loop->runner_id);
  loop->asked_unix_ms = qv_clock_unix_ms();
  loop->asked_mono_ms = qv_clock_mono_ms();
  loop->on_its_way++;
  /* A stream that is there already could be ahead of the server's clock. */
  qv_conn_sendl(loop->conn, QV_SEND_ONCE, DEADLINE_MS, NULL, NULL, "UNLINK", key, NULL);
  qv_conn_sendl(loop->conn, QV_SEND_ONCE, DEADLINE_MS, on_clock, loop, "XADD", key, "*", "t", "0", NULL);
  qv_conn_sendl(loop->conn, QV_SEND_ONCE, DEADLINE_MS, NULL, NULL, "UNLINK", key, NULL);
}

static void put(QvHealthLoop *loop)
{
  g_autoptr(QvHealth) health = loop->source.describe(loop->user);
  g_autoptr(GError) error = NULL;
  gsize n = 0;
  health->at = qv_clock_unix_ms();
  g_autofree char *text = qv_health_sign(health, loop->source.key(loop->user), &n, &error);
  if (text == NULL) {
    qv_log(QV_LOG_ERROR, "health record cannot be made", "error", error->message, NULL);
    return;
  }
  loop->on_its_way++;
  qv_health_put(loop->conn, loop->prefix, loop->runner_id, health->at, text, n, DEADLINE_MS, on_put, loop);
}

static void on_timer(gpointer user)
{
  QvHealthLoop *loop = user;
  loop->put_us = qv_clock_mono_us();
  qv_timer_arm_ms(loop->timer, EVERY_MS);
  put(loop);
  if (loop->renewed_us == 0 || loop->put_us - loop->renewed_us >= (gint64)(EVERY_MS - APART_MS) * 1000) {
    loop->renewed_us = loop->put_us;
    look_at_clock(loop);
  }
}

QvHealthLoop *qv_health_loop_new(QvConn *conn, const char *prefix, const char *runner_id, const QvHealthSource *source,
                                 gpointer user)
{
  QvHealthLoop *loop = g_new0(QvHealthLoop, 1);
  loop->conn = conn;
  loop->prefix = prefix;
  loop->runner_id = g_strdup(runner_id);
  loop->source = *source;
  loop->user = user;
  loop->timer = qv_timer_new(on_timer, loop);
  return loop;
}

void qv_health_loop_free(QvHealthLoop *loop)
{
  if (loop == NULL)
    return;
  g_clear_pointer(&loop->timer, qv_timer_free);
  loop->freed = TRUE;
  loop_unref(loop);
}

void qv_health_loop_touch(QvHealthLoop *loop)
{
  if (loop != NULL)
    qv_timer_arm_before_us(loop->timer, loop->put_us != 0 ? loop->put_us + (gint64)APART_MS * 1000 : 0);
}

void qv_health_fill_host(QvHealth *health)
{
  struct utsname name;
  health->kernel = g_strdup(uname(&name) == 0 ? name.release : "unknown");
  gsize n;
  g_autofree char *boot_id = qv_fd_read_file("/proc/sys/kernel/random/boot_id", 128, &n, NULL);
  if (boot_id == NULL)
    return;
  char hex[65];
  qv_host_id_format(g_strchomp(boot_id), hex);
  health->host_id = g_strdup(hex);
}
