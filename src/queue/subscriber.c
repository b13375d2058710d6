/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/subscriber.h"

#include <string.h>

#include "base/error.h"
#include "queue/link.h"
#include "queue/resp.h"
#include "queue/timer.h"

#define RECONNECT_MIN_MS 50
#define RECONNECT_MAX_MS 2000

struct QvSubscriber {
  guint refs;
  gboolean freed;
  QvAddress *address;
  char *client_name;
  char **channels;
  QvSubscriberEvents events;
  gpointer user;
  QvLink *link;
  QvTimer *reconnect;
  gint64 pause_ms;
  guint missing_n; /* channels not yet confirmed */
};

static void subscriber_unref(QvSubscriber *s)
{
  if (--s->refs)
    return;
  qv_address_unref(s->address);
  g_free(s->client_name);
  g_strfreev(s->channels);
  g_free(s);
}

static void lost(QvSubscriber *s, const GError *why)
{
  qv_link_close(g_steal_pointer(&s->link));
  if (g_error_matches(why, QV_ERROR, QV_ERROR_FORMAT))
    s->pause_ms = RECONNECT_MAX_MS;
  qv_timer_arm_ms(s->reconnect, s->pause_ms + g_random_int_range(0, s->pause_ms));
  s->pause_ms = MIN(s->pause_ms * 2, RECONNECT_MAX_MS);
  if (s->events.failed)
    s->events.failed(why, s->user);
}

static void on_up(QvLink *link, gpointer user)
{
  QvSubscriber *s = user;
  guint n = g_strv_length(s->channels);
  g_autofree const char **argv = g_new(const char *, n + 1);
  argv[0] = "SUBSCRIBE";
  memcpy(argv + 1, s->channels, n * sizeof *argv);
  g_autoptr(GBytes) bytes = qv_resp_format(n + 1, argv, NULL);
  s->missing_n = n;
  qv_link_write(link, bytes, n);
}

static gboolean is_message(const QvReply *reply)
{
  return g_strcmp0(qv_reply_text(qv_reply_at(reply, 0)), "message") == 0;
}

/* ["message", channel, text], ["subscribe", channel, n], ["pong", ""]; a subscribe that is refused is one error. */
static void on_reply(QvLink *link, const QvReply *reply, gpointer user)
{
  QvSubscriber *s = user;
  s->refs++;
  if (reply->type == QV_REPLY_ERROR) {
    g_autoptr(GError) error = NULL;
    qv_reply_check(reply, &error);
    lost(s, error);
  } else {
    const char *kind = qv_reply_text(qv_reply_at(reply, 0));
    const QvReply *text = qv_reply_at(reply, 2);
    if (is_message(reply)) {
      if (qv_reply_text(qv_reply_at(reply, 1)) && qv_reply_text(text))
        s->events.message(qv_reply_text(qv_reply_at(reply, 1)), text->text, text->len, s->user);
    } else if (g_strcmp0(kind, "subscribe") == 0 && s->missing_n > 0 && --s->missing_n == 0) {
      s->pause_ms = RECONNECT_MIN_MS;
      if (s->events.ready)
        s->events.ready(s->user);
    } else if (g_strcmp0(kind, "subscribe") != 0 && g_strcmp0(kind, "pong") != 0) {
      g_autoptr(GError) odd = qv_reply_odd("SUBSCRIBE");
      lost(s, odd);
    }
  }
  subscriber_unref(s);
}

static void on_idle(QvLink *link, gpointer user)
{
  g_autoptr(GBytes) ping = qv_resp_format(1, (const char *[]){ "PING" }, NULL);
  qv_link_write(link, ping, 1);
}

static void on_lost(QvLink *link, const GError *why, gpointer user)
{
  QvSubscriber *s = user;
  s->refs++;
  lost(s, why);
  subscriber_unref(s);
}

static void open_link(gpointer user)
{
  static const QvLinkEvents events = {
    .up = on_up, .reply = on_reply, .idle = on_idle, .lost = on_lost, .is_message = is_message
  };
  QvSubscriber *s = user;
  s->link = qv_link_open(s->address, s->client_name, &events, s);
}

QvSubscriber *qv_subscriber_new(QvAddress *address, const char *client_name, const char *const *channels,
                                const QvSubscriberEvents *events, gpointer user)
{
  QvSubscriber *s = g_new0(QvSubscriber, 1);
  s->refs = 1;
  s->address = qv_address_ref(address);
  s->client_name = g_strdup(client_name);
  s->channels = g_strdupv((char **)channels);
  s->events = *events;
  s->user = user;
  s->pause_ms = RECONNECT_MIN_MS;
  s->reconnect = qv_timer_new(open_link, s);
  qv_timer_arm_ms(s->reconnect, 0);
  return s;
}

void qv_subscriber_free(QvSubscriber *s)
{
  if (!s || s->freed)
    return;
  s->freed = TRUE;
  qv_link_close(g_steal_pointer(&s->link));
  qv_timer_free(g_steal_pointer(&s->reconnect));
  subscriber_unref(s);
}
