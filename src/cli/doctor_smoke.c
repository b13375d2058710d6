/* SPDX-License-Identifier: Apache-2.0 */
/* Owns `quavon doctor --sandbox-smoke`: the signed requests, and the wait for records that answer them. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "cli/doctor.h"
#include "cli/progress.h"
#include "client/health.h"
#include "queue/stores.h"

enum {
  ANSWER_MS = 900000, /* a minute since the last one, ten for the test itself, and their records */
  LOOK_MS = 500,
};

typedef struct {
  char *runner_id;
  char request_id[QV_UUID_LEN + 1];
  gint64 asked_ms; /* Unix; 0: not asked */
  gboolean answered;
} Request;

static void request_free(gpointer data)
{
  Request *request = data;
  g_free(request->runner_id);
  g_free(request);
}

/* Signed afresh: a request is good for two minutes, and the runner may have to wait for one. */
static gboolean ask(QuavonClient *client, Request *request, GError **error)
{
  gsize n = 0;
  request->asked_ms = qv_clock_unix_ms();
  g_autofree char *text = qv_smoke_request_sign(client->config->pool, request->runner_id, request->request_id,
                                                request->asked_ms, qv_keyring_current(client->ring), &n, error);
  if (text == NULL)
    return FALSE;
  QvCall call = { 0 };
  qv_smoke_request_put(client->conn, client->prefix, request->runner_id, text, n, QV_CALL_DEADLINE_MS, qv_call_done, &call);
  return qv_session_wait(client, &call, error);
}

static Request *find(const GPtrArray *requests, const char *runner_id)
{
  for (guint i = 0; i < requests->len; i++) {
    Request *request = requests->pdata[i];
    if (strcmp(request->runner_id, runner_id) == 0)
      return request;
  }
  return NULL;
}

/* How many have not answered. */
static guint look(const GPtrArray *requests, const GPtrArray *seen)
{
  guint open = requests->len;
  for (guint i = 0; i < seen->len; i++) {
    const QvRunnerSeen *runner = seen->pdata[i];
    Request *request = runner->health != NULL ? find(requests, runner->runner_id) : NULL;
    const QvSmokeReport *smoke = request != NULL ? runner->health->smoke : NULL;
    if (smoke != NULL && g_strcmp0(smoke->request_id, request->request_id) == 0)
      request->answered = TRUE;
  }
  for (guint i = 0; i < requests->len; i++)
    open -= ((Request *)requests->pdata[i])->answered ? 1 : 0;
  return open;
}

static GPtrArray *make_requests(const GPtrArray *seen)
{
  GPtrArray *requests = g_ptr_array_new_with_free_func(request_free);
  for (guint i = 0; i < seen->len; i++) {
    const QvRunnerSeen *runner = seen->pdata[i];
    if (runner->health == NULL)
      continue; /* what is wrong with it is told by its own codes */
    Request *request = g_new0(Request, 1);
    request->runner_id = g_strdup(runner->runner_id);
    qv_random_uuid(request->request_id);
    g_ptr_array_add(requests, request);
  }
  return requests;
}

static gboolean ask_all(QuavonClient *client, const GPtrArray *requests, GError **error)
{
  gint64 now_ms = qv_clock_unix_ms();
  for (guint i = 0; i < requests->len; i++) {
    Request *request = requests->pdata[i];
    if (!request->answered && now_ms - request->asked_ms > QV_SMOKE_REQUEST_TTL_MS / 2 && !ask(client, request, error))
      return FALSE;
  }
  return TRUE;
}

static gboolean await(QuavonClient *client, const GPtrArray *requests, GError **error)
{
  gint64 until_ms = qv_clock_mono_ms() + ANSWER_MS;
  guint open = requests->len;
  while (open > 0 && !qv_interrupted() && qv_clock_mono_ms() < until_ms) {
    if (!ask_all(client, requests, error))
      return FALSE;
    g_usleep(LOOK_MS * 1000);
    g_autoptr(GPtrArray) seen = qv_session_runners(client, error);
    if (seen == NULL)
      return FALSE;
    open = look(requests, seen);
  }
  return TRUE;
}

gboolean qv_doctor_smoke(QuavonClient *client, GPtrArray *findings, gboolean quiet)
{
  g_autoptr(QvSessionScope) scope G_GNUC_UNUSED = qv_session_enter(client);
  g_autoptr(GError) error = NULL;
  g_autoptr(GPtrArray) seen = qv_session_runners(client, &error);
  g_autoptr(GPtrArray) requests = seen != NULL ? make_requests(seen) : NULL;
  if (requests != NULL && requests->len > 0 && !quiet)
    fprintf(stderr, "quavon: %u runners run the escape smoke test; each may first wait for a minute since its last one\n", requests->len);
  if (requests == NULL || !await(client, requests, &error)) {
    qv_finding_add(findings, "QD957", QV_DOCTOR_FAIL, NULL, "no smoke test can be asked for: %s", error->message);
    return TRUE;
  }
  for (guint i = 0; i < requests->len; i++) {
    const Request *request = requests->pdata[i];
    if (!request->answered && !qv_interrupted())
      qv_finding_add(findings, "QD957", QV_DOCTOR_FAIL, request->runner_id, "it did not answer the request for a smoke test");
  }
  return !qv_interrupted();
}
