/* SPDX-License-Identifier: Apache-2.0 */
/* Byte number i of the stream lives at bytes[i % cap]. */
#include "entry/ring.h"

#include <string.h>

void qv_entry_ring_init(QvEntryRing *ring, char *bytes, size_t cap)
{
  *ring = (QvEntryRing){.bytes = bytes, .cap = cap};
}

void qv_entry_ring_clear(QvEntryRing *ring)
{
  ring->total = 0;
}

void qv_entry_ring_append(QvEntryRing *ring, const char *bytes, size_t n)
{
  if (n > ring->cap) {
    ring->total += n - ring->cap;
    bytes += n - ring->cap;
    n = ring->cap;
  }
  while (n > 0) {
    size_t at = (size_t)(ring->total % ring->cap);
    size_t take = n < ring->cap - at ? n : ring->cap - at;
    memcpy(ring->bytes + at, bytes, take);
    ring->total += take;
    bytes += take;
    n -= take;
  }
}

size_t qv_entry_ring_len(const QvEntryRing *ring)
{
  return ring->total < ring->cap ? (size_t)ring->total : ring->cap;
}

const char *qv_entry_ring_view(const QvEntryRing *ring, uint64_t *at, size_t *n)
{
  uint64_t oldest = ring->total - qv_entry_ring_len(ring);
  if (*at < oldest)
    *at = oldest;
  if (*at > ring->total)
    *at = ring->total;
  size_t left = (size_t)(ring->total - *at);
  size_t from = (size_t)(*at % ring->cap);
  *n = left < ring->cap - from ? left : ring->cap - from;
  return ring->bytes + from;
}
