/* SPDX-License-Identifier: Apache-2.0 */
/* Owns a sandbox from its start to its end: which call of the engine follows which.
 *
 *   create ─> inspect ─> attach ─101─> wait ──registered──┐
 *                                  └─> events ─registered─┴─> start ─> STARTED
 *
 *   source             says                                leads to
 *   wait               the exit status                     inspect (OOMKilled) > EXITED
 *   events             `oom`                               OOM
 *   pids.events        a task was refused                  PIDS
 *   1 s clock          counters of the control groups,     OOM, PIDS
 *                      where they are visible; else stats  -
 *   start deadline     -                                   failure, EXITED
 *   the engine is lost (wait ends without an answer)       EXITED, status unknown
 *
 * Nothing here blocks but qv_docker_usage, which asks at most USAGE_MS. */
#include <errno.h>
#include <fcntl.h>
#include <glib-unix.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "sandbox/docker_private.h"
#include "sandbox/run_folder.h"

#define TICK_MS 1000
#define DIAGNOSTICS_BYTES 8192
#define USAGE_MS 5000u
#define STATUS_UNKNOWN 255 /* the engine was lost, or somebody took the container away */

static QvDockerBackend *backend_of(QvDockerSandbox *s)
{
  return (QvDockerBackend *)s->head.backend;
}

static void emit(QvDockerSandbox *s, QvSandboxEvent event)
{
  if (!s->killed)
    s->head.func(&s->head, event, s->head.data);
}

static void drop_source(GSource **source)
{
  if (*source == NULL)
    return;
  g_source_destroy(*source);
  g_source_unref(*source);
  *source = NULL;
}

static void drop_call(QvEngineCall **call)
{
  qv_engine_cancel(g_steal_pointer(call));
}

void qv_docker_quiet(QvDockerSandbox *s)
{
  drop_source(&s->deadline);
  drop_source(&s->tick);
  drop_source(&s->notice);
  qv_io_close_cleanup(&s->notice_fd);
  drop_call(&s->step);
  drop_call(&s->waiting);
  drop_call(&s->events);
  drop_call(&s->stats);
  qv_attach_stop(s->attach);
  qv_io_close_cleanup(&s->guest_in);
  qv_io_close_cleanup(&s->guest_out);
}

static void add_diagnostics(QvDockerSandbox *s, const guint8 *bytes, gsize n)
{
  GString *text = s->head.diagnostics;
  gsize from = text->len;
  g_string_append_len(text, (const char *)bytes, (gssize)n);
  for (gsize i = from; i < text->len; i++)
    if (text->str[i] == '\0')
      text->str[i] = ' ';
  if (text->len > DIAGNOSTICS_BYTES)
    g_string_erase(text, 0, (gssize)(text->len - DIAGNOSTICS_BYTES));
}

/* Ends the sandbox from our side before it started: FAILURE (taken) is why. */
static void fail(QvDockerSandbox *s, char *take_failure)
{
  if (s->ended || s->killed) {
    g_free(take_failure);
    return;
  }
  s->head.failure = take_failure;
  s->ended = TRUE;
  qv_docker_quiet(s);
  emit(s, QV_SANDBOX_EXITED);
}

static void fail_with(QvDockerSandbox *s, const char *runtime, const GError *error)
{
  fail(s, qv_docker_explain(backend_of(s), runtime, error->message));
}

static const char *runtime_of(QvDockerSandbox *s)
{
  QvDockerPlan plan;
  qv_docker_plan(backend_of(s), s->spec, &plan);
  return plan.runtime;
}

/* One of a step's calls: answered well, or the sandbox has failed. */
static gboolean step_is_good(QvDockerSandbox *s, const QvEngineAnswer *answer, const GError *error, const char *what)
{
  g_autoptr(GError) problem = NULL;
  s->step = NULL;
  if (answer != NULL && qv_engine_answer_check(answer, what, &problem))
    return TRUE;
  fail_with(s, runtime_of(s), answer != NULL ? problem : error);
  return FALSE;
}

static QvEngineCall *begin(QvDockerSandbox *s, const char *method, const char *tail, guint deadline_ms,
                           const QvEngineEvents *events)
{
  g_autofree char *path = g_strdup_printf("/containers/%s%s", s->container, tail);
  QvEngineRequest request = {.method = method, .path = path, .deadline_ms = deadline_ms};
  return qv_engine_begin(backend_of(s)->engine, &request, events, s);
}

static QvEngineCall *ask(QvDockerSandbox *s, const char *tail, const QvEngineEvents *events)
{
  return begin(s, "GET", tail, QV_DOCKER_CALL_MS, events);
}

/* ---- the end */

static void report_oom(QvDockerSandbox *s)
{
  s->usage.oom = TRUE;
  if (s->reported_oom || s->ended)
    return;
  s->reported_oom = TRUE;
  emit(s, QV_SANDBOX_OOM);
}

static void read_group(QvDockerSandbox *s)
{
  qv_docker_group_read(&s->group, &s->usage);
  /* Under runc the group's bound is the guest's own, and reaching it is no more than a fork that fails. */
  if (!backend_of(s)->gvisor)
    s->usage.pids = FALSE;
  if (s->usage.oom)
    report_oom(s);
  if (s->usage.pids && !s->reported_pids && !s->killed && !s->ended) {
    s->reported_pids = TRUE;
    emit(s, QV_SANDBOX_PIDS);
  }
}

static void tell_exit(QvDockerSandbox *s)
{
  if (s->killed || s->ended)
    return;
  s->ended = TRUE;
  drop_source(&s->tick);
  drop_source(&s->deadline);
  drop_call(&s->events);
  drop_call(&s->stats);
  s->head.wait_status = W_EXITCODE(s->exit_code & 0xff, 0);
  emit(s, QV_SANDBOX_EXITED);
}

static void on_last_look(QvEngineCall *call, const QvEngineAnswer *answer, const GError *error, gpointer data)
{
  QvDockerSandbox *s = data;
  s->step = NULL;
  const json_t *state = answer != NULL ? json_object_get(answer->json, "State") : NULL;
  if (json_is_true(json_object_get(state, "OOMKilled")))
    report_oom(s);
  tell_exit(s);
}

/* STARTED is told, and so is the exit to us: what the engine knows of the reason comes before the end. */
static void look_at_end(QvDockerSandbox *s)
{
  static const QvEngineEvents events = {.done = on_last_look};
  if (!s->killed && !s->ended && s->step == NULL)
    s->step = ask(s, "/json", &events);
}

static void on_waited(QvEngineCall *call, const QvEngineAnswer *answer, const GError *error, gpointer data)
{
  QvDockerSandbox *s = data;
  s->waiting = NULL;
  const json_t *code = answer != NULL && answer->status == 200 ? json_object_get(answer->json, "StatusCode") : NULL;
  s->has_exit = TRUE;
  s->exit_code = json_is_integer(code) ? (int)json_integer_value(code) : STATUS_UNKNOWN;
  if (!json_is_integer(code)) {
    const char *why = error != NULL ? error->message : "docker: the container was taken away";
    add_diagnostics(s, (const guint8 *)why, strlen(why));
    if (!s->head.started) {
      fail(s, g_strdup(why));
      return;
    }
    tell_exit(s);
    return;
  }
  /* The answer to the start may still be on its way. */
  if (s->head.started)
    look_at_end(s);
}

/* ---- while it runs */

static void on_stats(QvEngineCall *call, const QvEngineAnswer *answer, const GError *error, gpointer data);

static void take_stats(QvDockerSandbox *s, const json_t *json)
{
  const json_t *memory = json_object_get(json, "memory_stats");
  const json_t *cpu = json_object_get(json_object_get(json, "cpu_stats"), "cpu_usage");
  guint64 most = (guint64)MAX(json_integer_value(json_object_get(memory, "max_usage")),
                              json_integer_value(json_object_get(memory, "usage")));
  guint64 user = (guint64)json_integer_value(json_object_get(cpu, "usage_in_usermode")) / 1000000;
  guint64 sys = (guint64)json_integer_value(json_object_get(cpu, "usage_in_kernelmode")) / 1000000;
  s->usage.max_memory_bytes = MAX(s->usage.max_memory_bytes, most);
  s->usage.user_ms = MAX(s->usage.user_ms, user);
  s->usage.sys_ms = MAX(s->usage.sys_ms, sys);
}

static void on_stats(QvEngineCall *call, const QvEngineAnswer *answer, const GError *error, gpointer data)
{
  QvDockerSandbox *s = data;
  s->stats = NULL;
  if (answer != NULL && answer->status == 200)
    take_stats(s, answer->json);
}

#define STATS_PATH "/stats?stream=false&one-shot=true"

static gboolean on_tick(gpointer data)
{
  static const QvEngineEvents events = {.done = on_stats};
  QvDockerSandbox *s = data;
  if (s->group.memory != NULL)
    read_group(s);
  else if (s->stats == NULL && s->head.started && !s->has_exit)
    s->stats = ask(s, STATS_PATH, &events);
  return G_SOURCE_CONTINUE;
}

static void on_event(QvEngineCall *call, const char *line, gsize n, gpointer data)
{
  QvDockerSandbox *s = data;
  json_t *event = json_loadb(line, n, 0, NULL);
  const char *action = json_string_value(json_object_get(event, "Action"));
  gboolean oom = g_strcmp0(action, "oom") == 0;
  json_decref(event);
  if (oom)
    report_oom(s);
}

/* ---- start */

/* The kernel's notice of a task that was refused: gVisor does not survive it, and its control group is gone soon after. */
static gboolean on_notice(gint fd, GIOCondition condition, gpointer data)
{
  QvDockerSandbox *s = data;
  char bytes[256];
  if (lseek(fd, 0, SEEK_SET) != 0 || read(fd, bytes, sizeof bytes) < 0) {
    drop_source(&s->notice);
    return G_SOURCE_REMOVE;
  }
  read_group(s);
  return G_SOURCE_CONTINUE;
}

static void watch_pids(QvDockerSandbox *s)
{
  char bytes[256];
  g_autofree char *path = s->group.pids != NULL ? g_build_filename(s->group.pids, "pids.events", NULL) : NULL;
  s->notice_fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (s->notice_fd < 0 || read(s->notice_fd, bytes, sizeof bytes) < 0)
    return;
  g_autoptr(GMainContext) context = g_main_context_ref_thread_default();
  s->notice = g_unix_fd_source_new(s->notice_fd, G_IO_PRI);
  g_source_set_callback(s->notice, (GSourceFunc)(void (*)(void))on_notice, s, NULL);
  g_source_attach(s->notice, context);
}

static void on_group(QvEngineCall *call, const QvEngineAnswer *answer, const GError *error, gpointer data)
{
  QvDockerSandbox *s = data;
  s->step = NULL;
  json_int_t pid = answer != NULL ? json_integer_value(json_object_get(json_object_get(answer->json, "State"), "Pid")) : 0;
  if (pid > 1 && pid <= G_MAXINT)
    qv_docker_group_find(&s->group, (gint)pid, s->container);
  watch_pids(s);
  if (s->has_exit)
    look_at_end(s);
}

static void on_started(QvEngineCall *call, const QvEngineAnswer *answer, const GError *error, gpointer data)
{
  static const QvEngineEvents events = {.done = on_group};
  QvDockerSandbox *s = data;
  s->start_open = answer == NULL;
  if (answer != NULL)
    qv_docker_mark_answered(backend_of(s), s->head.id);
  if (!step_is_good(s, answer, error, "start"))
    return;
  drop_source(&s->deadline);
  s->head.started = TRUE;
  emit(s, QV_SANDBOX_STARTED);
  if (!s->killed && !s->ended)
    s->step = ask(s, "/json", &events);
}

static void maybe_start(QvDockerSandbox *s)
{
  static const QvEngineEvents events = {.done = on_started};
  g_autoptr(GError) problem = NULL;
  if (!s->wait_ready || !s->events_ready || s->start_sent || s->ended || s->killed)
    return;
  if (!qv_docker_mark_starting(backend_of(s), s->head.id, &problem)) {
    fail(s, g_strdup(problem->message));
    return;
  }
  s->start_sent = s->start_open = TRUE;
  s->step = begin(s, "POST", "/start", 0, &events);
}

static void on_wait_head(QvEngineCall *call, long status, gpointer data)
{
  QvDockerSandbox *s = data;
  s->wait_ready = status == 200;
  maybe_start(s);
}

static void on_events_head(QvEngineCall *call, long status, gpointer data)
{
  QvDockerSandbox *s = data;
  s->events_ready = status == 200;
  maybe_start(s);
}

static void on_events_done(QvEngineCall *call, const QvEngineAnswer *answer, const GError *error, gpointer data)
{
  QvDockerSandbox *s = data;
  g_autoptr(GError) problem = NULL;
  s->events = NULL;
  /* Later the wait says what there is to say: the engine is gone, or the container. */
  if (s->events_ready)
    return;
  if (answer != NULL)
    qv_engine_answer_check(answer, "events", &problem);
  fail(s, g_strdup(problem != NULL ? problem->message : error != NULL ? error->message : "docker: events end at once"));
}

static void on_attach_ready(gpointer data)
{
  static const QvEngineEvents wait_events = {.head = on_wait_head, .done = on_waited};
  static const QvEngineEvents event_events = {.head = on_events_head, .line = on_event, .done = on_events_done};
  QvDockerSandbox *s = data;
  s->waiting = begin(s, "POST", "/wait?condition=next-exit", 0, &wait_events);
  g_autofree char *filters = g_strdup_printf("{\"container\":[\"%s\"],\"event\":[\"oom\"]}", s->container);
  g_autofree char *escaped = qv_engine_escape(filters);
  g_autofree char *path = g_strconcat("/events?filters=", escaped, NULL);
  QvEngineRequest request = {.method = "GET", .path = path};
  s->events = qv_engine_begin(backend_of(s)->engine, &request, &event_events, s);
}

static void on_attach_diagnostics(const guint8 *bytes, gsize n, gpointer data)
{
  add_diagnostics(data, bytes, n);
}

static void on_attach_ended(const GError *error, gpointer data)
{
  QvDockerSandbox *s = data;
  if (error == NULL)
    return;
  if (!s->start_sent)
    fail(s, g_strdup(error->message));
  else
    add_diagnostics(s, (const guint8 *)error->message, strlen(error->message));
}

static void attach(QvDockerSandbox *s)
{
  static const QvAttachEvents events = {on_attach_ready, on_attach_diagnostics, on_attach_ended};
  QvDockerBackend *docker = backend_of(s);
  g_autoptr(GError) error = NULL;
  s->attach = qv_attach_new(qv_engine_socket(docker->engine), qv_engine_api(docker->engine), s->container,
                            qv_io_steal(&s->guest_in), qv_io_steal(&s->guest_out), QV_DOCKER_CALL_MS, &events, s, &error);
  if (s->attach == NULL)
    fail(s, g_strdup(error->message));
}

static void on_inspected(QvEngineCall *call, const QvEngineAnswer *answer, const GError *error, gpointer data)
{
  QvDockerSandbox *s = data;
  QvDockerBackend *docker = backend_of(s);
  g_autoptr(GError) problem = NULL;
  QvDockerPlan plan;
  if (!step_is_good(s, answer, error, "inspect"))
    return;
  qv_docker_plan(docker, s->spec, &plan);
  if (!qv_container_docker_verify(s->spec, &plan, answer->json, (const char *const *)docker->allow, &problem))
    fail(s, g_strdup(problem->message));
  else
    attach(s);
}

static void on_created(QvEngineCall *call, const QvEngineAnswer *answer, const GError *error, gpointer data)
{
  static const QvEngineEvents events = {.done = on_inspected};
  QvDockerSandbox *s = data;
  g_autoptr(GError) problem = NULL;
  const char *id = answer != NULL ? json_string_value(json_object_get(answer->json, "Id")) : NULL;
  s->making = NULL;
  if (s->ended || s->killed) { /* nobody waits for it any more but its removal */
    s->container = qv_docker_container_id_valid(id) ? g_strdup(id) : NULL;
    return;
  }
  if (!step_is_good(s, answer, error, "create"))
    return;
  if (!qv_docker_container_id_valid(id)) {
    fail(s, g_strdup("docker: the engine made a container without an id"));
    return;
  }
  s->container = g_strdup(id);
  g_autofree char *note = qv_docker_note_path(backend_of(s), s->head.id);
  if (!qv_fd_write_file(note, id, strlen(id), 0600, &problem)) {
    fail(s, g_strdup(problem->message));
    return;
  }
  s->step = ask(s, "/json", &events);
}

static gboolean on_deadline(gpointer data)
{
  QvDockerSandbox *s = data;
  fail(s, g_strdup_printf("docker: the container did not start within %u ms", backend_of(s)->start_deadline_ms));
  return G_SOURCE_REMOVE;
}

/* ---- making */

void qv_docker_plan(const QvDockerBackend *docker, const QvContainerSpec *spec, QvDockerPlan *plan)
{
  *plan = (QvDockerPlan){.runtime = spec->egress_network != NULL ? docker->runtime : docker->runtime_offline,
                         .gvisor = docker->gvisor,
                         .pool = docker->pool,
                         .runner_id = docker->runner_id,
                         .owner = docker->owner,
                         .boot_id = docker->boot_id};
}

static gboolean make_stdio(QvDockerSandbox *s, GError **error)
{
  int in[2], out[2];
  if (!qv_fd_socketpair(in, error))
    return FALSE;
  s->head.stdin_fd = in[0];
  s->guest_in = in[1];
  if (!qv_fd_socketpair(out, error))
    return FALSE;
  s->head.stdout_fd = out[0];
  s->guest_out = out[1];
  const int fds[] = {in[0], in[1], out[0], out[1]};
  for (gsize i = 0; i < G_N_ELEMENTS(fds); i++)
    if (!qv_io_set_nonblock(fds[i], true))
      return qv_error_set_errno(error, errno, "docker: stdin and stdout of the sandbox");
  return TRUE;
}

static QvDockerSandbox *sandbox_new(QvBackend *backend, QvContainerSpec *take_spec, QvSandboxFunc func, gpointer data)
{
  QvDockerSandbox *s = g_new0(QvDockerSandbox, 1);
  s->head.backend = backend;
  s->head.id = g_strdup(take_spec->sandbox_id);
  s->head.stdin_fd = s->head.stdout_fd = -1;
  s->head.func = func;
  s->head.data = data;
  s->head.wait_status = -1;
  s->head.diagnostics = g_string_new(NULL);
  s->spec = take_spec;
  s->lock_fd = s->guest_in = s->guest_out = s->notice_fd = -1;
  return s;
}

static GSource *clock_new(guint ms, GSourceFunc func, QvDockerSandbox *s)
{
  g_autoptr(GMainContext) context = g_main_context_ref_thread_default();
  GSource *source = g_timeout_source_new(ms);
  g_source_set_callback(source, func, s, NULL);
  g_source_attach(source, context);
  return source;
}

QvSandbox *qv_docker_start(QvBackend *backend, const QvSandboxRequest *request, QvSandboxFunc func, gpointer data,
                           GError **error)
{
  static const QvEngineEvents events = {.done = on_created};
  QvDockerBackend *docker = (QvDockerBackend *)backend;
  QvContainerSpec *spec = qv_container_spec_plan(request, error);
  if (spec == NULL)
    return NULL;
  if (spec->image_digest == NULL || spec->egress_socket != NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_POLICY, "docker: a sandbox takes an image by digest, and a network by name");
    qv_container_spec_free(spec);
    return NULL;
  }
  QvDockerSandbox *s = sandbox_new(backend, spec, func, data);
  s->lock_fd = qv_run_folder_make(docker->runs_dir, s->head.id, error);
  if (s->lock_fd < 0 || !make_stdio(s, error)) {
    qv_docker_free_sandbox(&s->head);
    return NULL;
  }
  QvDockerPlan plan;
  qv_docker_plan(docker, spec, &plan);
  g_autofree char *body = qv_container_docker_format(spec, &plan);
  QvEngineRequest creation = {.method = "POST", .path = "/containers/create", .body = body, .deadline_ms = QV_DOCKER_CALL_MS};
  s->create_sent = TRUE;
  s->maker = qv_engine_new(qv_engine_socket(docker->engine));
  qv_engine_set_api(s->maker, qv_engine_api(docker->engine));
  s->making = qv_engine_begin(s->maker, &creation, &events, s);
  s->deadline = clock_new(docker->start_deadline_ms, on_deadline, s);
  s->tick = clock_new(TICK_MS, on_tick, s);
  return &s->head;
}

/* ---- usage */

/* Where the control groups are not visible: the engine is asked. */
static void ask_usage(QvDockerSandbox *s)
{
  QvDockerBackend *docker = backend_of(s);
  const char *const tails[] = {"/json", STATS_PATH};
  for (gsize i = 0; i < G_N_ELEMENTS(tails); i++) {
    g_auto(QvEngineAnswer) answer = {0};
    g_autofree char *path = g_strdup_printf("/containers/%s%s", s->container, tails[i]);
    QvEngineRequest request = {.method = "GET", .path = path, .deadline_ms = USAGE_MS};
    if (!qv_engine_do(docker->engine, &request, &answer, NULL))
      return;
    if (i == 0)
      s->usage.oom |= json_is_true(json_object_get(json_object_get(answer.json, "State"), "OOMKilled"));
    else
      take_stats(s, answer.json);
  }
}

void qv_docker_usage(QvSandbox *sandbox, QvSandboxUsage *usage)
{
  QvDockerSandbox *s = (QvDockerSandbox *)sandbox;
  if (s->head.started && !s->clean && !s->killed && !qv_docker_group_read(&s->group, &s->usage))
    ask_usage(s);
  if (!backend_of(s)->gvisor)
    s->usage.pids = FALSE;
  *usage = s->usage;
}

void qv_docker_free_sandbox(QvSandbox *sandbox)
{
  QvDockerSandbox *s = (QvDockerSandbox *)sandbox;
  /* What remains keeps its run folder: the next sweep finds it. */
  qv_docker_kill(sandbox, NULL);
  qv_engine_free(s->maker);
  qv_attach_free(s->attach);
  qv_io_close_cleanup(&s->head.stdin_fd);
  qv_io_close_cleanup(&s->head.stdout_fd);
  qv_io_close_cleanup(&s->lock_fd);
  qv_container_spec_free(s->spec);
  qv_docker_group_clear(&s->group);
  g_string_free(s->head.diagnostics, TRUE);
  g_free(s->head.failure);
  g_free(s->head.id);
  g_free(s->container);
  g_free(s);
}
