/* SPDX-License-Identifier: Apache-2.0 */
/* Who is found among the host's processes: by control groups, unless all that the container had are gone, and by the name and
 * arguments of a runtime. A process's own line of /proc/PID/cgroup stands for a container's id: it is in the groups that have it. */
#include <glib.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "sandbox/docker_private.h"

#define ID "5af0c3d2e1b4968778695a4b3c2d1e0ff0e1d2c3b4a5968778695a4b3c2d1e0f"
#define OTHER "00f0c3d2e1b4968778695a4b3c2d1e0ff0e1d2c3b4a5968778695a4b3c2d1e0f"

/* Two hierarchies, or what looks like them. */
static char *hierarchies;

static gboolean finds(pid_t pid, const char *container, const QvDockerGroup *group)
{
  gboolean found = FALSE;
  g_autoptr(GArray) pids = qv_docker_processes(container, group);
  for (guint i = 0; i < pids->len; i++)
    found |= g_array_index(pids, gint, i) == pid;
  return found;
}

/* NULL on a host without control groups. */
static char *own_groups(char ***lines)
{
  gsize n;
  g_autofree char *text = qv_fd_read_file("/proc/self/cgroup", 65536, &n, NULL);
  *lines = g_strsplit(text != NULL ? g_strchomp(text) : "", "\n", -1);
  return (*lines)[0] != NULL && (*lines)[0][0] != '\0' ? g_strdup((*lines)[0]) : NULL;
}

static pid_t sleeper(const char *name)
{
  int told[2];
  char byte;
  g_assert_true(qv_fd_pipe(told, NULL));
  pid_t pid = fork();
  g_assert_cmpint(pid, >=, 0);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (name != NULL)
      prctl(PR_SET_NAME, name);
    qv_io_write_full(told[1], "x", 1);
    for (;;)
      pause();
  }
  g_assert_cmpint(qv_io_read_full(told[0], &byte, 1), ==, 1);
  close(told[0]);
  close(told[1]);
  return pid;
}

static void end(pid_t pid)
{
  kill(pid, SIGKILL);
  g_assert_cmpint(waitpid(pid, NULL, 0), ==, pid);
}

/* ---- groups */

/* What is there of two groups: their folder, and their hierarchy's own file. */
typedef struct {
  const char *what;
  gboolean none;            /* no group is given */
  guint known_n;            /* of the two */
  gboolean unseen, folder[2], mounted[2];
  gboolean found;
} Case;

static const Case CASES[] = {
  {"no group is given", .none = TRUE, .found = TRUE},
  {"none is known", .known_n = 0, .found = TRUE},
  {"both are there", .known_n = 2, .folder = {TRUE, TRUE}, .mounted = {TRUE, TRUE}, .found = TRUE},
  {"the first is there", .known_n = 2, .folder = {TRUE, FALSE}, .mounted = {TRUE, TRUE}, .found = TRUE},
  {"the last is there", .known_n = 2, .folder = {FALSE, TRUE}, .mounted = {TRUE, TRUE}, .found = TRUE},
  {"both are gone, one more is not seen", .known_n = 2, .unseen = TRUE, .mounted = {TRUE, TRUE}, .found = TRUE},
  {"the first hierarchy is off", .known_n = 2, .mounted = {FALSE, TRUE}, .found = TRUE},
  {"the last hierarchy is off", .known_n = 2, .mounted = {TRUE, FALSE}, .found = TRUE},
  {"both are gone", .known_n = 2, .mounted = {TRUE, TRUE}, .found = FALSE},
};

static void lay_out(const Case *row, QvDockerGroup *group)
{
  *group = (QvDockerGroup){.unseen = row->unseen};
  group->all = row->known_n > 0 ? g_ptr_array_new_with_free_func(g_free) : NULL;
  for (guint i = 0; i < row->known_n; i++) {
    g_autofree char *root = g_strdup_printf("%s/%u", hierarchies, i);
    g_autofree char *file = g_build_filename(root, "cgroup.procs", NULL);
    char *folder = g_build_filename(root, ID, NULL);
    g_ptr_array_add(group->all, folder);
    g_mkdir(root, 0700);
    g_assert_true(row->mounted[i] ? g_file_set_contents(file, "", 0, NULL) : g_unlink(file) == 0 || errno == ENOENT);
    g_assert_true(row->folder[i] ? g_mkdir(folder, 0700) == 0 || errno == EEXIST : g_rmdir(folder) == 0 || errno == ENOENT);
  }
}

static void test_groups(void)
{
  g_auto(GStrv) lines = NULL;
  g_autofree char *own = own_groups(&lines);
  if (own == NULL) {
    g_test_skip("no control groups here");
    return;
  }
  pid_t pid = sleeper(NULL);
  for (gsize i = 0; i < G_N_ELEMENTS(CASES); i++) {
    g_auto(QvDockerGroup) group = {0};
    g_test_message("%s", CASES[i].what);
    lay_out(&CASES[i], &group);
    g_assert_cmpint(finds(pid, own, CASES[i].none ? NULL : &group), ==, CASES[i].found);
  }
  end(pid);
}

/* A guest names itself as it likes: no name hides it, and none makes it look dead. */
static void test_hostile_names(void)
{
  static const char *const NAMES[] = {"", "\n", "x) Z 1 (", ") X", "a\nruns", "exe", "containerd-shi"};
  g_auto(GStrv) lines = NULL;
  g_autofree char *own = own_groups(&lines);
  if (own == NULL) {
    g_test_skip("no control groups here");
    return;
  }
  for (gsize i = 0; i < G_N_ELEMENTS(NAMES); i++) {
    pid_t pid = sleeper(NAMES[i]);
    g_assert_true(finds(pid, own, NULL));
    end(pid);
  }
}

static void test_dead(void)
{
  siginfo_t info;
  g_auto(GStrv) lines = NULL;
  g_autofree char *own = own_groups(&lines);
  pid_t pid = sleeper(NULL);
  kill(pid, SIGKILL);
  g_assert_cmpint(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), ==, 0);
  g_assert_false(finds(pid, own != NULL ? own : ID, NULL));
  end(pid);
}

/* Every line that has the id is accounted for, as a folder or as one that cannot be seen. */
static void test_find(void)
{
  guint n = 0;
  g_auto(QvDockerGroup) group = {0};
  g_auto(GStrv) lines = NULL;
  g_autofree char *own = own_groups(&lines);
  const char *path = own != NULL ? strrchr(own, ':') : NULL;
  if (path == NULL) {
    g_test_skip("no control groups here");
    return;
  }
  for (gsize i = 0; lines[i] != NULL; i++)
    n += strstr(lines[i], path + 1) != NULL;
  qv_docker_group_find(&group, getpid(), path + 1);
  guint known_n = group.all != NULL ? group.all->len : 0;
  g_assert_true(group.unseen ? known_n < n : known_n == n);
  qv_docker_group_clear(&group);
  g_assert_null(group.all);
  qv_docker_group_find(&group, getpid(), ID);
  g_assert_null(group.all);
  g_assert_false(group.unseen);
}

/* ---- names */

/* A shell by the name of PROGRAM whose last argument is LAST, and which waits. */
static pid_t runtime(const char *program, const char *last, int *hold)
{
  int ends[2], said[2];
  char byte;
  g_assert_true(qv_fd_pipe(ends, NULL));
  g_assert_true(qv_fd_pipe(said, NULL));
  g_autofree char *path = g_build_filename(hierarchies, program, NULL);
  g_assert_true(symlink("/bin/sh", path) == 0 || errno == EEXIST);
  const char *argv[] = {program, "-c", "echo; read x", last, NULL};
  pid_t pid = fork();
  g_assert_cmpint(pid, >=, 0);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(ends[0], 0) == 0 && dup2(said[1], 1) == 1)
      execv(path, (char *const *)argv);
    _exit(1);
  }
  close(ends[0]);
  close(said[1]);
  g_assert_cmpint(qv_io_read_full(said[0], &byte, 1), ==, 1); /* it is what it was executed as */
  close(said[0]);
  *hold = ends[1];
  return pid;
}

/* With no groups left at all a runtime's own processes are found still. */
static void test_names(void)
{
  static const struct {
    const char *program, *last;
    gboolean found;
  } ROWS[] = {
    {"containerd-shim-runsc-v1", ID, TRUE},
    {"runsc-sandbox", "--bundle=/run/" ID, TRUE},
    {"runc", ID, TRUE},
    {"exe", "x/" ID, TRUE},
    {"runc", ID "x", FALSE},
    {"runsc", OTHER, FALSE},
    {"docker", ID, FALSE},
  };
  g_auto(QvDockerGroup) group = {0};
  lay_out(&CASES[G_N_ELEMENTS(CASES) - 1], &group);
  for (gsize i = 0; i < G_N_ELEMENTS(ROWS); i++) {
    int hold;
    pid_t pid = runtime(ROWS[i].program, ROWS[i].last, &hold);
    g_assert_cmpint(finds(pid, ID, &group), ==, ROWS[i].found);
    g_assert_cmpint(finds(pid, ID, NULL), ==, ROWS[i].found);
    close(hold);
    g_assert_cmpint(waitpid(pid, NULL, 0), ==, pid);
    g_autofree char *path = g_build_filename(hierarchies, ROWS[i].program, NULL);
    g_unlink(path);
  }
}

static void tidy(void)
{
  for (guint i = 0; i < 2; i++) {
    g_autofree char *root = g_strdup_printf("%s/%u", hierarchies, i);
    g_autofree char *file = g_build_filename(root, "cgroup.procs", NULL);
    g_unlink(file);
    g_rmdir(root);
  }
  g_assert_true(g_rmdir(hierarchies) == 0);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  hierarchies = g_dir_make_tmp("quavon-host-XXXXXX", NULL);
  g_assert_nonnull(hierarchies);
  g_test_add_func("/docker-host/groups", test_groups);
  g_test_add_func("/docker-host/hostile-names", test_hostile_names);
  g_test_add_func("/docker-host/dead", test_dead);
  g_test_add_func("/docker-host/find", test_find);
  g_test_add_func("/docker-host/names", test_names);
  int result = g_test_run();
  tidy();
  g_free(hierarchies);
  return result;
}
