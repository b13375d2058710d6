/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of mixed hostile jobs, with good ones between them: each ends as it must, the runner's memory stays
 * flat, nothing is left. And the entry program replaced by one of an attacker's (bad_entry.c), which holds the key of its
 * stream: nothing comes out but an error of its own job, or a well-formed lie about it. */
#include <glib.h>
#include <glib/gstdio.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/random.h"
#include "support/tiny.h"
#include "support/zeros.h"
#include "world.h"

/* The memory of a sanitized program grows by its quarantine: there the stream is shorter and not measured. */
#if defined(__SANITIZE_ADDRESS__)
enum { JOBS = 16, MEASURED = FALSE };
#else
enum { JOBS = 60, MEASURED = TRUE };
#endif
enum { JOBS_LONG = 1000, WARM_UP = 16, GROWTH_KIB = 8192, AT_ONCE = 2 };
enum { JOB_PEAK_KIB = 32 * 1024, UNPACK_PEAK_KIB = 64 * 1024,
       /* Of world_job; 32 MiB are what the kernel could not refuse. */
       SANDBOX_KIB = (256 + 64 + QV_SANDBOX_TMP_MIB + QV_SANDBOX_HEADROOM_MIB + 32) * 1024 };
#define GIB (G_GUINT64_CONSTANT(1) << 30)

static World *world;

typedef struct {
  const char *name, *script;
  const char *codes; /* those that are right, blanks between; "-": succeeded; NULL: as the backend has it */
  gint64 timeout_ms; /* of the step; 0: none */
  GBytes *(*base)(void); /* where memory is measured; NULL: the small one */
} Kind;

static const Kind kinds[] = {
  {"good", "echo fine", "-", 0},
  {"flood", "yes | head -c 30000000", "-", 0},
  {"kill-the-entry", "kill -9 1; sleep 10", NULL, 0},
  {"good-again", "test -f hello.txt", "-", 0},
  {"noise", "head -c 200000 /dev/urandom", "-", 0},
  {"daemons", "for i in 1 2 3 4 5; do (setsid sleep 1000 &) ; done; exit 0", "-", 0},
  {"full-disk", "cat /dev/zero > big; exit 1", "disk", 0},
  {"exit", "exit 137", "step_failed", 0},
  {"time", "trap '' TERM; while :; do :; done", "timeout", 1500},
  {"forks", "i=0; while [ $i -lt 200 ]; do sleep 100 & i=$((i+1)); done; exit 0", "- step_failed processes", 120000},
  {"forged-output", "for f in /proc/1/fd/*; do echo junk > $f; done; exit 0", "- step_failed bad_output", 0},
  {"many-files", "mkdir -p out; for i in $(seq 300); do : > out/$i; done", "-", 0},
  {"links", "mkdir -p out; ln -s /etc/passwd out/a; ln -s / out/b; mkfifo out/c; exit 0", "-", 0},
  {"memory", "head -c 2000000000 /dev/zero | tail > /dev/null; exit 0", "memory", 0},
  {"stop-the-entry", "kill -STOP 1; sleep 1000", "wall sandbox_lost", 0},
};

static QvJob *make_job(const Kind *kind)
{
  QvJob *job = world_job(world, kind->script);
  job->run[0].timeout_ms = kind->timeout_ms;
  g_strfreev(job->artefacts);
  job->artefacts = g_strdupv((char *[]){(char *)"out/**", NULL});
  if (kind->codes != NULL && strstr(kind->codes, "wall") != NULL)
    job->given.wall_ms = 5000;
  return job;
}

/* FIELD of /proc/PID/status; 0: there is none, or no such process. */
static gint64 status_number(GPid pid, const char *field)
{
  g_autofree char *path = g_strdup_printf("/proc/%d/status", pid);
  g_autofree char *text = NULL;
  const char *line = g_file_get_contents(path, &text, NULL, NULL) ? strstr(text, field) : NULL;
  return line != NULL ? g_ascii_strtoll(line + strlen(field), NULL, 10) : 0;
}

/* The letter of /proc/PID/stat at PATH; 0: there is none. */
static char process_state(const char *path)
{
  g_autofree char *text = NULL;
  const char *name_end = g_file_get_contents(path, &text, NULL, NULL) ? strrchr(text, ')') : NULL;
  return name_end != NULL && name_end[1] == ' ' ? name_end[2] : 0;
}

static void check_end(const Kind *kind, const QvJob *job, const char *sha256)
{
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  const char *code = result->code == QV_CODE_NONE ? "-" : qv_code_text(result->code);
  const char *codes = kind->codes != NULL ? kind->codes : row->first_killed != NULL ? row->first_killed : "-";
  g_auto(GStrv) right = g_strsplit(codes, " ", -1);
  if (!g_strv_contains((const char *const *)right, code))
    g_error("%s: ended as %s, not as one of %s", kind->name, code, codes);
}

static void test_stream(void)
{
  gboolean is_long = g_strcmp0(g_getenv("QUAVON_TEST_LONG"), "1") == 0;
  gsize jobs_n = is_long ? JOBS_LONG : JOBS;
  gint64 warm_kib = 0, end_kib = 0;
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_CONCURRENCY=2", NULL});
  for (gsize at = 0; at < jobs_n; at += AT_ONCE) {
    QvJob *jobs[AT_ONCE];
    char sha256[AT_ONCE][65];
    for (gsize i = 0; i < AT_ONCE; i++) {
      jobs[i] = make_job(&kinds[(at + i) % G_N_ELEMENTS(kinds)]);
      world_add(world, jobs[i], sha256[i]);
    }
    for (gsize i = 0; i < AT_ONCE; i++) {
      check_end(&kinds[(at + i) % G_N_ELEMENTS(kinds)], jobs[i], sha256[i]);
      qv_job_free(jobs[i]);
    }
    if (at + AT_ONCE == WARM_UP)
      warm_kib = status_number(world->runner, "VmRSS:");
  }
  end_kib = status_number(world->runner, "VmRSS:");
  g_test_message("%zu jobs; supervisor %" G_GINT64_FORMAT " KiB after %d, %" G_GINT64_FORMAT " KiB at the end", jobs_n, warm_kib,
                 WARM_UP, end_kib);
  world_expect_clean(world);
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  if (MEASURED)
    g_assert_cmpint(warm_kib, >, 0);
  if (MEASURED)
    g_assert_cmpint(end_kib - warm_kib, <, GROWTH_KIB);
}

/* ---- the replaced entry */

static GBytes *make_noise(void)
{
  enum { NOISE_BYTES = 40 * 1024 * 1024 };
  g_autofree char *noise = g_malloc(NOISE_BYTES + 1);
  qv_random_bytes((guint8 *)noise, NOISE_BYTES);
  for (gsize i = 0; i < NOISE_BYTES; i++)
    noise[i] |= noise[i] == 0;
  noise[NOISE_BYTES] = '\0';
  const char *files[] = {"noise", noise, NULL};
  return world_snapshot(files);
}

static GBytes *make_zeros(void)
{
  return qv_test_zeros(GIB);
}

static const Kind entries[] = {
  {"lie", "lie", "-", 0},
  {"lie-about-1-gib-of-zeros", "lie", "-", 0, make_zeros},
  {"lie-about-noise", "lie", "-", 0, make_noise},
  {"nothing", "nothing", "sandbox_lost", 0},
  {"crash", "crash", "sandbox_lost", 0},
  {"noise", "noise", "bad_output", 0},
  {"zeros", "zeros", "bad_output", 0},
  {"other-step", "other-step", "bad_output", 0},
  {"no-code", "no-code", "bad_output", 0},
  {"huge-header", "huge-header", "bad_output", 0},
  {"a-million-members", "a-million-members", "bad_output", 0},
  {"trailing", "trailing", "- bad_output", 0}, /* decided at the two zero blocks, where the rest is not there yet */
  {"live-flood", "live-flood", "bad_output", 0},
  {"artefact-outside", "artefact-outside", "bad_output", 0},
  {"silent", "silent", "wall", 0},
  {"deaf", "deaf", "wall", 0, make_noise}, /* the job process holds what it does not take, and no more */
};

static char *bad_file;

/* The most that a job process, and an unpack process, held while the entries ran: looked at until the last of them is gone. */
static struct {
  GThread *thread;
  gint over;
  gint64 job_kib, unpack_kib;
} peaks;

static gpointer watch_peaks(gpointer unused)
{
  while (!g_atomic_int_get(&peaks.over)) {
    GPid job = world_child(world->runner, "job"), unpack = job != 0 ? world_child(job, "unpack") : 0;
    peaks.job_kib = MAX(peaks.job_kib, job != 0 ? status_number(job, "VmHWM:") : 0);
    peaks.unpack_kib = MAX(peaks.unpack_kib, unpack != 0 ? status_number(unpack, "VmHWM:") : 0);
    g_usleep(10000);
  }
  return NULL;
}

static void run(const char *const *argv)
{
  g_autoptr(GError) error = NULL;
  int status = -1;
  g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL, NULL, NULL, NULL, NULL, &status,
               &error);
  g_assert_no_error(error);
  g_assert_true(g_spawn_check_wait_status(status, NULL));
}

/* Lists the image "bad", which jobs use from now on, and starts the runner. */
static void add_image(const char *digest, const char *rootfs)
{
  g_autofree char *before = NULL;
  g_assert_true(g_file_get_contents(world->images_file, &before, NULL, NULL));
  g_autofree char *both = g_strndup(before, (gsize)(strrchr(before, ']') - before));
  g_free(world->image.name);
  g_free(world->image.digest);
  world->image.name = g_strdup("bad");
  world->image.digest = g_strdup(digest);
  g_autofree char *lock = g_strdup_printf("%s,{\"name\":\"bad\",\"digest\":\"%s\",\"kind\":\"image-id\",\"platform\":\"%s\"%s}]}",
                                          both, digest, qv_test_platform(), rootfs);
  g_assert_true(qv_fd_write_file(world->images_file, lock, strlen(lock), 0644, NULL));
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_CONCURRENCY=1", "QUAVON_SANDBOX_LOCK_MS=600000", NULL});
  if (MEASURED)
    peaks.thread = g_thread_new("peaks", watch_peaks, NULL);
}

/* A second image, whose entry is the attacker's; the first one is that of the smoke test. */
static void replace_image(void)
{
  static const char *const FOLDERS[] = {"proc", "sys", "dev", "tmp", "workspace", "run", "opt/quavon"};
  g_autofree char *root = g_build_filename(world->dir, "root", NULL);
  for (gsize i = 0; i < G_N_ELEMENTS(FOLDERS); i++) {
    g_autofree char *path = g_build_filename(root, FOLDERS[i], NULL);
    g_assert_cmpint(g_mkdir_with_parents(path, 0755), ==, 0);
  }
  g_autofree char *entry = g_build_filename(root, "opt/quavon/entry", NULL);
  const char *install[] = {"install", "-m", "755", g_getenv("QUAVON_TEST_BAD_ENTRY"), entry, NULL};
  run(install);
  if (ON(ON_DOCKER)) {
    g_autofree char *digest = qv_test_dockerd_image(backend_dockerd(), root, NULL);
    add_image(digest, "");
    return;
  }
  /* Beside the lock, as every image file. */
  bad_file = g_strconcat(world->images_file, ".erofs", NULL);
  const char *file = bad_file;
  g_autofree char *name = g_path_get_basename(file);
  const char *make[] = {"mkfs.erofs", "-T0", "-E", "noinline_data", file, root, NULL};
  run(make);
  g_autoptr(GMappedFile) map = g_mapped_file_new(file, FALSE, NULL);
  g_autofree char *sha256 = g_compute_checksum_for_data(G_CHECKSUM_SHA256, (const guchar *)g_mapped_file_get_contents(map),
                                                        g_mapped_file_get_length(map));
  g_autofree char *digest = g_strconcat("sha256:", sha256, NULL);
  g_autofree char *rootfs = g_strdup_printf(",\"rootfs\":{\"file\":\"%s\",\"sha256\":\"%s\"}", name, sha256);
  add_image(digest, rootfs);
}

static void test_entry(gconstpointer data)
{
  const Kind *kind = data;
  g_autoptr(QvJob) job = world_job(world, "");
  char sha256[65];
  g_strfreev(job->run[0].argv);
  job->run[0].argv = g_strdupv((char *[]){(char *)kind->script, NULL});
  if (strcmp(kind->codes, "wall") == 0)
    job->given.wall_ms = 6000;
  g_autoptr(GBytes) base = MEASURED && kind->base != NULL ? kind->base() : NULL;
  if (base != NULL)
    world_put_base(world, job, base);
  world_add(world, job, sha256);
  check_end(kind, job, sha256);
  world_expect_clean(world);
}

/* However the process that parses the stream ends, it is this job's bad_output, and the log says which kind it was. */
static void test_unpack_dies(void)
{
  static const struct {
    int signal;
    const char *said;
  } WAYS[] = {{SIGXCPU, "the unpack process was at the limit of its processor time"},
              {SIGTRAP, "the unpack process was at the limit of its memory"},
              {SIGSYS, "the unpack process broke its list of system calls"},
              {SIGSEGV, "the unpack process crashed with signal 11"},
              {SIGKILL, "the unpack process was killed from outside"}};
  static const Kind silent = {"unpack-dies", "silent", "bad_output", 0};
  for (gsize i = 0; i < G_N_ELEMENTS(WAYS); i++) {
    g_autoptr(QvJob) job = world_job(world, "");
    char sha256[65];
    g_strfreev(job->run[0].argv);
    job->run[0].argv = g_strdupv((char *[]){(char *)silent.script, NULL});
    world_add(world, job, sha256);
    /* Before it has the stream another one would be started in its place. */
    g_autofree char *runs = g_strdup_printf("sandbox runs jobId=%s", job->job_id);
    AWAIT(world_log_has(world, runs));
    GPid parent, unpack;
    AWAIT((parent = world_child(world->runner, "job")) != 0 && (unpack = world_child(parent, "unpack")) != 0 &&
          status_number(unpack, "Seccomp:") == 2);
    g_assert_cmpint(kill(unpack, WAYS[i].signal), ==, 0);
    check_end(&silent, job, sha256);
    g_assert_true(world_log_has(world, WAYS[i].said));
    world_expect_clean(world);
  }
}

/* ---- nobody takes what comes */

/* The most that was held where the supervisor stood still, KiB. */
typedef struct {
  gint64 job, payload, unpack, sandbox;
} Held;

/* Of the files without a name that PID holds: no figure of the process tells of them. */
static gint64 nameless_kib(GPid pid)
{
  g_autofree char *folder = g_strdup_printf("/proc/%d/fd", pid);
  g_autoptr(GDir) dir = g_dir_open(folder, 0, NULL);
  const char *name;
  gint64 kib = 0;
  while (dir != NULL && (name = g_dir_read_name(dir)) != NULL) {
    g_autofree char *path = g_build_filename(folder, name, NULL);
    g_autofree char *target = g_file_read_link(path, NULL);
    struct stat file;
    if (target != NULL && g_str_has_prefix(target, "/memfd:") && stat(path, &file) == 0)
      kib += file.st_blocks / 2;
  }
  return kib;
}

/* The sandbox's control group, where it is ours; 0: an engine's, or none. */
static gint64 group_kib(const QvJob *job)
{
  static const char *const FILES[][2] = {{"/sys/fs/cgroup/memory/quavon/*", "memory.max_usage_in_bytes"},
                                         {"/sys/fs/cgroup/quavon/*", "memory.peak"}};
  gint64 kib = 0;
  for (gsize i = 0; i < G_N_ELEMENTS(FILES); i++) {
    g_autofree char *pattern = g_build_filename(FILES[i][0], job->job_id, FILES[i][1], NULL), *text = NULL;
    glob_t found;
    if (glob(pattern, 0, NULL, &found) != 0)
      continue;
    if (g_file_get_contents(found.gl_pathv[0], &text, NULL, NULL))
      kib = MAX(kib, g_ascii_strtoll(text, NULL, 10) / 1024);
    globfree(&found);
  }
  return kib;
}

static void look(GPid process, const QvJob *job, Held *held)
{
  GPid unpack = world_child(process, "unpack");
  held->job = MAX(held->job, status_number(process, "VmHWM:"));
  held->payload = MAX(held->payload, nameless_kib(process));
  held->unpack = MAX(held->unpack, unpack != 0 ? status_number(unpack, "VmHWM:") : 0);
  held->sandbox = MAX(held->sandbox, group_kib(job));
}

/* What happens to JOB while the supervisor stands still, until its sandbox is gone. STAYS: its job process has more to give then, else
 * it ends by itself. FALSE: the job was quicker, before we stood still or between two looks. */
static gboolean stand_still(const QvJob *job, gboolean stays, Held *held)
{
  world_await_started(world, job);
  g_assert_cmpint(kill(world->runner, SIGSTOP), ==, 0);
  g_autofree char *path = g_strdup_printf("/proc/%d/stat", world->runner);
  AWAIT(process_state(path) == 'T');
  GPid process = world_child(world->runner, "job");
  gboolean in_time = process != 0 && nameless_kib(process) == 0;
  gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;
  while (in_time && (stays ? world_has_sandbox(world) : status_number(process, "VmHWM:") > 0)) {
    look(process, job, held);
    g_assert_cmpint(qv_clock_mono_ms(), <, end);
  }
  if (in_time)
    look(process, job, held);
  if (in_time)
    g_assert_false(world_has_sandbox(world));
  g_assert_cmpint(kill(world->runner, SIGCONT), ==, 0);
  return in_time && held->payload > 0;
}

/* All that a job may leave, and then one byte more: with nobody there to take it, it is held up to the bound, and the sandbox is
 * ended all the same. */
static void test_stopped(gconstpointer data)
{
  static const Kind KINDS[] = {{"fill", "fill", "-", 0}, {"fill-over", "fill-over", "bad_output", 0}};
  const Kind *kind = &KINDS[GPOINTER_TO_SIZE(data)];
  const gint64 artefact_bytes = 16 * 1024 * 1024;
  gboolean in_time = FALSE;
  Held held = {0};
  QvJob *job = NULL;
  for (int tries = 0; tries < 20 && !in_time; tries++) {
    char sha256[65];
    qv_job_free(job);
    job = world_job(world, "");
    g_strfreev(job->run[0].argv);
    job->run[0].argv = g_strdupv((char *[]){(char *)kind->script, NULL});
    g_strfreev(job->artefacts);
    job->artefacts = g_strdupv((char *[]){(char *)"out/**", NULL});
    job->given.artefact_bytes = artefact_bytes;
    world_add(world, job, sha256);
    in_time = stand_still(job, strcmp(kind->codes, "-") == 0, &held);
    check_end(kind, job, sha256);
    world_expect_clean(world);
  }
  g_assert_true(in_time);
  if (strcmp(kind->codes, "-") != 0)
    g_assert_true(world_log_has(world, "over artefactBytes"));
  g_test_message("%s: job process %" G_GINT64_FORMAT " KiB, payload %" G_GINT64_FORMAT ", unpack process %" G_GINT64_FORMAT
                 ", sandbox %" G_GINT64_FORMAT, kind->name, held.job, held.payload, held.unpack, held.sandbox);
  qv_job_free(job);
  /* What was looked at is what was meant; its gzip, headers and log are less than 1 MiB. */
  g_assert_cmpint(held.payload, >, kind->codes[0] == '-' ? artefact_bytes / 1024 : 0);
  g_assert_cmpint(held.payload, <, artefact_bytes / 1024 + 1024);
  g_assert_cmpint(held.sandbox, <=, SANDBOX_KIB);
  if (ON(ON_RUNSC))
    g_assert_cmpint(held.sandbox, >, 0);
  if (MEASURED)
    g_assert_cmpint(held.job, <, JOB_PEAK_KIB);
  if (MEASURED)
    g_assert_cmpint(held.unpack, <, UNPACK_PEAK_KIB);
}

static void test_entries_end(void)
{
  if (peaks.thread != NULL) { /* alone, this case has nothing to measure */
    g_atomic_int_set(&peaks.over, TRUE);
    g_thread_join(peaks.thread);
    g_test_message("peak of a job process: %" G_GINT64_FORMAT " KiB; of an unpack process: %" G_GINT64_FORMAT " KiB", peaks.job_kib,
                   peaks.unpack_kib);
    g_assert_cmpint(peaks.job_kib, >, 0);
    g_assert_cmpint(peaks.job_kib, <, JOB_PEAK_KIB);
    g_assert_cmpint(peaks.unpack_kib, >, 0);
    g_assert_cmpint(peaks.unpack_kib, <, UNPACK_PEAK_KIB);
  }
  if (world->runner != 0)
    g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
}

int main(int argc, char **argv)
{
  if (!backend_select(argc, argv))
    return 0;
  g_test_init(&argc, &argv, NULL);
  /* A SIGSEGV from outside is the process's end as it is, not the sanitizer's to tell of. */
  g_autofree char *asan = g_strconcat(g_getenv("ASAN_OPTIONS") != NULL ? g_getenv("ASAN_OPTIONS") : "", ":handle_segv=0", NULL);
  g_setenv("ASAN_OPTIONS", asan, TRUE);
  world = world_new(QV_TEST_VALKEY_PLAIN);
  if (world == NULL)
    return 77;
  g_test_add_func("/runner/hostile-stream/mixed", test_stream);
  g_test_add_func("/runner/hostile-stream/replaced-entry/begin", replace_image);
  for (gsize i = 0; i < G_N_ELEMENTS(entries); i++) {
    g_autofree char *path = g_strconcat("/runner/hostile-stream/replaced-entry/", entries[i].name, NULL);
    g_test_add_data_func(path, &entries[i], test_entry);
  }
  g_test_add_func("/runner/hostile-stream/replaced-entry/unpack-dies", test_unpack_dies);
  g_test_add_data_func("/runner/hostile-stream/replaced-entry/fill-stopped", GSIZE_TO_POINTER(0), test_stopped);
  g_test_add_data_func("/runner/hostile-stream/replaced-entry/fill-over-stopped", GSIZE_TO_POINTER(1), test_stopped);
  g_test_add_func("/runner/hostile-stream/replaced-entry/end", test_entries_end);
  int status = g_test_run();
  if (bad_file != NULL)
    g_unlink(bad_file);
  g_free(bad_file);
  world_free(world);
  backend_finish();
  return status;
}
