/* SPDX-License-Identifier: Apache-2.0 */
/* Owns QD950 and the findings on Valkey. */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/doctor.h"

enum { BLOB_MIB_BYTES = 1048576, CLOCK_APART_MS = 5000 };

QuavonClient *qv_doctor_open(GPtrArray *findings, const QvConfig *config)
{
  QuavonError *error = NULL;
  QuavonClient *client = quavon_client_open(NULL, &error);
  if (client != NULL) {
    qv_finding_add(findings, "QD950", QV_DOCTOR_OK, NULL, "key %s, Valkey at %s, pool %s",
                   qv_key_id(qv_keyring_current(client->ring)), qv_address_display(client->address), config->pool);
    return client;
  }
  qv_finding_add(findings, "QD950", QV_DOCTOR_FAIL, NULL, "%s", quavon_error_message(error));
  if (quavon_error_code(error) == QUAVON_ERROR_UNAVAILABLE)
    qv_finding_remedy(findings, "systemctl status valkey-server (Compose: docker logs quavon-valkey-1); VALKEY_URL names user, password and address");
  else if (config->signing_key_file != NULL && config->valkey_url != NULL)
    qv_finding_remedy(findings, "quavon keygen makes a key; chmod 600 %s", config->signing_key_file);
  quavon_error_free(error);
  return NULL;
}

typedef struct {
  QvCall call;
  char *text;
} TextCall;

static void on_text(const QvReply *reply, const GError *error, gpointer user)
{
  TextCall *text = user;
  text->text = reply != NULL ? g_strdup(qv_reply_text(reply)) : NULL;
  qv_call_finish(&text->call, error);
}

void qv_doctor_worker(GPtrArray *findings, QuavonClient *client)
{
  g_autoptr(QvSessionScope) scope G_GNUC_UNUSED = qv_session_enter(client);
  g_autoptr(GError) error = NULL;
  TextCall get = { 0 };
  qv_conn_sendl(client->conn, QV_SEND_AGAIN, QV_CALL_DEADLINE_MS, on_text, &get, "GET", "quavon:doctor-may-not-read-this", NULL);
  gboolean answered = qv_session_wait(client, &get.call, &error);
  g_free(get.text);
  gboolean development = strcmp(client->config->environment, "development") == 0;
  if (!answered && g_error_matches(error, QV_ERROR, QV_ERROR_AUTH)) {
    qv_finding_add(findings, "QD950", QV_DOCTOR_OK, NULL, "our Valkey user may not read a foreign key");
  } else if (!answered) {
    qv_finding_add(findings, "QD950", QV_DOCTOR_FAIL, NULL, "Valkey: %s", error->message);
  } else {
    qv_finding_add(findings, "QD950", development ? QV_DOCTOR_WARN : QV_DOCTOR_FAIL, NULL,
                   "our Valkey user may read keys that are not the sandbox's");
    qv_finding_remedy(findings, "load deploy/valkey/users.acl (valkey-cli ACL LOAD) and use its user `worker` in VALKEY_URL");
  }
}

/* ── Valkey ── */

/* The value of a line "name:value" of INFO; NULL where there is none. Free with g_free. */
static char *info_text(const char *info, const char *name)
{
  g_autofree char *start = g_strconcat("\n", name, ":", NULL);
  const char *at = strstr(info, start);
  if (at == NULL)
    return NULL;
  at += strlen(start);
  return g_strndup(at, strcspn(at, "\r\n"));
}

static gint64 info_number(const char *info, const char *name)
{
  g_autofree char *text = info_text(info, name);
  return text != NULL ? g_ascii_strtoll(text, NULL, 10) : -1;
}

static void check_version(GPtrArray *findings, const char *info)
{
  g_autofree char *valkey = info_text(info, "valkey_version"), *redis = info_text(info, "redis_version");
  const char *version = valkey != NULL ? valkey : redis != NULL ? redis : "0";
  gint64 major = g_ascii_strtoll(version, NULL, 10);
  qv_finding_add(findings, "valkey-version", major >= 7 ? QV_DOCTOR_OK : QV_DOCTOR_WARN, NULL, "%s %s",
                 valkey != NULL ? "Valkey" : "Redis", version);
}

static void check_persistence(GPtrArray *findings, const char *info)
{
  gboolean aof = info_number(info, "aof_enabled") == 1;
  qv_finding_add(findings, "valkey-persistence", QV_DOCTOR_OK, NULL, "%s",
                 aof ? "append-only file: jobs outlive a restart of Valkey (so do sealed snapshots, on its disk, for 15 minutes)"
                     : "no append-only file: after a restart of Valkey waiting jobs are recorded as lost");
}

static void check_memory(GPtrArray *findings, const char *info, gint64 waiting, gint64 running_max, gint64 max_blob_mib)
{
  gint64 most = info_number(info, "maxmemory"), used = info_number(info, "used_memory");
  if (most <= 0)
    most = info_number(info, "total_system_memory");
  gint64 left_mib = MAX(most - used, 0) / BLOB_MIB_BYTES;
  gint64 need_mib = (waiting + running_max + 1) * max_blob_mib;
  qv_finding_add(findings, "valkey-memory", left_mib >= need_mib ? QV_DOCTOR_OK : QV_DOCTOR_WARN, NULL,
                 "%" G_GINT64_FORMAT " MiB left; %" G_GINT64_FORMAT " waiting, %" G_GINT64_FORMAT
                 " running and the next job may need %" G_GINT64_FORMAT " MiB (QUAVON_SANDBOX_MAX_BLOB_MIB=%" G_GINT64_FORMAT " each)",
                 left_mib, waiting, running_max, need_mib, max_blob_mib);
}

void qv_doctor_valkey_info(GPtrArray *findings, const char *info, gint64 waiting, gint64 running_max, gint64 max_blob_mib,
                           gint64 now_ms, gint64 trip_ms)
{
  check_version(findings, info);
  check_persistence(findings, info);
  g_autofree char *policy = info_text(info, "maxmemory_policy");
  gint64 evicted = info_number(info, "evicted_keys");
  gboolean keeps = g_strcmp0(policy, "noeviction") == 0;
  qv_finding_add(findings, "valkey-eviction", keeps ? QV_DOCTOR_OK : QV_DOCTOR_FAIL, NULL,
                 "maxmemory-policy %s, %" G_GINT64_FORMAT " keys evicted so far%s", policy != NULL ? policy : "unknown", MAX(evicted, 0),
                 keeps ? "" : ": locks, jobs and snapshots are what it evicts");
  check_memory(findings, info, waiting, running_max, max_blob_mib);
  gint64 theirs_us = info_number(info, "server_time_usec");
  if (theirs_us < 0)
    return;
  gint64 ahead_ms = theirs_us / 1000 - (now_ms - trip_ms / 2);
  gboolean apart = ABS(ahead_ms) > CLOCK_APART_MS + trip_ms;
  qv_finding_add(findings, "valkey-clock", apart ? QV_DOCTOR_WARN : QV_DOCTOR_OK, NULL, "%" G_GINT64_FORMAT " s %s this host's",
                 (ABS(ahead_ms) + 500) / 1000, ahead_ms >= 0 ? "ahead of" : "behind");
}

void qv_doctor_valkey(GPtrArray *findings, QuavonClient *client, gint64 running_max)
{
  g_autoptr(QvSessionScope) scope G_GNUC_UNUSED = qv_session_enter(client);
  g_autoptr(GError) error = NULL;
  TextCall info = { 0 };
  gint64 count = 0;
  gboolean answered = qv_session_count(client, &count, &error);
  gint64 asked_ms = qv_clock_mono_ms();
  if (answered) {
    qv_conn_sendl(client->conn, QV_SEND_AGAIN, QV_CALL_DEADLINE_MS, on_text, &info, "INFO", NULL);
    answered = qv_session_wait(client, &info.call, &error);
  }
  g_autofree char *text = info.text;
  if (!answered || text == NULL) {
    qv_finding_add(findings, "valkey-version", QV_DOCTOR_WARN, NULL, "Valkey does not tell of itself: %s",
                   error != NULL ? error->message : "no answer");
    qv_finding_remedy(findings, "our user needs the command INFO: load deploy/valkey/users.acl");
    return;
  }
  qv_doctor_valkey_info(findings, text, count, running_max, client->config->max_blob_mib, qv_clock_unix_ms(),
                        qv_clock_mono_ms() - asked_ms);
}
