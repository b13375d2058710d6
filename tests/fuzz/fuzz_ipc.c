/* SPDX-License-Identifier: Apache-2.0 */
/* Frames between a runner's processes, of which one parses what a guest wrote: whole and byte by byte the same frames come
 * out, to the same end. The first byte says who sends. */
#include <string.h>

#include "fuzz.h"
#include "runner/ipc.h"

static GString *read_in(unsigned sender, const uint8_t *data, size_t size, size_t step, gboolean *fine)
{
  g_autoptr(QvIpcReader) reader = qv_ipc_reader_new(sender);
  GString *out = g_string_new(NULL);
  *fine = TRUE;
  for (size_t at = 0; at < size && *fine; at += step) {
    g_autoptr(GError) error = NULL;
    *fine = qv_ipc_reader_feed(reader, data + at, MIN(step, size - at), &error);
    QV_FUZZ_CHECK(*fine == (error == NULL));
    QvIpcType type;
    const guint8 *payload;
    gsize n;
    while (*fine && qv_ipc_reader_next(reader, &type, &payload, &n)) {
      QV_FUZZ_CHECK(qv_ipc_name(type) != NULL && n <= size);
      g_string_append_printf(out, "%d:%" G_GSIZE_FORMAT ":", type, n);
      g_string_append_len(out, (const char *)payload, (gssize)n);
    }
  }
  return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size < 1)
    return 0;
  static const unsigned senders[] = {QV_IPC_FROM_SUPERVISOR, QV_IPC_FROM_JOB, QV_IPC_FROM_UNPACK};
  unsigned sender = senders[data[0] % 3];
  gboolean whole_fine, single_fine;
  GString *whole = read_in(sender, data + 1, size - 1, size, &whole_fine);
  GString *single = read_in(sender, data + 1, size - 1, 1, &single_fine);
  QV_FUZZ_CHECK(whole_fine == single_fine);
  /* A breach ends the whole conversation: what was whole before it may have been handed out or not. */
  QV_FUZZ_CHECK(whole_fine ? g_string_equal(whole, single) : whole->len <= single->len);
  g_string_free(whole, TRUE);
  g_string_free(single, TRUE);
  return 0;
}
