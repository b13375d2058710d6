/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/script.h"

#include <string.h>

#include "base/error.h"

#define ARGS_MAX 4096

/* One allocation: argv, lens and the bytes of all arguments stand behind it. They are kept for the case that
 * the server does not know the script. */
typedef struct {
  QvConn *conn;
  const QvScript *script;
  QvSend send;
  gint64 deadline_us;
  QvReplyFunc func;
  gpointer user;
  int argc;
  gsize *lens;
  const char *argv[]; /* the verb, the script, "1", the key, args */
} Call;

enum { VERB, WHICH, KEYS_N, KEY, ARGS };

static void on_reply(const QvReply *reply, const GError *error, gpointer user);

static void send_call(Call *call, const char *verb, const char *which)
{
  call->argv[VERB] = verb;
  call->lens[VERB] = strlen(verb);
  call->argv[WHICH] = which;
  call->lens[WHICH] = strlen(which);
  gint64 left_ms = 0;
  if (call->deadline_us)
    left_ms = MAX((call->deadline_us - g_get_monotonic_time()) / 1000, 1);
  qv_conn_send(call->conn, call->send, left_ms, call->argc, call->argv, call->lens, on_reply, call);
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
  g_free(call);
}

char *qv_queue_prefix(const char *prefix)
{
  return g_strconcat(prefix, ":sandbox:", NULL);
}

static Call *call_new(int args_n, const char *const *args, const gsize *lens)
{
  static const char meta[] = "meta";
  int argc = ARGS + args_n;
  gsize prefix_n = lens ? lens[0] : strlen(args[0]), bytes_n = prefix_n + sizeof meta;
  for (int i = 0; i < args_n; i++)
    bytes_n += lens ? lens[i] : strlen(args[i]);
  Call *call = g_malloc(sizeof *call + argc * (sizeof call->argv[0] + sizeof call->lens[0]) + bytes_n);
  memset(call, 0, sizeof *call);
  call->argc = argc;
  call->lens = (gsize *)(call->argv + argc);
  char *p = (char *)(call->lens + argc);
  call->argv[KEYS_N] = "1";
  call->lens[KEYS_N] = 1;
  call->argv[KEY] = p;
  call->lens[KEY] = prefix_n + strlen(meta);
  p = mempcpy(mempcpy(p, args[0], prefix_n), meta, strlen(meta));
  for (int i = 0; i < args_n; i++) {
    gsize n = lens ? lens[i] : strlen(args[i]);
    call->argv[ARGS + i] = p;
    call->lens[ARGS + i] = n;
    p = mempcpy(p, args[i], n);
  }
  return call;
}

void qv_script_call(QvConn *conn, QvScript *script, QvSend send, gint64 deadline_ms, int args_n,
                    const char *const *args, const gsize *lens, QvReplyFunc func, gpointer user)
{
  g_assert(args_n > 0 && args_n <= ARGS_MAX);
  Call *call = call_new(args_n, args, lens);
  call->conn = conn;
  call->script = script;
  call->send = send;
  call->deadline_us = deadline_ms > 0 ? g_get_monotonic_time() + deadline_ms * 1000 : 0;
  call->func = func;
  call->user = user;
  if (g_once_init_enter(&script->sha))
    g_once_init_leave(&script->sha, g_compute_checksum_for_string(G_CHECKSUM_SHA1, script->text, -1));
  send_call(call, "EVALSHA", script->sha);
}
