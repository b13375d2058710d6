/* SPDX-License-Identifier: Apache-2.0 */
/* The smoke test on real gVisor, in an image that holds nothing but the entry: all probes pass, and with one
 * protection taken away (weak_runsc.py) those fail that watch over it. */
#include <jansson.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "runner/smoke.h"
#include "sandbox/backend.h"
#include "sandbox/probe_judge.h"
#include "support/dockerd.h"

enum { ANSWER_MAX = 1024 * 1024, AHEAD = 4 };

typedef struct {
  char *dir, *state, *image;
  const char *backend, *docker_socket; /* NULL: none */
  char *digest;                        /* of an engine's image, or NULL */
} Place;

static void run(const char *const *argv)
{
  g_autoptr(GError) error = NULL;
  g_autofree char *err = NULL;
  int status = -1;
  g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL, NULL, NULL, NULL, &err,
               &status, &error);
  g_assert_no_error(error);
  if (!g_spawn_check_wait_status(status, &error))
    g_error("%s: %s %s", argv[0], error->message, err);
}

static void place_make(Place *place)
{
  static const char *const FOLDERS[] = {"proc", "sys", "dev", "tmp", "workspace", "run", "opt/quavon", "mnt"};
  char name[] = "/tmp/qv-smoke-XXXXXX";
  g_assert_nonnull(g_mkdtemp(name));
  *place = (Place){.dir = g_strdup(name), .backend = "runsc"};
  place->state = g_build_filename(name, "state", NULL);
  place->image = g_build_filename(name, "image.erofs", NULL);
  g_assert_cmpint(mkdir(place->state, 0700), ==, 0);
  g_assert_cmpint(chmod(name, 0755), ==, 0);
  g_autofree char *root = g_build_filename(name, "root", NULL);
  for (gsize i = 0; i < G_N_ELEMENTS(FOLDERS); i++) {
    g_autofree char *path = g_build_filename(root, FOLDERS[i], NULL);
    g_assert_cmpint(g_mkdir_with_parents(path, 0755), ==, 0);
  }
  g_autofree char *entry = g_build_filename(root, "opt/quavon/entry", NULL);
  g_autofree char *built = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src", "entry", "entry", NULL);
  const char *install[] = {"install", "-m", "755", built, entry, NULL};
  run(install);
  const char *make[] = {"mkfs.erofs", "-T0", "-E", "noinline_data", place->image, root, NULL};
  run(make);
}

static QvBackend *open_backend(const Place *place)
{
  g_autoptr(GError) error = NULL;
  QvBackendOptions options = {.state_dir = place->state, .runner_id = "smoke-test"};
  QvBackend *backend = qv_backend_open("runsc", &options, &error);
  g_assert_no_error(error);
  return backend;
}

static void place_clear(Place *place)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvBackend) backend = open_backend(place);
  g_auto(GStrv) lines = qv_backend_leftovers(backend);
  if (lines[0] != NULL)
    g_error("left behind: %s", lines[0]);
  qv_fd_remove_tree(place->dir, &error);
  g_assert_no_error(error);
  g_free(place->dir);
  g_free(place->state);
  g_free(place->image);
}

static char *read_all(int fd)
{
  GString *text = g_string_new(NULL);
  char bytes[4096];
  ssize_t n;
  while ((n = read(fd, bytes, sizeof bytes)) > 0)
    g_string_append_len(text, bytes, n);
  g_assert_cmpint(n, ==, 0);
  g_assert_cmpuint(text->len, <, ANSWER_MAX);
  close(fd);
  return g_string_free(text, FALSE);
}

/* Starts the role as the supervisor does: the end of the pipe with its answer. RUNSC NULL: the real one. */
static int start(const Place *place, const char *runsc, const char *only, GPid *pid)
{
  g_autofree char *program = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src", "runner", "quavon-sandbox-runner", NULL);
  char *digests[] = {place->digest != NULL ? place->digest : (char *)"sha256:0000000000000000000000000000000000000000000000000000000000000000", NULL};
  QvSmokeOrder order = {.place = {.backend = (char *)place->backend, .pool = (char *)"default",
                                  .docker_socket = (char *)place->docker_socket, .state_dir = place->state, .runner_id = (char *)"smoke-test",
                                  .runsc = (char *)(runsc != NULL ? runsc : "runsc")},
                        .image = {.rootfs_file = place->digest != NULL ? NULL : place->image, .digests = digests}, .only = (char *)only};
  g_autofree char *text = qv_smoke_order_format(&order);
  const char *argv[] = {program, "--role", "smoke", text, NULL};
  g_autoptr(GError) error = NULL;
  int ends[2], target = QV_SMOKE_OUT_FD;
  g_assert_true(qv_fd_pipe(ends, &error));
  g_spawn_async_with_pipes_and_fds(NULL, argv, NULL, G_SPAWN_DO_NOT_REAP_CHILD, NULL, NULL, -1, -1, -1, &ends[1], &target, 1,
                                   pid, NULL, NULL, NULL, &error);
  g_assert_no_error(error);
  close(ends[1]);
  return ends[0];
}

static json_t *finish(int fd, GPid pid)
{
  int status = -1;
  g_autofree char *answer = read_all(fd);
  g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
  g_assert_cmpint(status, ==, 0);
  json_t *root = json_loads(answer, JSON_REJECT_DUPLICATES, NULL);
  g_assert_nonnull(root);
  g_assert_cmpint(json_integer_value(json_object_get(root, "probes")), ==, qv_probe_count());
  return root;
}

static void test_passes(void)
{
  Place place;
  place_make(&place);
  GPid pid;
  int fd = start(&place, NULL, NULL, &pid);
  json_t *answer = finish(fd, pid);
  g_autofree char *failed = json_dumps(json_object_get(answer, "answers"), 0);
  gboolean passed = json_is_true(json_object_get(answer, "passed")) && json_array_size(json_object_get(answer, "failed")) == 0;
  json_decref(answer);
  place_clear(&place);
  g_assert_cmpstr(failed, ==, "[]");
  g_assert_true(passed);
}

/* The same on an engine, where there is one. */
static void test_passes_docker(gconstpointer backend)
{
  const char *missing = qv_test_dockerd_missing();
  if (missing != NULL) {
    g_test_skip(missing);
    return;
  }
  Place place;
  place_make(&place);
  g_autoptr(QvTestDockerd) engine = qv_test_dockerd_start(QV_TEST_DOCKERD_USUAL);
  g_autofree char *root = g_build_filename(place.dir, "root", NULL);
  place.digest = qv_test_dockerd_image(engine, root, NULL);
  place.docker_socket = qv_test_dockerd_socket(engine);
  place.backend = backend;
  GPid pid;
  int fd = start(&place, NULL, NULL, &pid);
  json_t *answer = finish(fd, pid);
  g_autofree char *failed = json_dumps(json_object_get(answer, "answers"), 0);
  json_decref(answer);
  place.backend = "runsc";
  g_clear_pointer(&place.digest, g_free);
  place_clear(&place);
  g_assert_cmpstr(failed, ==, "[]");
}

typedef struct {
  const char *kind;  /* of weak_runsc.py */
  const char *only;  /* the sandbox that shows it */
  const char *watchers; /* probes that must fail, in table order; those that failed beside them are printed */
} Weakness;

static const Weakness weaknesses[] = {
  {"capability", "facts", "cap_inheritable cap_bounding"},
  {"writable-root", "facts", "root_options"},
  {"host-network", "facts", "interfaces"},
  {"memory", "hog", "memory"},
  {"processes", "forks", "forks"},
  {"root-user", "facts", "ids"},
  {"group", "facts", "ids"},
  {"host-folder", "facts", "mounts"},
  {"big-work", "facts", "workspace_mib workspace_full"},
  {"environment", "facts", "environment init_environment"},
  {"hostname", "facts", "hostname"},
  {"open-files", "facts", "open_files"},
  /* No gVisor at all: it says gVisor's words, and is found out by what it does. */
  {"banner", "facts", "uname_release vdso monotonic_age sysinfo_age kernel_log sentry_meminfo filesystems memfd_secret pidfd_open_init"},
};

/* The answer that the probe gave, where it is among the failed ones; NULL: it passed, or was not asked. */
static const char *failed_answer(json_t *answer, const char *probe)
{
  json_t *rows = json_object_get(answer, "answers");
  for (gsize i = 0; i < json_array_size(rows); i++) {
    json_t *row = json_array_get(rows, i);
    if (strcmp(json_string_value(json_object_get(row, "probe")), probe) == 0)
      return json_string_value(json_object_get(row, "answer"));
  }
  return NULL;
}

/* What failed and gave an answer, joined. */
static char *answered(json_t *answer)
{
  json_t *rows = json_object_get(answer, "answers");
  GString *text = g_string_new(NULL);
  for (gsize i = 0; i < json_array_size(rows); i++) {
    const char *given = json_string_value(json_object_get(json_array_get(rows, i), "answer"));
    if (given != NULL)
      g_string_append_printf(text, "%s=%s ", json_string_value(json_object_get(json_array_get(rows, i), "probe")), given);
  }
  return g_string_free(text, FALSE);
}

/* Each in a place of its own; a few are under way at once, since they mostly wait. */
typedef struct {
  Place place;
  GPid pid;
  int fd;
} Running;

static Running running[G_N_ELEMENTS(weaknesses)];
static gsize started_n;

static void start_next(void)
{
  const Weakness *weakness = &weaknesses[started_n];
  Running *one = &running[started_n++];
  place_make(&one->place);
  g_autofree char *source =
    g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "tests", "integration", "runner", "weak_runsc.py", NULL);
  g_autofree char *runsc = g_build_filename(one->place.dir, weakness->kind, NULL);
  const char *install[] = {"install", "-m", "755", source, runsc, NULL};
  run(install);
  one->fd = start(&one->place, runsc, weakness->only, &one->pid);
}

static void test_weakness(gconstpointer data)
{
  const Weakness *weakness = data;
  gsize i = (gsize)(weakness - weaknesses);
  while (started_n < G_N_ELEMENTS(weaknesses) && started_n < i + AHEAD)
    start_next();
  json_t *answer = finish(running[i].fd, running[i].pid);
  gboolean passed = !json_is_false(json_object_get(answer, "passed"));
  g_autofree char *all = answered(answer);
  g_test_message("%s", all);
  g_auto(GStrv) watchers = g_strsplit(weakness->watchers, " ", -1);
  for (gsize k = 0; watchers[k] != NULL; k++)
    if (failed_answer(answer, watchers[k]) == NULL)
      g_test_fail_printf("%s is not found out by %s: %s", weakness->kind, watchers[k], all);
  json_decref(answer);
  place_clear(&running[i].place);
  g_assert_false(passed);
}

int main(int argc, char **argv)
{
  setlocale(LC_ALL, "");
  g_test_init(&argc, &argv, NULL);
  if (geteuid() != 0) {
    g_print("1..0 # SKIP sandboxes need root\n");
    return 0;
  }
  g_test_add_func("/runner/smoke/passes", test_passes);
  g_test_add_data_func("/runner/smoke/passes-docker-runsc", "docker-runsc", test_passes_docker);
  g_test_add_data_func("/runner/smoke/passes-docker-runc-insecure", "docker-runc-insecure", test_passes_docker);
  for (gsize i = 0; i < G_N_ELEMENTS(weaknesses); i++) {
    g_autofree char *path = g_strconcat("/runner/smoke/without/", weaknesses[i].kind, NULL);
    g_test_add_data_func(path, &weaknesses[i], test_weakness);
  }
  return g_test_run();
}
