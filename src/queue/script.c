/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/script.h"

#include <string.h>

#include "base/error.h"

#define ARGS_MAX 4096

typedef struct {
  QvConn *conn;
  const QvScript *script;
  QvSend send;
  gint64 deadline_us;
  GPtrArray *args; /* GBytes, from the key count on */
  QvReplyFunc func;
  gpointer user;
} Call;

static void call_free(Call *call)
{
  g_ptr_array_unref(call->args);
  g_free(call);
}

static void on_reply(const QvReply *reply, const GError *error, gpointer user);

static void send_call(Call *call, const char *verb, const char *which)
{
  guint n = call->args->len + 2;
  g_autofree const char **argv = g_new(const char *, n);
  g_autofree gsize *lens = g_new(gsize, n);
  argv[0] = verb;
  lens[0] = strlen(verb);
  argv[1] = which;
  lens[1] = strlen(which);
  for (guint i = 0; i < call->args->len; i++)
    argv[i + 2] = g_bytes_get_data(call->args->pdata[i], &lens[i + 2]);
  gint64 left_ms = 0;
  if (call->deadline_us)
    left_ms = MAX((call->deadline_us - g_get_monotonic_time()) / 1000, 1);
  qv_conn_send(call->conn, call->send, left_ms, n, argv, lens, on_reply, call);
}

static void on_reply(const QvReply *reply, const GError *error, gpointer user)
{
  Call *call = user;
  if (error && g_error_matches(error, QV_ERROR, QV_ERROR_PEER) && strstr(error->message, ": NOSCRIPT ")) {
    send_call(call, "EVAL", call->script->text);
    return;
  }
  if (call->func)
    call->func(reply, error, call->user);
  call_free(call);
}

char *qv_queue_prefix(const char *prefix)
{
  return g_strconcat(prefix, ":sandbox:", NULL);
}

void qv_script_call(QvConn *conn, QvScript *script, QvSend send, gint64 deadline_ms, int args_n,
                    const char *const *args, const gsize *lens, QvReplyFunc func, gpointer user)
{
  g_assert(args_n > 0 && args_n <= ARGS_MAX);
  Call *call = g_new0(Call, 1);
  call->conn = conn;
  call->script = script;
  call->send = send;
  call->deadline_us = deadline_ms > 0 ? g_get_monotonic_time() + deadline_ms * 1000 : 0;
  call->func = func;
  call->user = user;
  call->args = g_ptr_array_new_full(args_n + 2, (GDestroyNotify)g_bytes_unref);
  g_autofree char *key = g_strconcat(args[0], "meta", NULL);
  g_ptr_array_add(call->args, g_bytes_new_static("1", 1));
  g_ptr_array_add(call->args, g_bytes_new(key, strlen(key)));
  for (int i = 0; i < args_n; i++)
    g_ptr_array_add(call->args, g_bytes_new(args[i], lens ? lens[i] : strlen(args[i])));
  if (g_once_init_enter(&script->sha))
    g_once_init_leave(&script->sha, g_compute_checksum_for_string(G_CHECKSUM_SHA1, script->text, -1));
  send_call(call, "EVALSHA", script->sha);
}
