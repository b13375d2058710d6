/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the way of an image into a container engine:
 *
 *   GET /version                is it an engine at all?
 *   GET /images/<digest>/json   there: done
 *   the archive, into a file without a name below the store, or in TMPDIR where that is not ours to write or has no room
 *   POST /images/load           the file is the body; the engine answers with lines of JSON while it unpacks
 *   GET /images/<digest>/json   its id, which it computed itself, must be the digest
 *
 * The engine's account of the archive counts for progress and reasons alone: what it has is asked for. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "format/json.h"
#include "images/images.h"
#include "images/store.h"
#include "sandbox/docker_http.h"

enum { CALL_MS = 30000, STANDSTILL_MS = 600000, TICK_MS = 200, LINE_BYTES_MAX = 256 * 1024, REASON_BYTES_MAX = 600,
       MIB = 1024 * 1024 };

/* ---- what the engine has */

static gboolean has_image(QvEngine *engine, const char *digest, gboolean *there, GError **error)
{
  g_auto(QvEngineAnswer) answer = {0};
  g_autoptr(GError) problem = NULL;
  g_autofree char *path = g_strdup_printf("/images/%s/json", digest);
  QvEngineRequest request = {.method = "GET", .path = path, .deadline_ms = CALL_MS};
  if (!qv_engine_do(engine, &request, &answer, &problem)) {
    *there = FALSE;
    if (g_error_matches(problem, QV_ERROR, QV_ERROR_NOT_FOUND))
      return TRUE;
    g_propagate_error(error, g_steal_pointer(&problem));
    return FALSE;
  }
  const char *id = json_string_value(json_object_get(answer.json, "Id"));
  const char *machine = json_string_value(json_object_get(answer.json, "Architecture"));
  *there = g_strcmp0(id, digest) == 0 && g_strcmp0(machine, qv_store_architecture()) == 0;
  if (*there)
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_AUTH, "docker: the engine has image %.80s for %.20s under the name %s",
              id != NULL ? id : "(none)", machine != NULL ? machine : "(nothing)", digest);
  return FALSE;
}

/* NULL where nobody answers, or somebody else. */
static QvEngine *open_engine(const char *socket, GError **error)
{
  g_autoptr(QvEngine) engine = qv_engine_new(socket != NULL ? socket : qv_engine_usual_socket());
  json_t *version = qv_engine_greet(engine, CALL_MS, error);
  if (version == NULL)
    return NULL;
  json_decref(version);
  return g_steal_pointer(&engine);
}

gboolean qv_images_is_loaded(const char *socket, const char *digest, gboolean *there, GError **error)
{
  g_autoptr(QvEngine) engine = open_engine(socket, error);
  return engine != NULL && has_image(engine, digest, there, error);
}

/* ---- the archive */

/* A file that has no name, in which BYTES have their place: a disk that is full says so before the work. -1 and errno. */
static int open_nameless(const char *folder, gint64 bytes)
{
  g_autofree char *path = g_build_filename(folder, "load.XXXXXX", NULL);
  QV_AUTOFD int fd = g_mkstemp_full(path, O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0)
    return -1;
  unlink(path);
  /* One that cannot keep a place free (EOPNOTSUPP) says it while it is written to. */
  if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, bytes) == 0 || errno == EOPNOTSUPP || errno == ENOSYS)
    return qv_io_steal(&fd);
  return -1;
}

static void refuse_folders(const QvImagesLoad *load, const char *const *folders, const int *errors, gint64 bytes, GError **error)
{
  g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM,
              "the archive of %s, %" G_GINT64_FORMAT " MiB, has no place: %s: %s; %s: %s; make room in one of them, or name a "
              "folder that has it in TMPDIR", load->name, (bytes + MIB - 1) / MIB, folders[0], g_strerror(errors[0]), folders[1],
              g_strerror(errors[1]));
}

static int open_place(const QvImagesLoad *load, const char *digest, GError **error)
{
  g_autofree char *store = g_path_get_dirname(load->lock_file);
  const char *const folders[] = {store, g_get_tmp_dir()};
  int errors[G_N_ELEMENTS(folders)];
  gint64 bytes = MAX(qv_store_archive_bytes(load->lock_file, digest), 1);
  for (gsize i = 0; i < G_N_ELEMENTS(folders); i++) {
    int fd = open_nameless(folders[i], bytes);
    if (fd >= 0)
      return fd;
    errors[i] = errno;
  }
  refuse_folders(load, folders, errors, bytes, error);
  return -1;
}

static int pack(const QvImagesLoad *load, const char *digest, GError **error)
{
  QV_AUTOFD int fd = open_place(load, digest, error);
  if (fd < 0 || !qv_images_export(load->lock_file, load->name, digest, fd, error))
    return -1;
  if (lseek(fd, 0, SEEK_SET) != 0) {
    qv_error_set_errno(error, errno, "the archive of %s", load->name);
    return -1;
  }
  return qv_io_steal(&fd);
}

/* ---- the call */

typedef struct {
  const QvImagesLoad *load;
  int fd;
  gint64 size_bytes, sent_bytes; /* of the archive */
  gint64 moved_ms;               /* when something last moved */
  char *refused;                 /* the engine's reason; NULL: none so far */
  gboolean done;
  GError *error;
} Sending;

static void tell(const QvImagesLoad *load, QvImagesLoadStage stage, gint64 done, gint64 total)
{
  if (load->progress != NULL)
    load->progress(stage, done, total, load->progress_data);
}

/* {"status": "Loading layer", "progressDetail": {"current": 1, "total": 2}, …}, {"stream": …}, {"error": …} */
static void on_line(QvEngineCall *call, const char *line, gsize n, gpointer data)
{
  Sending *sending = data;
  json_t *json = qv_json_parse(line, n, LINE_BYTES_MAX, QV_JSON_ANY, NULL);
  const json_t *detail = json_object_get(json, "progressDetail");
  const char *reason = json_string_value(json_object_get(json, "error"));
  sending->moved_ms = qv_clock_mono_ms();
  if (reason != NULL && sending->refused == NULL)
    sending->refused = g_strescape(reason, NULL);
  else if (reason == NULL)
    tell(sending->load, QV_IMAGES_LOAD_UNPACKING, json_integer_value(json_object_get(detail, "current")),
         json_integer_value(json_object_get(detail, "total")));
  json_decref(json);
}

static void on_done(QvEngineCall *call, const QvEngineAnswer *answer, const GError *error, gpointer data)
{
  Sending *sending = data;
  sending->done = TRUE;
  if (answer == NULL)
    sending->error = g_error_copy(error);
  else
    qv_engine_answer_check(answer, "POST /images/load", &sending->error);
}

/* How far the engine has read is how far the file's offset is. */
static gboolean on_tick(gpointer data)
{
  Sending *sending = data;
  off_t at = lseek(sending->fd, 0, SEEK_CUR);
  if (at != sending->sent_bytes) {
    sending->sent_bytes = at;
    sending->moved_ms = qv_clock_mono_ms();
    tell(sending->load, QV_IMAGES_LOAD_SENDING, at, sending->size_bytes);
  }
  return G_SOURCE_CONTINUE;
}

static gboolean send(QvEngine *engine, const QvImagesLoad *load, int fd, GError **error)
{
  static const QvEngineEvents events = {.line = on_line, .done = on_done};
  struct stat st;
  if (fstat(fd, &st) != 0)
    return qv_error_set_errno(error, errno, "the archive");
  Sending sending = {.load = load, .fd = fd, .size_bytes = st.st_size, .moved_ms = qv_clock_mono_ms()};
  tell(load, QV_IMAGES_LOAD_SENDING, 0, st.st_size);
  QvEngineRequest request = {.method = "POST", .path = "/images/load?quiet=0", .upload_fd = fd};
  g_autoptr(GMainContext) context = g_main_context_new();
  g_main_context_push_thread_default(context);
  g_autoptr(GSource) tick = g_timeout_source_new(TICK_MS);
  g_source_set_callback(tick, on_tick, &sending, NULL);
  g_source_attach(tick, context);
  QvEngineCall *call = qv_engine_begin(engine, &request, &events, &sending);
  while (!sending.done && qv_clock_mono_ms() - sending.moved_ms < STANDSTILL_MS)
    g_main_context_iteration(context, TRUE);
  if (!sending.done) {
    qv_engine_cancel(call);
    g_set_error(&sending.error, QV_ERROR, QV_ERROR_TIMEOUT, "docker: POST /images/load stood still for %d s", STANDSTILL_MS / 1000);
  }
  g_source_destroy(tick);
  g_main_context_pop_thread_default(context);
  if (sending.error == NULL && sending.refused != NULL)
    g_set_error(&sending.error, QV_ERROR, QV_ERROR_PEER, "docker: the engine refuses the archive: %.*s", REASON_BYTES_MAX, sending.refused);
  g_free(sending.refused);
  if (sending.error == NULL)
    return TRUE;
  g_propagate_error(error, sending.error);
  return FALSE;
}

/* ---- the whole */

static gboolean load_digest(const QvImagesLoad *load, const char *digest, gboolean *loaded, GError **error)
{
  g_autoptr(QvEngine) engine = open_engine(load->socket, error);
  gboolean there = FALSE;
  *loaded = FALSE;
  if (engine == NULL || !has_image(engine, digest, &there, error))
    return FALSE;
  if (there)
    return TRUE;
  tell(load, QV_IMAGES_LOAD_PACKING, 0, 0);
  QV_AUTOFD int fd = pack(load, digest, error);
  if (fd < 0 || !send(engine, load, fd, error) || !has_image(engine, digest, &there, error))
    return FALSE;
  *loaded = there;
  if (!there)
    g_set_error(error, QV_ERROR, QV_ERROR_AUTH,
                "docker: the engine took the archive of %s and has no image %s: it names images otherwise (the containerd image "
                "store does; docs/DOCKER.md)", load->name, digest);
  return there;
}

gboolean qv_images_load(const QvImagesLoad *load, gboolean *loaded, GError **error)
{
  g_autofree char *digest = qv_store_find(load->lock_file, load->name, load->digest, error);
  return digest != NULL && load_digest(load, digest, loaded, error);
}
