/* SPDX-License-Identifier: Apache-2.0 */
/* The order of section 5: base, deletes, overlay, setup, steps, artefacts,
 * exit.json. Everything up to setup happens before any code of the job has
 * run; after every step nothing of it is alive. */
#include "entry/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "entry/collect.h"
#include "entry/cut.h"
#include "entry/env.h"
#include "entry/input.h"
#include "entry/output.h"
#include "entry/request.h"
#include "entry/step.h"
#include "entry/tree.h"
#include "entry/unpack.h"

enum { SCRATCH_BYTES = 64 * 1024, CA_BYTES_MAX = 1024 * 1024 };

#define CA_FILE "ca.pem"

typedef struct {
  const QvEntryPlace *place;
  QvEntryInput input;
  QvEntryOutput output;
  QvEntryRequest *request;
  QvEntryStage stage;
  QvEntryRing ring;
  QvEntryLive live;
  QvEntryExit facts;
  int out_of_input; /* errno of the read, once the input ended early */
} Run;

static int complain(const char *what, const char *why, int status)
{
  fprintf(stderr, "entry: %s: %s\n", what, why);
  return status;
}

static int read_request(Run *run)
{
  char *line = malloc(QV_REQUEST_LINE_BYTES_MAX);
  if (!line)
    return complain("request line", strerror(errno), EX_OSERR);
  int64_t n = qv_entry_input_line(&run->input, line, QV_REQUEST_LINE_BYTES_MAX);
  run->stage.origin_ms = qv_clock_mono_ms();
  const char *why = n < 0 ? strerror(errno) : NULL;
  int status = n >= 0 || errno == EMSGSIZE ? EX_DATAERR : EX_IOERR;
  if (n >= 0)
    run->request = qv_entry_request_parse(line, (size_t)n, &why);
  explicit_bzero(line, QV_REQUEST_LINE_BYTES_MAX);
  free(line);
  return run->request ? 0 : complain("request line", why, status);
}

static int open_folder(int dir_fd, const char *path)
{
  return openat(dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* What the image trusts stays trusted: most of the variables replace a program's own list. */
static bool copy_image_ca(int to)
{
  static const char *const places[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem",
                                       "/etc/pki/tls/certs/ca-bundle.crt"};
  QV_AUTOFD int from = -1;
  for (size_t i = 0; from < 0 && i < sizeof places / sizeof *places; i++)
    from = open(places[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  char bytes[4096];
  ssize_t n = 0;
  for (size_t total = 0; from >= 0 && total < CA_BYTES_MAX && (n = read(from, bytes, sizeof bytes)) > 0; total += (size_t)n)
    if (!qv_io_write_full(to, bytes, (size_t)n))
      return false;
  return n >= 0;
}

static bool write_ca(const Run *run)
{
  const QvEntryProxyTo *proxy = run->request->proxy;
  const char *pem = proxy ? proxy->ca_pem : NULL;
  if (!pem)
    return true;
  QV_AUTOFD int fd =
    openat(run->stage.work_fd, CA_FILE, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  return fd >= 0 && qv_io_write_full(fd, pem, strlen(pem)) && qv_io_write_full(fd, "\n", 1) && copy_image_ca(fd);
}

static int prepare(Run *run)
{
  const QvEntryPlace *place = run->place;
  QvEntryStage *stage = &run->stage;
  const size_t log_bytes = (size_t)run->request->log_bytes;
  stage->signal_fd = place->signal_fd;
  stage->ring = &run->ring;
  stage->scratch_n = SCRATCH_BYTES;
  stage->scratch = malloc(SCRATCH_BYTES);
  char *tail = malloc(log_bytes);
  if (!stage->scratch || !tail)
    return complain("memory", strerror(errno), EX_OSERR);
  qv_entry_ring_init(&run->ring, tail, log_bytes);
  stage->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  stage->tmp_fd = open_folder(AT_FDCWD, place->tmp);
  stage->work_fd = open_folder(AT_FDCWD, place->work);
  if (stage->null_fd < 0 || stage->tmp_fd < 0 || stage->work_fd < 0)
    return complain("work folders", strerror(errno), EX_OSERR);
  if (mkdirat(stage->work_fd, "repo", 0755) != 0 || mkdirat(stage->work_fd, "home", 0700) != 0 ||
      (stage->root_fd = open_folder(stage->work_fd, "repo")) < 0 || !write_ca(run))
    return complain("work folders", strerror(errno), EX_OSERR);
  return 0;
}

/* False where there is nothing to go on with: run->facts says why. */
static bool unpack_blob(Run *run, const char *name, uint64_t bytes, int64_t mtime_s, bool replace)
{
  QvEntryUnpack *unpack = qv_entry_unpack_new(run->stage.root_fd, mtime_s, replace);
  QvEntryUnpackVerdict verdict = QV_ENTRY_UNPACK_GOOD;
  while (bytes > 0) {
    size_t n;
    const char *view = qv_entry_input_take(&run->input, bytes, &n);
    if (!view) {
      run->out_of_input = errno;
      qv_entry_unpack_free(unpack);
      return false;
    }
    bytes -= n;
    /* Read to its end all the same: the runner finds out first whether its blob was right. */
    if (verdict == QV_ENTRY_UNPACK_GOOD)
      verdict = qv_entry_unpack_feed(unpack, view, n);
  }
  if (verdict == QV_ENTRY_UNPACK_GOOD)
    verdict = qv_entry_unpack_end(unpack);
  if (verdict != QV_ENTRY_UNPACK_GOOD) {
    run->facts.refused = true;
    run->facts.code = verdict == QV_ENTRY_UNPACK_FULL ? "disk" : "snapshot_refused";
    complain(name, qv_entry_unpack_why(unpack), 0);
  }
  qv_entry_unpack_free(unpack);
  return verdict == QV_ENTRY_UNPACK_GOOD;
}

static bool unpack_all(Run *run)
{
  const QvEntryRequest *request = run->request;
  bool good = unpack_blob(run, "base", request->base_bytes, QV_BASE_MTIME_S, false);
  for (size_t i = 0; good && i < request->deletes_n; i++) {
    if (!qv_entry_tree_delete(run->stage.root_fd, request->deletes[i], QV_BASE_MTIME_S)) {
      run->facts = (QvEntryExit){.refused = true, .code = "snapshot_refused"};
      complain(request->deletes[i], strerror(errno), 0);
      good = false;
    }
  }
  if (good && request->has_overlay)
    return unpack_blob(run, "overlay", request->overlay_bytes, QV_OVERLAY_MTIME_S, true);
  if (!good && run->out_of_input == 0 && !qv_entry_input_skip(&run->input, request->overlay_bytes))
    run->out_of_input = errno;
  return good;
}

static void put_common_env(const Run *run, QvEntryEnv *env)
{
  qv_entry_env_put_all(env, run->place->env);
  qv_entry_env_printf(env, "HOME=%s/home", run->place->work);
  qv_entry_env_printf(env, "TMPDIR=%s", run->place->tmp);
  qv_entry_env_put(env, "LANG=C.UTF-8");
  qv_entry_env_put(env, "CI=true");
  qv_entry_env_printf(env, "QUAVON_CPUS=%lld", ((long long)run->request->milli_cpus + 999) / 1000);
}

/* Runs one step and writes its record: did it succeed? What filled up counts where the step ends
 * the run. */
static bool run_step(Run *run, int i, const QvEntryStep *step, char *const *env, QvEntryForward *forward)
{
  QvEntryOutcome outcome;
  QvEntryLive *live = run->request->live ? &run->live : NULL;
  qv_entry_live_begin_step(&run->live, i);
  if (!qv_entry_step_run(&run->stage, step, env, forward, live, &outcome))
    exit(complain(step->name, strerror(errno), EX_OSERR));
  qv_entry_output_step(&run->output, i, step->name, &outcome, &run->ring);
  bool good = qv_entry_outcome_ok(&outcome);
  if (!good && (i < 0 || !step->continue_on_failure)) {
    run->facts.code = outcome.disk_full ? "disk" : NULL;
    run->facts.fork_failed = outcome.fork_failed;
  }
  return good;
}

static void put_proxy_env(const Run *run, QvEntryEnv *env, uint16_t port)
{
  static const char *const proxy_names[] = {"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"};
  static const char *const ca_names[] = {
    "SSL_CERT_FILE",  "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO",   "npm_config_cafile"};
  for (size_t i = 0; i < sizeof proxy_names / sizeof *proxy_names; i++)
    qv_entry_env_printf(env, "%s=http://127.0.0.1:%u", proxy_names[i], port);
  qv_entry_env_put(env, "NO_PROXY=localhost,127.0.0.1,::1");
  qv_entry_env_put(env, "no_proxy=localhost,127.0.0.1,::1");
  for (size_t i = 0; run->request->proxy->ca_pem && i < sizeof ca_names / sizeof *ca_names; i++)
    qv_entry_env_printf(env, "%s=%s/" CA_FILE, ca_names[i], run->place->work);
}

static bool run_setup(Run *run)
{
  QvEntryRequest *request = run->request;
  QvEntryForward *forward = NULL;
  struct sockaddr_storage to;
  socklen_t to_n = 0;
  QvEntryEnv env = {0};
  put_common_env(run, &env);
  if (request->proxy) {
    forward = qv_entry_forward_open(request->proxy->token, request->proxy->address, request->proxy->socket);
    if (!forward)
      exit(complain("way to the proxy", strerror(errno), EX_OSERR));
    to_n = qv_entry_forward_to(forward, &to);
    qv_entry_forward_set_log(forward, &run->ring);
    put_proxy_env(run, &env, qv_entry_forward_port(forward));
  }
  qv_entry_env_put_all(&env, request->setup->env);
  bool good = run_step(run, -1, request->setup, env.vars, forward);
  qv_entry_forward_close(forward);
  qv_entry_request_wipe_proxy(request);
  qv_entry_tree_remove(run->stage.work_fd, CA_FILE);
  qv_entry_env_clear(&env);
  /* Setup is over for the runner as well, which has its record: only then does a step run. */
  if (good && to_n > 0 && !qv_entry_cut_await((const struct sockaddr *)&to, to_n, QV_ENTRY_CUT_MS))
    exit(complain("way to the proxy", "it is still there", EX_IOERR));
  return good;
}

static void run_steps(Run *run)
{
  const QvEntryRequest *request = run->request;
  bool good = true;
  for (size_t i = 0; good && i < request->run_n; i++) {
    const QvEntryStep *step = &request->run[i];
    QvEntryEnv env = {0};
    put_common_env(run, &env);
    qv_entry_env_put_all(&env, step->env);
    good = run_step(run, (int)i, step, env.vars, NULL) || step->continue_on_failure;
    qv_entry_env_clear(&env);
  }
}

static void run_all(Run *run)
{
  const QvEntryRequest *request = run->request;
  if (!request->setup || run_setup(run))
    run_steps(run);
  const QvEntryCollectSpec spec = {.globs = request->artefacts,
                                   .globs_n = request->artefacts_n,
                                   .bytes_max = (uint64_t)request->artefact_bytes,
                                   .count_max = (uint64_t)request->artefact_count};
  run->facts.artefacts_dropped = qv_entry_collect(run->stage.root_fd, &spec, &run->output);
}

int qv_entry_run(const QvEntryPlace *place)
{
  static Run run;
  memset(&run, 0, sizeof run);
  run.place = place;
  qv_entry_input_init(&run.input, place->in_fd);
  int status = read_request(&run);
  if (status == 0)
    status = prepare(&run);
  if (status == 0) {
    qv_entry_output_init(&run.output, place->out_fd, run.request->stream_key);
    explicit_bzero(run.request->stream_key, sizeof run.request->stream_key);
    qv_entry_live_init(&run.live, &run.output);
    if (unpack_all(&run))
      run_all(&run);
    if (run.out_of_input != 0)
      status = complain("snapshot", strerror(run.out_of_input), EX_IOERR);
    else
      qv_entry_output_exit(&run.output, &run.facts);
  }
  free(run.stage.scratch);
  free(run.ring.bytes);
  qv_entry_request_free(run.request);
  explicit_bzero(&run, sizeof run);
  return status;
}
