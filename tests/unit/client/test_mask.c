/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots of a folder with mounts over its files, as dev containers and bubblewrap hide a secret: what is mounted counts,
 * not the file below. In a mount namespace of our own, as root or as a user's root. */
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/io.h"
#include "client/snapshot.h"
#include "tree.h"

static const char *no_mounts; /* why there can be none, or NULL */

static void write_line(const char *path, const char *line)
{
  QV_AUTOFD int fd = open(path, O_WRONLY | O_CLOEXEC);
  g_assert_true(fd >= 0 && qv_io_write_full(fd, line, strlen(line)));
}

/* Before there is a thread: a process of several gets no user namespace. */
static void enter_namespace(void)
{
  uid_t uid = geteuid();
  gid_t gid = getegid();
  if (unshare(uid == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0) {
    no_mounts = "neither root nor user namespaces";
    return;
  }
  if (uid != 0) {
    g_autofree char *uids = g_strdup_printf("0 %u 1", uid), *gids = g_strdup_printf("0 %u 1", gid);
    write_line("/proc/self/setgroups", "deny");
    write_line("/proc/self/uid_map", uids);
    write_line("/proc/self/gid_map", gids);
  }
  if (mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0)
    no_mounts = "a container that refuses mounts";
}

static gboolean skipped(void)
{
  if (no_mounts != NULL)
    g_test_skip(no_mounts);
  return no_mounts != NULL;
}

static void cover(const char *root, const char *path, const char *with, unsigned long flags)
{
  g_autofree char *full = tree_path(root, path);
  if (mount(with, full, "none", MS_BIND, NULL) != 0 ||
      (flags != 0 && mount("none", full, "none", MS_BIND | MS_REMOUNT | flags, NULL) != 0))
    g_error("mount over %s: %s", path, g_strerror(errno));
}

static void uncover(const char *root, const char *path)
{
  g_autofree char *full = tree_path(root, path);
  g_assert_cmpint(umount(full), ==, 0);
}

/* What SNAPSHOT must be: the files of WANTED and no more, and what is said of the rest. */
static void expect(const char *root, gboolean all, const char *wanted, guint64 files_n, const char *left_out)
{
  g_autoptr(GError) error = NULL;
  QvSnapshotOptions options = {.dir = root, .all = all}, plain = {.dir = wanted, .all = TRUE};
  g_autoptr(QvSnapshot) snapshot = qv_snapshot_build(&options, NULL, NULL, NULL, &error);
  g_assert_no_error(error);
  g_autoptr(QvSnapshot) same = qv_snapshot_build(&plain, NULL, NULL, NULL, &error);
  g_assert_no_error(error);
  g_autofree char *said = qv_left_out_describe(&snapshot->left_out);
  g_assert_cmpstr(said, ==, left_out);
  g_assert_cmpuint(snapshot->files_n, ==, files_n);
  g_assert_cmpstr(snapshot->tree_sha256, ==, same->tree_sha256);
  g_assert_cmpstr(snapshot->sha256, ==, same->sha256);
}

/* A device that can be opened and one that cannot, FIFO and socket: left out, each as what it is. */
static void test_kinds(void)
{
  if (skipped())
    return;
  char *root = tree_new(), *wanted = tree_new(), *scratch = tree_new();
  g_autofree char *fifo = tree_path(scratch, "fifo"), *socket_path = tree_path(scratch, "socket");
  g_assert_cmpint(mkfifo(fifo, 0600), ==, 0);
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  g_strlcpy(address.sun_path, socket_path, sizeof address.sun_path);
  QV_AUTOFD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(bind(fd, (const struct sockaddr *)&address, sizeof address), ==, 0);
  const struct {
    const char *with;
    unsigned long flags;
    const char *left_out;
  } cases[] = {{"/dev/null", 0, "1 device"},
               {"/dev/null", MS_RDONLY, "1 device"},
               {"/dev/null", MS_NODEV | MS_NOSUID | MS_NOEXEC, "1 device"},
               {fifo, 0, "1 FIFO"},
               {socket_path, 0, "1 socket"}};
  for (int i = 0; i < 2; i++) {
    tree_write(i == 0 ? root : wanted, "a", "1", 0644);
    tree_write(i == 0 ? root : wanted, "sub/z", "2", 0755);
  }
  tree_write(root, "sub/.env", "a secret", 0600);
  for (gsize i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_test_message("%s, flags %lx", cases[i].with, cases[i].flags);
    cover(root, "sub/.env", cases[i].with, cases[i].flags);
    expect(root, TRUE, wanted, 2, cases[i].left_out);
    uncover(root, "sub/.env");
  }
  tree_free(root);
  tree_free(wanted);
  tree_free(scratch);
}

/* A file over a file, and over a FIFO: what is mounted is packed. */
static void test_files(void)
{
  if (skipped())
    return;
  char *root = tree_new(), *wanted = tree_new();
  g_autofree char *fifo = tree_path(root, "fifo"), *template = tree_path(wanted, "file");
  g_assert_cmpint(mkfifo(fifo, 0600), ==, 0);
  tree_write(root, "file", "below", 0644);
  tree_write(wanted, "file", "mounted", 0644);
  tree_write(wanted, "fifo", "mounted", 0644);
  cover(root, "file", template, 0);
  cover(root, "fifo", template, 0);
  expect(root, TRUE, wanted, 2, NULL);
  uncover(root, "file");
  uncover(root, "fifo");
  tree_free(root);
  tree_free(wanted);
}

/* In a work tree: tracked or not it is a device, ignored it is ignored; rules that are hidden are an error. */
static void test_work_tree(void)
{
  if (skipped())
    return;
  char *root = tree_new(), *wanted = tree_new();
  tree_git_init(root);
  for (int i = 0; i < 2; i++) {
    tree_write(i == 0 ? root : wanted, ".gitignore", "*.ignored\n", 0644);
    tree_write(i == 0 ? root : wanted, "kept", "1", 0644);
  }
  tree_write(root, "tracked", "x", 0644);
  tree_git_commit(root);
  tree_write(root, "untracked", "x", 0644);
  tree_write(root, "secret.ignored", "x", 0644);
  static const char *const hidden[] = {"tracked", "untracked", "secret.ignored"};
  for (gsize i = 0; i < G_N_ELEMENTS(hidden); i++)
    cover(root, hidden[i], "/dev/null", MS_NODEV);
  expect(root, FALSE, wanted, 2, "1 .git, 2 devices, 1 ignored path");
  for (gsize i = 0; i < G_N_ELEMENTS(hidden); i++)
    uncover(root, hidden[i]);
  cover(root, ".gitignore", "/dev/null", 0);
  QvSnapshotOptions options = {.dir = root};
  g_autoptr(GError) error = NULL;
  g_assert_null(qv_snapshot_build(&options, NULL, NULL, NULL, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
  g_assert_nonnull(strstr(error->message, ".gitignore is not a regular file"));
  uncover(root, ".gitignore");
  tree_free(root);
  tree_free(wanted);
}

int main(int argc, char **argv)
{
  enter_namespace();
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/mask/kinds", test_kinds);
  g_test_add_func("/mask/files", test_files);
  g_test_add_func("/mask/work-tree", test_work_tree);
  return g_test_run();
}
