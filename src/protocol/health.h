/* SPDX-License-Identifier: Apache-2.0 */
/* Health records of runners and requests for a smoke test (section 8). */
#pragma once

#include <glib.h>

#include "protocol/job.h"
#include "protocol/key.h"

enum {
  QV_HEALTH_TTL_MS = 90000,
  QV_HEALTH_AGE_MS_MAX = 90000,
  QV_HEALTH_AHEAD_MS_MAX = 30000,
  QV_SMOKE_AGE_MS_MAX = 22500000, /* 6 h 15 min */
  QV_SMOKE_REQUEST_TTL_MS = 120000,
};

/* The last smoke test of a runner. */
typedef struct {
  gint64 at; /* Unix ms */
  gboolean passed;
  gint64 probes;
  char **failed;    /* names of probes; empty exactly where it passed */
  char *request_id; /* or NULL: nobody asked */
} QvSmokeReport;
void qv_smoke_report_free(QvSmokeReport *report);
QvSmokeReport *qv_smoke_report_copy(const QvSmokeReport *report);

typedef struct {
  char *runner_id;
  char *pool;
  char *version;
  char *backend;
  char *runtime_name;
  char *runtime_version; /* or NULL */
  char *platform; /* of the runtime: systrap, kvm; an identifier */
  QvImageRef *images;
  gsize images_n;
  char *host_id; /* 64 hex digits, or NULL where the runner cannot know it */
  char *kernel;
  char *cgroup;
  gint64 concurrency;
  gint64 busy;
  gint64 started_at;
  gint64 at;
  char **problems; /* never NULL */
  QvSmokeReport *smoke; /* or NULL: none has run */
  gboolean insecure;
} QvHealth;

QvHealth *qv_health_new(void);
void qv_health_free(QvHealth *health);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvHealth, qv_health_free)

/* hex SHA-256("quavon/host/v1" LF boot id), of the boot id as the kernel prints it, without a line feed. */
void qv_host_id_format(const char *boot_id, char hex[65]);

/* The signed record, checked by the reader's own rules. */
char *qv_health_sign(const QvHealth *health, const QvKey *key, gsize *n, GError **error);

/* A record that counts: RUNNER_ID is the last part of its key in the store. QV_ERROR_AUTH: unknown key or bad signature;
 * QV_ERROR_FORMAT: all else, also one that is too old or too new. *CURRENT (may be NULL) is FALSE where a previous key
 * signed it. */
QvHealth *qv_health_verify(const char *text, gsize n, const QvKeyring *ring, const char *pool, const char *runner_id,
                           gint64 now_ms, gboolean *current, GError **error);

/* What a job needs of a runner. */
typedef struct {
  char *const *backends;
  const char *image_name;
  const char *image_digest;
  gboolean development; /* an insecure runner will do */
} QvHealthWant;

/* Healthy for such a job, given that the record counts? FALSE with QV_ERROR_POLICY, whose text says what is missing. */
gboolean qv_health_fits(const QvHealth *health, const QvHealthWant *want, gint64 now_ms, GError **error);

/* A request for a smoke test of one runner. */
char *qv_smoke_request_sign(const char *pool, const char *runner_id, const char *request_id, gint64 at_ms,
                            const QvKey *key, gsize *n, GError **error);
/* The request's id (g_free), where it is for this runner and as old as its key in the store may be. */
char *qv_smoke_request_verify(const char *text, gsize n, const QvKeyring *ring, const char *pool, const char *runner_id,
                              gint64 now_ms, GError **error);
