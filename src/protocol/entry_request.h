/* SPDX-License-Identifier: Apache-2.0 */
/* The request line that the runner gives to the entry program (section 5). */
#pragma once

#include <glib.h>

#include "base/secret.h"
#include "protocol/job.h"

typedef struct {
  const char *token;
  const char *address; /* IPv4:PORT or NULL */
  const char *socket;  /* or NULL; exactly one of the two */
  const char *ca_pem;  /* or NULL */
} QvEntryProxy;

/* One line with its LF, at most 1 MiB (QV_ERROR_LIMIT). `limits` always has all
 * eight members of QV_LIMITS_TABLE, the effective ones; `live` is written when TRUE only. Holds the stream key and the
 * token: a secret. PROXY may be NULL. */
QvSecret *qv_entry_request_format(const QvJob *job, const guint8 stream_key[QV_STREAM_KEY_BYTES],
                                  const QvEntryProxy *proxy, gboolean live, GError **error);
