/* SPDX-License-Identifier: Apache-2.0 */
/* The request line (section 5 of the protocol) as a value, held against the
 * schema: unknown, missing and wrongly typed members are refused, and so is
 * what the job's own rules (section 2) forbid. libc and jansson alone. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

typedef struct {
  char *name;
  char **argv; /* NULL at the end */
  char *cwd;   /* relative to the repository; NULL: its root */
  int64_t timeout_ms;
  char **env; /* "NAME=value", NULL at the end */
  bool continue_on_failure;
} QvEntryStep;

typedef struct {
  char *token;
  char *address; /* IPv4:PORT; exactly one of the two is not NULL */
  char *socket;
  char *ca_pem; /* or NULL */
} QvEntryProxyTo;

typedef struct {
  uint8_t stream_key[QV_STREAM_KEY_BYTES];
  uint64_t base_bytes;
  bool has_overlay;
  uint64_t overlay_bytes;
  char **deletes;
  size_t deletes_n;
  QvEntryStep *setup;    /* or NULL */
  QvEntryProxyTo *proxy; /* or NULL; never without setup */
  QvEntryStep *run;
  size_t run_n;
  char **artefacts; /* globs */
  size_t artefacts_n;
  int64_t milli_cpus;
  int64_t log_bytes;
  int64_t artefact_bytes;
  int64_t artefact_count;
  bool live;
} QvEntryRequest;

/* NULL where the line is refused: *WHY is then a text that names the member. */
QvEntryRequest *qv_entry_request_parse(const char *line, size_t n, const char **why);

/* Forgets where the proxy is and wipes its token. */
void qv_entry_request_wipe_proxy(QvEntryRequest *request);
/* Wipes what is secret. NULL is allowed. */
void qv_entry_request_free(QvEntryRequest *request);
