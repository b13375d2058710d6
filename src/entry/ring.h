/* SPDX-License-Identifier: Apache-2.0 */
/* The tail of a step's output: the last CAP bytes, and how many there were in
 * all. Memory stays at CAP however much a step prints. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct {
  char *bytes;
  size_t cap;
  uint64_t total; /* bytes ever appended */
} QvEntryRing;

/* CAP bytes, 1 or more, in memory that the owner frees. */
void qv_entry_ring_init(QvEntryRing *ring, char *bytes, size_t cap);
void qv_entry_ring_clear(QvEntryRing *ring);
void qv_entry_ring_append(QvEntryRing *ring, const char *bytes, size_t n);

/* Bytes that are kept. */
size_t qv_entry_ring_len(const QvEntryRing *ring);

/* The kept bytes from the AT-th of all bytes ever appended on, as one
 * contiguous run: a pointer and *N, 0 at the end. AT older than the tail is moved up to
 * it first. */
const char *qv_entry_ring_view(const QvEntryRing *ring, uint64_t *at, size_t *n);
