/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/audit.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { JOB_ID_MAX = 128, DETAIL_MAX = 512, HOSTS_MAX = 8 };

typedef enum {
#define QV_AUDIT(name, type, doc) AUDIT_##name,
#include "runner/audit.def"
#undef QV_AUDIT
  AUDIT_N
} AuditField;

static const struct {
  const char *name, *type, *doc;
} table[] = {
#define QV_AUDIT(name, type, doc) {#name, #type, doc},
#include "runner/audit.def"
#undef QV_AUDIT
};

typedef struct {
  QvLogField fields[AUDIT_N];
  GPtrArray *owned; /* of char * */
} Line;

static void take(Line *line, AuditField field, char *value)
{
  g_ptr_array_add(line->owned, value);
  line->fields[field].value = value;
}

static void put(Line *line, AuditField field, const char *value)
{
  line->fields[field].value = value;
}

/* LEAST: less than that is not known. */
static void put_number(Line *line, AuditField field, gint64 value, gint64 least)
{
  if (value >= least)
    take(line, field, g_strdup_printf("%" G_GINT64_FORMAT, value));
}

/* Cut at a character's border. */
static void put_cut(Line *line, AuditField field, const char *value, gsize most)
{
  if (value == NULL)
    return;
  g_autofree char *valid = g_utf8_make_valid(value, -1);
  gsize n = strlen(valid);
  if (n > most)
    n = (gsize)(g_utf8_find_prev_char(valid, valid + most + 1) - valid);
  take(line, field, g_strndup(valid, n));
}

gint64 qv_audit_wait_ms(const QvAudit *audit)
{
  return audit->added_at > 0 && audit->taken_at >= audit->added_at ? audit->taken_at - audit->added_at : -1;
}

static void put_egress(Line *line, const QvAudit *audit)
{
  if (!audit->has_egress)
    return;
  gint64 bytes = 0;
  json_t *hosts = json_array();
  for (gsize i = 0; i < audit->egress_n; i++) {
    const QvEgressUsage *usage = &audit->egress[i];
    bytes += usage->bytes_up + usage->bytes_down;
    if (i < HOSTS_MAX)
      json_array_append_new(hosts, json_pack("{s:s,s:I,s:I,s:I,s:I}", "host", usage->host, "connections",
                                             (json_int_t)usage->connections, "bytesUp", (json_int_t)usage->bytes_up,
                                             "bytesDown", (json_int_t)usage->bytes_down, "refused",
                                             (json_int_t)usage->refused));
  }
  char *text = json_dumps(hosts, JSON_COMPACT);
  json_decref(hosts);
  take(line, AUDIT_egress, g_strdup(text));
  free(text);
  put_number(line, AUDIT_egressBytes, bytes, 0);
}

static void put_job(Line *line, const QvAudit *audit)
{
  const QvJob *job = audit->admission->job;
  put_cut(line, AUDIT_detail, audit->admission->detail, DETAIL_MAX);
  if (audit->admission->key != NULL)
    put(line, AUDIT_keyId, qv_key_id(audit->admission->key));
  if (job == NULL)
    return;
  put(line, AUDIT_jobSha256, audit->admission->job_sha256);
  put(line, AUDIT_tenantId, job->tenant_id);
  put(line, AUDIT_kind, job->kind);
  put(line, AUDIT_image, job->image.name);
  put(line, AUDIT_digest, job->image.digest);
  put_number(line, AUDIT_bytesIn, job->base.size + (job->overlay != NULL ? job->overlay->size : 0), 0);
}

static void fill(Line *line, const QvAudit *audit)
{
  line->owned = g_ptr_array_new_with_free_func(g_free);
  for (guint i = 0; i < AUDIT_N; i++)
    line->fields[i] = (QvLogField){.name = table[i].name, .is_json = strcmp(table[i].type, "TEXT") != 0};
  put(line, AUDIT_event, "job");
  put_cut(line, AUDIT_jobId, audit->job_id, JOB_ID_MAX);
  put(line, AUDIT_pool, audit->pool);
  put(line, AUDIT_runnerId, audit->runner_id);
  put(line, AUDIT_backend, audit->backend);
  put(line, AUDIT_status, audit->status);
  put(line, AUDIT_code, audit->code);
  put_job(line, audit);
  put_number(line, AUDIT_addedAt, audit->added_at, 1);
  put_number(line, AUDIT_startedAt, audit->started_at, 1);
  put_number(line, AUDIT_finishedAt, audit->finished_at, 1);
  put_number(line, AUDIT_waitMs, qv_audit_wait_ms(audit), 0);
  put_number(line, AUDIT_wallMs, audit->wall_ms, 0);
  if (audit->host != NULL) {
    put_number(line, AUDIT_userMs, audit->host->user_ms, 0);
    put_number(line, AUDIT_sysMs, audit->host->sys_ms, 0);
    put_number(line, AUDIT_maxMemoryBytes, audit->host->max_memory_bytes, 0);
    put(line, AUDIT_oom, audit->host->oom ? "true" : "false");
    put_number(line, AUDIT_bytesOut, audit->host->payload_bytes, 0);
  }
  put_egress(line, audit);
}

void qv_audit_log(const QvAudit *audit)
{
  Line line;
  fill(&line, audit);
  qv_log_record(QV_AUDIT_MESSAGE, line.fields, AUDIT_N);
  g_ptr_array_unref(line.owned);
}

char *qv_audit_format(const QvAudit *audit)
{
  Line line;
  fill(&line, audit);
  char *text = qv_log_format_record(TRUE, "quavon-sandbox-runner", audit->finished_at, QV_AUDIT_MESSAGE, line.fields, AUDIT_N);
  g_ptr_array_unref(line.owned);
  return text;
}

char *qv_audit_table(void)
{
  GString *out = g_string_new("| field | type | meaning |\n| --- | --- | --- |\n");
  for (guint i = 0; i < AUDIT_N; i++) {
    g_autofree char *type = g_ascii_strdown(table[i].type, -1);
    g_string_append_printf(out, "| `%s` | %s | %s |\n", table[i].name, type, table[i].doc);
  }
  return g_string_free(out, FALSE);
}
