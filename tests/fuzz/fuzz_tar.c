/* SPDX-License-Identifier: Apache-2.0 */
/* The tar reader: whole and in pieces alike, the tap hears the stream, and what is accepted is written and read again
 * with the same meaning. */
#include <string.h>

#include "format/tar.h"
#include "fuzz.h"

typedef struct {
  uint64_t events; /* a digest of all that was reported */
  QvTarReason reason;
  uint64_t heard;
} Outcome;

static void mix(Outcome *outcome, const void *bytes, size_t n)
{
  for (size_t i = 0; i < n; i++)
    outcome->events = (outcome->events ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
}

static void hear(void *user, const uint8_t *bytes, size_t n)
{
  ((Outcome *)user)->heard += n;
}

static void take_event(QvTarReader *reader, QvTarEvent event, Outcome *outcome, uint64_t *data_n)
{
  switch (event) {
  case QV_TAR_ENTRY:
    QV_FUZZ_CHECK(reader->entry.path_n == strlen(reader->entry.path) && reader->entry.size <= reader->caps.file_bytes_max);
    QV_FUZZ_CHECK(qv_tar_path_check(reader->entry.path, reader->entry.path_n, reader->caps.portable) == QV_TAR_OK);
    mix(outcome, "E", 1);
    mix(outcome, reader->entry.path, reader->entry.path_n + 1);
    mix(outcome, &reader->entry.size, sizeof reader->entry.size);
    mix(outcome, &reader->entry.executable, 1);
    *data_n = 0;
    break;
  case QV_TAR_DATA:
    QV_FUZZ_CHECK(reader->data_n > 0);
    *data_n += reader->data_n;
    mix(outcome, reader->data, reader->data_n);
    break;
  case QV_TAR_ENTRY_END:
    QV_FUZZ_CHECK(*data_n == reader->entry.size);
    break;
  default:
    break;
  }
}

static Outcome read_all(const uint8_t *data, size_t size, size_t portion, const QvTarCaps *caps)
{
  Outcome outcome = {0};
  QvTarReader reader;
  uint64_t data_n = 0;
  qv_tar_reader_init(&reader, caps);
  reader.tap = hear;
  reader.tap_user = &outcome;
  QvTarEvent event = QV_TAR_MORE;
  for (size_t at = 0; at < size && event != QV_TAR_BAD;) {
    size_t n = size - at < portion ? size - at : portion;
    const uint8_t *bytes = data + at;
    at += n;
    while ((event = qv_tar_reader_step(&reader, &bytes, &n)) != QV_TAR_MORE && event != QV_TAR_BAD)
      take_event(&reader, event, &outcome, &data_n);
    QV_FUZZ_CHECK(event == QV_TAR_BAD || n == 0);
  }
  outcome.reason = qv_tar_reader_finish(&reader);
  QV_FUZZ_CHECK(event != QV_TAR_BAD || outcome.reason != QV_TAR_OK);
  QV_FUZZ_CHECK(outcome.reason != QV_TAR_OK || outcome.heard == size);
  QV_FUZZ_CHECK(reader.stream_bytes <= caps->total_bytes_max && reader.entries_n <= caps->entries_max);
  qv_tar_reader_clear(&reader);
  return outcome;
}

/* What was accepted, in the writer's own form. */
static uint8_t *rewrite(const uint8_t *data, size_t size, const QvTarCaps *caps, size_t *out_n)
{
  uint8_t *out = malloc(size);
  QvTarReader reader;
  size_t n = size;
  qv_tar_reader_init(&reader, caps);
  *out_n = 0;
  QvTarEvent event;
  while ((event = qv_tar_reader_step(&reader, &data, &n)) != QV_TAR_MORE) {
    uint8_t header[QV_TAR_HEADER_BYTES_MAX];
    size_t put_n = 0;
    if (event == QV_TAR_ENTRY) {
      QV_FUZZ_CHECK(qv_tar_header(reader.entry.path, reader.entry.size, reader.entry.executable, header, &put_n) == QV_TAR_OK);
      QV_FUZZ_CHECK(put_n + reader.entry.size + qv_tar_padding(reader.entry.size) ==
                    qv_tar_entry_bytes(reader.entry.path_n, reader.entry.size));
      memcpy(out + *out_n, header, put_n);
    } else if (event == QV_TAR_DATA) {
      memcpy(out + *out_n, reader.data, put_n = reader.data_n);
    } else if (event == QV_TAR_ENTRY_END) {
      memcpy(out + *out_n, qv_tar_zeros, put_n = qv_tar_padding(reader.entry.size));
    } else {
      memcpy(out + *out_n, qv_tar_zeros, put_n = QV_TAR_END_BYTES);
    }
    *out_n += put_n;
  }
  qv_tar_reader_clear(&reader);
  QV_FUZZ_CHECK(*out_n == size); /* the profile leaves the length no freedom */
  return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  QvTarCaps caps = {.entries_max = 64, .total_bytes_max = 1 << 20, .file_bytes_max = 1 << 16, .portable = size % 2};
  Outcome whole = read_all(data, size, SIZE_MAX, &caps);
  size_t portion = size > 0 && data[0] % 3 == 0 ? 511 : 1;
  Outcome pieces = read_all(data, size, portion, &caps);
  QV_FUZZ_CHECK(whole.reason == pieces.reason && whole.events == pieces.events);
  if (whole.reason != QV_TAR_OK || size == 0)
    return 0;
  size_t again_n;
  uint8_t *again = rewrite(data, size, &caps, &again_n);
  Outcome second = read_all(again, again_n, SIZE_MAX, &caps);
  QV_FUZZ_CHECK(second.reason == QV_TAR_OK && second.events == whole.events);
  free(again);
  return 0;
}
