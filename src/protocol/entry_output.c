/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the runner's reading of an entry's stdout: what member may come next,
 * how large it may be, what it may say, and the code over the stream. The tar
 * itself is format/tar.h's.
 *
 *   SETUP_RECORD > SETUP_LOG > STEP_RECORD(0) > STEP_LOG(0) > … > ARTEFACTS > END > DONE
 *
 * One member name is legal at a time, or one of a few: a record, an artefact, or exit.json. A
 * live member is legal where the record of a step is due: then that step runs.
 *
 * The code covers every byte before exit.json's header: the reader's tap stops there. Nothing that is given
 * out before DONE is more than a claim. Source: section 5. */
#include "protocol/entry_output.h"

#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/error.h"
#include "base/sha256.h"
#include "format/error.h"
#include "format/glob.h"
#include "format/jcs.h"
#include "format/tar.h"
#include "format/text.h"
#include "protocol/crypto.h"
#include "protocol/fields.h"
#include "protocol/record_internal.h"

#define ARTEFACT_PREFIX "artefacts/"
enum { ARTEFACT_PREFIX_N = sizeof ARTEFACT_PREFIX - 1 };

typedef enum { DUE_RECORD, DUE_LOG, DUE_ARTEFACT, DUE_END, DUE_NOTHING } Due;
typedef enum { MEMBER_RECORD, MEMBER_LOG, MEMBER_ARTEFACT, MEMBER_LIVE, MEMBER_EXIT } Member;

struct QvEntryOutput {
  QvEntryOutputSpec spec;
  QvEntryOutputSink sink;
  void *user;
  char *setup_name;
  char **step_names;
  gboolean *continue_on_failure;
  GPtrArray *globs;

  QvTarReader tar;
  QvDigest *mac;
  QvEntryFacts *facts;
  QvEntryOutputVerdict verdict;

  Due due;
  gssize step;      /* of DUE_RECORD and DUE_LOG; -1 is setup */
  gboolean stopped; /* a failed step ended the run */
  gboolean exit_seen;
  guint members_n;

  Member member;      /* the open one */
  GByteArray *held;   /* its bytes, where it is read as a whole */
  QvDigest *artefact; /* its digest */
  gint64 artefact_bytes;
  gint64 live_bytes;
  guint live_n;
};

static gboolean breach(GError **error, const char *member, const char *text)
{
  g_autofree char *shown = g_strndup(member, 200);
  char *printable = qv_text_printable_line(shown, strlen(shown));
  g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "the entry's output: %s: %s", printable, text);
  free(printable);
  return FALSE;
}

static void hear(void *user, const guint8 *bytes, gsize n)
{
  qv_digest_update(((QvEntryOutput *)user)->mac, bytes, n);
}

QvEntryOutput *qv_entry_output_new(const QvEntryOutputSpec *spec, const QvEntryOutputSink *sink, void *user)
{
  g_assert(spec->steps_n <= QV_JOB_STEPS_MAX);
  QvEntryOutput *output = g_new0(QvEntryOutput, 1);
  /* jansson opens a file for its first object's seed: now, before a process that shuts itself in feeds bytes. */
  json_object_seed(0);
  output->spec = *spec;
  output->sink = *sink;
  output->user = user;
  output->setup_name = g_strdup(spec->setup_name);
  output->step_names = g_new0(char *, spec->steps_n + 1);
  output->continue_on_failure = g_memdup2(spec->continue_on_failure, spec->steps_n * sizeof(gboolean));
  for (gsize i = 0; i < spec->steps_n; i++)
    output->step_names[i] = g_strdup(spec->step_names[i]);
  output->globs = g_ptr_array_new_with_free_func((GDestroyNotify)qv_glob_free);
  for (gsize i = 0; spec->artefact_globs != NULL && spec->artefact_globs[i] != NULL; i++) {
    QvGlob *glob = qv_glob_new(spec->artefact_globs[i], strlen(spec->artefact_globs[i]));
    if (glob != NULL)
      g_ptr_array_add(output->globs, glob);
  }
  guint64 largest = (guint64)MAX(MAX(spec->log_bytes, spec->artefact_bytes), (gint64)QV_RECORD_JSON_BYTES_MAX);
  guint64 entries = 2 * (spec->steps_n + 1) + (guint64)spec->artefact_count + 1 + (spec->live ? QV_LIVE_MEMBERS_MAX : 0);
  guint64 total = (spec->steps_n + 2) * ((guint64)spec->log_bytes + QV_RECORD_JSON_BYTES_MAX) +
                  (guint64)spec->artefact_bytes + QV_LIVE_ALL_BYTES_MAX +
                  entries * (QV_TAR_HEADER_BYTES_MAX + QV_TAR_BLOCK_BYTES) + QV_TAR_END_BYTES;
  const QvTarCaps caps = { .entries_max = entries, .total_bytes_max = total, .file_bytes_max = largest,
                           .portable = true };
  qv_tar_reader_init(&output->tar, &caps);
  output->mac = qv_digest_new_hmac(spec->stream_key, QV_STREAM_KEY_BYTES);
  output->tar.tap = hear;
  output->tar.tap_user = output;
  output->spec.stream_key = NULL;
  output->facts = qv_entry_facts_new();
  output->facts->steps = g_new0(QvStepRecord, spec->steps_n + 1);
  output->facts->artefacts = g_new0(QvArtefact, (gsize)spec->artefact_count + 1);
  output->held = g_byte_array_new();
  output->step = spec->setup_name != NULL ? -1 : 0;
  return output;
}

void qv_entry_output_free(QvEntryOutput *output)
{
  if (output == NULL)
    return;
  g_free(output->setup_name);
  g_strfreev(output->step_names);
  g_free(output->continue_on_failure);
  g_ptr_array_unref(output->globs);
  qv_tar_reader_clear(&output->tar);
  qv_digest_free(output->mac);
  qv_entry_facts_free(output->facts);
  g_byte_array_unref(output->held);
  qv_digest_free(output->artefact);
  g_free(output);
}

/* ---- what may come next ---- */

/* Is PATH the record or log of the step that is due? */
static gboolean is_step_member(const QvEntryOutput *output, const char *path, const char *setup, const char *format)
{
  char want[32];
  if (output->step < 0)
    return strcmp(path, setup) == 0;
  if ((gsize)output->step >= output->spec.steps_n)
    return FALSE;
  g_snprintf(want, sizeof want, format[0] == 's' ? "steps/%d.json" : "logs/%d.log", (int)output->step);
  return strcmp(path, want) == 0;
}

static gboolean begin_live(QvEntryOutput *output, const QvTarEntry *entry, GError **error)
{
  char want[40];
  if (output->step < 0)
    g_snprintf(want, sizeof want, "live/setup.%u", output->live_n);
  else
    g_snprintf(want, sizeof want, "live/%d.%u", (int)output->step, output->live_n);
  if (strcmp(entry->path, want) != 0 || (output->step >= 0 && (gsize)output->step >= output->spec.steps_n))
    return breach(error, entry->path, "is not the live member that may come here");
  if (entry->size > QV_LIVE_BYTES_MAX || output->live_n == QV_LIVE_MEMBERS_MAX ||
      output->live_bytes + (gint64)entry->size > QV_LIVE_ALL_BYTES_MAX)
    return breach(error, entry->path, "is over the cap of live members");
  output->live_n++;
  output->live_bytes += (gint64)entry->size;
  output->member = MEMBER_LIVE;
  return TRUE;
}

static gboolean is_asked_for(const QvEntryOutput *output, const char *path)
{
  for (guint i = 0; i < output->globs->len; i++)
    if (qv_glob_match(output->globs->pdata[i], path, strlen(path)))
      return TRUE;
  return FALSE;
}

gboolean qv_artefact_path_valid(const char *path)
{
  gsize n = strlen(path);
  return n + ARTEFACT_PREFIX_N <= QV_PATH_BYTES_MAX && qv_tar_path_check(path, n, true) == QV_TAR_OK;
}

static gboolean begin_artefact(QvEntryOutput *output, const QvTarEntry *entry, GError **error)
{
  QvEntryFacts *facts = output->facts;
  const char *path = entry->path + ARTEFACT_PREFIX_N;
  if (facts->artefacts_n == (gsize)output->spec.artefact_count)
    return breach(error, entry->path, "is one artefact more than artefactCount");
  if (entry->size > (guint64)(output->spec.artefact_bytes - output->artefact_bytes))
    return breach(error, entry->path, "takes the artefacts over artefactBytes");
  if (!qv_artefact_path_valid(path))
    return breach(error, entry->path, "is no path that may leave the sandbox");
  if (!is_asked_for(output, path))
    return breach(error, entry->path, "is no artefact that the job asked for");
  if (facts->artefacts_n > 0 && strcmp(facts->artefacts[facts->artefacts_n - 1].path, path) >= 0)
    return breach(error, entry->path, "is not behind the artefact before it in path order");
  QvArtefact *artefact = &facts->artefacts[facts->artefacts_n++];
  artefact->path = g_strdup(path);
  artefact->size = (gint64)entry->size;
  output->artefact_bytes += artefact->size;
  output->artefact = qv_digest_new_sha256();
  output->member = MEMBER_ARTEFACT;
  if (output->sink.artefact_begin != NULL)
    output->sink.artefact_begin(output->user, path, artefact->size, entry->executable);
  return TRUE;
}

static gboolean begin_json(QvEntryOutput *output, const QvTarEntry *entry, Member member, GError **error)
{
  if (entry->size > QV_RECORD_JSON_BYTES_MAX)
    return breach(error, entry->path, "is longer than a record may be");
  output->member = member;
  return TRUE;
}

static gboolean begin_log(QvEntryOutput *output, const QvTarEntry *entry, GError **error)
{
  const QvStepRecord *record = output->step < 0 ? &output->facts->setup : &output->facts->steps[output->step];
  gint64 size = (gint64)entry->size;
  if (size > output->spec.log_bytes)
    return breach(error, entry->path, "is longer than logBytes");
  if (record->log_truncated ? size >= record->log_total_bytes : size != record->log_total_bytes)
    return breach(error, entry->path, "contradicts its record");
  output->member = MEMBER_LOG;
  return TRUE;
}

static gboolean begin_exit(QvEntryOutput *output, const QvTarEntry *entry, GError **error)
{
  if (!begin_json(output, entry, MEMBER_EXIT, error))
    return FALSE;
  output->tar.tap = NULL;
  return TRUE;
}

static gboolean begin(QvEntryOutput *output, const QvTarEntry *entry, GError **error)
{
  const char *path = entry->path;
  g_byte_array_set_size(output->held, 0);
  switch (output->due) {
  case DUE_LOG:
    if (is_step_member(output, path, "logs/setup.log", "logs"))
      return begin_log(output, entry, error);
    break;
  case DUE_RECORD:
    if (!output->stopped && is_step_member(output, path, "setup.json", "steps"))
      return begin_json(output, entry, MEMBER_RECORD, error);
    if (!output->stopped && output->spec.live && g_str_has_prefix(path, "live/"))
      return begin_live(output, entry, error);
    G_GNUC_FALLTHROUGH;
  case DUE_ARTEFACT:
    if (g_str_has_prefix(path, ARTEFACT_PREFIX)) {
      output->due = DUE_ARTEFACT;
      return begin_artefact(output, entry, error);
    }
    if (strcmp(path, "exit.json") == 0)
      return begin_exit(output, entry, error);
    break;
  case DUE_END:
  case DUE_NOTHING:
    break;
  }
  return breach(error, path, "is not the member that may come here");
}

/* ---- what a whole member says ---- */

static json_t *load(const QvEntryOutput *output, const char *what, GError **error)
{
  return qv_json_load(output->held->data, output->held->len, QV_RECORD_JSON_BYTES_MAX, QV_JSON_SIGNED, what, error);
}

static gboolean end_record(QvEntryOutput *output, GError **error)
{
  gboolean is_setup = output->step < 0;
  QvEntryFacts *facts = output->facts;
  QvStepRecord record = { 0 };
  json_t *json = load(output, output->tar.entry.path, error);
  if (json == NULL)
    return FALSE;
  gboolean good = qv_step_record_parse(json, &record, error);
  json_decref(json);
  if (!good) {
    g_prefix_error(error, "%s: ", output->tar.entry.path);
    return FALSE;
  }
  *(is_setup ? &facts->setup : &facts->steps[facts->steps_n]) = record;
  facts->has_setup |= is_setup;
  facts->steps_n += !is_setup;
  const QvStepRecord *before = is_setup || output->step == 0 ? &facts->setup : &facts->steps[output->step - 1];
  if (strcmp(record.name, is_setup ? output->setup_name : output->step_names[output->step]) != 0)
    return breach(error, output->tar.entry.path, "has another step's name");
  if (!is_setup && record.started_ms < before->started_ms)
    return breach(error, output->tar.entry.path, "started before the step before it");
  gboolean goes_on = !is_setup && output->continue_on_failure[output->step];
  output->stopped = !qv_step_record_ok(&record) && !goes_on;
  output->due = DUE_LOG;
  if (output->sink.record != NULL)
    output->sink.record(output->user, output->step, &record);
  return TRUE;
}

static gboolean end_log(QvEntryOutput *output, GError **error)
{
  QvStepRecord *record = output->step < 0 ? &output->facts->setup : &output->facts->steps[output->step];
  gsize cap = (gsize)output->spec.log_bytes;
  gsize n = 0;
  char *text = qv_text_repair_tail(output->held->data, output->held->len, G_MAXSIZE, record->log_truncated, &n);
  if (n > cap) {
    /* Replacements are longer than what they replace. */
    free(text);
    text = qv_text_repair_tail(output->held->data, output->held->len, cap, record->log_truncated, &n);
    record->log_truncated = TRUE;
  }
  if (text == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_LIMIT, "out of memory for a log");
    return FALSE;
  }
  if (output->sink.log != NULL)
    output->sink.log(output->user, output->step, text, n);
  free(text);
  output->due = DUE_RECORD;
  output->step++;
  return TRUE;
}

static void end_artefact(QvEntryOutput *output)
{
  qv_digest_final_hex(output->artefact, output->facts->artefacts[output->facts->artefacts_n - 1].sha256);
  g_clear_pointer(&output->artefact, qv_digest_free);
  if (output->sink.artefact_end != NULL)
    output->sink.artefact_end(output->user);
}

/* The code over the stream and the text of exit.json without it. */
static gboolean mac_is_right(QvEntryOutput *output, json_t *json, const guint8 *claimed)
{
  guint8 want[QV_SIG_BYTES];
  gsize n = 0;
  json_object_del(json, "mac");
  char *canonical = qv_jcs(json, &n);
  if (canonical == NULL)
    return FALSE;
  qv_digest_update(output->mac, canonical, n);
  qv_digest_final(output->mac, want);
  free(canonical);
  return qv_equal_ct(want, claimed, QV_SIG_BYTES);
}

/* The records against each other: what ran is what had to run. */
static gboolean exit_fits(const QvEntryOutput *output, GError **error)
{
  const QvEntryFacts *facts = output->facts;
  if (!qv_facts_status_valid(facts->refused, facts->code))
    return breach(error, "exit.json", "status and code do not go together");
  if (facts->refused && (output->members_n > 0 || output->live_n > 0 || facts->artefacts_dropped > 0))
    return breach(error, "exit.json", "says refused, and yet something ran");
  gboolean all_ran = output->stopped || (gsize)MAX(output->step, 0) == output->spec.steps_n;
  if (!facts->refused && (output->step < 0 || !all_ran))
    return breach(error, "exit.json", "says done, and yet a step is missing");
  return TRUE;
}

static gboolean read_exit(QvEntryOutput *output, json_t *json, GError **error)
{
  static const QvJsonMember table[] = {
    { "v", QV_JSON_INTEGER },
    { "status", QV_JSON_STRING },
    { "code", QV_JSON_STRING | QV_JSON_NULL },
    { "artefactsDropped", QV_JSON_INTEGER },
    { "forkFailed", QV_JSON_BOOL },
    { "mac", QV_JSON_STRING },
  };
  QvEntryFacts *facts = output->facts;
  guint8 mac[QV_SIG_BYTES];
  gint64 version = 0;
  if (!qv_fields_shape(json, "", table, G_N_ELEMENTS(table), error) ||
      !qv_field_integer(json, "", "v", 1, 1, &version, error) ||
      !qv_field_bytes(json, "", "mac", mac, sizeof mac, error) ||
      !qv_field_integer(json, "", "artefactsDropped", 0, QV_JSON_INTEGER_MAX, &facts->artefacts_dropped, error))
    return FALSE;
  g_autofree char *status = qv_field_text(json, "", "status", NULL, error);
  if (status == NULL)
    return FALSE;
  facts->refused = strcmp(status, "refused") == 0;
  if (!facts->refused && strcmp(status, "done") != 0)
    return qv_fields_fail(error, "status", "is not known");
  facts->fork_failed = qv_field_bool(json, "forkFailed");
  if (!qv_field_is_null(json, "code") && (facts->code = qv_field_text(json, "", "code", NULL, error)) == NULL)
    return FALSE;
  if (!mac_is_right(output, json, mac))
    return breach(error, "exit.json", "the code over the stream is wrong: somebody else wrote to it");
  return exit_fits(output, error);
}

static gboolean end_exit(QvEntryOutput *output, GError **error)
{
  json_t *json = load(output, "exit.json", error);
  if (json == NULL)
    return FALSE;
  gboolean good = read_exit(output, json, error);
  json_decref(json);
  if (!good)
    return FALSE;
  output->exit_seen = TRUE;
  output->due = DUE_END;
  return TRUE;
}

static gboolean end_member(QvEntryOutput *output, GError **error)
{
  output->members_n += output->member != MEMBER_LIVE && output->member != MEMBER_EXIT;
  switch (output->member) {
  case MEMBER_RECORD:
    return end_record(output, error);
  case MEMBER_LOG:
    return end_log(output, error);
  case MEMBER_ARTEFACT:
    end_artefact(output);
    return TRUE;
  case MEMBER_LIVE:
    if (output->sink.live != NULL)
      output->sink.live(output->user, output->step, output->held->data, output->held->len);
    return TRUE;
  case MEMBER_EXIT:
    return end_exit(output, error);
  }
  return FALSE;
}

static void take_bytes(QvEntryOutput *output)
{
  const QvTarReader *tar = &output->tar;
  if (output->member != MEMBER_ARTEFACT) {
    g_byte_array_append(output->held, tar->data, (guint)tar->data_n);
    return;
  }
  qv_digest_update(output->artefact, tar->data, tar->data_n);
  if (output->sink.artefact_bytes != NULL)
    output->sink.artefact_bytes(output->user, tar->data, tar->data_n);
}

static gboolean end_stream(QvEntryOutput *output, GError **error)
{
  if (output->due != DUE_END)
    return breach(error, "end", "comes before exit.json");
  output->due = DUE_NOTHING;
  output->verdict = QV_ENTRY_OUTPUT_DONE;
  return TRUE;
}

/* Reads on until the portion is used up: FALSE on a breach. */
static gboolean feed(QvEntryOutput *output, const guint8 *bytes, gsize n, GError **error)
{
  for (;;) {
    gboolean good = TRUE;
    switch (qv_tar_reader_step(&output->tar, &bytes, &n)) {
    case QV_TAR_MORE:
      return TRUE;
    case QV_TAR_ENTRY:
      good = begin(output, &output->tar.entry, error);
      break;
    case QV_TAR_DATA:
      take_bytes(output);
      break;
    case QV_TAR_ENTRY_END:
      good = end_member(output, error);
      break;
    case QV_TAR_END:
      good = end_stream(output, error);
      break;
    case QV_TAR_BAD:
      return qv_tar_set_error(error, output->tar.reason, "the entry's output", NULL);
    }
    if (!good)
      return FALSE;
  }
}

QvEntryOutputVerdict qv_entry_output_feed(QvEntryOutput *output, const guint8 *bytes, gsize n, GError **error)
{
  if (output->verdict == QV_ENTRY_OUTPUT_BAD) {
    breach(error, "stream", "was bad before");
    return QV_ENTRY_OUTPUT_BAD;
  }
  if (!feed(output, bytes, n, error))
    output->verdict = QV_ENTRY_OUTPUT_BAD;
  return output->verdict;
}

const QvEntryFacts *qv_entry_output_facts(const QvEntryOutput *output)
{
  return output->verdict == QV_ENTRY_OUTPUT_DONE ? output->facts : NULL;
}

guint qv_entry_output_members_n(const QvEntryOutput *output)
{
  return output->members_n;
}

gboolean qv_entry_output_exit_seen(const QvEntryOutput *output)
{
  return output->exit_seen;
}
