/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots of folders: the same bytes on every copy, what is left out, what is refused. */
#include <errno.h>
#include <fcntl.h>
#include <gio/gio.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/io.h"
#include "client/snapshot.h"
#include "format/inflate.h"
#include "format/tar.h"
#include "tree.h"

/* Of the tar that section 4 gives for test_golden's tree, made by hand from its table. */
#define GOLDEN "c643ccc0a5acee0921fda83f785c1a08cd2163a632dd9dc4aff32389ef651395"

static QvSnapshot *build(const QvSnapshotOptions *options)
{
  g_autoptr(GError) error = NULL;
  QvSnapshot *snapshot = qv_snapshot_build(options, NULL, NULL, NULL, &error);
  g_assert_no_error(error);
  return snapshot;
}

static void refused(const QvSnapshotOptions *options, QvError code, const char *path)
{
  g_autoptr(GError) error = NULL;
  g_assert_null(qv_snapshot_build(options, NULL, NULL, NULL, &error));
  g_assert_error(error, QV_ERROR, (int)code);
  if (strstr(error->message, path) == NULL)
    g_error("\"%s\" does not name \"%s\"", error->message, path);
}

/* Reads the gzip with the project's own strict readers: "path mode size;" for each file. */
static char *list(const QvSnapshot *snapshot)
{
  g_autoptr(GString) listed = g_string_new(NULL);
  QvTarCaps caps = { .entries_max = 1000, .total_bytes_max = 1 << 26, .file_bytes_max = 1 << 26 };
  QvTarReader reader;
  QvGunzip *gunzip = qv_gunzip_new(1 << 26);
  qv_tar_reader_init(&reader, &caps);
  g_autofree guint8 *gzip = g_malloc(snapshot->gzip_bytes);
  static guint8 out[65536];
  g_assert_cmpint(pread(snapshot->fd, gzip, snapshot->gzip_bytes, 0), ==, (gssize)snapshot->gzip_bytes);
  const guint8 *at = gzip;
  size_t left = snapshot->gzip_bytes, n = 0;
  QvGunzipStatus status;
  do {
    status = qv_gunzip_step(gunzip, &at, &left, out, sizeof out, &n);
    const guint8 *bytes = out;
    QvTarEvent event;
    while ((event = qv_tar_reader_step(&reader, &bytes, &n)) != QV_TAR_MORE) {
      g_assert_cmpint(event, !=, QV_TAR_BAD);
      if (event == QV_TAR_ENTRY)
        g_string_append_printf(listed, "%s %s %d;", reader.entry.path, reader.entry.executable ? "x" : "-",
                               (int)reader.entry.size);
    }
  } while (status == QV_GUNZIP_OUTPUT);
  g_assert_cmpint(qv_gunzip_finish(gunzip), ==, QV_GZIP_OK);
  g_assert_cmpint(qv_tar_reader_finish(&reader), ==, QV_TAR_OK);
  g_assert_cmpuint(reader.stream_bytes, ==, snapshot->tar_bytes);
  qv_gunzip_free(gunzip);
  qv_tar_reader_clear(&reader);
  return g_string_free(g_steal_pointer(&listed), FALSE);
}

/* Some files of every kind of name and size; several gzip members in all. */
static void fill(const char *root)
{
  g_autofree guint8 *noise = g_malloc(3 * 1024 * 1024 + 77);
  guint32 state = 1;
  for (gsize i = 0; i < 3 * 1024 * 1024 + 77; i++) {
    state = state * 1664525 + 1013904223;
    noise[i] = (guint8)(state >> 24);
  }
  tree_write_bytes(root, "src/noise.bin", noise, 3 * 1024 * 1024 + 77);
  tree_write_bytes(root, "src/block.bin", noise, 512);
  tree_write(root, "a", "1", 0644);
  tree_write(root, "a-b", "2", 0644);
  tree_write(root, "b/c", "3", 0600);
  tree_write(root, "b-c", "", 0644);
  tree_write(root, "tool.sh", "#!/bin/sh\n", 0755);
  tree_write(root, "gr\xc3\xb6\xc3\x9f" "e.txt", "umlaut", 0644);
  g_autofree char *deep = g_strnfill(90, 'd');
  g_autofree char *path = g_strconcat(deep, "/", deep, "/file", NULL);
  tree_write(root, path, "deep", 0644);
}


static void same_everywhere(const char *scratch, const char *const *names)
{
  g_autoptr(QvSnapshot) first = NULL;
  for (guint i = 0; names[i] != NULL; i++) {
    for (guint threads_n = 1; threads_n <= 3; threads_n++) {
      g_autofree char *dir = tree_path(scratch, names[i]);
      QvSnapshotOptions options = { .dir = dir, .threads_n = threads_n };
      g_autoptr(QvSnapshot) snapshot = build(&options);
      if (first == NULL) {
        first = g_steal_pointer(&snapshot);
        continue;
      }
      g_assert_cmpstr(snapshot->tree_sha256, ==, first->tree_sha256);
      g_assert_cmpstr(snapshot->sha256, ==, first->sha256);
      g_assert_cmpuint(snapshot->files_n, ==, first->files_n);
    }
  }
}

static void test_same_on_copies(void)
{
  char *scratch = tree_new();
  g_autofree char *tree = tree_path(scratch, "tree");
  tree_mkdir(scratch, "tree");
  tree_mkdir(scratch, "untar");
  tree_git_init(tree);
  fill(tree);
  tree_write(tree, ".gitignore", "*.o\n/out/\n", 0644);
  tree_git_commit(tree);
  tree_write(tree, "x.o", "ignored", 0644);
  tree_write(tree, "out/log", "ignored", 0644);
  tree_run(scratch, "cp", "-a", "tree", "copy", NULL);
  tree_run(scratch, "git", "clone", "-q", "tree", "clone", NULL);
  /* Without .git the ignored files are not left out, so they are not taken along. Times and the umask differ. */
  tree_run(scratch, "sh", "-c",
           "umask 077; tar -C tree --exclude=.git --exclude='*.o' --exclude=./out -cf - . | tar -C untar -xmf -", NULL);
  same_everywhere(scratch, (const char *const[]){ "tree", "copy", "clone", "untar", NULL });

  QvSnapshotOptions options = { .dir = tree };
  g_autoptr(QvSnapshot) work_tree = build(&options);
  options.rev = "HEAD";
  g_autoptr(QvSnapshot) commit = build(&options);
  g_assert_cmpstr(work_tree->tree_sha256, ==, commit->tree_sha256);
  g_assert_cmpstr(work_tree->sha256, ==, commit->sha256);
  g_assert_cmpuint(work_tree->left_out.ignored, ==, 2);
  tree_free(scratch);
}

static void test_content(void)
{
  char *root = tree_new();
  fill(root);
  QvSnapshotOptions options = { .dir = root };
  g_autoptr(QvSnapshot) snapshot = build(&options);
  g_autofree char *listed = list(snapshot);
  g_autofree char *deep = g_strnfill(90, 'd');
  /* Sorted by bytes of the whole path: '-' is before '/', both before letters. */
  g_autofree char *wanted = g_strdup_printf("a - 1;a-b - 1;b-c - 0;b/c - 1;%s/%s/file - 4;gr\xc3\xb6\xc3\x9f"
                                            "e.txt - 6;src/block.bin - 512;src/noise.bin - %d;tool.sh x 10;",
                                            deep, deep, 3 * 1024 * 1024 + 77);
  g_assert_cmpstr(listed, ==, wanted);
  g_assert_cmpuint(snapshot->files_n, ==, 9);
  g_assert_null(qv_left_out_describe(&snapshot->left_out));
  tree_free(root);
}

/* The whole tar of a tree that is known, byte by byte: nothing of the machine gets in. */
static void test_golden(void)
{
  char *root = tree_new();
  tree_write(root, "hello.txt", "hello\n", 0644);
  tree_write(root, "run", "#!/bin/sh\n", 0755);
  tree_mkdir(root, "empty");
  QvSnapshotOptions options = { .dir = root };
  g_autoptr(QvSnapshot) snapshot = build(&options);
  g_assert_cmpuint(snapshot->tar_bytes, ==, 4 * 512 + 1024);
  g_assert_cmpstr(snapshot->tree_sha256, ==, GOLDEN);
  g_autoptr(QvSnapshot) again = build(&options);
  g_assert_cmpstr(snapshot->sha256, ==, again->sha256);
  tree_free(root);
}

static void test_empty(void)
{
  char *root = tree_new();
  QvSnapshotOptions options = { .dir = root };
  g_autoptr(QvSnapshot) snapshot = build(&options);
  g_assert_cmpuint(snapshot->files_n, ==, 0);
  g_assert_cmpuint(snapshot->tar_bytes, ==, 1024);
  g_autofree char *listed = list(snapshot);
  g_assert_cmpstr(listed, ==, "");
  tree_free(root);
}

static void test_left_out(void)
{
  char *root = tree_new();
  g_autofree char *cwd = g_get_current_dir();
  tree_write(root, "kept", "k", 0644);
  tree_write(root, "sub/.git/config", "x", 0644);
  tree_write(root, "sub/kept", "k", 0644);
  tree_write(root, "other/.git", "x", 0644);
  g_assert_cmpint(chdir(root), ==, 0);
  g_assert_cmpint(symlink("kept", "link"), ==, 0);
  g_assert_cmpint(symlink("sub", "link-to-folder"), ==, 0);
  g_assert_cmpint(symlink("nowhere", "dangling"), ==, 0);
  g_assert_cmpint(link("kept", "hard"), ==, 0);
  g_assert_cmpint(mkfifo("fifo", 0600), ==, 0);
  struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "socket" };
  QV_AUTOFD int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  g_assert_cmpint(bind(fd, (const struct sockaddr *)&address, sizeof address), ==, 0);
  gboolean device = mknod("null", S_IFCHR | 0600, makedev(1, 3)) == 0; /* needs root */
  g_assert_cmpint(chdir(cwd), ==, 0);
  QvSnapshotOptions options = { .dir = root };
  g_autoptr(QvSnapshot) snapshot = build(&options);
  g_autofree char *listed = list(snapshot);
  g_assert_cmpstr(listed, ==, "hard - 1;kept - 1;sub/kept - 1;");
  g_autofree char *left_out = qv_left_out_describe(&snapshot->left_out);
  g_assert_cmpstr(left_out, ==,
                  device ? "2 .git, 3 symbolic links, 1 device, 1 socket, 1 FIFO"
                         : "2 .git, 3 symbolic links, 1 socket, 1 FIFO");
  tree_free(root);
}

static void test_caps(void)
{
  char *root = tree_new();
  tree_write(root, "a", "12345", 0644);
  tree_write(root, "b/c", "123456", 0644);
  QvSnapshotOptions options = { .dir = root, .max_file_bytes = 6, .max_entries = 2, .max_tar_bytes = 4 * 512 + 1024 };
  g_autoptr(QvSnapshot) fits = build(&options);
  g_assert_cmpuint(fits->tar_bytes, ==, 4 * 512 + 1024);
  options.max_file_bytes = 5;
  refused(&options, QV_ERROR_LIMIT, "b/c");
  options.max_file_bytes = 6;
  options.max_entries = 1;
  refused(&options, QV_ERROR_LIMIT, "b/c");
  options.max_entries = 2;
  options.max_tar_bytes -= 1;
  refused(&options, QV_ERROR_LIMIT, "b/c");
  tree_free(root);
}

static void test_names(void)
{
  static const struct {
    const char *name, *shown;
  } cases[] = {
    { "not-utf8-\xff", "not-utf8-\\ufffd" }, { "line\nbreak", "line\\nbreak" }, { "esc\x1b[31m", "esc\\x1b[31m" },
    { "del\x7f", "del\\x7f" },             { "c1-\xc2\x85", "c1-" },            { "d/.GIT/config", "d/.GIT" },
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    char *root = tree_new();
    tree_write(root, cases[i].name, "x", 0644);
    tree_write(root, "fine", "x", 0644);
    QvSnapshotOptions options = { .dir = root };
    refused(&options, QV_ERROR_FORMAT, cases[i].shown);
    tree_free(root);
  }
  /* 1 024 bytes are the most. */
  char *root = tree_new();
  g_autofree char *part = g_strnfill(203, 'p');
  g_autofree char *path = g_strjoin("/", part, part, part, part, part, "1234", NULL);
  g_assert_cmpuint(strlen(path), ==, 1024);
  tree_write(root, path, "x", 0644);
  QvSnapshotOptions options = { .dir = root };
  g_autoptr(QvSnapshot) fits = build(&options);
  g_assert_cmpuint(fits->files_n, ==, 1);
  g_autofree char *longer = g_strconcat(path, "5", NULL);
  tree_write(root, longer, "x", 0644);
  refused(&options, QV_ERROR_LIMIT, "pppp");
  tree_free(root);
}

/* Called in the middle of the packing: after the listing, before the files are read. */
typedef struct {
  const char *root;
  void (*change)(const char *root);
} Change;

static void on_progress(guint64 files_n, guint64 files_total, gpointer data)
{
  const Change *change = data;
  if (files_n == 0)
    change->change(change->root);
}

static void become_link(const char *root)
{
  g_autofree char *path = tree_path(root, "victim");
  g_assert_cmpint(g_unlink(path), ==, 0);
  g_assert_cmpint(symlink("/etc/passwd", path), ==, 0);
}

static void become_fifo(const char *root)
{
  g_autofree char *path = tree_path(root, "victim");
  g_assert_cmpint(g_unlink(path), ==, 0);
  g_assert_cmpint(mkfifo(path, 0600), ==, 0);
}

static void vanish(const char *root)
{
  g_autofree char *path = tree_path(root, "victim");
  g_assert_cmpint(g_unlink(path), ==, 0);
}

static void test_changes_after_listing(void)
{
  void (*const changes[])(const char *) = { become_link, become_fifo, vanish };
  for (guint i = 0; i < G_N_ELEMENTS(changes); i++) {
    char *root = tree_new();
    tree_write(root, "victim", "x", 0644);
    Change change = { root, changes[i] };
    QvSnapshotOptions options = { .dir = root };
    g_autoptr(GError) error = NULL;
    g_assert_null(qv_snapshot_build(&options, on_progress, &change, NULL, &error));
    g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
    g_assert_cmpstr(error->message, ==, "victim changed while it was read");
    tree_free(root);
  }
}

/* Reads from a FUSE-less moving target: a thread appends for as long as the packing lasts. */
typedef struct {
  char *path;
  gint stop;
} Writer;

static gpointer keep_writing(gpointer data)
{
  Writer *writer = data;
  QV_AUTOFD int fd = open(writer->path, O_WRONLY | O_APPEND | O_CLOEXEC);
  while (!g_atomic_int_get(&writer->stop)) {
    if (write(fd, "x", 1) != 1)
      break;
    if (lseek(fd, 0, SEEK_END) > 1 << 20 && ftruncate(fd, 1) != 0)
      break;
  }
  return NULL;
}

static void test_changes_while_read(void)
{
  char *root = tree_new();
  tree_write(root, "log", "1", 0644);
  Writer writer = { .path = tree_path(root, "log") };
  GThread *thread = g_thread_new("writer", keep_writing, &writer);
  QvSnapshotOptions options = { .dir = root, .threads_n = 1 };
  g_autoptr(GError) error = NULL;
  /* A quiet moment may be hit now and then: what is asked is that the change is found, not at which try. */
  for (guint i = 0; error == NULL; i++) {
    g_autoptr(QvSnapshot) snapshot = qv_snapshot_build(&options, NULL, NULL, NULL, &error);
    g_assert_cmpuint(i, <, 1000000);
  }
  g_atomic_int_set(&writer.stop, 1);
  g_thread_join(thread);
  g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
  g_assert_cmpstr(error->message, ==, "log changed while it was read");
  g_free(writer.path);
  tree_free(root);
}

static void test_cancel(void)
{
  char *root = tree_new();
  tree_write(root, "a", "1", 0644);
  g_autoptr(GCancellable) cancellable = g_cancellable_new();
  g_autoptr(GError) error = NULL;
  QvSnapshotOptions options = { .dir = root };
  g_cancellable_cancel(cancellable);
  g_assert_null(qv_snapshot_build(&options, NULL, NULL, cancellable, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_CANCELLED);
  tree_free(root);
}

static void test_no_folder(void)
{
  char *root = tree_new();
  tree_write(root, "file", "1", 0644);
  g_autofree char *file = tree_path(root, "file");
  g_autofree char *absent = tree_path(root, "absent");
  refused(&(QvSnapshotOptions){ .dir = absent }, QV_ERROR_NOT_FOUND, absent);
  refused(&(QvSnapshotOptions){ .dir = file }, QV_ERROR_NOT_FOUND, file);
  tree_free(root);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/snapshot/same-on-copies", test_same_on_copies);
  g_test_add_func("/snapshot/content", test_content);
  g_test_add_func("/snapshot/golden", test_golden);
  g_test_add_func("/snapshot/empty", test_empty);
  g_test_add_func("/snapshot/left-out", test_left_out);
  g_test_add_func("/snapshot/caps", test_caps);
  g_test_add_func("/snapshot/names", test_names);
  g_test_add_func("/snapshot/changes-after-listing", test_changes_after_listing);
  g_test_add_func("/snapshot/changes-while-read", test_changes_while_read);
  g_test_add_func("/snapshot/cancel", test_cancel);
  g_test_add_func("/snapshot/no-folder", test_no_folder);
  return g_test_run();
}
