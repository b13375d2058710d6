/* SPDX-License-Identifier: Apache-2.0 */
/* Owns stdout and the code over it. Records are written by hand: their texts
 * are identifiers and literals, so nothing needs an escape, and the members
 * stand in the canonical order. */
#include "entry/output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/base64.h"
#include "base/io.h"
#include "format/tar.h"

enum { RECORD_BYTES = 1024 };

void qv_entry_output_init(QvEntryOutput *output, int fd, const uint8_t stream_key[QV_STREAM_KEY_BYTES])
{
  *output = (QvEntryOutput){.fd = fd};
  qv_hmac_sha256_init(&output->mac, stream_key, QV_STREAM_KEY_BYTES);
}

static void put(QvEntryOutput *output, const void *bytes, size_t n)
{
  qv_hmac_sha256_update(&output->mac, bytes, n);
  if (!qv_io_write_full(output->fd, bytes, n)) {
    fprintf(stderr, "entry: output: %s\n", strerror(errno));
    exit(EX_IOERR);
  }
}

void qv_entry_output_begin(QvEntryOutput *output, const char *path, uint64_t size, bool executable)
{
  uint8_t header[QV_TAR_HEADER_BYTES_MAX];
  size_t n;
  if (output->member_left != 0 || qv_tar_header(path, size, executable, header, &n) != QV_TAR_OK)
    abort();
  output->member_left = output->member_bytes = size;
  put(output, header, n);
}

void qv_entry_output_bytes(QvEntryOutput *output, const void *bytes, size_t n)
{
  if (n > output->member_left)
    abort();
  output->member_left -= n;
  put(output, bytes, n);
}

void qv_entry_output_end(QvEntryOutput *output)
{
  if (output->member_left != 0)
    abort();
  put(output, qv_tar_zeros, qv_tar_padding(output->member_bytes));
}

void qv_entry_output_member(QvEntryOutput *output, const char *path, const void *bytes, size_t n)
{
  qv_entry_output_begin(output, path, n, false);
  qv_entry_output_bytes(output, bytes, n);
  qv_entry_output_end(output);
}

/* "null" or the number. */
static const char *number_or_null(char text[16], bool is_number, int number)
{
  snprintf(text, 16, "%d", number);
  return is_number ? text : "null";
}

static const char *truth(bool value)
{
  return value ? "true" : "false";
}

void qv_entry_output_step(QvEntryOutput *output, int i, const char *name, const QvEntryOutcome *outcome,
                          const QvEntryRing *ring)
{
  char record[RECORD_BYTES], path[32], code[16], sig[16];
  size_t log_n = qv_entry_ring_len(ring);
  int n = snprintf(record, sizeof record,
                   "{\"durationMs\":%" PRId64 ",\"exitCode\":%s,\"logTotalBytes\":%" PRIu64
                   ",\"logTruncated\":%s,\"name\":\"%s\",\"signal\":%s,\"startedMs\":%" PRId64 ",\"timedOut\":%s}",
                   outcome->duration_ms, number_or_null(code, outcome->exit_code >= 0, outcome->exit_code),
                   ring->total, truth(ring->total > log_n), name,
                   number_or_null(sig, outcome->exit_code < 0, outcome->signal), outcome->started_ms,
                   truth(outcome->timed_out));
  if (i < 0)
    strcpy(path, "setup.json");
  else
    snprintf(path, sizeof path, "steps/%d.json", i);
  qv_entry_output_member(output, path, record, (size_t)n);
  if (i < 0)
    strcpy(path, "logs/setup.log");
  else
    snprintf(path, sizeof path, "logs/%d.log", i);
  qv_entry_output_begin(output, path, log_n, false);
  uint64_t at = 0;
  for (;;) {
    size_t part;
    const char *view = qv_entry_ring_view(ring, &at, &part);
    if (part == 0)
      break;
    qv_entry_output_bytes(output, view, part);
    at += part;
  }
  qv_entry_output_end(output);
}

/* The text of exit.json, canonical, with MAC or without. */
static size_t exit_text(const QvEntryExit *facts, const char *mac, char text[RECORD_BYTES])
{
  bool coded = facts->code != NULL;
  int n = snprintf(text, RECORD_BYTES,
                   "{\"artefactsDropped\":%" PRIu64 ",\"code\":%s%s%s,\"forkFailed\":%s%s%s%s,"
                   "\"status\":\"%s\",\"v\":1}",
                   facts->artefacts_dropped, coded ? "\"" : "", coded ? facts->code : "null", coded ? "\"" : "",
                   truth(facts->fork_failed), mac ? ",\"mac\":\"" : "", mac ? mac : "", mac ? "\"" : "",
                   facts->refused ? "refused" : "done");
  return (size_t)n;
}

void qv_entry_output_exit(QvEntryOutput *output, const QvEntryExit *facts)
{
  uint8_t mac[QV_SHA256_BYTES];
  char text[RECORD_BYTES], mac_text[QV_BASE64_LEN(QV_SHA256_BYTES) + 1];
  size_t n = exit_text(facts, NULL, text);
  qv_hmac_sha256_update(&output->mac, text, n);
  qv_hmac_sha256_final(&output->mac, mac);
  qv_base64_encode(mac, sizeof mac, mac_text);
  n = exit_text(facts, mac_text, text);
  qv_entry_output_member(output, "exit.json", text, n);
  put(output, qv_tar_zeros, QV_TAR_END_BYTES);
  explicit_bzero(&output->mac, sizeof output->mac);
}
