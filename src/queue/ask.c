/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/ask.h"

enum { WORDS_MAX = 8 };

typedef struct {
  gboolean done;
  GError *error;
} Answer;

static void on_answer(const QvReply *reply, const GError *error, gpointer user)
{
  Answer *answer = user;
  answer->done = TRUE;
  answer->error = error != NULL ? g_error_copy(error) : NULL;
}

gboolean qv_conn_ask(QvConn *conn, gint64 deadline_ms, GError **error, ...)
{
  const char *words[WORDS_MAX];
  int n = 0;
  Answer answer = { 0 };
  va_list args;
  va_start(args, error);
  for (const char *word; (word = va_arg(args, const char *));) {
    g_assert(n < WORDS_MAX);
    words[n++] = word;
  }
  va_end(args);
  qv_conn_send(conn, QV_SEND_ONCE, deadline_ms, n, words, NULL, on_answer, &answer);
  while (!answer.done)
    g_main_context_iteration(g_main_context_get_thread_default(), TRUE);
  if (!answer.error)
    return TRUE;
  g_propagate_error(error, answer.error);
  return FALSE;
}
