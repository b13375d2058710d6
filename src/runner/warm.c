/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the warm sandboxes and what is known of demand. */
#include "runner/warm.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "runner/settings.h"
#include "runner/sweep.h"
#include "runner/sweeper.h"
#include "runner/warm_plan.h"

enum {
  KINDS_MAX = 32,         /* images times limits that are told apart */
  REFILL_MS = 50,         /* the job that has just taken one comes first */
  WINDOW_MS = 60000,      /* demand is that of this window and of the one before */
  AGE_MS = 600000,
  BACKOFF_FIRST_MS = 5000,
  BACKOFF_MAX_MS = 60000,
  OVERDUE_MS = 60000,     /* for one to be taken down */
};

typedef struct {
  QvBoxKind kind;
  guint floor;
  gboolean holds;            /* the floor is its image's; the others have none */
  guint votes;               /* of the one that holds it */
  guint running;             /* jobs of this kind */
  guint peak_now, peak_before;
  gint64 used_ms;            /* monotonic */
  gint64 backoff_ms, not_before_ms;
} Kind;

typedef struct {
  QvWarmPool *pool;
  QvJobLink *link;
  Kind *kind;                /* NULL: nobody wants it any more */
  char *id;
  gint64 need_mib;
  gint64 since_ms;
  gboolean ready, leaving, gone;
  guint overdue;             /* timer */
} Box;

struct QvWarmPool {
  QvSupervisor *supervisor;
  GPtrArray *kinds;          /* of Kind */
  GPtrArray *boxes;          /* of Box */
  gint64 running_mib;
  gboolean open;
  guint refill, window;      /* timers */
  gint64 refill_at_ms;       /* monotonic */
};

static gint64 need_mib(const QvBoxKind *kind)
{
  return (gint64)kind->limits.memory_mib + kind->limits.work_mib + QV_CONTAINER_TMP_MIB + QV_CONTAINER_HEADROOM_MIB;
}

static void refill_soon(QvWarmPool *pool, guint delay_ms);

/* ---- kinds */

static void kind_free(gpointer data)
{
  Kind *kind = data;
  qv_box_kind_clear(&kind->kind);
  g_free(kind);
}

static Kind *find_kind(QvWarmPool *pool, const QvBoxKind *want)
{
  for (guint i = 0; i < pool->kinds->len; i++) {
    Kind *kind = pool->kinds->pdata[i];
    if (qv_box_kind_equal(&kind->kind, want))
      return kind;
  }
  return NULL;
}

static void forget_kind(QvWarmPool *pool, Kind *kind)
{
  for (guint i = 0; i < pool->boxes->len; i++) {
    Box *box = pool->boxes->pdata[i];
    if (box->kind == kind)
      box->kind = NULL;
  }
  g_ptr_array_remove(pool->kinds, kind);
}

/* The one that nobody has used for longest makes room. */
static Kind *add_kind(QvWarmPool *pool, const QvBoxKind *want)
{
  Kind *oldest = NULL;
  for (guint i = 0; i < pool->kinds->len; i++) {
    Kind *kind = pool->kinds->pdata[i];
    if (kind->running == 0 && kind->floor == 0 && (oldest == NULL || kind->used_ms < oldest->used_ms))
      oldest = kind;
  }
  if (pool->kinds->len >= KINDS_MAX && oldest == NULL)
    return NULL;
  if (pool->kinds->len >= KINDS_MAX)
    forget_kind(pool, oldest);
  Kind *kind = g_new0(Kind, 1);
  qv_box_kind_copy(want, &kind->kind);
  g_ptr_array_add(pool->kinds, kind);
  return kind;
}

static Kind *holder_of(QvWarmPool *pool, const char *image_digest)
{
  for (guint i = 0; i < pool->kinds->len; i++) {
    Kind *kind = pool->kinds->pdata[i];
    if (kind->holds && strcmp(kind->kind.image_digest, image_digest) == 0)
      return kind;
  }
  return NULL;
}

/* What most jobs of an image ask for is what the next one will ask for. */
static void vote(QvWarmPool *pool, Kind *kind)
{
  Kind *holder = holder_of(pool, kind->kind.image_digest);
  guint votes = holder != NULL ? holder->votes : 0;
  gboolean over = qv_warm_vote(&votes, holder == kind);
  if (over && holder != NULL)
    holder->holds = FALSE;
  Kind *now = over ? kind : holder;
  now->holds = TRUE;
  now->votes = votes;
}

/* The current image of each name that this backend can start gets the floor. */
static void set_floors(QvWarmPool *pool)
{
  QvSupervisor *supervisor = pool->supervisor;
  const QvImagesLock *lock = supervisor->images;
  for (guint i = 0; i < pool->kinds->len; i++)
    ((Kind *)pool->kinds->pdata[i])->floor = 0;
  for (gsize i = 0; supervisor->config->warm > 0 && i < lock->n; i++) {
    const QvImage *image = &lock->images[i];
    if (qv_images_lock_find(lock, image->name, NULL, qv_settings_platform()) != image)
      continue;
    Kind *kind = holder_of(pool, image->digest);
    g_autofree char *path = NULL;
    g_autoptr(GError) error = NULL;
    if (kind == NULL) {
      if (!qv_supervisor_image(supervisor, image, &path, &error))
        continue; /* a job for it will say so */
      QvBoxKind want = {.rootfs_file = path, .image_digest = image->digest,
                        .limits = qv_box_limits(&supervisor->limits.defaults)};
      kind = add_kind(pool, &want);
      if (kind != NULL)
        vote(pool, kind);
    }
    if (kind != NULL)
      kind->floor = supervisor->config->warm;
  }
}

static gboolean image_is_listed(const QvImagesLock *lock, const char *digest)
{
  for (gsize i = 0; i < lock->n; i++) {
    if (strcmp(lock->images[i].digest, digest) == 0)
      return TRUE;
  }
  return FALSE;
}

/* ---- boxes */

static void box_free(gpointer data)
{
  Box *box = data;
  g_clear_handle_id(&box->overdue, g_source_remove);
  qv_job_link_free(box->link);
  g_free(box->id);
  g_free(box);
}

static void box_removed(QvWarmPool *pool, Box *box)
{
  g_ptr_array_remove(pool->boxes, box);
  pool->supervisor->released(pool->supervisor);
}

static gboolean on_overdue(gpointer data)
{
  Box *box = data;
  box->overdue = 0;
  qv_log(QV_LOG_ERROR, "a warm sandbox's process does not obey", "sandbox", box->id, NULL);
  qv_job_link_kill(box->link);
  return G_SOURCE_REMOVE;
}

static void box_leave(Box *box)
{
  if (box->leaving)
    return;
  box->leaving = TRUE;
  box->overdue = g_timeout_add(OVERDUE_MS, on_overdue, box);
  qv_job_link_discard(box->link);
}

static void on_started(gpointer data)
{
  Box *box = data;
  box->ready = TRUE;
  if (box->kind != NULL)
    box->kind->backoff_ms = 0;
  qv_log(QV_LOG_DEBUG, "a warm sandbox waits", "sandbox", box->id, NULL);
  refill_soon(box->pool, 0);
}

static void on_trouble(const char *code, const char *text, gpointer data)
{
  Box *box = data;
  qv_log(QV_LOG_WARNING, "a warm sandbox is lost", "sandbox", box->id, "code", code, "reason", text, NULL);
  box->leaving = TRUE;
  if (box->kind == NULL)
    return;
  Kind *kind = box->kind;
  kind->backoff_ms = kind->backoff_ms == 0 ? BACKOFF_FIRST_MS : MIN(kind->backoff_ms * 2, BACKOFF_MAX_MS);
  kind->not_before_ms = qv_clock_mono_ms() + kind->backoff_ms;
}

static void on_gone(const char *left, gpointer data)
{
  Box *box = data;
  box->gone = left == NULL;
  if (left != NULL)
    qv_log(QV_LOG_ERROR, "a warm sandbox is not wholly removed", "sandbox", box->id, "error", left, NULL);
}

/* The box stays until its sandbox is known to be gone. */
static void on_swept(const QvSweepEnd *end, gpointer data)
{
  Box *box = data;
  if (end->status != QV_SWEEP_CLEAN)
    box->pool->supervisor->problem(box->pool->supervisor, box->id);
  box_removed(box->pool, box);
}

static void on_exited(gpointer data)
{
  Box *box = data;
  QvWarmPool *pool = box->pool;
  g_clear_handle_id(&box->overdue, g_source_remove);
  if (!box->leaving)
    on_trouble("sandbox_lost", "its process ended without a word", box);
  box->leaving = TRUE;
  refill_soon(pool, 0);
  if (box->gone)
    box_removed(pool, box);
  else
    qv_sweeper_start(&pool->supervisor->place, box->id, NULL, NULL, on_swept, box);
}

static const QvJobLinkEvents box_events = {.started = on_started, .trouble = on_trouble, .gone = on_gone, .exited = on_exited};

/* As at each sandbox's creation: the file may have changed since the last one. */
static gboolean image_is_whole(QvWarmPool *pool, const Kind *kind, GError **error)
{
  const QvImagesLock *lock = pool->supervisor->images;
  for (gsize i = 0; i < lock->n; i++) {
    g_autofree char *path = NULL;
    if (strcmp(lock->images[i].digest, kind->kind.image_digest) == 0)
      return qv_supervisor_image(pool->supervisor, &lock->images[i], &path, error);
  }
  g_set_error(error, QV_ERROR, QV_ERROR_NOT_FOUND, "the image is not listed any more");
  return FALSE;
}

static void start_box(QvWarmPool *pool, Kind *kind)
{
  QvSupervisor *supervisor = pool->supervisor;
  Box *box = g_new0(Box, 1);
  box->pool = pool;
  box->kind = kind;
  box->need_mib = need_mib(&kind->kind);
  box->since_ms = qv_clock_mono_ms();
  box->id = g_malloc(QV_UUID_LEN + 1);
  qv_random_uuid(box->id);
  QvWarmOrder order = {.place = supervisor->place, .sandbox_id = box->id, .kind = kind->kind};
  QvJobLinkWarmOptions options = {.conn = qv_worker_conn(supervisor->worker),
                                  .prefix = supervisor->prefix,
                                  .lock_fd = supervisor->lock_fd,
                                  .starter = supervisor->starter,
                                  .order = &order};
  g_autoptr(GError) error = NULL;
  if (image_is_whole(pool, kind, &error))
    box->link = qv_job_link_new_warm(&options, &box_events, box, &error);
  if (box->link != NULL) {
    g_ptr_array_add(pool->boxes, box);
    return;
  }
  on_trouble("sandbox_failed", error->message, box);
  box_free(box);
}

/* ---- the right number of each */

static guint count(const QvWarmPool *pool, const Kind *kind)
{
  guint n = 0;
  for (guint i = 0; i < pool->boxes->len; i++) {
    const Box *box = pool->boxes->pdata[i];
    n += box->kind == kind && !box->leaving;
  }
  return n;
}

static gboolean one_starts(const QvWarmPool *pool)
{
  for (guint i = 0; i < pool->boxes->len; i++) {
    const Box *box = pool->boxes->pdata[i];
    if (!box->ready && !box->leaving)
      return TRUE;
  }
  return FALSE;
}

/* What leaves has its memory until it is gone. */
static gint64 warm_mib(const QvWarmPool *pool, gboolean leaving_too)
{
  gint64 sum = 0;
  for (guint i = 0; i < pool->boxes->len; i++) {
    const Box *box = pool->boxes->pdata[i];
    sum += leaving_too || !box->leaving ? box->need_mib : 0;
  }
  return sum;
}

static void drop_surplus(QvWarmPool *pool, const guint *targets)
{
  gint64 now = qv_clock_mono_ms();
  for (guint i = 0; i < pool->boxes->len; i++) {
    Box *box = pool->boxes->pdata[i];
    guint at = 0;
    if (box->leaving)
      continue;
    gboolean wanted = box->kind != NULL && g_ptr_array_find(pool->kinds, box->kind, &at) &&
                      count(pool, box->kind) <= targets[at];
    if (!wanted || now - box->since_ms >= AGE_MS)
      box_leave(box);
  }
}

static gboolean on_refill(gpointer data)
{
  QvWarmPool *pool = data;
  pool->refill = 0;
  if (!pool->open)
    return G_SOURCE_REMOVE;
  set_floors(pool);
  QvWarmWant wants[KINDS_MAX];
  guint targets[KINDS_MAX] = {0}, n = pool->kinds->len;
  for (guint i = 0; i < n; i++) {
    const Kind *kind = pool->kinds->pdata[i];
    wants[i] = (QvWarmWant){.floor = kind->floor, .peak = MAX(kind->peak_now, kind->peak_before), .need_mib = need_mib(&kind->kind)};
  }
  gint64 free_mib = pool->supervisor->memory_budget_mib - pool->running_mib;
  qv_warm_plan(wants, n, (guint)pool->supervisor->config->warm_max, free_mib, targets);
  drop_surplus(pool, targets);
  gint64 now = qv_clock_mono_ms();
  for (guint i = 0; i < n && !one_starts(pool); i++) {
    Kind *kind = pool->kinds->pdata[i];
    if (count(pool, kind) >= targets[i] || warm_mib(pool, TRUE) + wants[i].need_mib > free_mib)
      continue;
    if (now < kind->not_before_ms)
      refill_soon(pool, (guint)(kind->not_before_ms - now));
    else
      start_box(pool, kind);
  }
  return G_SOURCE_REMOVE;
}

static void refill_soon(QvWarmPool *pool, guint delay_ms)
{
  gint64 at_ms = qv_clock_mono_ms() + delay_ms;
  if (!pool->open || (pool->refill != 0 && pool->refill_at_ms <= at_ms))
    return;
  g_clear_handle_id(&pool->refill, g_source_remove);
  pool->refill_at_ms = at_ms;
  pool->refill = g_timeout_add(delay_ms, on_refill, pool);
}

static gboolean on_window(gpointer data)
{
  QvWarmPool *pool = data;
  for (guint i = 0; i < pool->kinds->len; i++) {
    Kind *kind = pool->kinds->pdata[i];
    kind->peak_before = kind->peak_now;
    kind->peak_now = kind->running;
  }
  refill_soon(pool, 0);
  return G_SOURCE_CONTINUE;
}

/* ---- jobs */

void qv_warm_pool_job_begins(QvWarmPool *pool, const QvBoxKind *want, gboolean egress)
{
  pool->running_mib += need_mib(want);
  Kind *kind = find_kind(pool, want);
  if (kind == NULL && !egress)
    kind = add_kind(pool, want);
  if (kind != NULL && !egress) {
    kind->running++;
    kind->peak_now = MAX(kind->peak_now, kind->running);
    kind->used_ms = qv_clock_mono_ms();
    vote(pool, kind);
  }
  /* A job comes before what only waits. */
  gint64 budget_mib = pool->supervisor->memory_budget_mib;
  for (guint i = 0; i < pool->boxes->len && warm_mib(pool, FALSE) + pool->running_mib > budget_mib; i++)
    box_leave(pool->boxes->pdata[i]);
  refill_soon(pool, REFILL_MS);
}

void qv_warm_pool_job_ends(QvWarmPool *pool, const QvBoxKind *want, gboolean egress)
{
  pool->running_mib -= need_mib(want);
  Kind *kind = find_kind(pool, want);
  if (kind != NULL && !egress && kind->running > 0)
    kind->running--;
  refill_soon(pool, REFILL_MS);
}

QvJobLink *qv_warm_pool_take(QvWarmPool *pool, const QvBoxKind *want, char **sandbox_id)
{
  Box *best = NULL;
  for (guint i = 0; i < pool->boxes->len; i++) {
    Box *box = pool->boxes->pdata[i];
    if (box->leaving || box->kind == NULL || !qv_job_link_talks(box->link) || !qv_box_kind_equal(&box->kind->kind, want))
      continue;
    if (best == NULL || (box->ready && !best->ready))
      best = box;
  }
  if (best == NULL)
    return NULL;
  QvJobLink *link = g_steal_pointer(&best->link);
  *sandbox_id = g_steal_pointer(&best->id);
  g_ptr_array_remove(pool->boxes, best);
  return link;
}

/* ---- life */

QvWarmPool *qv_warm_pool_new(QvSupervisor *supervisor)
{
  QvWarmPool *pool = g_new0(QvWarmPool, 1);
  pool->supervisor = supervisor;
  pool->kinds = g_ptr_array_new_with_free_func(kind_free);
  pool->boxes = g_ptr_array_new_with_free_func(box_free);
  return pool;
}

void qv_warm_pool_free(QvWarmPool *pool)
{
  if (pool == NULL)
    return;
  g_clear_handle_id(&pool->refill, g_source_remove);
  g_clear_handle_id(&pool->window, g_source_remove);
  g_ptr_array_unref(pool->boxes);
  g_ptr_array_unref(pool->kinds);
  g_free(pool);
}

void qv_warm_pool_open(QvWarmPool *pool)
{
  if (pool->supervisor->config->warm == 0 && pool->supervisor->config->warm_max == 0)
    return;
  pool->open = TRUE;
  pool->window = g_timeout_add(WINDOW_MS, on_window, pool);
  refill_soon(pool, 0);
}

void qv_warm_pool_close(QvWarmPool *pool)
{
  pool->open = FALSE;
  g_clear_handle_id(&pool->refill, g_source_remove);
  g_clear_handle_id(&pool->window, g_source_remove);
  for (guint i = 0; i < pool->boxes->len; i++)
    box_leave(pool->boxes->pdata[i]);
}

void qv_warm_pool_reload(QvWarmPool *pool)
{
  for (guint i = pool->kinds->len; i > 0; i--) {
    Kind *kind = pool->kinds->pdata[i - 1];
    if (!image_is_listed(pool->supervisor->images, kind->kind.image_digest))
      forget_kind(pool, kind);
  }
  refill_soon(pool, 0);
}

guint qv_warm_pool_n(const QvWarmPool *pool)
{
  return pool->boxes->len;
}
