/* SPDX-License-Identifier: Apache-2.0 */
/* An entry program that an attacker wrote. It has what the real one has, the key of its stream
 * among it, and does what the first word of the first step's argv says: "bad-…" and the rest, see main. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "entry/input.h"
#include "entry/output.h"
#include "entry/request.h"
#include "format/tar.h"

static char line[QV_REQUEST_LINE_BYTES_MAX];
static QvEntryInput input;
static QvEntryOutput output;

static void raw(const void *bytes, size_t n)
{
  for (size_t at = 0; at < n;) {
    ssize_t written = write(STDOUT_FILENO, (const char *)bytes + at, n - at);
    if (written <= 0)
      _exit(1);
    at += (size_t)written;
  }
}

static void header(const char *path, uint64_t size)
{
  uint8_t bytes[QV_TAR_HEADER_BYTES_MAX];
  size_t n = 0;
  if (qv_tar_header(path, size, false, bytes, &n) == QV_TAR_OK)
    raw(bytes, n);
}

static void record(const char *name, const char *log)
{
  char text[512];
  int n = snprintf(text, sizeof text,
                   "{\"name\":\"%s\",\"exitCode\":0,\"signal\":null,\"timedOut\":false,\"startedMs\":1,\"durationMs\":1,"
                   "\"logTotalBytes\":%zu,\"logTruncated\":false}", name, strlen(log));
  qv_entry_output_member(&output, "steps/0.json", text, (size_t)n);
  qv_entry_output_member(&output, "logs/0.log", log, strlen(log));
}

static void finish(void)
{
  const QvEntryExit facts = {0};
  qv_entry_output_exit(&output, &facts);
}

static void endless(const char *how)
{
  static char block[65536];
  memset(block, strcmp(how, "zeros") == 0 ? 0 : 'x', sizeof block);
  for (;;)
    raw(block, sizeof block);
}

/* As much as there may be, of what does not compress; OVER: and then without an end. Only after a while in which the supervisor
 * can be stopped. */
static void fill(const QvEntryRequest *request, bool over)
{
  static uint64_t block[8192];
  uint64_t state = 88172645463325252u;
  sleep(3);
  record(request->run[0].name, "x");
  qv_entry_output_begin(&output, "artefacts/out/0", (uint64_t)request->artefact_bytes, false);
  for (int64_t left = request->artefact_bytes; left > 0; left -= (int64_t)sizeof block) {
    for (size_t i = 0; i < sizeof block / sizeof *block; i++) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      block[i] = state;
    }
    qv_entry_output_bytes(&output, block, left < (int64_t)sizeof block ? (size_t)left : sizeof block);
  }
  qv_entry_output_end(&output);
  if (!over) {
    finish();
    return;
  }
  sleep(1); /* whoever looks from outside sees what is held at the bound */
  header("artefacts/out/1", 1);
  endless("noise");
}

static void misbehave(const char *how, const char *name)
{
  if (strcmp(how, "nothing") == 0)
    return;
  if (strcmp(how, "noise") == 0 || strcmp(how, "zeros") == 0)
    endless(how);
  if (strcmp(how, "lie") == 0) {
    record(name, "all tests passed\n");
    finish();
  } else if (strcmp(how, "other-step") == 0) {
    record("another", "x");
    finish();
  } else if (strcmp(how, "no-code") == 0) {
    record(name, "x");
    qv_entry_output_member(&output, "exit.json", "{}", 2);
  } else if (strcmp(how, "huge-header") == 0) {
    header("steps/0.json", 7516192768u);
    endless("noise");
  } else if (strcmp(how, "a-million-members") == 0) {
    record(name, "x");
    for (int i = 0; i < 1000000; i++) {
      char path[64];
      snprintf(path, sizeof path, "artefacts/out/%07d", i);
      header(path, 0);
    }
  } else if (strcmp(how, "trailing") == 0) {
    record(name, "x");
    finish();
    raw("one byte more", 13);
  } else if (strcmp(how, "live-flood") == 0) {
    static char block[16384];
    for (int i = 0; i < 100000; i++) {
      char path[64];
      snprintf(path, sizeof path, "live/0.%d", i);
      qv_entry_output_member(&output, path, block, sizeof block);
    }
  } else if (strcmp(how, "artefact-outside") == 0) {
    uint8_t bytes[QV_TAR_HEADER_BYTES_MAX];
    size_t n = 0;
    record(name, "x");
    qv_tar_header("artefacts/out/xxxxxxxxxxxxx", 0, false, bytes, &n);
    memcpy(bytes, "artefacts/../../etc/passwd1", 27); /* the sum is not mended: refused either way */
    raw(bytes, n);
  } else if (strcmp(how, "crash") == 0) {
    abort();
  } else if (strcmp(how, "silent") == 0) {
    for (;;)
      pause();
  }
}

int main(void)
{
  const char *why = NULL;
  qv_entry_input_init(&input, STDIN_FILENO);
  int64_t n = qv_entry_input_line(&input, line, sizeof line);
  QvEntryRequest *request = n >= 0 ? qv_entry_request_parse(line, (size_t)n, &why) : NULL;
  if (request == NULL)
    return 1;
  const char *how = request->run[0].argv[0];
  if (strcmp(how, "deaf") == 0) { /* takes nothing more of its input */
    for (;;)
      pause();
  }
  qv_entry_input_skip(&input, request->base_bytes);
  qv_entry_output_init(&output, STDOUT_FILENO, request->stream_key);
  if (strcmp(how, "fill") == 0 || strcmp(how, "fill-over") == 0)
    fill(request, strcmp(how, "fill-over") == 0);
  misbehave(how, request->run[0].name);
  return 0;
}
