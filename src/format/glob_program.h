/* SPDX-License-Identifier: Apache-2.0 */
/* A compiled pattern: a list of nodes, each of which goes on to the next one unless it says otherwise. Private to
 * the room. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/glob.h"

enum { QV_GLOB_SPARE_NODES = 1024 };

typedef enum {
  QV_GLOB_CHAR,  /* one code point */
  QV_GLOB_ANY,   /* one code point, no slash */
  QV_GLOB_CLASS, /* one of ranges, no slash */
  QV_GLOB_STAR,  /* any number of code points, no slash */
  QV_GLOB_DEEP,  /* any number of code points */
  QV_GLOB_DIRS,  /* any number of code points, then a slash */
  QV_GLOB_SPLIT, /* nothing: goes on at the next one and at `other` */
  QV_GLOB_JUMP,  /* nothing: goes on at `other` */
  QV_GLOB_MATCH,
} QvGlobOp;

typedef struct {
  QvGlobOp op;
  bool negated;    /* CLASS */
  uint32_t c;      /* CHAR */
  uint32_t other;  /* SPLIT, JUMP */
  uint32_t ranges_at, ranges_n;
} QvGlobNode;

typedef struct {
  uint32_t low, high;
} QvGlobRange;

struct QvGlob {
  QvGlobNode *nodes;
  size_t nodes_n;
  QvGlobRange *ranges;
  size_t ranges_n;
  /* Of the match that is running: two lists of places, the stack of the walk between
   * them, and when a node was last put on a list. */
  uint32_t *now, *next, *stack;
  uint32_t *marks;
  uint32_t mark;
};

/* Fills nodes and ranges, which have room enough for any pattern of that length. False: not a pattern. */
bool qv_glob_compile(QvGlob *glob, const uint8_t *pattern, size_t n);
