/* SPDX-License-Identifier: Apache-2.0 */
/* A flood is not followed byte by byte: each member starts at most its own
 * size behind the newest byte. */
#include "entry/live.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "entry/output.h"

void qv_entry_live_init(QvEntryLive *live, QvEntryOutput *output)
{
  *live = (QvEntryLive){.output = output, .last_ms = qv_clock_mono_ms() - QV_LIVE_EVERY_MS};
}

void qv_entry_live_begin_step(QvEntryLive *live, int step)
{
  live->step = step;
  live->at = 0;
}

int qv_entry_live_timeout_ms(const QvEntryLive *live, const QvEntryRing *ring)
{
  if (live->at >= ring->total || live->spent >= QV_LIVE_ALL_BYTES_MAX ||
      live->next >= QV_LIVE_MEMBERS_MAX)
    return -1;
  int64_t left_ms = live->last_ms + QV_LIVE_EVERY_MS - qv_clock_mono_ms();
  return left_ms < 0 ? 0 : (int)left_ms;
}

void qv_entry_live_step(QvEntryLive *live, const QvEntryRing *ring)
{
  if (qv_entry_live_timeout_ms(live, ring) != 0)
    return;
  uint64_t most = QV_LIVE_ALL_BYTES_MAX - live->spent;
  if (most > QV_LIVE_BYTES_MAX)
    most = QV_LIVE_BYTES_MAX;
  if (ring->total - live->at > most)
    live->at = ring->total - most;
  char bytes[QV_LIVE_BYTES_MAX];
  size_t n = 0, part;
  for (;;) {
    const char *view = qv_entry_ring_view(ring, &live->at, &part);
    if (part == 0)
      break;
    memcpy(bytes + n, view, part);
    n += part;
    live->at += part;
  }
  char path[32];
  if (live->step < 0)
    snprintf(path, sizeof path, "live/setup.%u", live->next++);
  else
    snprintf(path, sizeof path, "live/%d.%u", live->step, live->next++);
  qv_entry_output_member(live->output, path, bytes, n);
  live->spent += n;
  live->last_ms = qv_clock_mono_ms();
}
