/* SPDX-License-Identifier: Apache-2.0 */
/* An answer is looked at until its status says that the tunnel is open, or until the line behind
 * its head is whole: that says why it is not. */
#include "entry/answer.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { CODE_MAX = 40, TEXT_MAX = 240 };

static bool printable(char c)
{
  return c >= ' ' && c <= '~';
}

/* Printable characters up to one of STOPS, at most CAP - 1 of them. */
static void copy_word(const char *from, const char *end, const char *stops, char *to, size_t cap)
{
  size_t n = 0;
  while (from < end && n + 1 < cap && printable(*from) && !strchr(stops, *from))
    to[n++] = *from++;
  to[n] = '\0';
}

void qv_entry_answer_init(QvEntryAnswer *answer, const char *head, size_t n)
{
  const char *end = head + n, *target = memchr(head, ' ', n);
  answer->n = 0;
  answer->decided = false;
  copy_word(target ? target + 1 : head, end, " \r\n", answer->target, sizeof answer->target);
}

static const char *line_end(const char *from, const char *end)
{
  const char *lf = memchr(from, '\n', (size_t)(end - from));
  return lf ? lf : end;
}

/* The value of the field Quavon-Reason, or a word made of the status. */
static void find_code(const char *head, const char *end, int status, char code[CODE_MAX])
{
  static const char name[] = "Quavon-Reason:";
  for (const char *at = line_end(head, end); at < end; at = line_end(at + 1, end)) {
    if ((size_t)(end - at) <= sizeof name || strncasecmp(at + 1, name, sizeof name - 1) != 0)
      continue;
    const char *value = at + sizeof name;
    while (value < end && *value == ' ')
      value++;
    copy_word(value, end, " \r\n", code, CODE_MAX);
    if (*code)
      return;
  }
  snprintf(code, CODE_MAX, "http_%d", status);
}

/* The first line of the body, without the program's name and the code that it begins with. */
static void find_text(const char *body, const char *end, const char *code, char text[TEXT_MAX])
{
  static const char program[] = "quavon-sandbox-egress: ";
  size_t code_n = strlen(code);
  end = line_end(body, end); /* what is there behind it by now says nothing */
  if ((size_t)(end - body) >= sizeof program - 1 && memcmp(body, program, sizeof program - 1) == 0)
    body += sizeof program - 1;
  if ((size_t)(end - body) >= code_n + 2 && memcmp(body, code, code_n) == 0 && body[code_n] == ':')
    body += code_n + 2;
  copy_word(body, end, "\r\n", text, TEXT_MAX);
}

static bool tell(QvEntryAnswer *answer, int status, const char *body, char *line)
{
  const char *end = answer->bytes + answer->n;
  char code[CODE_MAX], text[TEXT_MAX] = "";
  answer->decided = true;
  find_code(answer->bytes, body ? body : end, status, code);
  if (body)
    find_text(body, end, code, text);
  snprintf(line, QV_ENTRY_ANSWER_LINE_MAX, "quavon: %s refused: %s%s%s\n", answer->target, code, *text ? ": " : "", text);
  return true;
}

static bool look(QvEntryAnswer *answer, bool last, char *line)
{
  int status = 0;
  const char *end = answer->bytes + answer->n;
  const char *body = memmem(answer->bytes, answer->n, "\r\n\r\n", 4);
  if (!body && !last)
    return false;
  char first[32];
  copy_word(answer->bytes, end, "\r\n", first, sizeof first);
  if (sscanf(first, "HTTP/1.%*1[01] %3d", &status) != 1 || status < 300 || status > 599) {
    answer->decided = true; /* it is open, or no HTTP at all */
    return false;
  }
  if (body)
    body += 4;
  if (!last && !memchr(body, '\n', (size_t)(end - body)))
    return false;
  return tell(answer, status, body, line);
}

bool qv_entry_answer_feed(QvEntryAnswer *answer, const char *bytes, size_t n, char line[QV_ENTRY_ANSWER_LINE_MAX])
{
  if (answer->decided)
    return false;
  size_t room = sizeof answer->bytes - answer->n, take = n < room ? n : room;
  memcpy(answer->bytes + answer->n, bytes, take);
  answer->n += take;
  return look(answer, answer->n == sizeof answer->bytes, line);
}

bool qv_entry_answer_end(QvEntryAnswer *answer, char line[QV_ENTRY_ANSWER_LINE_MAX])
{
  return !answer->decided && answer->n > 0 && look(answer, true, line);
}
