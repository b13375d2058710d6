/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a compiled pattern over a path, at all its places at once (Thompson's construction): the time is pattern x
 * path at most, whatever a hostile pattern holds, and that of the places that are still possible in practice. */
#include "format/glob.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "format/glob_program.h"
#include "format/text.h"

QvGlob *qv_glob_new(const char *pattern, size_t n)
{
  if (n == 0 || n > QV_GLOB_BYTES_MAX || memchr(pattern, 0, n) || !qv_text_is_utf8(pattern, n))
    return NULL;
  QvGlob *glob = calloc(1, sizeof *glob);
  if (!glob)
    return NULL;
  size_t nodes_max = 2 * n + 2 + QV_GLOB_SPARE_NODES, ranges_max = n + 1;
  glob->nodes = calloc(nodes_max, sizeof *glob->nodes);
  glob->ranges = calloc(ranges_max, sizeof *glob->ranges);
  glob->now = calloc(nodes_max, sizeof *glob->now);
  glob->next = calloc(nodes_max, sizeof *glob->next);
  glob->stack = calloc(nodes_max, sizeof *glob->stack);
  glob->marks = calloc(nodes_max, sizeof *glob->marks);
  if (!glob->nodes || !glob->ranges || !glob->now || !glob->next || !glob->stack || !glob->marks ||
      !qv_glob_compile(glob, (const uint8_t *)pattern, n)) {
    qv_glob_free(glob);
    return NULL;
  }
  return glob;
}

void qv_glob_free(QvGlob *glob)
{
  if (!glob)
    return;
  free(glob->nodes);
  free(glob->ranges);
  free(glob->now);
  free(glob->next);
  free(glob->stack);
  free(glob->marks);
  free(glob);
}

static void push(QvGlob *glob, uint32_t place, size_t *stack_n)
{
  if (glob->marks[place] == glob->mark)
    return;
  glob->marks[place] = glob->mark;
  glob->stack[(*stack_n)++] = place;
}

/* Puts PLACE and what it reaches without a character on LIST. */
static size_t add(QvGlob *glob, uint32_t place, uint32_t *list, size_t list_n)
{
  size_t stack_n = 0;
  push(glob, place, &stack_n);
  while (stack_n > 0) {
    uint32_t at = glob->stack[--stack_n];
    const QvGlobNode *node = &glob->nodes[at];
    switch (node->op) {
    case QV_GLOB_SPLIT:
      push(glob, at + 1, &stack_n);
      push(glob, node->other, &stack_n);
      break;
    case QV_GLOB_JUMP:
      push(glob, node->other, &stack_n);
      break;
    case QV_GLOB_STAR:
    case QV_GLOB_DEEP:
      push(glob, at + 1, &stack_n);
      list[list_n++] = at;
      break;
    default:
      list[list_n++] = at;
    }
  }
  return list_n;
}

static bool in_class(const QvGlob *glob, const QvGlobNode *node, uint32_t c)
{
  for (uint32_t i = 0; i < node->ranges_n; i++) {
    const QvGlobRange *range = &glob->ranges[node->ranges_at + i];
    if (c >= range->low && c <= range->high)
      return !node->negated;
  }
  return node->negated;
}

static size_t advance(QvGlob *glob, uint32_t at, uint32_t c, uint32_t *list, size_t list_n)
{
  const QvGlobNode *node = &glob->nodes[at];
  switch (node->op) {
  case QV_GLOB_CHAR:
    return node->c == c ? add(glob, at + 1, list, list_n) : list_n;
  case QV_GLOB_ANY:
    return c != '/' ? add(glob, at + 1, list, list_n) : list_n;
  case QV_GLOB_CLASS:
    return c != '/' && in_class(glob, node, c) ? add(glob, at + 1, list, list_n) : list_n;
  case QV_GLOB_STAR:
    return c != '/' ? add(glob, at, list, list_n) : list_n;
  case QV_GLOB_DEEP:
    return add(glob, at, list, list_n);
  case QV_GLOB_DIRS:
    list_n = add(glob, at, list, list_n);
    return c == '/' ? add(glob, at + 1, list, list_n) : list_n;
  default: /* MATCH, with something behind it */
    return list_n;
  }
}

static uint32_t next_mark(QvGlob *glob)
{
  if (++glob->mark == 0) { /* once in 2^32 characters */
    memset(glob->marks, 0, glob->nodes_n * sizeof *glob->marks);
    glob->mark = 1;
  }
  return glob->mark;
}

/* The places after PATH (and a slash where SLASH): their number, in glob->now. */
static size_t run(QvGlob *glob, const char *path, size_t n, bool slash)
{
  const uint8_t *bytes = (const uint8_t *)path;
  next_mark(glob);
  size_t now_n = add(glob, 0, glob->now, 0);
  for (size_t i = 0; i < n + slash && now_n > 0;) {
    uint32_t c = '/';
    size_t c_n = i < n ? qv_text_char(bytes + i, n - i, &c) : 1;
    if (c_n == 0) {
      c = 0x110000u + bytes[i]; /* no character at all */
      c_n = 1;
    }
    i += c_n;
    next_mark(glob);
    size_t next_n = 0;
    for (size_t k = 0; k < now_n; k++)
      next_n = advance(glob, glob->now[k], c, glob->next, next_n);
    uint32_t *swapped = glob->now;
    glob->now = glob->next;
    glob->next = swapped;
    now_n = next_n;
  }
  return now_n;
}

bool qv_glob_match(QvGlob *glob, const char *path, size_t n)
{
  size_t now_n = run(glob, path, n, false);
  for (size_t k = 0; k < now_n; k++) {
    if (glob->nodes[glob->now[k]].op == QV_GLOB_MATCH)
      return true;
  }
  return false;
}

bool qv_glob_may_match_below(QvGlob *glob, const char *dir, size_t n)
{
  size_t now_n = run(glob, dir, n, n > 0);
  for (size_t k = 0; k < now_n; k++) {
    if (glob->nodes[glob->now[k]].op != QV_GLOB_MATCH)
      return true;
  }
  return false;
}

bool qv_glob_valid(const char *pattern, size_t n)
{
  QvGlob *glob = qv_glob_new(pattern, n);
  qv_glob_free(glob);
  return glob != NULL;
}
