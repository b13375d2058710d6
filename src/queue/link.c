/* SPDX-License-Identifier: Apache-2.0 */
/* Theory of operation: GIO connects and does TLS asynchronously; after that the
 * pollable streams are read and written without blocking from two sources.
 * What is written while replies are handed out goes out at the end of that turn, in one call. A callback may also turn
 * the loop itself, and what is written elsewhere waits for the next turn anyway: a source that only looks, before each
 * poll, whether there is such work does it (a timer would wake the loop once more at each arming: at a job a round
 * trip that was most of its cost). So both directions go on inside of a callback, and replies keep their order.
 * A reply is counted before it is handed over and a command when it is first written: how long a callback takes is
 * not the peer's silence.
 * Closing never says goodbye over TLS: that could block on a half-open peer, and
 * RESP replies carry their own lengths. */
#include "queue/link.h"

#include <gio/gio.h>
#include <glib-unix.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include "base/error.h"
#include "queue/address_private.h"
#include "queue/conn.h"
#include "queue/resp.h"
#include "queue/silence.h"
#include "queue/timer.h"

#define READ_BYTES 65536
#define READS_A_TURN 32
#define WRITE_VECTORS 16

typedef enum { CONNECTING, HELLO, UP, LOST } State;

struct QvLink {
  guint refs; /* the owner, one asynchronous call, each callback in progress */
  State state;
  QvAddress *address;
  char *client_name;
  QvLinkEvents events;
  gpointer user;
  GCancellable *cancellable;
  GSocketConnection *socket;
  GIOStream *stream; /* the socket, or TLS over it */
  GPollableInputStream *in;
  GPollableOutputStream *out;
  GSource *read_source, *write_source;
  GSource *turn; /* see turn_has_work */
  QvTimer *timer;
  QvRespReader *reader;
  GQueue outgoing;   /* GBytes */
  guint unwritten_n; /* replies to what no write was tried for yet */
  gsize sent_of_head;
  QvSilence silence;
  guint hello_n;
  gboolean shaking_hands;
  gboolean untaken; /* the reader may hold whole replies: only while one of them is handed out */
};

static void lose(QvLink *link, GError *take_why);

static void link_unref(QvLink *link)
{
  if (--link->refs)
    return;
  g_clear_object(&link->cancellable);
  qv_resp_reader_free(link->reader);
  qv_address_unref(link->address);
  g_free(link->client_name);
  g_free(link);
}

static void drop_source(GSource **source)
{
  if (!*source)
    return;
  g_source_destroy(*source);
  g_clear_pointer(source, g_source_unref);
}

static void shut(QvLink *link)
{
  link->state = LOST;
  g_cancellable_cancel(link->cancellable);
  g_clear_pointer(&link->timer, qv_timer_free);
  drop_source(&link->turn);
  drop_source(&link->read_source);
  drop_source(&link->write_source);
  g_queue_clear_full(&link->outgoing, (GDestroyNotify)g_bytes_unref);
  /* GIO shakes hands in a thread, which must not find another file under the descriptor: it is cancelled, and the last
   * reference closes. */
  if (link->socket && !link->shaking_hands)
    g_socket_close(g_socket_connection_get_socket(link->socket), NULL);
  g_clear_object(&link->stream);
  g_clear_object(&link->socket);
}

void qv_link_close(QvLink *link)
{
  if (!link)
    return;
  shut(link);
  link_unref(link);
}

/* The owner's reference stays: it closes the link in `lost` or later. */
static void lose(QvLink *link, GError *take_why)
{
  g_autoptr(GError) why = take_why;
  if (link->state == LOST)
    return;
  shut(link);
  link->events.lost(link, why, link->user);
}

static GError *translate(GError *take_error, const char *doing)
{
  g_autoptr(GError) e = take_error;
  QvError code = QV_ERROR_GONE;
  if (e->domain == G_TLS_ERROR)
    code = QV_ERROR_AUTH;
  else if (g_error_matches(e, G_IO_ERROR, G_IO_ERROR_TIMED_OUT))
    code = QV_ERROR_TIMEOUT;
  return g_error_new(QV_ERROR, code, "%s: %s", doing, e->message);
}

static void heard(QvLink *link)
{
  qv_silence_heard(&link->silence, g_get_monotonic_time());
}

static gboolean on_readable(GObject *stream, gpointer user);

static void on_timer(gpointer user)
{
  QvLink *link = user;
  gint64 now_us = g_get_monotonic_time();
  QvSilenceVerdict verdict = qv_silence_judge(&link->silence, now_us);
  link->refs++;
  if (verdict == QV_SILENCE_ASK) {
    link->events.idle(link, link->user);
  } else if (verdict == QV_SILENCE_DEAD && link->in) {
    /* After the process itself stood still there may be bytes that nobody read yet. */
    on_readable(NULL, link);
    if (link->state != LOST && qv_silence_judge(&link->silence, now_us) == QV_SILENCE_DEAD)
      lose(link, g_error_new(QV_ERROR, QV_ERROR_TIMEOUT, "no sign of life for %d ms", QV_SILENCE_DEAD_MS));
  } else if (verdict == QV_SILENCE_DEAD) {
    lose(link, g_error_new(QV_ERROR, QV_ERROR_TIMEOUT, "no connection within %d ms", QV_SILENCE_DEAD_MS));
  }
  /* The question is on its way, and awaited as soon as it is written. */
  if (link->state != LOST)
    qv_timer_arm_at_us(link->timer, verdict == QV_SILENCE_ASK ? now_us + QV_SILENCE_ASK_MS * G_GINT64_CONSTANT(1000)
                                                              : qv_silence_due_us(&link->silence));
  link_unref(link);
}

/* Writing */

static gboolean on_writable(GObject *stream, gpointer user);

static void consumed(QvLink *link, gsize n)
{
  while (n > 0) {
    GBytes *head = g_queue_peek_head(&link->outgoing);
    gsize left = g_bytes_get_size(head) - link->sent_of_head;
    if (n < left) {
      link->sent_of_head += n;
      return;
    }
    n -= left;
    link->sent_of_head = 0;
    g_bytes_unref(g_queue_pop_head(&link->outgoing));
  }
}

static void write_some(QvLink *link)
{
  if (link->unwritten_n)
    qv_silence_await(&link->silence, g_get_monotonic_time(), link->unwritten_n);
  link->unwritten_n = 0;
  while (!g_queue_is_empty(&link->outgoing)) {
    GOutputVector vectors[WRITE_VECTORS];
    gsize n = 0, written = 0;
    for (GList *l = link->outgoing.head; l && n < WRITE_VECTORS; l = l->next, n++) {
      vectors[n].buffer = g_bytes_get_data(l->data, &vectors[n].size);
      if (n == 0) {
        vectors[0].buffer = (const char *)vectors[0].buffer + link->sent_of_head;
        vectors[0].size -= link->sent_of_head;
      }
    }
    GError *error = NULL;
    GPollableReturn r = g_pollable_output_stream_writev_nonblocking(link->out, vectors, n, &written, NULL, &error);
    if (r == G_POLLABLE_RETURN_FAILED) {
      lose(link, translate(error, "writing"));
      return;
    }
    if (r == G_POLLABLE_RETURN_WOULD_BLOCK) {
      if (link->write_source)
        return;
      link->write_source = g_pollable_output_stream_create_source(link->out, NULL);
      g_source_set_callback(link->write_source, G_SOURCE_FUNC(on_writable), link, NULL);
      g_source_attach(link->write_source, g_main_context_get_thread_default());
      return;
    }
    if (link->write_source)
      heard(link); /* the buffer was full, and somebody made room */
    consumed(link, written);
  }
  drop_source(&link->write_source);
}

static gboolean on_writable(GObject *stream, gpointer user)
{
  QvLink *link = user;
  link->refs++;
  write_some(link);
  gboolean more = link->state != LOST && link->write_source != NULL;
  link_unref(link);
  return more;
}

void qv_link_write(QvLink *link, GBytes *bytes, guint replies_n)
{
  if (link->state == LOST)
    return;
  link->unwritten_n += replies_n;
  g_queue_push_tail(&link->outgoing, g_bytes_ref(bytes));
}

/* Reading */

static GBytes *format_hello(const QvAddress *a, const char *client_name)
{
  const char *argv[8] = { "HELLO", "2" };
  gsize lens[8] = { 5, 1 };
  int n = 2;
  if (a->password) {
    argv[n] = "AUTH";
    lens[n++] = 4;
    argv[n] = qv_address_user(a);
    lens[n] = strlen(argv[n]);
    n++;
    argv[n] = (const char *)qv_secret_bytes(a->password);
    lens[n++] = qv_secret_len(a->password);
  }
  if (client_name) {
    argv[n] = "SETNAME";
    lens[n++] = 7;
    argv[n] = client_name;
    lens[n] = strlen(client_name);
    n++;
  }
  return qv_resp_format(n, argv, lens);
}

static void begin_hello(QvLink *link)
{
  link->state = HELLO;
  g_autoptr(GBytes) hello = format_hello(link->address, link->client_name);
  qv_link_write(link, hello, 1);
  link->hello_n = 1;
  if (link->address->db) {
    g_autofree char *db = g_strdup_printf("%u", link->address->db);
    g_autoptr(GBytes) select = qv_resp_format(2, (const char *[]){ "SELECT", db }, NULL);
    qv_link_write(link, select, 1);
    link->hello_n = 2;
  }
}

/* HELLO is answered with what the server is, SELECT with OK. */
static gboolean greets(const QvLink *link, const QvReply *reply)
{
  gboolean first = link->hello_n == (link->address->db ? 2u : 1u);
  return first ? reply->type == QV_REPLY_ARRAY : reply->type == QV_REPLY_STATUS && g_str_equal(reply->text, "OK");
}

static void on_hello_reply(QvLink *link, const QvReply *reply)
{
  GError *error = NULL;
  if (!qv_reply_check(reply, &error)) {
    g_prefix_error(&error, "logging in as %s: ", qv_address_user(link->address));
    lose(link, error);
  } else if (!greets(link, reply)) {
    lose(link, qv_reply_odd("HELLO"));
  } else if (--link->hello_n == 0) {
    link->state = UP;
    link->silence.up = TRUE;
    qv_timer_arm_before_us(link->timer, qv_silence_due_us(&link->silence));
    link->events.up(link, link->user);
  }
}

static void count_answer(QvLink *link, const QvReply *reply)
{
  if (link->state == UP && link->events.is_message && link->events.is_message(reply))
    return;
  if (qv_silence_answered(&link->silence))
    qv_timer_arm_before_us(link->timer, qv_silence_due_us(&link->silence));
}

/* A callback may turn the loop, where this goes on with the replies that follow. */
static void take_replies(QvLink *link)
{
  GError *error = NULL;
  while (link->state != LOST) {
    QvReply *next = NULL;
    if (!qv_resp_reader_next(link->reader, &next, &error)) {
      lose(link, error);
      return;
    }
    link->untaken = next != NULL;
    if (!next)
      return;
    g_autoptr(QvReply) reply = next;
    count_answer(link, reply);
    if (link->state == HELLO)
      on_hello_reply(link, reply);
    else
      link->events.reply(link, reply, link->user);
  }
}

static gboolean on_readable(GObject *stream, gpointer user)
{
  QvLink *link = user;
  char buffer[READ_BYTES];
  link->refs++;
  for (int i = 0; i < READS_A_TURN && link->state != LOST; i++) {
    GError *error = NULL;
    gssize n = g_pollable_input_stream_read_nonblocking(link->in, buffer, sizeof buffer, NULL, &error);
    if (n < 0 && g_error_matches(error, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK)) {
      g_error_free(error);
      break;
    }
    if (n < 0) {
      lose(link, translate(error, "reading"));
    } else if (n == 0) {
      lose(link, g_error_new(QV_ERROR, QV_ERROR_GONE, "the server closed the connection"));
    } else {
      heard(link);
      if (qv_resp_reader_feed(link->reader, buffer, n, &error))
        take_replies(link);
      else
        lose(link, error);
      if ((gsize)n < sizeof buffer)
        break;
    }
  }
  if (link->state != LOST && !link->write_source)
    write_some(link);
  gboolean more = link->state != LOST;
  link_unref(link);
  return more;
}

/* Turns of the loop */

typedef struct {
  GSource source;
  QvLink *link;
} Turn;

static gboolean turn_has_work(GSource *source, gint *timeout)
{
  const QvLink *link = ((const Turn *)source)->link;
  *timeout = -1;
  return link->untaken || (!link->write_source && link->outgoing.length > 0);
}

static gboolean turn_dispatch(GSource *source, GSourceFunc unused, gpointer unused_user)
{
  QvLink *link = ((Turn *)source)->link;
  link->refs++;
  if (link->untaken)
    take_replies(link);
  if (link->state != LOST && !link->write_source)
    write_some(link);
  link_unref(link);
  return G_SOURCE_CONTINUE;
}

static GSource *new_turn(QvLink *link)
{
  static GSourceFuncs funcs = { .prepare = turn_has_work, .dispatch = turn_dispatch };
  GSource *turn = g_source_new(&funcs, sizeof(Turn));
  ((Turn *)turn)->link = link;
  g_source_set_static_name(turn, "qv-link");
  g_source_set_can_recurse(turn, TRUE);
  g_source_attach(turn, g_main_context_get_thread_default());
  return turn;
}

/* Connecting */

static gboolean on_fd_readable(gint fd, GIOCondition condition, gpointer user)
{
  return on_readable(NULL, user);
}

/* A bare socket is watched without GIO's source, which takes its descriptor out of the loop and puts it back, with two
 * wake-ups of the loop each, at every turn. */
static void watch_input(QvLink *link)
{
  if (link->stream == G_IO_STREAM(link->socket)) {
    link->read_source = g_unix_fd_source_new(g_socket_get_fd(g_socket_connection_get_socket(link->socket)), G_IO_IN);
    g_source_set_callback(link->read_source, G_SOURCE_FUNC(on_fd_readable), link, NULL);
  } else {
    link->read_source = g_pollable_input_stream_create_source(link->in, NULL);
    g_source_set_callback(link->read_source, G_SOURCE_FUNC(on_readable), link, NULL);
  }
  g_source_set_can_recurse(link->read_source, TRUE); /* a callback's own loop reads on; and it stays in the poll */
  g_source_attach(link->read_source, g_main_context_get_thread_default());
}

static void begin_stream(QvLink *link, GIOStream *take_stream)
{
  link->stream = take_stream;
  link->in = G_POLLABLE_INPUT_STREAM(g_io_stream_get_input_stream(take_stream));
  link->out = G_POLLABLE_OUTPUT_STREAM(g_io_stream_get_output_stream(take_stream));
  heard(link);
  watch_input(link);
  begin_hello(link);
}

static void on_handshake(GObject *tls, GAsyncResult *result, gpointer user)
{
  QvLink *link = user;
  GError *error = NULL;
  link->shaking_hands = FALSE;
  gboolean ok = g_tls_connection_handshake_finish(G_TLS_CONNECTION(tls), result, &error);
  if (link->state == LOST)
    g_clear_error(&error);
  else if (!ok)
    lose(link, translate(error, "TLS"));
  else
    begin_stream(link, g_object_ref(G_IO_STREAM(tls)));
  link_unref(link);
}

static GTlsConnection *new_tls(QvLink *link, GError **error)
{
  const QvAddress *a = link->address;
  g_autoptr(GSocketConnectable) identity = qv_address_connectable(a);
  g_autoptr(GIOStream) tls = g_tls_client_connection_new(G_IO_STREAM(link->socket), identity, error);
  if (!tls)
    return NULL;
  g_tls_connection_set_require_close_notify(G_TLS_CONNECTION(tls), FALSE);
  if (a->ca_file) {
    g_autoptr(GTlsDatabase) database = g_tls_file_database_new(a->ca_file, error);
    if (!database)
      return NULL;
    g_tls_connection_set_database(G_TLS_CONNECTION(tls), database);
  }
  if (a->cert_file) {
    g_autoptr(GTlsCertificate) certificate = g_tls_certificate_new_from_files(a->cert_file, a->key_file, error);
    if (!certificate)
      return NULL;
    g_tls_connection_set_certificate(G_TLS_CONNECTION(tls), certificate);
  }
  return G_TLS_CONNECTION(g_steal_pointer(&tls));
}

static void on_connected(GObject *client, GAsyncResult *result, gpointer user)
{
  QvLink *link = user;
  GError *error = NULL;
  GSocketConnection *socket = g_socket_client_connect_finish(G_SOCKET_CLIENT(client), result, &error);
  if (link->state == LOST) {
    g_clear_error(&error);
    g_clear_object(&socket);
  } else if (!socket) {
    lose(link, translate(error, qv_address_display(link->address)));
  } else {
    link->socket = socket;
    heard(link);
    if (!link->address->path)
      g_socket_set_option(g_socket_connection_get_socket(socket), IPPROTO_TCP, TCP_NODELAY, 1, NULL);
    if (!link->address->tls) {
      begin_stream(link, g_object_ref(G_IO_STREAM(socket)));
    } else {
      g_autoptr(GTlsConnection) tls = new_tls(link, &error);
      if (!tls) {
        lose(link, translate(error, "TLS"));
      } else {
        link->refs++;
        link->shaking_hands = TRUE;
        g_tls_connection_handshake_async(tls, G_PRIORITY_DEFAULT, link->cancellable, on_handshake, link);
      }
    }
  }
  link_unref(link);
}

QvLink *qv_link_open(QvAddress *address, const char *client_name, const QvLinkEvents *events, gpointer user)
{
  QvLink *link = g_new0(QvLink, 1);
  link->refs = 2;
  link->state = CONNECTING;
  link->address = qv_address_ref(address);
  link->client_name = g_strdup(client_name);
  link->events = *events;
  link->user = user;
  link->cancellable = g_cancellable_new();
  link->reader = qv_resp_reader_new();
  link->timer = qv_timer_new(on_timer, link);
  link->turn = new_turn(link);
  heard(link);
  qv_timer_arm_at_us(link->timer, qv_silence_due_us(&link->silence));
  g_autoptr(GSocketClient) client = g_socket_client_new();
  g_socket_client_set_enable_proxy(client, FALSE);
  g_autoptr(GSocketConnectable) to = qv_address_connectable(address);
  g_socket_client_connect_async(client, to, link->cancellable, on_connected, link);
  return link;
}

gboolean qv_link_is_up(const QvLink *link)
{
  return link && link->state == UP;
}
