/* SPDX-License-Identifier: Apache-2.0 */
/* Owns a job process and the chunks on their way. Replies of Valkey may come in another
 * order than the questions (one was asked again): chunks wait in their slot. */
#include "runner/job_link.h"

#include <signal.h>
#include <string.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "queue/stores.h"
#include "runner/channel.h"
#include "runner/reap.h"
#include "runner/spawn.h"

enum {
  WINDOW = QV_CHUNKS_IN_MEMORY_MAX,
  LIVE_WINDOW = 4,         /* live chunks under way; one more is dropped: Valkey is slow, the job is not */
  LIVE_DEADLINE_MS = 5000,
};

/* Where the owner listens. */
#define TELL(link, event, ...) \
  do { \
    if ((link)->events.event != NULL) \
      (link)->events.event(__VA_ARGS__); \
  } while (0)

typedef struct {
  QvJobLink *link;
  guint64 command; /* for qv_conn_cancel; 0: not under way */
  gint64 index;
  GBytes *bytes;   /* fetched, waiting for its turn */
} Slot;

struct QvJobLink {
  QvConn *conn;
  QvStarter *starter;
  char *prefix;
  char job_id[QV_JOB_ID_BYTES + 1]; /* empty: no job yet */
  gint64 base_chunks, overlay_chunks;
  GPid pid;
  guint child;
  QvChannel *channel;   /* NULL once it ended */
  gboolean talking;     /* a callback of the channel runs */
  /* input */
  gint64 asked, sent;   /* chunks */
  guint32 credits;
  gint64 credited; /* chunks that the job process has used up */
  gboolean input_closed;
  Slot in[WINDOW];
  /* payload */
  QvHostReport host;
  gboolean has_host, reported, storing, discarding;
  gint64 payload_chunks, payload_got, payload_stored;
  Slot out[WINDOW];
  /* live logs: best effort */
  guint live_n, live_dropped;
  guint64 live[LIVE_WINDOW]; /* commands; 0: free */
  QvJobLinkEvents events;
  gpointer data;
};

/* ---- input: Valkey to job process */

static void ask_chunks(QvJobLink *link);

static void close_input(QvJobLink *link)
{
  link->input_closed = TRUE;
  for (int i = 0; i < WINDOW; i++) {
    if (link->in[i].command != 0)
      qv_conn_cancel(link->conn, link->in[i].command);
    link->in[i].command = 0;
    g_clear_pointer(&link->in[i].bytes, g_bytes_unref);
  }
}

static void send_ready(QvJobLink *link)
{
  for (;;) {
    Slot *slot = &link->in[link->sent % WINDOW];
    if (slot->bytes == NULL || slot->index != link->sent || link->channel == NULL)
      return;
    gboolean overlay = slot->index >= link->base_chunks;
    guint32 head[2] = {overlay, overlay ? slot->index - link->base_chunks : slot->index};
    qv_channel_send(link->channel, QV_IPC_CHUNK, head, sizeof head, slot->bytes);
    g_clear_pointer(&slot->bytes, g_bytes_unref);
    link->sent++;
  }
}

static void on_chunk(GBytes *bytes, const GError *error, gpointer user)
{
  Slot *slot = user;
  QvJobLink *link = slot->link;
  slot->command = 0;
  if (link->input_closed)
    return;
  if (bytes == NULL) {
    g_autofree char *text = g_strdup_printf("chunk %" G_GINT64_FORMAT " of the input: %s", slot->index,
                                            error != NULL ? error->message : "there is no such key");
    close_input(link);
    TELL(link, trouble, "blob_missing", text, link->data);
    return;
  }
  if (g_bytes_get_size(bytes) > QV_CHUNK_MAX_BYTES) {
    close_input(link);
    TELL(link, trouble, "blob_corrupt", "a chunk of the input is too long", link->data);
    return;
  }
  slot->bytes = g_bytes_ref(bytes);
  send_ready(link);
}

static void ask_chunks(QvJobLink *link)
{
  char blob_id[QV_BLOB_ID_CAP];
  while (!link->input_closed && link->credits > 0 && link->asked < link->base_chunks + link->overlay_chunks) {
    Slot *slot = &link->in[link->asked % WINDOW];
    gboolean overlay = link->asked >= link->base_chunks;
    slot->index = link->asked++;
    link->credits--;
    qv_blob_id_format(link->job_id, overlay ? "overlay" : "base", blob_id);
    slot->command = qv_blob_get(link->conn, link->prefix, blob_id,
                                overlay ? slot->index - link->base_chunks : slot->index, 0, on_chunk, slot);
  }
}

/* ---- payload: job process to Valkey */

static void store_progress(QvJobLink *link)
{
  if (link->payload_got == link->payload_chunks && link->payload_stored == link->payload_chunks)
    TELL(link, stored, link->data);
}

static void on_stored(const GError *error, gpointer user)
{
  Slot *slot = user;
  QvJobLink *link = slot->link;
  slot->command = 0;
  if (!link->storing)
    return;
  if (error != NULL) {
    link->storing = FALSE;
    TELL(link, store_failed, error->message, link->data);
    return;
  }
  link->payload_stored++;
  if (link->channel != NULL)
    qv_channel_send_u32(link->channel, QV_IPC_GRANT, 1);
  store_progress(link);
}

static gboolean on_payload(QvJobLink *link, const guint8 *payload, gsize n, GError **error)
{
  Slot *slot = NULL;
  if (link->discarding) /* sent before it heard of that */
    return TRUE;
  for (int i = 0; i < WINDOW && slot == NULL; i++) {
    if (link->out[i].command == 0)
      slot = &link->out[i];
  }
  if (!link->storing || n <= 8 || slot == NULL || qv_ipc_u32(payload) != link->payload_got ||
      link->payload_got >= link->payload_chunks) {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "a payload chunk comes at the wrong time");
    return FALSE;
  }
  char blob_id[QV_BLOB_ID_CAP];
  qv_blob_id_format(link->job_id, "result", blob_id);
  g_autoptr(GBytes) bytes = g_bytes_new(payload + 8, n - 8);
  slot->command = qv_blob_put(link->conn, link->prefix, blob_id, link->payload_got, bytes, QV_PAYLOAD_TTL_MS, 0,
                              on_stored, slot);
  if (++link->payload_got == link->payload_chunks)
    TELL(link, received, link->data);
  return TRUE;
}

void qv_job_link_store(QvJobLink *link)
{
  link->storing = TRUE;
  if (link->payload_chunks == 0) {
    TELL(link, received, link->data);
    TELL(link, stored, link->data);
  }
}

/* ---- live logs */

typedef struct {
  QvJobLink *link;
  guint slot;
} Live;

static void on_live_stored(const GError *error, gpointer user)
{
  Live *live = user;
  live->link->live[live->slot] = 0;
  live->link->live_dropped += error != NULL;
}

static gboolean on_live(QvJobLink *link, const guint8 *payload, gsize n)
{
  if (n < 4 + QV_CHUNK_IV_BYTES + QV_CHUNK_TAG_BYTES || qv_ipc_u32(payload) < link->live_n ||
      qv_ipc_u32(payload) >= QV_LIVE_MEMBERS_MAX)
    return FALSE;
  guint32 i = qv_ipc_u32(payload);
  guint slot = 0;
  while (slot < LIVE_WINDOW && link->live[slot] != 0)
    slot++;
  link->live_dropped += i - link->live_n; /* by the job process */
  link->live_n = i + 1;
  if (slot == LIVE_WINDOW || qv_conn_state(link->conn) != QV_CONN_UP) {
    link->live_dropped++;
    return TRUE;
  }
  g_autoptr(GBytes) bytes = g_bytes_new(payload + 4, n - 4);
  Live *live = g_new(Live, 1);
  *live = (Live){.link = link, .slot = slot};
  link->live[slot] = qv_live_put(link->conn, link->prefix, link->job_id, i, bytes, LIVE_DEADLINE_MS, on_live_stored, live,
                                 g_free);
  return TRUE;
}

guint qv_job_link_live_n(const QvJobLink *link)
{
  return link->live_n;
}

/* ---- what the job process says */

static gboolean on_trouble(QvJobLink *link, const guint8 *payload, gsize n)
{
  gsize code_n = strnlen((const char *)payload, n);
  if (code_n == n)
    return FALSE;
  g_autofree char *text = g_strndup((const char *)payload + code_n + 1, n - code_n - 1);
  close_input(link);
  TELL(link, trouble, (const char *)payload, text, link->data);
  return TRUE;
}

static gboolean on_report(QvJobLink *link, const guint8 *payload, gsize n)
{
  if (!link->has_host || link->reported)
    return FALSE;
  link->reported = TRUE;
  close_input(link);
  link->payload_chunks = qv_blob_chunks(link->host.payload_bytes);
  g_autoptr(GBytes) facts = n > 0 ? g_bytes_new(payload, n) : NULL;
  TELL(link, report, &link->host, facts, link->data);
  return TRUE;
}

static gboolean take_frame(QvJobLink *link, QvIpcType type, const guint8 *payload, gsize n, GError **error)
{
  switch (type) {
  case QV_IPC_STARTED:
    TELL(link, started, link->data);
    return TRUE;
  case QV_IPC_INPUT_DONE:
    TELL(link, input_done, link->data);
    return TRUE;
  case QV_IPC_CREDIT:
    /* One for each chunk that was sent: more would ask for slots that are in use. */
    if (n != 4 || qv_ipc_u32(payload) != 1 || link->credited >= link->sent)
      break;
    link->credited++;
    link->credits++;
    ask_chunks(link);
    return TRUE;
  case QV_IPC_PROGRESS:
    if (n != 4)
      break;
    TELL(link, progress, qv_ipc_u32(payload), link->data);
    return TRUE;
  case QV_IPC_TROUBLE:
    if (!on_trouble(link, payload, n))
      break;
    return TRUE;
  case QV_IPC_HOST:
    if (link->has_host)
      break;
    link->has_host = qv_host_report_parse((const char *)payload, n, &link->host, error);
    /* A try at the unpack process may be behind it: the next one finds another layout. */
    if (link->has_host && link->host.end == QV_HOST_BAD_OUTPUT)
      qv_starter_renew(link->starter);
    return link->has_host;
  case QV_IPC_REPORT:
    if (!on_report(link, payload, n))
      break;
    return TRUE;
  case QV_IPC_PAYLOAD:
    return on_payload(link, payload, n, error);
  case QV_IPC_LIVE:
    if (!on_live(link, payload, n))
      break;
    return TRUE;
  case QV_IPC_GONE: {
    g_autofree char *left = n > 0 ? g_strndup((const char *)payload, n) : NULL;
    TELL(link, gone, left, link->data);
    return TRUE;
  }
  default:
    break;
  }
  g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "frame %s makes no sense here", qv_ipc_name(type));
  return FALSE;
}

static gboolean on_frame(QvIpcType type, const guint8 *payload, gsize n, gpointer data, GError **error)
{
  return take_frame(data, type, payload, n, error);
}

static void maybe_exited(QvJobLink *link)
{
  if (link->child == 0 && link->channel == NULL)
    TELL(link, exited, link->data);
}

static void on_end(const GError *error, gpointer data)
{
  QvJobLink *link = data;
  close_input(link);
  if (error != NULL) {
    /* It speaks nonsense: nothing more is expected from it. */
    TELL(link, trouble, "sandbox_lost", error->message, link->data);
    qv_job_link_kill(link);
  }
  g_clear_pointer(&link->channel, qv_channel_free);
  maybe_exited(link);
}

static void on_child(GPid pid, int status, gpointer data)
{
  QvJobLink *link = data;
  link->child = 0;
  /* Also where its unpack process crashed and another end came first. */
  if (status != 0)
    qv_starter_renew(link->starter);
  maybe_exited(link);
}

/* ---- life */

static QvJobLink *link_new(QvConn *conn, const char *prefix, QvStarter *starter, const QvJobLinkEvents *events, gpointer data)
{
  QvJobLink *link = g_new0(QvJobLink, 1);
  link->conn = conn;
  link->starter = starter;
  link->prefix = g_strdup(prefix);
  link->credits = WINDOW;
  for (int i = 0; i < WINDOW; i++)
    link->in[i].link = link->out[i].link = link;
  link->events = *events;
  link->data = data;
  return link;
}

/* STARTER NULL: by executing the program. */
static gboolean start_by(QvJobLink *link, QvStarter *starter, int lock_fd, GError **error)
{
  int pair[2];
  if (!qv_fd_socketpair(pair, error))
    return FALSE;
  QV_AUTOFD int near = pair[0];
  QV_AUTOFD int far = pair[1];
  const int fds[] = {far, lock_fd};
  if (!(starter != NULL ? qv_starter_job(starter, far, lock_fd, &link->pid)
                        : qv_spawn_role(QV_ROLE_JOB, NULL, fds, G_N_ELEMENTS(fds), &link->pid, error)))
    return FALSE;
  link->child = g_child_watch_add(link->pid, on_child, link);
  link->channel = qv_channel_new(qv_io_steal(&near), QV_IPC_FROM_JOB, on_frame, on_end, link);
  return TRUE;
}

static gboolean start(QvJobLink *link, int lock_fd, GError **error)
{
  return (link->starter != NULL && start_by(link, link->starter, lock_fd, NULL)) || start_by(link, NULL, lock_fd, error);
}

static void give_job(QvJobLink *link, const QvSetup *setup, const QvJobKeys *keys)
{
  const QvJob *job = setup->job;
  g_strlcpy(link->job_id, job->job_id, sizeof link->job_id);
  link->base_chunks = job->base.chunks;
  link->overlay_chunks = job->overlay != NULL ? job->overlay->chunks : 0;
  gsize n;
  g_autofree char *text = qv_setup_format(setup, &n);
  if (link->channel != NULL) {
    qv_channel_send(link->channel, QV_IPC_SETUP, text, n, NULL);
    qv_channel_send(link->channel, QV_IPC_KEYS, keys, sizeof *keys, NULL);
  }
  ask_chunks(link);
}

QvJobLink *qv_job_link_new(const QvJobLinkOptions *options, const QvJobLinkEvents *events, gpointer data,
                           GError **error)
{
  g_autoptr(QvJobLink) link = link_new(options->conn, options->prefix, options->starter, events, data);
  if (!start(link, options->lock_fd, error))
    return NULL;
  give_job(link, options->setup, options->keys);
  return g_steal_pointer(&link);
}

QvJobLink *qv_job_link_new_warm(const QvJobLinkWarmOptions *options, const QvJobLinkEvents *events, gpointer data,
                                GError **error)
{
  g_autoptr(QvJobLink) link = link_new(options->conn, options->prefix, options->starter, events, data);
  if (!start(link, options->lock_fd, error))
    return NULL;
  gsize n;
  g_autofree char *text = qv_warm_order_format(options->order, &n);
  qv_channel_send(link->channel, QV_IPC_WARM, text, n, NULL);
  return g_steal_pointer(&link);
}

void qv_job_link_assign(QvJobLink *link, const QvSetup *setup, const QvJobKeys *keys, const QvJobLinkEvents *events,
                        gpointer data)
{
  link->events = *events;
  link->data = data;
  give_job(link, setup, keys);
}

void qv_job_link_free(QvJobLink *link)
{
  if (link == NULL)
    return;
  close_input(link);
  for (int i = 0; i < WINDOW; i++) {
    if (link->out[i].command != 0)
      qv_conn_cancel(link->conn, link->out[i].command);
  }
  for (int i = 0; i < LIVE_WINDOW; i++) {
    if (link->live[i] != 0)
      qv_conn_cancel(link->conn, link->live[i]);
  }
  if (link->live_dropped > 0) {
    g_autofree char *dropped = g_strdup_printf("%u", link->live_dropped);
    qv_log(QV_LOG_INFO, "live logs were dropped: Valkey was slow or away", "jobId", link->job_id, "chunks", dropped, NULL);
  }
  qv_channel_free(link->channel);
  if (link->child != 0) {
    g_source_remove(link->child);
    qv_reap_child(link->pid, "job", QV_REAP_MS, NULL);
  }
  g_free(link->prefix);
  g_free(link);
}

void qv_job_link_stop(QvJobLink *link)
{
  close_input(link);
  if (link->channel != NULL)
    qv_channel_send(link->channel, QV_IPC_STOP, NULL, 0, NULL);
}

void qv_job_link_discard(QvJobLink *link)
{
  link->storing = FALSE;
  link->discarding = TRUE;
  for (int i = 0; i < WINDOW; i++) { /* none may arrive behind what is done next */
    if (link->out[i].command != 0)
      qv_conn_cancel(link->conn, link->out[i].command);
    link->out[i].command = 0;
  }
  if (link->channel != NULL)
    qv_channel_send(link->channel, QV_IPC_DISCARD, NULL, 0, NULL);
}

void qv_job_link_end_egress(QvJobLink *link)
{
  if (link->channel != NULL)
    qv_channel_send(link->channel, QV_IPC_END_EGRESS, NULL, 0, NULL);
}

void qv_job_link_kill(QvJobLink *link)
{
  if (link->child != 0)
    kill(link->pid, SIGKILL);
}

gboolean qv_job_link_is_storing(const QvJobLink *link)
{
  for (int i = 0; link->storing && i < WINDOW; i++) {
    if (link->out[i].command != 0)
      return TRUE;
  }
  return FALSE;
}

gboolean qv_job_link_talks(const QvJobLink *link)
{
  return link->channel != NULL;
}
