/* SPDX-License-Identifier: Apache-2.0 */
/* Pattern to nodes. A byte of pattern makes at most two nodes and one range, but for number ranges, which have
 * QV_GLOB_SPARE_NODES of their own; groups nest at most GROUPS_DEEP times.
 *
 *   {a,b} @(a|b)   SPLIT a JUMP, SPLIT b
 *   ?(a|b)         SPLIT over the group, the group
 *   +(a|b)         the group, SPLIT back to it
 *   *(a|b)         both */
#include <stdio.h>
#include <string.h>

#include "format/glob_program.h"
#include "format/text.h"

enum { GROUPS_DEEP = 8, NUMBERS_MAX = 100 };

typedef struct {
  QvGlob *glob;
  const uint8_t *pattern;
  size_t n, at;
  int depth;
  size_t spare_n;        /* nodes that number ranges may still have */
  char separator, close; /* of the group that is open, or 0 */
  bool part_start;       /* the last thing compiled was a slash, the start of a group, or nothing */
} Compiler;

static QvGlobNode *emit(Compiler *c, QvGlobOp op)
{
  QvGlobNode *node = &c->glob->nodes[c->glob->nodes_n++];
  memset(node, 0, sizeof *node);
  node->op = op;
  return node;
}

static bool next_is(const Compiler *c, size_t ahead, char wanted)
{
  return c->at + ahead < c->n && c->pattern[c->at + ahead] == (uint8_t)wanted;
}

static uint32_t take_character(Compiler *c)
{
  uint32_t code_point = 0;
  c->at += qv_text_char(c->pattern + c->at, c->n - c->at, &code_point);
  return code_point;
}

/* The character at the compiler's place, which a backslash may quote. */
static bool take_quoted(Compiler *c, uint32_t *code_point)
{
  if (next_is(c, 0, '\\') && ++c->at == c->n)
    return false;
  *code_point = take_character(c);
  return true;
}

static void add_range(Compiler *c, uint32_t low, uint32_t high)
{
  c->glob->ranges[c->glob->ranges_n++] = (QvGlobRange){low, high};
}

/* "[:name:]" at the compiler's place: its ranges; false where there is none of that name. */
static bool take_named_class(Compiler *c)
{
  static const struct {
    const char *text, *ranges; /* pairs of ASCII bounds */
  } table[] = {
    {"[:alpha:]", "AZaz"}, {"[:digit:]", "09"},   {"[:alnum:]", "AZaz09"}, {"[:upper:]", "AZ"},
    {"[:lower:]", "az"},   {"[:space:]", "\t\r  "}, {"[:blank:]", "\t\t  "}, {"[:xdigit:]", "09AFaf"},
    {"[:punct:]", "!/:@[`{~"}, {"[:print:]", " ~"}, {"[:graph:]", "!~"},   {"[:cntrl:]", "\1\37\177\177"},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    size_t n = strlen(table[i].text);
    if (c->n - c->at < n || memcmp(c->pattern + c->at, table[i].text, n) != 0)
      continue;
    c->at += n;
    for (const char *r = table[i].ranges; *r; r += 2)
      add_range(c, (uint8_t)r[0], (uint8_t)r[1]);
    return true;
  }
  return false;
}

/* Behind "[". */
static bool compile_class(Compiler *c)
{
  QvGlobNode *node = emit(c, QV_GLOB_CLASS);
  node->ranges_at = (uint32_t)c->glob->ranges_n;
  if (next_is(c, 0, '!') || next_is(c, 0, '^')) {
    node->negated = true;
    c->at++;
  }
  for (bool first = true;; first = false) {
    if (c->at == c->n)
      return false;
    if (next_is(c, 0, ']') && !first)
      break;
    if (next_is(c, 0, '[') && next_is(c, 1, ':') && take_named_class(c))
      continue;
    uint32_t low, high;
    if (!take_quoted(c, &low))
      return false;
    high = low;
    if (next_is(c, 0, '-') && c->at + 1 < c->n && !next_is(c, 1, ']')) {
      c->at++;
      if (!take_quoted(c, &high))
        return false;
    }
    add_range(c, low, high);
  }
  c->at++;
  node->ranges_n = (uint32_t)(c->glob->ranges_n - node->ranges_at);
  return true;
}

static bool at_group_end(const Compiler *c, size_t ahead)
{
  return c->close && (next_is(c, ahead, c->separator) || next_is(c, ahead, c->close));
}

/* At "*": one or more of them. */
static void compile_stars(Compiler *c)
{
  size_t n = 0;
  while (next_is(c, n, '*'))
    n++;
  bool part_end = c->at + n == c->n || next_is(c, n, '/');
  bool whole_part = c->part_start && (part_end || at_group_end(c, n));
  c->at += n;
  if (n != 2 || !whole_part) {
    if (c->part_start && part_end)
      emit(c, QV_GLOB_ANY); /* no part of a path is empty */
    emit(c, QV_GLOB_STAR);
    return;
  }
  if (!next_is(c, 0, '/')) {
    emit(c, QV_GLOB_DEEP);
    return;
  }
  c->at++;
  QvGlobNode *split = emit(c, QV_GLOB_SPLIT);
  emit(c, QV_GLOB_DIRS);
  split->other = (uint32_t)c->glob->nodes_n;
}

static bool compile_sequence(Compiler *c);

/* The jumps to the end of a group are chained through `other` until the end is known. */
static void end_chain(Compiler *c, uint32_t chain)
{
  while (chain != UINT32_MAX) {
    uint32_t before = c->glob->nodes[chain].other;
    c->glob->nodes[chain].other = (uint32_t)c->glob->nodes_n;
    chain = before;
  }
}

static uint32_t chain_jump(Compiler *c, uint32_t chain)
{
  uint32_t jump = (uint32_t)c->glob->nodes_n;
  emit(c, QV_GLOB_JUMP)->other = chain;
  return jump;
}

/* Behind the opening bracket of a group. */
static bool compile_alternatives(Compiler *c, char separator, char close)
{
  if (++c->depth > GROUPS_DEEP)
    return false;
  Compiler outer = *c;
  c->separator = separator;
  c->close = close;
  uint32_t chain = UINT32_MAX;
  for (;;) {
    uint32_t split = (uint32_t)c->glob->nodes_n;
    emit(c, QV_GLOB_SPLIT)->other = split + 1; /* the last one has no other */
    c->part_start = outer.part_start;
    if (!compile_sequence(c) || c->at == c->n)
      return false;
    if (c->pattern[c->at++] == (uint8_t)close)
      break;
    chain = chain_jump(c, chain);
    c->glob->nodes[split].other = (uint32_t)c->glob->nodes_n;
  }
  end_chain(c, chain);
  c->separator = outer.separator;
  c->close = outer.close;
  c->depth--;
  return true;
}

/* A decimal number of at most six digits. */
static bool scan_number(const Compiler *c, size_t *ahead, int *value)
{
  bool negative = next_is(c, *ahead, '-');
  size_t i = *ahead + negative, start = i;
  int v = 0;
  for (; c->at + i < c->n && i - start < 6 && c->pattern[c->at + i] >= '0' && c->pattern[c->at + i] <= '9'; i++)
    v = v * 10 + (c->pattern[c->at + i] - '0');
  *value = negative ? -v : v;
  *ahead = i;
  return i > start;
}

/* Behind "{": "m..n}". *FOUND tells whether it is one. */
static bool compile_numbers(Compiler *c, bool *found)
{
  size_t ahead = 0;
  int from, to;
  *found = false;
  if (!scan_number(c, &ahead, &from) || !next_is(c, ahead, '.') || !next_is(c, ahead + 1, '.'))
    return true;
  ahead += 2;
  if (!scan_number(c, &ahead, &to) || !next_is(c, ahead, '}'))
    return true;
  c->at += ahead + 1;
  *found = true;
  int low = from < to ? from : to, high = from < to ? to : from;
  if (high - low >= NUMBERS_MAX)
    return false;
  uint32_t chain = UINT32_MAX;
  for (int v = low; v <= high; v++) {
    char text[16];
    size_t text_n = (size_t)snprintf(text, sizeof text, "%d", v);
    if (c->spare_n < text_n + 2)
      return false;
    c->spare_n -= text_n + 2;
    QvGlobNode *split = emit(c, QV_GLOB_SPLIT);
    for (size_t i = 0; i < text_n; i++)
      emit(c, QV_GLOB_CHAR)->c = (uint8_t)text[i];
    chain = chain_jump(c, chain);
    split->other = v == high ? (uint32_t)(split - c->glob->nodes) + 1 : (uint32_t)c->glob->nodes_n;
  }
  end_chain(c, chain);
  return true;
}

/* At one of "@?+*!" before "(". */
static bool compile_repeated(Compiler *c)
{
  char kind = (char)c->pattern[c->at];
  if (kind == '!')
    return false; /* everything but: not linear, and no one needs it */
  c->at += 2;
  uint32_t over = (uint32_t)c->glob->nodes_n;
  if (kind == '?' || kind == '*')
    emit(c, QV_GLOB_SPLIT);
  uint32_t start = (uint32_t)c->glob->nodes_n;
  if (!compile_alternatives(c, '|', ')'))
    return false;
  if (kind == '+' || kind == '*')
    emit(c, QV_GLOB_SPLIT)->other = start;
  if (kind == '?' || kind == '*')
    c->glob->nodes[over].other = (uint32_t)c->glob->nodes_n;
  return true;
}

static bool compile_brace(Compiler *c)
{
  bool numbers;
  c->at++;
  return compile_numbers(c, &numbers) && (numbers || compile_alternatives(c, ',', '}'));
}

static bool compile_one(Compiler *c)
{
  uint32_t code_point;
  bool part_start = false, fine = true;
  uint8_t byte = c->pattern[c->at];
  if (next_is(c, 1, '(') && memchr("@?+*!", byte, 5)) {
    fine = compile_repeated(c);
  } else if (byte == '*') {
    compile_stars(c);
    /* "**" and its slash leave the place at the start of a part. */
    part_start = c->glob->nodes[c->glob->nodes_n - 1].op == QV_GLOB_DIRS;
  } else if (byte == '?') {
    c->at++;
    emit(c, QV_GLOB_ANY);
  } else if (byte == '[') {
    c->at++;
    fine = compile_class(c);
  } else if (byte == '{') {
    fine = compile_brace(c);
  } else {
    part_start = byte == '/';
    fine = take_quoted(c, &code_point);
    if (fine)
      emit(c, QV_GLOB_CHAR)->c = code_point;
  }
  c->part_start = part_start;
  return fine;
}

/* To the end of the pattern, or to what ends an alternative. */
static bool compile_sequence(Compiler *c)
{
  while (c->at < c->n && !at_group_end(c, 0)) {
    if (!compile_one(c))
      return false;
  }
  return true;
}

bool qv_glob_compile(QvGlob *glob, const uint8_t *pattern, size_t n)
{
  Compiler c = {.glob = glob, .pattern = pattern, .n = n, .part_start = true, .spare_n = QV_GLOB_SPARE_NODES};
  if (!compile_sequence(&c))
    return false;
  emit(&c, QV_GLOB_MATCH);
  return true;
}
