/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the use of libcurl: easy handles for calls that block, one multi handle for those
 * that do not, driven by GLib sources (one a socket, one timer). */
#include "sandbox/docker_http.h"

#include <errno.h>
#include <glib-unix.h>
#include <grp.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "format/json.h"
#include "sandbox/docker_curl.h"

#define CONNECT_MS 10000L
#define FINISH_STEP_MS 1000
#define LINE_BYTES_MAX ((gsize)256 * 1024)
#define MESSAGE_BYTES_MAX 600

static const QvCurl *curl; /* NULL until the first call */

struct QvEngine {
  char *socket;
  char *api;
  CURLM *multi;          /* NULL until the first call that does not block */
  GMainContext *context;
  GHashTable *sources;   /* socket to GSource */
  GSource *timer;
  GPtrArray *calls;      /* of QvEngineCall, owned */
};

struct QvEngineCall {
  QvEngine *engine;
  CURL *easy;
  struct curl_slist *headers;
  GString *body;
  gboolean over;         /* the body is over its cap */
  long head;             /* status of a head that is to be told; 0: none */
  gboolean told_head;
  gboolean cancelled, busy; /* busy: inside a callback, so it is freed later */
  char *what;            /* for errors: "GET /info" */
  guint deadline_ms;
  int upload_fd;
  QvEngineEvents events;
  gpointer data;
};

void qv_engine_answer_clear(QvEngineAnswer *answer)
{
  json_decref(answer->json);
  g_free(answer->text);
  *answer = (QvEngineAnswer){0};
}

const char *qv_engine_usual_socket(void)
{
  static const char *const sockets[] = {"/run/docker.sock", "/var/run/docker.sock"};
  for (gsize i = 0; i < G_N_ELEMENTS(sockets); i++)
    if (access(sockets[i], F_OK) == 0)
      return sockets[i];
  return sockets[0];
}

QvEngine *qv_engine_new(const char *socket)
{
  QvEngine *engine = g_new0(QvEngine, 1);
  engine->socket = g_strdup(socket);
  engine->api = g_strdup("");
  return engine;
}

const char *qv_engine_socket(const QvEngine *engine)
{
  return engine->socket;
}

const char *qv_engine_api(const QvEngine *engine)
{
  return engine->api;
}

void qv_engine_set_api(QvEngine *engine, const char *version)
{
  g_free(engine->api);
  engine->api = g_strdup(version);
}

char *qv_engine_escape(const char *text)
{
  return g_uri_escape_string(text, NULL, FALSE);
}

/* ---- one call */

gboolean qv_engine_load(GError **error)
{
  if (curl == NULL)
    curl = qv_curl_load(error);
  return curl != NULL;
}

static gsize on_body(char *bytes, gsize size, gsize n, void *user)
{
  QvEngineCall *call = user;
  gsize cap = call->events.line != NULL ? LINE_BYTES_MAX : QV_ENGINE_ANSWER_BYTES_MAX;
  if (n > cap - MIN(cap, call->body->len)) {
    call->over = TRUE;
    return 0;
  }
  g_string_append_len(call->body, bytes, n);
  return n;
}

/* The empty line behind the head. */
static gsize on_header(char *bytes, gsize size, gsize n, void *user)
{
  QvEngineCall *call = user;
  long status = 0;
  if (n > 2 || call->told_head || call->events.head == NULL)
    return n;
  curl->easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
  if (status >= 200) {
    call->told_head = TRUE;
    call->head = status;
  }
  return n;
}

static gsize on_upload(char *bytes, gsize size, gsize n, void *user)
{
  QvEngineCall *call = user;
  ssize_t got;
  while ((got = read(call->upload_fd, bytes, size * n)) < 0 && errno == EINTR)
    ;
  return got < 0 ? CURL_READFUNC_ABORT : (gsize)got;
}

static void set_body(QvEngineCall *call, const QvEngineRequest *request)
{
  /* No "Expect: 100-continue": the engine would be waited for. */
  call->headers = curl->slist_append(call->headers, "Expect:");
  if (request->upload_fd > 0) {
    call->headers = curl->slist_append(call->headers, "Content-Type: application/x-tar");
    call->upload_fd = request->upload_fd;
    curl->easy_setopt(call->easy, CURLOPT_POST, 1L);
    curl->easy_setopt(call->easy, CURLOPT_READFUNCTION, on_upload);
    curl->easy_setopt(call->easy, CURLOPT_READDATA, call);
    call->headers = curl->slist_append(call->headers, "Transfer-Encoding: chunked");
  } else if (request->body != NULL) {
    call->headers = curl->slist_append(call->headers, "Content-Type: application/json");
    curl->easy_setopt(call->easy, CURLOPT_POSTFIELDSIZE, (long)strlen(request->body));
    curl->easy_setopt(call->easy, CURLOPT_COPYPOSTFIELDS, request->body);
  } else if (strcmp(request->method, "POST") == 0) {
    curl->easy_setopt(call->easy, CURLOPT_POSTFIELDSIZE, 0L);
    curl->easy_setopt(call->easy, CURLOPT_COPYPOSTFIELDS, "");
  }
  curl->easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->headers);
}

static QvEngineCall *call_new(QvEngine *engine, const QvEngineRequest *request)
{
  QvEngineCall *call = g_new0(QvEngineCall, 1);
  call->engine = engine;
  call->easy = curl->easy_init();
  g_assert(call->easy != NULL);
  call->body = g_string_new(NULL);
  call->deadline_ms = request->deadline_ms;
  call->what = g_strdup_printf("%s %.*s", request->method, (int)strcspn(request->path, "?"), request->path);
  g_autofree char *url = g_strdup_printf("http://localhost%s%s%s", engine->api[0] != '\0' ? "/v" : "", engine->api,
                                         request->path);
  curl->easy_setopt(call->easy, CURLOPT_URL, url);
  curl->easy_setopt(call->easy, CURLOPT_UNIX_SOCKET_PATH, engine->socket);
  curl->easy_setopt(call->easy, CURLOPT_PROXY, "");
  curl->easy_setopt(call->easy, CURLOPT_NOSIGNAL, 1L);
  curl->easy_setopt(call->easy, CURLOPT_PROTOCOLS_STR, "http");
  curl->easy_setopt(call->easy, CURLOPT_CUSTOMREQUEST, request->method);
  curl->easy_setopt(call->easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
  curl->easy_setopt(call->easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
  curl->easy_setopt(call->easy, CURLOPT_TIMEOUT_MS, (long)request->deadline_ms);
  curl->easy_setopt(call->easy, CURLOPT_WRITEFUNCTION, on_body);
  curl->easy_setopt(call->easy, CURLOPT_WRITEDATA, call);
  curl->easy_setopt(call->easy, CURLOPT_HEADERFUNCTION, on_header);
  curl->easy_setopt(call->easy, CURLOPT_HEADERDATA, call);
  curl->easy_setopt(call->easy, CURLOPT_PRIVATE, call);
  /* On a connection that was used before, libcurl asks once more where the answer is lost: a second container. */
  if (strcmp(request->method, "POST") == 0)
    curl->easy_setopt(call->easy, CURLOPT_FRESH_CONNECT, 1L);
  set_body(call, request);
  return call;
}

static void call_free(gpointer data)
{
  QvEngineCall *call = data;
  if (call->engine->multi != NULL)
    curl->multi_remove_handle(call->engine->multi, call->easy);
  curl->easy_cleanup(call->easy);
  curl->slist_free_all(call->headers);
  g_string_free(call->body, TRUE);
  g_free(call->what);
  g_free(call);
}

/* Which group may use the socket, in the words of the remedy. */
static void refuse_socket(const char *path, GError **error)
{
  struct stat st;
  if (stat(path, &st) != 0) {
    qv_error_set_errno(error, errno, "docker: %s", path);
    return;
  }
  struct group *group = getgrgid(st.st_gid);
  g_autofree char *number = g_strdup_printf("%u", (unsigned)st.st_gid);
  const char *name = group != NULL ? group->gr_name : number;
  g_set_error(error, QV_ERROR, QV_ERROR_AUTH,
              "docker: no permission for %s: it belongs to group %s; add the runner's user to it (usermod -aG %s USER) and "
              "start the runner anew", path, name, name);
}

static void refuse_stranger(const char *socket, GError **error)
{
  g_set_error(error, QV_ERROR, QV_ERROR_GONE,
              "docker: what answers at %s is no Docker Engine; name the engine's socket in QUAVON_SANDBOX_DOCKER_SOCKET", socket);
}

static gboolean fail_call(QvEngineCall *call, CURLcode code, GError **error)
{
  const char *socket = call->engine->socket;
  long err = 0;
  curl->easy_getinfo(call->easy, CURLINFO_OS_ERRNO, &err);
  if (call->over)
    g_set_error(error, QV_ERROR, QV_ERROR_LIMIT, "docker: %s: the answer is over its cap", call->what);
  else if (code == CURLE_COULDNT_CONNECT && (err == EACCES || err == EPERM))
    refuse_socket(socket, error);
  else if (code == CURLE_COULDNT_CONNECT)
    g_set_error(error, QV_ERROR, QV_ERROR_GONE,
                "docker: no engine answers at %s (%s); start it (systemctl start docker), or name its socket in "
                "QUAVON_SANDBOX_DOCKER_SOCKET", socket, err != 0 ? g_strerror((int)err) : curl->easy_strerror(code));
  else if (code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_WEIRD_SERVER_REPLY) /* no HTTP at all */
    refuse_stranger(socket, error);
  else if (code == CURLE_OPERATION_TIMEDOUT)
    g_set_error(error, QV_ERROR, QV_ERROR_TIMEOUT, "docker: %s: no answer within %u ms", call->what, call->deadline_ms);
  else
    g_set_error(error, QV_ERROR, QV_ERROR_GONE, "docker: %s: the connection was lost (%s)", call->what,
                curl->easy_strerror(code));
  return FALSE;
}

static gboolean take_answer(QvEngineCall *call, CURLcode code, QvEngineAnswer *answer, GError **error)
{
  if (code != CURLE_OK)
    return fail_call(call, code, error);
  curl->easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &answer->status);
  answer->json = qv_json_parse(call->body->str, call->body->len, QV_ENGINE_ANSWER_BYTES_MAX, QV_JSON_ANY, NULL);
  answer->text = g_strdup(call->body->str);
  return TRUE;
}

gboolean qv_engine_answer_check(const QvEngineAnswer *answer, const char *what, GError **error)
{
  if (answer->status >= 200 && answer->status < 300)
    return TRUE;
  const char *message = json_string_value(json_object_get(answer->json, "message"));
  g_autofree char *shown = g_strescape(message != NULL ? message : answer->text, NULL);
  if (strlen(shown) > MESSAGE_BYTES_MAX)
    shown[MESSAGE_BYTES_MAX] = '\0';
  g_set_error(error, QV_ERROR, answer->status == 404 ? QV_ERROR_NOT_FOUND : QV_ERROR_PEER, "docker: %s: %ld: %s", what,
              answer->status, shown);
  return FALSE;
}

gboolean qv_engine_call(QvEngine *engine, const QvEngineRequest *request, QvEngineAnswer *answer, GError **error)
{
  if (!qv_engine_load(error))
    return FALSE;
  QvEngineCall *call = call_new(engine, request);
  CURLM *multi = g_steal_pointer(&engine->multi); /* not this call's */
  gboolean ok = take_answer(call, curl->easy_perform(call->easy), answer, error);
  call_free(call);
  engine->multi = multi;
  return ok;
}

gboolean qv_engine_do(QvEngine *engine, const QvEngineRequest *request, QvEngineAnswer *answer, GError **error)
{
  g_auto(QvEngineAnswer) own = {0};
  g_autofree char *what = g_strdup_printf("%s %.*s", request->method, (int)strcspn(request->path, "?"), request->path);
  if (!qv_engine_call(engine, request, &own, error) || !qv_engine_answer_check(&own, what, error))
    return FALSE;
  if (answer != NULL) {
    *answer = own;
    own = (QvEngineAnswer){0};
  }
  return TRUE;
}

json_t *qv_engine_greet(QvEngine *engine, guint deadline_ms, GError **error)
{
  g_auto(QvEngineAnswer) answer = {0};
  QvEngineRequest request = {.method = "GET", .path = "/version", .deadline_ms = deadline_ms};
  if (!qv_engine_call(engine, &request, &answer, error))
    return NULL;
  if (answer.status == 200 && json_is_string(json_object_get(answer.json, "Version")) &&
      json_is_string(json_object_get(answer.json, "ApiVersion")))
    return json_incref(answer.json);
  /* An engine in trouble says why. */
  if (answer.status < 500 || !json_is_string(json_object_get(answer.json, "message")))
    refuse_stranger(engine->socket, error);
  else
    qv_engine_answer_check(&answer, "GET /version", error);
  return NULL;
}

/* ---- calls that do not block */

static void source_free(gpointer data)
{
  g_source_destroy(data);
  g_source_unref(data);
}

static void end_call(QvEngineCall *call, CURLcode code)
{
  g_auto(QvEngineAnswer) answer = {0};
  g_autoptr(GError) error = NULL;
  gboolean ok = take_answer(call, code, &answer, &error);
  call->busy = TRUE;
  if (!call->cancelled)
    call->events.done(call, ok ? &answer : NULL, error, call->data);
  g_ptr_array_remove_fast(call->engine->calls, call);
}

/* From outside of curl's own callbacks, where it takes no new calls. */
static void tell(QvEngineCall *call)
{
  long status = call->head;
  call->head = 0;
  if (status != 0 && !call->cancelled)
    call->events.head(call, status, call->data);
  curl->easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
  if (call->events.line == NULL || status != 200) /* else the engine's reason, not a stream */
    return;
  char *lf;
  while (!call->cancelled && (lf = memchr(call->body->str, '\n', call->body->len)) != NULL) {
    gsize line_n = (gsize)(lf - call->body->str);
    *lf = '\0';
    call->events.line(call, call->body->str, line_n, call->data);
    g_string_erase(call->body, 0, (gssize)line_n + 1);
  }
}

static void collect(QvEngine *engine)
{
  CURLMsg *message;
  int left;
  while ((message = curl->multi_info_read(engine->multi, &left)) != NULL) {
    if (message->msg != CURLMSG_DONE)
      continue;
    QvEngineCall *call = NULL;
    CURLcode code = message->data.result;
    curl->easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&call);
    end_call(call, code);
  }
  for (guint i = engine->calls->len; i-- > 0;)
    if (((QvEngineCall *)engine->calls->pdata[i])->cancelled)
      g_ptr_array_remove_index_fast(engine->calls, i);
}

static void set_busy(QvEngine *engine, gboolean busy)
{
  for (guint i = 0; i < engine->calls->len; i++)
    ((QvEngineCall *)engine->calls->pdata[i])->busy = busy;
}

/* Behind what curl has done. */
static void settle(QvEngine *engine)
{
  /* Each call stays where it is: while all are busy none is removed, and new ones come behind. */
  guint n = engine->calls->len;
  for (guint i = 0; i < n; i++)
    tell(engine->calls->pdata[i]);
  set_busy(engine, FALSE);
  collect(engine);
}

static void act(QvEngine *engine, curl_socket_t fd, int what)
{
  int running;
  set_busy(engine, TRUE);
  curl->multi_socket_action(engine->multi, fd, what, &running);
  settle(engine);
}

static gboolean on_socket(gint fd, GIOCondition condition, gpointer data)
{
  int what = ((condition & (G_IO_IN | G_IO_HUP)) != 0 ? CURL_CSELECT_IN : 0) |
             ((condition & G_IO_OUT) != 0 ? CURL_CSELECT_OUT : 0) |
             ((condition & G_IO_ERR) != 0 ? CURL_CSELECT_ERR : 0);
  act(data, fd, what);
  return G_SOURCE_CONTINUE;
}

static int on_watch(CURL *easy, curl_socket_t fd, int what, void *user, void *socket_data)
{
  QvEngine *engine = user;
  g_hash_table_remove(engine->sources, GINT_TO_POINTER(fd));
  if (what == CURL_POLL_REMOVE)
    return 0;
  GIOCondition condition = G_IO_ERR | G_IO_HUP;
  if ((what & CURL_POLL_IN) != 0)
    condition |= G_IO_IN;
  if ((what & CURL_POLL_OUT) != 0)
    condition |= G_IO_OUT;
  GSource *source = g_unix_fd_source_new(fd, condition);
  g_source_set_callback(source, (GSourceFunc)(void (*)(void))on_socket, engine, NULL);
  g_source_attach(source, engine->context);
  g_hash_table_insert(engine->sources, GINT_TO_POINTER(fd), source);
  return 0;
}

static gboolean on_timer(gpointer data)
{
  QvEngine *engine = data;
  g_clear_pointer(&engine->timer, source_free);
  act(engine, CURL_SOCKET_TIMEOUT, 0);
  return G_SOURCE_REMOVE;
}

static int on_timeout(CURLM *multi, long ms, void *user)
{
  QvEngine *engine = user;
  g_clear_pointer(&engine->timer, source_free);
  if (ms < 0)
    return 0;
  engine->timer = g_timeout_source_new((guint)MIN(ms, (long)G_MAXINT));
  g_source_set_callback(engine->timer, on_timer, engine, NULL);
  g_source_attach(engine->timer, engine->context);
  return 0;
}

static void free_multi(QvEngine *engine)
{
  g_ptr_array_unref(engine->calls);
  curl->multi_cleanup(engine->multi);
  g_clear_pointer(&engine->timer, source_free);
  g_hash_table_unref(engine->sources);
  g_main_context_unref(engine->context);
  engine->multi = NULL;
}

static void prepare_multi(QvEngine *engine)
{
  g_autoptr(GMainContext) now = g_main_context_ref_thread_default();
  /* A trial has a context of its own. */
  if (engine->multi != NULL && engine->calls->len == 0 && engine->context != now)
    free_multi(engine);
  if (engine->multi != NULL)
    return;
  engine->multi = curl->multi_init();
  g_assert(engine->multi != NULL);
  engine->context = g_main_context_ref_thread_default();
  engine->sources = g_hash_table_new_full(NULL, NULL, NULL, source_free);
  engine->calls = g_ptr_array_new_with_free_func(call_free);
  curl->multi_setopt(engine->multi, CURLMOPT_SOCKETFUNCTION, on_watch);
  curl->multi_setopt(engine->multi, CURLMOPT_SOCKETDATA, engine);
  curl->multi_setopt(engine->multi, CURLMOPT_TIMERFUNCTION, on_timeout);
  curl->multi_setopt(engine->multi, CURLMOPT_TIMERDATA, engine);
}

QvEngineCall *qv_engine_begin(QvEngine *engine, const QvEngineRequest *request, const QvEngineEvents *events, gpointer data)
{
  g_assert(qv_engine_load(NULL)); /* a backend has asked its engine in a call that blocks, or has loaded it */
  prepare_multi(engine);
  QvEngineCall *call = call_new(engine, request);
  call->events = *events;
  call->data = data;
  g_ptr_array_add(engine->calls, call);
  curl->multi_add_handle(engine->multi, call->easy);
  return call;
}

/* CALL may be freed: it is looked for, not looked at. */
static gboolean is_under_way(const QvEngine *engine, const QvEngineCall *call)
{
  return engine->multi != NULL && (call != NULL ? g_ptr_array_find(engine->calls, call, NULL) : engine->calls->len > 0);
}

void qv_engine_finish(QvEngine *engine, const QvEngineCall *call, gint64 until_ms)
{
  while (is_under_way(engine, call) && qv_clock_mono_ms() < until_ms) {
    int running;
    gint64 left_ms = until_ms - qv_clock_mono_ms();
    curl->multi_poll(engine->multi, NULL, 0, (int)CLAMP(left_ms, 1, FINISH_STEP_MS), NULL);
    set_busy(engine, TRUE);
    curl->multi_perform(engine->multi, &running);
    settle(engine);
  }
}

void qv_engine_cancel(QvEngineCall *call)
{
  if (call == NULL)
    return;
  call->cancelled = TRUE;
  if (!call->busy)
    g_ptr_array_remove_fast(call->engine->calls, call);
}

void qv_engine_free(QvEngine *engine)
{
  if (engine == NULL)
    return;
  if (engine->multi != NULL)
    free_multi(engine);
  g_free(engine->socket);
  g_free(engine->api);
  g_free(engine);
}
