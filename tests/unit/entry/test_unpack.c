/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <glib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "entry/unpack.h"
#include "snapshots.h"

typedef struct {
  char *path;
  int fd;
} Fixture;

static void set_up(Fixture *fixture, gconstpointer unused)
{
  fixture->path = g_dir_make_tmp("quavon-unpack-XXXXXX", NULL);
  g_assert_nonnull(fixture->path);
  fixture->fd = open(fixture->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  g_assert_cmpint(fixture->fd, >=, 0);
}

static void tear_down(Fixture *fixture, gconstpointer unused)
{
  close(fixture->fd);
  g_assert_true(qv_fd_remove_tree(fixture->path, NULL));
  g_free(fixture->path);
}

/* Feeds BLOB in portions of PORTION bytes. */
static QvEntryUnpackVerdict unpack(const Fixture *fixture, const GByteArray *blob, gsize portion, gint64 mtime,
                                   gboolean replace)
{
  QvEntryUnpack *state = qv_entry_unpack_new(fixture->fd, mtime, replace);
  for (gsize at = 0; at < blob->len; at += portion)
    qv_entry_unpack_feed(state, (const char *)blob->data + at, MIN(portion, blob->len - at));
  QvEntryUnpackVerdict verdict = qv_entry_unpack_end(state);
  if (verdict != QV_ENTRY_UNPACK_GOOD)
    g_test_message("%s", qv_entry_unpack_why(state));
  qv_entry_unpack_free(state);
  return verdict;
}

static char *contents(const Fixture *fixture, const char *path)
{
  g_autofree char *whole = g_build_filename(fixture->path, path, NULL);
  char *text = NULL;
  g_file_get_contents(whole, &text, NULL, NULL);
  return text;
}

static struct stat info_of(const Fixture *fixture, const char *path)
{
  struct stat info;
  g_assert_cmpint(fstatat(fixture->fd, path, &info, AT_SYMLINK_NOFOLLOW), ==, 0);
  return info;
}

static void test_tree(Fixture *fixture, gconstpointer unused)
{
  static const gsize portions[] = {1, 7, 100000};
  for (gsize i = 0; i < G_N_ELEMENTS(portions); i++) {
    g_autofree char *sub = g_strdup_printf("try%zu", i);
    GByteArray *tar = g_byte_array_new();
    g_autofree char *deep = g_strconcat(sub, "/a/b/c/deep", NULL), *side = g_strconcat(sub, "/a/side", NULL);
    g_autofree char *dash = g_strconcat(sub, "/a-b", NULL);
    snapshot_add(tar, dash, "dash", TRUE);
    snapshot_add(tar, deep, "deep", FALSE);
    snapshot_add(tar, side, NULL, FALSE);
    g_autoptr(GByteArray) blob = snapshot_finish(tar);
    g_assert_cmpint(unpack(fixture, blob, portions[i], 1000, FALSE), ==, QV_ENTRY_UNPACK_GOOD);
    g_autofree char *got = contents(fixture, deep);
    g_assert_cmpstr(got, ==, "deep");
    g_assert_cmpint(info_of(fixture, dash).st_mode & 07777, ==, 0755);
    g_assert_cmpint(info_of(fixture, deep).st_mode & 07777, ==, 0644);
    g_assert_cmpint(info_of(fixture, side).st_size, ==, 0);
    const char *const all[] = {".", sub, dash, deep, side};
    for (gsize k = 0; k < G_N_ELEMENTS(all); k++)
      g_assert_cmpint(info_of(fixture, all[k]).st_mtim.tv_sec, ==, 1000);
    g_autofree char *folder = g_strconcat(sub, "/a/b/c", NULL);
    g_assert_cmpint(info_of(fixture, folder).st_mtim.tv_sec, ==, 1000);
  }
}

static guint open_files(void)
{
  guint n = 0;
  g_autoptr(GDir) dir = g_dir_open("/proc/self/fd", 0, NULL);
  while (g_dir_read_name(dir) != NULL)
    n++;
  return n;
}

/* More files than are kept open, in folders that open and close between them: all there, none open at the end, a
 * tree that is cut in the middle included. */
static void test_many(Fixture *fixture, gconstpointer unused)
{
  enum { FOLDERS = 3, FILES = 150 };
  for (guint cut = 0; cut < 2; cut++) {
    GByteArray *tar = g_byte_array_new();
    for (guint i = 0; i < FOLDERS * FILES; i++) {
      g_autofree char *path = g_strdup_printf("try%u/d%u/%s%03u", cut, i / FILES, i % 7 == 0 ? "sub/" : "x", i);
      snapshot_add(tar, path, path, FALSE);
    }
    g_autoptr(GByteArray) blob = snapshot_finish(tar);
    guint before = open_files();
    QvEntryUnpackVerdict wanted = cut ? QV_ENTRY_UNPACK_REFUSED : QV_ENTRY_UNPACK_GOOD;
    g_byte_array_set_size(blob, blob->len - cut);
    g_assert_cmpint(unpack(fixture, blob, 9999, 1000, FALSE), ==, wanted);
    g_assert_cmpuint(open_files(), ==, before);
    for (guint i = 0; !cut && i < FOLDERS * FILES; i++) {
      g_autofree char *path = g_strdup_printf("try%u/d%u/%s%03u", cut, i / FILES, i % 7 == 0 ? "sub/" : "x", i);
      g_autofree char *got = contents(fixture, path);
      g_assert_cmpstr(got, ==, path);
      g_assert_cmpint(info_of(fixture, path).st_mtim.tv_sec, ==, 1000);
    }
  }
}

static GByteArray *one_file(const char *path, const char *text)
{
  GByteArray *tar = g_byte_array_new();
  snapshot_add(tar, path, text, FALSE);
  return snapshot_finish(tar);
}

static void test_overlay(Fixture *fixture, gconstpointer unused)
{
  g_autoptr(GByteArray) base = one_file("d/file", "old"), over = one_file("d/file", "new");
  g_autoptr(GByteArray) folder = one_file("d/file/x", "x"), file = one_file("d", "x");
  g_assert_cmpint(unpack(fixture, base, 9999, 1000, FALSE), ==, QV_ENTRY_UNPACK_GOOD);
  g_assert_cmpint(unpack(fixture, over, 9999, 1000, FALSE), ==, QV_ENTRY_UNPACK_REFUSED);
  g_assert_cmpint(unpack(fixture, over, 9999, 1001, TRUE), ==, QV_ENTRY_UNPACK_GOOD);
  g_autofree char *got = contents(fixture, "d/file");
  g_assert_cmpstr(got, ==, "new");
  g_assert_cmpint(info_of(fixture, "d").st_mtim.tv_sec, ==, 1001);
  g_assert_cmpint(unpack(fixture, folder, 9999, 1001, TRUE), ==, QV_ENTRY_UNPACK_REFUSED);
  g_assert_cmpint(unpack(fixture, file, 9999, 1001, TRUE), ==, QV_ENTRY_UNPACK_REFUSED);
}

/* Links cannot come from a snapshot; were one there, nothing would be written through it. */
static void test_links(Fixture *fixture, gconstpointer unused)
{
  g_assert_cmpint(mkdirat(fixture->fd, "outside", 0755), ==, 0);
  g_assert_cmpint(mkdirat(fixture->fd, "root", 0755), ==, 0);
  g_assert_cmpint(symlinkat("../outside", fixture->fd, "root/link"), ==, 0);
  g_assert_cmpint(symlinkat("../outside/made", fixture->fd, "root/file"), ==, 0);
  Fixture inside = {.path = fixture->path, .fd = openat(fixture->fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  g_autoptr(GByteArray) through = one_file("link/made", "x"), over = one_file("file", "x");
  g_assert_cmpint(unpack(&inside, through, 9999, 1000, TRUE), ==, QV_ENTRY_UNPACK_REFUSED);
  g_assert_cmpint(unpack(&inside, over, 9999, 1000, TRUE), ==, QV_ENTRY_UNPACK_GOOD);
  close(inside.fd);
  g_assert_cmpint(faccessat(fixture->fd, "outside/made", F_OK, 0), ==, -1);
  g_assert_true(S_ISREG(info_of(fixture, "root/file").st_mode));
}

/* Cut anywhere, it is refused. */
static void test_cut(Fixture *fixture, gconstpointer unused)
{
  g_autoptr(GByteArray) blob = one_file("file", "some text");
  for (guint n = 0; n < blob->len; n++) {
    g_autoptr(GByteArray) cut = g_byte_array_new();
    g_byte_array_append(cut, blob->data, n);
    g_assert_cmpint(unpack(fixture, cut, 9999, 1000, TRUE), ==, QV_ENTRY_UNPACK_REFUSED);
  }
  g_byte_array_append(blob, (const guint8 *)"x", 1);
  g_assert_cmpint(unpack(fixture, blob, 9999, 1000, TRUE), ==, QV_ENTRY_UNPACK_REFUSED);
}

static void test_deepest(Fixture *fixture, gconstpointer unused)
{
  g_autoptr(GString) path = g_string_new(NULL);
  while (path->len < QV_PATH_BYTES_MAX - 2)
    g_string_append(path, "d/");
  g_string_append(path, "f");
  g_autoptr(GByteArray) blob = one_file(path->str, "x");
  g_assert_cmpint(unpack(fixture, blob, 9999, 1000, FALSE), ==, QV_ENTRY_UNPACK_GOOD);
  g_autofree char *got = contents(fixture, path->str);
  g_assert_cmpstr(got, ==, "x");
}

#define ADD(name, func) g_test_add("/entry/unpack/" name, Fixture, NULL, set_up, func, tear_down)

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  umask(022);
  ADD("tree", test_tree);
  ADD("many", test_many);
  ADD("overlay", test_overlay);
  ADD("links", test_links);
  ADD("cut", test_cut);
  ADD("deepest", test_deepest);
  return g_test_run();
}
