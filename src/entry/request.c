/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the schema of the request line. Every reader below leaves its output
 * alone and names the member in *WHY when it refuses. */
#include "entry/request.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "format/glob.h"
#include "format/json.h"
#include "format/tar.h"

enum { TOKEN_BYTES_MAX = 128, SOCKET_PATH_BYTES_MAX = 107 };

static bool refuse(const char **why, const char *text)
{
  *why = text;
  return false;
}

#define SHAPE_OK(json, table) qv_json_shape(json, table, sizeof table / sizeof *table, NULL)

static bool get_int(const json_t *json, int64_t min, int64_t max, int64_t *value)
{
  if (!json_is_integer(json) || json_integer_value(json) < min || json_integer_value(json) > max)
    return false;
  *value = json_integer_value(json);
  return true;
}

/* A text without NUL of MIN to MAX bytes, or NULL. */
static const char *get_text(const json_t *json, size_t min, size_t max)
{
  const char *text = json_string_value(json);
  size_t n = json_string_length(json);
  return text && n >= min && n <= max && strlen(text) == n ? text : NULL;
}

static char *copy_text(const char *text)
{
  char *copy = strdup(text);
  if (!copy)
    abort();
  return copy;
}

static void *make_array(size_t n, size_t size)
{
  void *array = calloc(n + 1, size);
  if (!array)
    abort();
  return array;
}

static bool is_identifier(const char *text)
{
  static const char first[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  static const char rest[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  size_t n = strlen(text);
  return n >= 1 && n <= QV_IDENTIFIER_BYTES_MAX && strspn(text, first) > 0 && strspn(text, rest) == n;
}

static bool is_env_name(const char *text)
{
  static const char first[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
  static const char rest[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
  size_t n = strlen(text);
  return n >= 1 && n <= QV_STEP_ENV_NAME_BYTES_MAX && strspn(text, first) > 0 && strspn(text, rest) == n;
}

static bool parse_argv(const json_t *json, QvEntryStep *step, const char **why)
{
  size_t n = json_array_size(json), total = 0;
  if (n < 1 || n > QV_STEP_ARGV_MAX)
    return refuse(why, "argv");
  step->argv = make_array(n, sizeof *step->argv);
  for (size_t i = 0; i < n; i++) {
    const char *text = get_text(json_array_get(json, i), 0, QV_STEP_ARGV_BYTES_MAX);
    if (!text)
      return refuse(why, "argv");
    total += strlen(text);
    step->argv[i] = copy_text(text);
  }
  return total <= QV_STEP_ARGV_BYTES_MAX || refuse(why, "argv: too long");
}

static bool parse_env(const json_t *json, QvEntryStep *step, const char **why)
{
  size_t n = json_object_size(json);
  const char *name;
  json_t *value;
  if (n > QV_STEP_ENV_MAX)
    return refuse(why, "env");
  step->env = make_array(n, sizeof *step->env);
  size_t i = 0;
  json_object_foreach((json_t *)json, name, value) {
    const char *text = get_text(value, 0, QV_STEP_ENV_VALUE_BYTES_MAX);
    if (!is_env_name(name) || !text)
      return refuse(why, "env");
    size_t name_n = strlen(name), text_n = strlen(text);
    char *var = make_array(name_n + text_n + 1, 1);
    memcpy(var, name, name_n);
    var[name_n] = '=';
    memcpy(var + name_n + 1, text, text_n);
    step->env[i++] = var;
  }
  return true;
}

static bool parse_step(const json_t *json, int64_t wall_ms, QvEntryStep *step, const char **why)
{
  static const QvJsonMember members[] = {
    {"name", QV_JSON_STRING},
    {"argv", QV_JSON_ARRAY},
    {"cwd", QV_JSON_STRING | QV_JSON_OPTIONAL},
    {"timeoutMs", QV_JSON_INTEGER | QV_JSON_OPTIONAL},
    {"env", QV_JSON_OBJECT | QV_JSON_OPTIONAL},
    {"continueOnFailure", QV_JSON_BOOL | QV_JSON_OPTIONAL},
  };
  if (!SHAPE_OK(json, members))
    return refuse(why, "step: members");
  const char *name = get_text(json_object_get(json, "name"), 1, QV_IDENTIFIER_BYTES_MAX);
  if (!name || !is_identifier(name))
    return refuse(why, "step: name");
  step->name = copy_text(name);
  const json_t *cwd = json_object_get(json, "cwd");
  if (cwd) {
    const char *text = get_text(cwd, 1, QV_PATH_BYTES_MAX);
    if (!text || (strcmp(text, ".") != 0 && qv_tar_path_check(text, strlen(text), false) != QV_TAR_OK))
      return refuse(why, "step: cwd");
    step->cwd = copy_text(text);
  }
  const json_t *timeout = json_object_get(json, "timeoutMs");
  step->timeout_ms = wall_ms;
  if (timeout && !get_int(timeout, 1, wall_ms, &step->timeout_ms))
    return refuse(why, "step: timeoutMs");
  step->continue_on_failure = json_is_true(json_object_get(json, "continueOnFailure"));
  return parse_argv(json_object_get(json, "argv"), step, why) && parse_env(json_object_get(json, "env"), step, why);
}

static bool parse_steps(const json_t *root, int64_t wall_ms, QvEntryRequest *request, const char **why)
{
  const json_t *setup = json_object_get(root, "setup");
  const json_t *run = json_object_get(root, "run");
  size_t n = json_array_size(run);
  if (n < 1 || n > QV_JOB_STEPS_MAX)
    return refuse(why, "run");
  if (!json_is_null(setup)) {
    request->setup = make_array(1, sizeof *request->setup);
    if (!parse_step(setup, wall_ms, request->setup, why))
      return false;
  }
  request->run = make_array(n, sizeof *request->run);
  for (size_t i = 0; i < n; i++) {
    request->run_n = i + 1;
    if (!parse_step(json_array_get(run, i), wall_ms, &request->run[i], why))
      return false;
    bool taken = request->setup && strcmp(request->setup->name, request->run[i].name) == 0;
    for (size_t k = 0; k < i; k++)
      taken = taken || strcmp(request->run[k].name, request->run[i].name) == 0;
    if (taken)
      return refuse(why, "run: a name twice");
  }
  return true;
}

/* Base64url, as section 7 makes it; the bound is wider than today's 43 characters. */
static bool is_token(const char *text)
{
  static const char chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
  size_t n = strspn(text, chars);
  return n > 0 && text[n + strspn(text + n, "=")] == '\0';
}

static bool parse_proxy(const json_t *json, QvEntryRequest *request, const char **why)
{
  static const QvJsonMember members[] = {
    {"token", QV_JSON_STRING},
    {"address", QV_JSON_STRING | QV_JSON_NULL},
    {"socket", QV_JSON_STRING | QV_JSON_NULL},
    {"caPem", QV_JSON_STRING | QV_JSON_NULL},
  };
  if (json_is_null(json))
    return true;
  if (!request->setup || !SHAPE_OK(json, members))
    return refuse(why, "proxy: members, or no setup");
  const json_t *address = json_object_get(json, "address"), *path = json_object_get(json, "socket");
  const json_t *ca_pem = json_object_get(json, "caPem");
  const char *token = get_text(json_object_get(json, "token"), 1, TOKEN_BYTES_MAX);
  if (!token || !is_token(token))
    return refuse(why, "proxy: token");
  if (json_is_null(address) == json_is_null(path))
    return refuse(why, "proxy: one of address and socket");
  const char *to = json_is_null(path) ? get_text(address, 9, 21) : get_text(path, 2, SOCKET_PATH_BYTES_MAX);
  if (!to || (to[0] != '/' && !json_is_null(path)))
    return refuse(why, "proxy: address or socket");
  const char *pem = get_text(ca_pem, 1, QV_REQUEST_LINE_BYTES_MAX);
  if (!pem && !json_is_null(ca_pem))
    return refuse(why, "proxy: caPem");
  request->proxy = make_array(1, sizeof *request->proxy);
  request->proxy->token = copy_text(token);
  *(json_is_null(path) ? &request->proxy->address : &request->proxy->socket) = copy_text(to);
  request->proxy->ca_pem = pem ? copy_text(pem) : NULL;
  return true;
}

static bool parse_texts(const json_t *json, size_t max, bool paths, char ***texts, size_t *texts_n)
{
  size_t n = json_array_size(json);
  if (n > max)
    return false;
  *texts = make_array(n, sizeof **texts);
  for (size_t i = 0; i < n; i++) {
    const char *text = get_text(json_array_get(json, i), 1, paths ? QV_PATH_BYTES_MAX : QV_GLOB_BYTES_MAX);
    if (!text || !(paths ? qv_tar_path_check(text, strlen(text), false) == QV_TAR_OK : qv_glob_valid(text, strlen(text))))
      return false;
    (*texts)[i] = copy_text(text);
    *texts_n = i + 1;
  }
  return true;
}

static bool parse_limits(const json_t *json, QvEntryRequest *request, int64_t *wall_ms, const char **why)
{
  static const QvJsonMember members[] = {
    {"wallMs", QV_JSON_INTEGER},    {"memoryMiB", QV_JSON_INTEGER},     {"milliCpus", QV_JSON_INTEGER},
    {"pids", QV_JSON_INTEGER},      {"workMiB", QV_JSON_INTEGER},       {"logBytes", QV_JSON_INTEGER},
    {"artefactBytes", QV_JSON_INTEGER}, {"artefactCount", QV_JSON_INTEGER},
  };
  int64_t unused;
  if (!SHAPE_OK(json, members))
    return refuse(why, "limits: members");
  if (!get_int(json_object_get(json, "wallMs"), 1, QV_JSON_INTEGER_MAX, wall_ms) ||
      !get_int(json_object_get(json, "memoryMiB"), 1, QV_JSON_INTEGER_MAX, &unused) ||
      !get_int(json_object_get(json, "milliCpus"), 1, QV_JSON_INTEGER_MAX, &request->milli_cpus) ||
      !get_int(json_object_get(json, "pids"), 1, QV_JSON_INTEGER_MAX, &unused) ||
      !get_int(json_object_get(json, "workMiB"), 1, QV_JSON_INTEGER_MAX, &unused) ||
      !get_int(json_object_get(json, "logBytes"), 1, INT32_MAX, &request->log_bytes) ||
      !get_int(json_object_get(json, "artefactBytes"), 0, QV_JSON_INTEGER_MAX, &request->artefact_bytes) ||
      !get_int(json_object_get(json, "artefactCount"), 0, QV_JSON_INTEGER_MAX, &request->artefact_count))
    return refuse(why, "limits: a value");
  return true;
}

static bool parse_blobs(const json_t *root, QvEntryRequest *request, const char **why)
{
  static const QvJsonMember members[] = {{"size", QV_JSON_INTEGER}};
  const json_t *base = json_object_get(root, "base"), *overlay = json_object_get(root, "overlay");
  int64_t size;
  if (!SHAPE_OK(base, members) || !get_int(json_object_get(base, "size"), 0, QV_JSON_INTEGER_MAX, &size))
    return refuse(why, "base");
  request->base_bytes = (uint64_t)size;
  request->has_overlay = !json_is_null(overlay);
  if (!request->has_overlay)
    return true;
  if (!SHAPE_OK(overlay, members) ||
      !get_int(json_object_get(overlay, "size"), 0, QV_JSON_INTEGER_MAX, &size))
    return refuse(why, "overlay");
  request->overlay_bytes = (uint64_t)size;
  return true;
}

static bool parse_root(const json_t *root, QvEntryRequest *request, const char **why)
{
  static const QvJsonMember members[] = {
    {"v", QV_JSON_INTEGER},
    {"streamKey", QV_JSON_STRING},
    {"base", QV_JSON_OBJECT},
    {"overlay", QV_JSON_OBJECT | QV_JSON_NULL},
    {"deletes", QV_JSON_ARRAY},
    {"setup", QV_JSON_OBJECT | QV_JSON_NULL},
    {"proxy", QV_JSON_OBJECT | QV_JSON_NULL},
    {"run", QV_JSON_ARRAY},
    {"artefacts", QV_JSON_ARRAY},
    {"limits", QV_JSON_OBJECT},
    {"live", QV_JSON_BOOL | QV_JSON_OPTIONAL},
  };
  int64_t version, wall_ms;
  size_t key_n;
  if (!SHAPE_OK(root, members))
    return refuse(why, "members");
  if (!get_int(json_object_get(root, "v"), 1, 1, &version))
    return refuse(why, "v");
  const char *key = get_text(json_object_get(root, "streamKey"), 1, 128);
  if (!key || !qv_base64_decode(key, strlen(key), request->stream_key, sizeof request->stream_key, &key_n) ||
      key_n != sizeof request->stream_key)
    return refuse(why, "streamKey");
  request->live = json_is_true(json_object_get(root, "live"));
  if (!parse_texts(json_object_get(root, "deletes"), QV_JOB_DELETES_MAX, true, &request->deletes,
                   &request->deletes_n))
    return refuse(why, "deletes");
  if (!parse_texts(json_object_get(root, "artefacts"), QV_JOB_ARTEFACT_GLOBS_MAX, false, &request->artefacts,
                   &request->artefacts_n))
    return refuse(why, "artefacts");
  return parse_limits(json_object_get(root, "limits"), request, &wall_ms, why) &&
         parse_blobs(root, request, why) && parse_steps(root, wall_ms, request, why) &&
         parse_proxy(json_object_get(root, "proxy"), request, why);
}

QvEntryRequest *qv_entry_request_parse(const char *line, size_t n, const char **why)
{
  QvEntryRequest *request = make_array(1, sizeof *request);
  QvJsonError error;
  json_t *root = qv_json_parse(line, n, QV_REQUEST_LINE_BYTES_MAX, QV_JSON_SIGNED, &error);
  if (!root)
    *why = qv_json_reason_text(error.reason);
  bool good = root && parse_root(root, request, why);
  json_decref(root);
  if (good)
    return request;
  qv_entry_request_free(request);
  return NULL;
}

static void free_texts(char **texts, size_t n)
{
  for (size_t i = 0; texts && i < n; i++)
    free(texts[i]);
  free(texts);
}

static size_t count(char *const *texts)
{
  size_t n = 0;
  while (texts && texts[n])
    n++;
  return n;
}

static void clear_step(QvEntryStep *step)
{
  free(step->name);
  free_texts(step->argv, count(step->argv));
  free(step->cwd);
  free_texts(step->env, count(step->env));
}

static void free_wiped(char *text)
{
  if (text)
    explicit_bzero(text, strlen(text));
  free(text);
}

void qv_entry_request_wipe_proxy(QvEntryRequest *request)
{
  if (!request->proxy)
    return;
  free_wiped(request->proxy->token);
  free_wiped(request->proxy->address);
  free_wiped(request->proxy->socket);
  free(request->proxy->ca_pem);
  free(request->proxy);
  request->proxy = NULL;
}

void qv_entry_request_free(QvEntryRequest *request)
{
  if (!request)
    return;
  qv_entry_request_wipe_proxy(request);
  free_texts(request->deletes, request->deletes_n);
  free_texts(request->artefacts, request->artefacts_n);
  if (request->setup)
    clear_step(request->setup);
  free(request->setup);
  for (size_t i = 0; i < request->run_n; i++)
    clear_step(&request->run[i]);
  free(request->run);
  explicit_bzero(request, sizeof *request);
  free(request);
}
