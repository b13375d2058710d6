/* SPDX-License-Identifier: Apache-2.0 */
/* Owns QuavonResult and what can be asked of it. */
#include "client/result.h"

#include <stdlib.h>

#include "base/error.h"
#include "format/jcs.h"

QuavonResult *qv_api_result_new(QvTicket *ticket, const char *text, gsize n, GError **error)
{
  g_autoptr(QvResult) verified = qv_result_verify(text, n, ticket->job, ticket->job_sha256, ticket->key, error);
  if (verified == NULL) {
    g_prefix_error(error, "bad_result: ");
    if (error != NULL && *error != NULL)
      (*error)->code = QV_ERROR_AUTH;
    return NULL;
  }
  json_t *body = qv_result_build(verified);
  char *text_out = qv_jcs(body, NULL);
  json_decref(body);
  g_assert(text_out != NULL); /* verified bodies have a canonical form */
  g_autofree char *json = g_strdup(text_out);
  free(text_out);
  QuavonResult *result = g_new0(QuavonResult, 1);
  result->ticket = qv_ticket_ref(ticket);
  result->result = g_steal_pointer(&verified);
  result->json = g_steal_pointer(&json);
  return result;
}

void quavon_result_free(QuavonResult *result)
{
  if (result == NULL)
    return;
  qv_ticket_unref(result->ticket);
  qv_result_free(result->result);
  g_free(result->json);
  g_free(result);
}

QuavonResult *quavon_result_verify(QuavonClient *client, const char *job_id, const char *text, size_t text_len,
                                   QuavonError **error)
{
  g_autoptr(QvSessionScope) scope G_GNUC_UNUSED = qv_session_enter(client);
  GError *cause = NULL;
  g_autoptr(QvTicket) ticket = qv_session_ticket(client, job_id, &cause);
  QuavonResult *result = ticket != NULL ? qv_api_result_new(ticket, text, text_len, &cause) : NULL;
  if (result == NULL)
    qv_api_error_take(error, cause);
  return result;
}

const char *quavon_result_job_id(const QuavonResult *result)
{
  return result->result->job_id;
}

const char *quavon_result_status(const QuavonResult *result)
{
  return qv_status_text(result->result->status);
}

const char *quavon_result_code(const QuavonResult *result)
{
  return qv_code_text(result->result->code);
}

const char *quavon_result_runner_id(const QuavonResult *result)
{
  return result->result->runner_id;
}

const char *quavon_result_backend(const QuavonResult *result)
{
  return result->result->backend;
}

const char *quavon_result_json(const QuavonResult *result)
{
  return result->json;
}

static void record_copy(const QvStepRecord *from, QuavonStepRecord *to)
{
  *to = (QuavonStepRecord){
    .name = from->name,
    .exit_code = from->has_exit_code ? (int)from->exit_code : -1,
    .signal = from->has_signal ? (int)from->signal : 0,
    .timed_out = from->timed_out,
    .duration_ms = from->duration_ms,
    .log_total_bytes = from->log_total_bytes,
    .log_truncated = from->log_truncated,
  };
}

int quavon_result_setup(const QuavonResult *result, QuavonStepRecord *record)
{
  if (!result->result->facts.has_setup)
    return -1;
  record_copy(&result->result->facts.setup, record);
  return 0;
}

size_t quavon_result_steps_n(const QuavonResult *result)
{
  return result->result->facts.steps_n;
}

int quavon_result_step(const QuavonResult *result, size_t i, QuavonStepRecord *record)
{
  if (i >= result->result->facts.steps_n)
    return -1;
  record_copy(&result->result->facts.steps[i], record);
  return 0;
}

size_t quavon_result_artefacts_n(const QuavonResult *result)
{
  return result->result->facts.artefacts_n;
}

int quavon_result_artefact(const QuavonResult *result, size_t i, QuavonArtefact *artefact)
{
  if (i >= result->result->facts.artefacts_n)
    return -1;
  const QvArtefact *from = &result->result->facts.artefacts[i];
  *artefact = (QuavonArtefact){ .path = from->path, .size = from->size, .sha256 = from->sha256 };
  return 0;
}

int64_t quavon_result_artefacts_dropped(const QuavonResult *result)
{
  return result->result->facts.artefacts_dropped;
}

void quavon_result_usage(const QuavonResult *result, QuavonUsage *usage)
{
  *usage = (QuavonUsage){
    .user_ms = result->result->usage.user_ms,
    .sys_ms = result->result->usage.system_ms,
    .max_memory_bytes = result->result->usage.max_memory_bytes,
    .wall_ms = result->result->usage.wall_ms,
    .oom = result->result->usage.oom,
  };
}
