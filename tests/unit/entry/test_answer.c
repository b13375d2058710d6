/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of a proxy, whole and byte by byte. */
#include "entry/answer.h"

#include <glib.h>
#include <string.h>

#define CONNECT "CONNECT registry.example:443 HTTP/1.1\r\nHost: registry.example:443\r\n\r\n"

/* In pieces of SIZE bytes: the line, or "". */
static char *line_of(const char *head, const char *answer_text, size_t answer_n, size_t size)
{
  QvEntryAnswer answer;
  char line[QV_ENTRY_ANSWER_LINE_MAX];
  GString *told = g_string_new(NULL);
  memset(&answer, 0x5a, sizeof answer);
  qv_entry_answer_init(&answer, head, strlen(head));
  for (size_t at = 0; at < answer_n; at += size)
    if (qv_entry_answer_feed(&answer, answer_text + at, MIN(size, answer_n - at), line))
      g_string_append(told, line);
  if (qv_entry_answer_end(&answer, line))
    g_string_append(told, line);
  g_assert_false(qv_entry_answer_end(&answer, line));
  return g_string_free(told, FALSE);
}

static void expect(const char *head, const char *answer, const char *line)
{
  static const size_t sizes[] = {1, 2, 7, 4096};
  for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
    g_autofree char *got = line_of(head, answer, strlen(answer), sizes[i]);
    g_assert_cmpstr(got, ==, line);
  }
}

static void test_open(void)
{
  expect(CONNECT, "HTTP/1.1 200 Connection established\r\n\r\n", "");
  expect(CONNECT, "HTTP/1.0 200 OK\r\nQuavon-Reason: none\r\n\r\nHTTP/1.1 403 Forbidden\r\n\r\nx\n", "");
  expect(CONNECT, "", "");
  expect(CONNECT, "\x15\x03\x03\x01\x02\x02\x28 no http\r\n\r\n", "");
}

static void test_refusals(void)
{
  expect(CONNECT,
         "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nquavon-reason:  host_not_listed\r\nContent-Length: 70\r\n\r\n"
         "quavon-sandbox-egress: host_not_listed: the list does not have this host\n",
         "quavon: registry.example:443 refused: host_not_listed: the list does not have this host\n");
  expect(CONNECT, "HTTP/1.1 502 Bad Gateway\r\nQuavon-Reason: proxy_unreachable\r\nContent-Length: 0\r\n\r\n",
         "quavon: registry.example:443 refused: proxy_unreachable\n");
  /* Another proxy. */
  expect(CONNECT, "HTTP/1.1 407 Proxy Authentication Required\r\n\r\nwho are you?\r\nmore\r\n",
         "quavon: registry.example:443 refused: http_407: who are you?\n");
  expect(CONNECT, "HTTP/1.1 403 Forbidden\r\nQuavon-Rea", "quavon: registry.example:443 refused: http_403\n");
  expect("GET http://registry.example/a HTTP/1.1\r\n\r\n",
         "HTTP/1.1 405 Method Not Allowed\r\nQuavon-Reason: method\r\n\r\nquavon-sandbox-egress: method: use https\n",
         "quavon: http://registry.example/a refused: method: use https\n");
  /* Nothing that steers a terminal goes into the log, and no line is without end. */
  expect(CONNECT, "HTTP/1.1 403 Forbidden\r\nQuavon-Reason: a\033[2Jb\r\n\r\n\033]0;title\007\n",
         "quavon: registry.example:443 refused: a\n");
  expect("CONNECT a\001b:443 HTTP/1.1\r\n\r\n", "HTTP/1.1 403 Forbidden\r\n\r\n\n", "quavon: a refused: http_403\n");
}

static void test_long(void)
{
  g_autofree char *filler = g_strnfill(5000, 'x');
  g_autofree char *no_end = g_strconcat("HTTP/1.1 403 ", filler, NULL);
  expect(CONNECT, no_end, "quavon: registry.example:443 refused: http_403\n");
  g_autofree char *text = g_strconcat("HTTP/1.1 403 Forbidden\r\nQuavon-Reason: ", filler, NULL);
  g_autofree char *line = line_of(CONNECT, text, strlen(text), 100);
  g_assert_cmpuint(strlen(line), <, QV_ENTRY_ANSWER_LINE_MAX);
  g_autofree char *head = g_strconcat("CONNECT ", filler, NULL), *other = line_of(head, no_end, strlen(no_end), 100);
  g_assert_cmpuint(strlen(other), <, QV_ENTRY_ANSWER_LINE_MAX);
  g_assert_true(g_str_has_suffix(other, " refused: http_403\n"));
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/entry/answer/open", test_open);
  g_test_add_func("/entry/answer/refusals", test_refusals);
  g_test_add_func("/entry/answer/long", test_long);
  return g_test_run();
}
