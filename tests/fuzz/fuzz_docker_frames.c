/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as an attached stream: whole and byte by byte the same streams come out, and no more than went in. */
#include <string.h>

#include "fuzz.h"
#include "sandbox/docker_frames.h"

typedef struct {
  GByteArray *streams[4];
  int refused;
  int at_border;
} Taken;

static void take(const uint8_t *data, size_t size, size_t step, Taken *taken)
{
  QvFrames frames = {0};
  for (int i = 0; i < 4; i++)
    taken->streams[i] = g_byte_array_new();
  taken->refused = 0;
  for (size_t at = 0; at < size && !taken->refused;) {
    QvFrameKind kind = QV_FRAME_STDOUT;
    gsize slice_n, part = size - at < step ? size - at : step;
    gssize n = qv_frames_step(&frames, data + at, part, &kind, &slice_n, NULL);
    taken->refused = n < 0;
    if (n < 0)
      break;
    QV_FUZZ_CHECK(n >= 1 && (size_t)n <= part && slice_n <= (gsize)n);
    if (slice_n > 0) {
      QV_FUZZ_CHECK(kind >= QV_FRAME_STDOUT && kind <= QV_FRAME_TROUBLE && slice_n == (gsize)n);
      g_byte_array_append(taken->streams[kind], data + at, (guint)slice_n);
    }
    at += (size_t)n;
  }
  taken->at_border = qv_frames_at_border(&frames);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  Taken whole, single;
  take(data, size, size + 1, &whole);
  take(data, size, 1, &single);
  QV_FUZZ_CHECK(whole.refused == single.refused && whole.at_border == single.at_border);
  size_t sum = 0;
  for (int i = 0; i < 4; i++) {
    QV_FUZZ_CHECK(whole.streams[i]->len == single.streams[i]->len);
    QV_FUZZ_CHECK(whole.streams[i]->len == 0 || memcmp(whole.streams[i]->data, single.streams[i]->data, whole.streams[i]->len) == 0);
    sum += whole.streams[i]->len;
    g_byte_array_unref(whole.streams[i]);
    g_byte_array_unref(single.streams[i]);
  }
  QV_FUZZ_CHECK(sum <= size);
  return 0;
}
