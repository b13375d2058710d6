/* SPDX-License-Identifier: Apache-2.0 */
/* The files of cgroups as plain files in a folder: v1 and v2 alike, on any machine, with each
 * of them missing, garbled or refusing. What the kernel does behind the files is the
 * integration tests' matter. */
#include <glib/gstdio.h>
#include <locale.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "sandbox/cgroup_private.h"

#define ID "0f0e0d0c-0b0a-4908-8706-050403020100"

typedef struct {
  char *dir;
  QvCgroupHost *host;
  QvContainerSpec *spec;
} Fixture;

static void put(const char *dir, const char *file, const char *text)
{
  g_autofree char *path = g_build_filename(dir, file, NULL);
  g_assert_true(g_file_set_contents(path, text, -1, NULL));
}

static char *folder(Fixture *f, const char *name)
{
  char *path = g_build_filename(f->dir, name, NULL);
  g_assert_cmpint(g_mkdir_with_parents(path, 0755), ==, 0);
  return path;
}

/* DATA: "v1", "v2". A hierarchy for each controller, or one for all. */
static void set_up(Fixture *f, gconstpointer data)
{
  static const char *const NAMES[] = {"memory", "pids", "cpu", "cpuacct", "freezer"};
  char name[] = "/tmp/qv-cgroup-XXXXXX";
  g_autoptr(GError) error = NULL;
  g_assert_nonnull(g_mkdtemp(name));
  f->dir = g_strdup(name);
  f->host = g_new0(QvCgroupHost, 1);
  f->host->owner = g_strdup("r0");
  f->host->v2 = strcmp(data, "v2") == 0;
  if (f->host->v2) {
    f->host->bases[f->host->bases_n++] = folder(f, "unified");
  } else {
    for (guint i = 0; i < G_N_ELEMENTS(NAMES); i++) {
      f->host->base_of[i] = f->host->bases_n;
      f->host->bases[f->host->bases_n++] = folder(f, NAMES[i]);
    }
  }
  QvSandboxRequest request = {.sandbox_id = ID, .rootfs_file = "/x", .limits = {128, 32, 1500, 10}};
  f->spec = qv_container_spec_plan(&request, &error);
  g_assert_no_error(error);
}

static void tear_down(Fixture *f, gconstpointer data)
{
  g_assert_true(qv_fd_remove_tree(f->dir, NULL));
  qv_cgroup_host_free(f->host);
  qv_container_spec_free(f->spec);
  g_free(f->dir);
}

static void refuse_open(Fixture *f, const char *words)
{
  g_autoptr(GError) error = NULL;
  g_assert_null(qv_cgroup_host_open(f->dir, "r0", &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_SYSTEM);
  g_assert_nonnull(strstr(error->message, words));
}

static void test_no_hierarchy(Fixture *f, gconstpointer data)
{
  refuse_open(f, "no memory controller");
  g_autoptr(GError) error = NULL;
  g_assert_null(qv_cgroup_host_open("/nowhere", "r0", &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_SYSTEM);
}

static gboolean exists(Fixture *f, const char *name)
{
  g_autofree char *path = g_build_filename(f->dir, name, NULL);
  return access(path, F_OK) == 0;
}

/* A limit's file that is not there: an error that names it, and nothing stays. */
static void test_limit_cannot_be_set(Fixture *f, gconstpointer data)
{
  g_autoptr(GError) error = NULL;
  g_assert_null(qv_cgroup_new(f->host, f->spec, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_SYSTEM);
  g_assert_nonnull(strstr(error->message, "pids.max"));
  for (guint i = 0; i < f->host->bases_n; i++) {
    g_autofree char *top = g_build_filename(f->host->bases[i], "quavon", NULL);
    g_assert_cmpint(access(top, F_OK), !=, 0);
  }
}

static void test_controller_cannot_be_enabled(Fixture *f, gconstpointer data)
{
  g_autoptr(GError) error = NULL;
  /* Neither enabled nor to be enabled. */
  put(f->host->bases[0], "cgroup.subtree_control", "cpuset\n");
  g_autofree char *path = g_build_filename(f->host->bases[0], "cgroup.subtree_control", NULL);
  g_assert_cmpint(unlink(path), ==, 0);
  g_assert_cmpint(symlink("/dev/full", path), ==, 0);
  g_assert_null(qv_cgroup_new(f->host, f->spec, &error));
  g_assert_nonnull(error);
  g_clear_error(&error);
  g_assert_cmpint(unlink(path), ==, 0);
  put(f->host->bases[0], "cgroup.subtree_control", "cpu memory pids\n");
  g_assert_null(qv_cgroup_new(f->host, f->spec, &error)); /* now quavon's own is missing */
  g_assert_nonnull(error);
  g_assert_nonnull(strstr(error->message, "quavon/cgroup.subtree_control"));
  g_assert_false(exists(f, "unified/quavon"));
}

static void add_limit(QvCgroup *cgroup, guint controller, const char *file, const char *value)
{
  QvCgroupLimit limit = {.controller = controller, .file = file, .value = g_strdup(value)};
  g_array_append_val(cgroup->limits, limit);
}

static QvCgroup *adopt(Fixture *f)
{
  QvCgroup *cgroup = qv_cgroup_adopt(f->host, ID);
  for (guint i = 0; i < f->host->bases_n; i++)
    g_assert_cmpint(g_mkdir_with_parents(cgroup->dirs[i], 0755), ==, 0);
  return cgroup;
}

static void put_in(QvCgroup *cgroup, guint controller, const char *file, const char *text)
{
  put(cgroup->dirs[cgroup->host->base_of[controller]], file, text);
}

static void test_read_back(Fixture *f, gconstpointer data)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvCgroup) cgroup = adopt(f);
  static const char *const WRONG[] = {"", "\n", "max\n", "10240\n", "102\n", "1024 \n0", "x\n"};
  add_limit(cgroup, QV_CGROUP_PIDS, "pids.max", "1024");
  put_in(cgroup, QV_CGROUP_PIDS, "pids.max", "1024\n");
  g_assert_true(qv_cgroup_verify(cgroup, &error));
  for (gsize i = 0; i < G_N_ELEMENTS(WRONG); i++) {
    put_in(cgroup, QV_CGROUP_PIDS, "pids.max", WRONG[i]);
    g_assert_false(qv_cgroup_verify(cgroup, &error));
    g_assert_error(error, QV_ERROR, QV_ERROR_SYSTEM);
    g_assert_nonnull(strstr(error->message, "does not hold"));
    g_clear_error(&error);
  }
  add_limit(cgroup, QV_CGROUP_MEMORY, "absent", "1");
  put_in(cgroup, QV_CGROUP_PIDS, "pids.max", "1024\n");
  g_assert_false(qv_cgroup_verify(cgroup, &error));
  g_assert_nonnull(error);
}

static void put_counts(QvCgroup *cgroup)
{
  put_in(cgroup, QV_CGROUP_PIDS, "pids.events", "max 5\n");
  put_in(cgroup, QV_CGROUP_MEMORY, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  put_in(cgroup, QV_CGROUP_MEMORY, "memory.max_usage_in_bytes", "1048576\n");
  put_in(cgroup, QV_CGROUP_CPUACCT, "cpuacct.stat", "user 150\nsystem 25\n");
  put_in(cgroup, QV_CGROUP_MEMORY, "memory.events", "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\n");
  put_in(cgroup, QV_CGROUP_MEMORY, "memory.peak", "1048576\n");
  put_in(cgroup, QV_CGROUP_CPU, "cpu.stat", "usage_usec 1750000\nuser_usec 1500000\nsystem_usec 250000\n");
}

static void test_counts(Fixture *f, gconstpointer data)
{
  g_autoptr(QvCgroup) cgroup = adopt(f);
  QvCgroupCounts counts = {0};
  put_counts(cgroup);
  g_assert_true(qv_cgroup_read_counts(cgroup, &counts));
  guint64 tick_ms = 1000 / (guint64)sysconf(_SC_CLK_TCK);
  g_assert_cmpuint(counts.oom_kills, ==, 3);
  g_assert_cmpuint(counts.pids_refused, ==, 5);
  g_assert_cmpuint(counts.max_memory_bytes, ==, 1048576);
  g_assert_cmpuint(counts.user_ms, ==, f->host->v2 ? 1500 : 150 * tick_ms);
  g_assert_cmpuint(counts.sys_ms, ==, f->host->v2 ? 250 : 25 * tick_ms);
}

/* Each file once absent, once empty, once garbled: said, and the others are read all the same. */
static void test_counts_faults(Fixture *f, gconstpointer data)
{
  static const char *const V1[] = {"pids.events", "memory.oom_control", "memory.max_usage_in_bytes", "cpuacct.stat"};
  static const char *const V2[] = {"pids.events", "memory.events", "cpu.stat"};
  static const guint V1_OF[] = {QV_CGROUP_PIDS, QV_CGROUP_MEMORY, QV_CGROUP_MEMORY, QV_CGROUP_CPUACCT};
  const char *const *files = f->host->v2 ? V2 : V1;
  g_autoptr(QvCgroup) cgroup = adopt(f);
  for (gsize i = 0; i < (f->host->v2 ? G_N_ELEMENTS(V2) : G_N_ELEMENTS(V1)); i++)
    for (guint fault = 0; fault < 3; fault++) {
      QvCgroupCounts counts = {.oom_kills = 77, .pids_refused = 77, .max_memory_bytes = 77, .user_ms = 77, .sys_ms = 77};
      put_counts(cgroup);
      guint controller = f->host->v2 ? 0 : V1_OF[i];
      g_autofree char *path = qv_cgroup_file(cgroup, controller, files[i]);
      if (fault == 0)
        g_assert_cmpint(unlink(path), ==, 0);
      else
        put_in(cgroup, controller, files[i], fault == 1 ? "" : "garbled\n");
      g_assert_false(qv_cgroup_read_counts(cgroup, &counts));
      g_assert_cmpuint(counts.pids_refused, ==, strcmp(files[i], "pids.events") == 0 ? 77 : 5);
      gboolean oom = strcmp(files[i], "memory.oom_control") == 0 || strcmp(files[i], "memory.events") == 0;
      g_assert_cmpuint(counts.oom_kills, ==, oom ? 77 : 3);
      gboolean cpu = g_str_has_prefix(files[i], "cpu");
      g_assert_cmpint(counts.user_ms == 77, ==, cpu);
    }
}

/* Kernels before 5.19 do not keep the peak: the most that was seen counts. */
static void test_peak_is_sampled(Fixture *f, gconstpointer data)
{
  static const char *const NOW[] = {"10\n", "500\n", "200\n"};
  g_autoptr(QvCgroup) cgroup = adopt(f);
  QvCgroupCounts counts = {0};
  put_counts(cgroup);
  g_autofree char *peak = qv_cgroup_file(cgroup, QV_CGROUP_MEMORY, "memory.peak");
  g_assert_cmpint(unlink(peak), ==, 0);
  for (gsize i = 0; i < G_N_ELEMENTS(NOW); i++) {
    put_in(cgroup, QV_CGROUP_MEMORY, "memory.current", NOW[i]);
    g_assert_true(qv_cgroup_read_counts(cgroup, &counts));
  }
  g_assert_cmpuint(counts.max_memory_bytes, ==, 500);
}

static void test_processes(Fixture *f, gconstpointer data)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvCgroup) cgroup = adopt(f);
  for (guint i = 0; i < f->host->bases_n; i++)
    put(cgroup->dirs[i], "cgroup.procs", "900000002\n900000001\n");
  put(cgroup->dirs[f->host->bases_n - 1], "cgroup.procs", "900000003\n900000001\n");
  g_autoptr(GArray) pids = qv_cgroup_pids(cgroup, &error);
  g_assert_no_error(error);
  g_assert_cmpuint(pids->len, ==, f->host->v2 ? 2 : 3);
  g_assert_cmpint(g_array_index(pids, gint, 0), ==, 900000001);
  g_assert_true(qv_cgroup_holds(cgroup, 900000001));
  g_assert_cmpint(qv_cgroup_holds(cgroup, 900000003), ==, f->host->v2);
  g_assert_false(qv_cgroup_holds(cgroup, 900000004));
  /* A process of an outer namespace: said, not skipped, and never signalled as 0. */
  put(cgroup->dirs[0], "cgroup.procs", "0\n");
  guint remaining = 77;
  g_assert_null(qv_cgroup_pids(cgroup, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_SYSTEM);
  g_clear_error(&error);
  g_assert_false(qv_cgroup_signal(cgroup, &remaining, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_SYSTEM);
}

static void test_removal(Fixture *f, gconstpointer data)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvCgroup) cgroup = adopt(f);
  g_autoptr(GPtrArray) folders = g_ptr_array_new_with_free_func(g_free);
  qv_cgroup_list(cgroup, folders);
  g_assert_cmpuint(folders->len, ==, f->host->bases_n);
  g_autoptr(GHashTable) ids = qv_cgroup_host_ids(f->host, &error);
  g_assert_cmpuint(g_hash_table_size(ids), ==, 1);
  g_assert_true(g_hash_table_contains(ids, ID));
  /* Another owner's keeps the common parent. */
  g_autofree char *other = g_build_filename(f->host->bases[0], "quavon", "r1", NULL);
  g_assert_cmpint(mkdir(other, 0755), ==, 0);
  put(cgroup->dirs[0], "busy", "");
  g_assert_false(qv_cgroup_remove(cgroup, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_SYSTEM);
  g_clear_error(&error);
  g_autofree char *busy = g_build_filename(cgroup->dirs[0], "busy", NULL);
  g_assert_cmpint(unlink(busy), ==, 0);
  g_assert_true(qv_cgroup_remove(cgroup, &error));
  g_assert_true(qv_cgroup_remove(cgroup, &error)); /* absent is success */
  g_assert_cmpint(access(other, F_OK), ==, 0);
  for (guint i = 1; i < f->host->bases_n; i++) {
    g_autofree char *top = g_build_filename(f->host->bases[i], "quavon", NULL);
    g_assert_cmpint(access(top, F_OK), !=, 0);
  }
}

static void test_v2_kill(Fixture *f, gconstpointer data)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvCgroup) cgroup = adopt(f);
  guint remaining = 77;
  g_autofree char *text = NULL;
  g_autofree char *path = g_build_filename(cgroup->dirs[0], "cgroup.kill", NULL);
  put(cgroup->dirs[0], "cgroup.kill", "");
  put(cgroup->dirs[0], "cgroup.procs", "");
  g_assert_true(qv_cgroup_signal(cgroup, &remaining, &error));
  g_assert_cmpuint(remaining, ==, 0);
  put(cgroup->dirs[0], "cgroup.procs", "900000001\n900000002\n");
  g_assert_true(qv_cgroup_signal(cgroup, &remaining, &error));
  g_assert_cmpuint(remaining, ==, 2);
  g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
  g_assert_cmpstr(text, ==, "1");
}

/* Killed frozen, or as it goes: then the freezer is left alone. */
static void test_v1_kill(Fixture *f, gconstpointer data)
{
  g_autoptr(QvCgroup) cgroup = adopt(f);
  g_autofree char *state = qv_cgroup_file(cgroup, QV_CGROUP_FREEZER, "freezer.state");
  for (guint i = 0; i < 2; i++) {
    pid_t pid = fork();
    if (pid == 0)
      for (;;)
        pause();
    g_autofree char *pids = g_strdup_printf("%d\n", (int)pid), *text = NULL;
    for (guint k = 0; k < f->host->bases_n; k++)
      put(cgroup->dirs[k], "cgroup.procs", pids);
    put_in(cgroup, QV_CGROUP_FREEZER, "freezer.state", "untouched");
    guint remaining = 77;
    int status = 0;
    g_autoptr(GError) error = NULL;
    g_assert_true((i == 0 ? qv_cgroup_signal : qv_cgroup_signal_moving)(cgroup, &remaining, &error));
    g_assert_no_error(error);
    g_assert_cmpuint(remaining, ==, 1);
    g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
    g_assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    g_assert_true(g_file_get_contents(state, &text, NULL, NULL));
    if (i == 0)
      g_assert_true(g_str_has_prefix(text, "THAWED"));
    else
      g_assert_cmpstr(text, ==, "untouched");
  }
}

static void test_free_nothing(void)
{
  qv_cgroup_free(NULL);
  qv_cgroup_host_free(NULL);
  qv_cgroup_host_free(g_new0(QvCgroupHost, 1));
}

static void add(const char *version, const char *name, void (*func)(Fixture *, gconstpointer))
{
  g_autofree char *path = g_strconcat("/sandbox/cgroup/", version, "/", name, NULL);
  g_test_add(path, Fixture, version, set_up, func, tear_down);
}

int main(int argc, char **argv)
{
  static const char *const VERSIONS[] = {"v1", "v2"};
  setlocale(LC_ALL, "");
  g_test_init(&argc, &argv, NULL);
  for (gsize i = 0; i < G_N_ELEMENTS(VERSIONS); i++) {
    add(VERSIONS[i], "read-back", test_read_back);
    add(VERSIONS[i], "counts", test_counts);
    add(VERSIONS[i], "counts-faults", test_counts_faults);
    add(VERSIONS[i], "processes", test_processes);
    add(VERSIONS[i], "removal", test_removal);
  }
  add("v1", "no-hierarchy", test_no_hierarchy);
  add("v1", "limit-cannot-be-set", test_limit_cannot_be_set);
  add("v1", "kill", test_v1_kill);
  add("v2", "controller-cannot-be-enabled", test_controller_cannot_be_enabled);
  add("v2", "peak-is-sampled", test_peak_is_sampled);
  add("v2", "kill", test_v2_kill);
  g_test_add_func("/sandbox/cgroup/free-nothing", test_free_nothing);
  return g_test_run();
}
