/* SPDX-License-Identifier: Apache-2.0 */
/* The attack corpus of snapshots (tests/attack/snapshot.attack) against the entry's unpacking, in real folders: the
 * verdict, what is there afterwards, that no file but regular ones is, and that nothing beside the folder was touched. */
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "entry/unpack.h"
#include "snapshots.h"
#include "support/attack.h"

enum { ATTACKS_MIN = 50, PORTION_SMALL_MAX = 65536 };

static GByteArray *marked;

static void obey(const char *command, const char *arguments, GByteArray *bytes, gpointer data)
{
  if (strcmp(command, "gzip") == 0) {
    g_autoptr(GByteArray) blob = g_byte_array_new();
    g_autoptr(QvGzipWriter) writer = qv_gzip_writer_new(snapshot_append, blob);
    qv_gzip_writer_add(writer, bytes->data, bytes->len);
    qv_gzip_writer_finish(writer);
    g_byte_array_set_size(bytes, 0);
    g_byte_array_append(bytes, blob->data, blob->len);
  } else if (strcmp(command, "set") == 0) {
    g_auto(GStrv) words = g_strsplit(arguments, " ", 2);
    g_autoptr(GByteArray) text = attack_unescape(words[1]);
    memcpy(bytes->data + strtoul(words[0], NULL, 10), text->data, text->len);
  } else if (strcmp(command, "mark") == 0) {
    marked = g_byte_array_new();
    g_byte_array_append(marked, bytes->data, bytes->len);
    g_byte_array_set_size(bytes, 0);
  } else if (strcmp(command, "join") == 0) {
    g_byte_array_prepend(bytes, marked->data, marked->len);
    g_clear_pointer(&marked, g_byte_array_unref);
  } else {
    g_error("unknown command: %s", command);
  }
}

static void put_file(int root, const char *path, const char *text)
{
  int fd = openat(root, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  g_assert_cmpint(fd, >=, 0);
  g_assert_cmpint(write(fd, text, strlen(text)), ==, (ssize_t)strlen(text));
  close(fd);
}

static GPtrArray *found;
static gsize base_n;

static int note(const char *path, const struct stat *info, int type, struct FTW *walk)
{
  g_assert_true(S_ISREG(info->st_mode) || S_ISDIR(info->st_mode));
  g_assert_cmpint(info->st_mode & 07000, ==, 0);
  if (S_ISREG(info->st_mode))
    g_ptr_array_add(found, g_strdup(path + base_n + 1));
  return 0;
}

static int compare(gconstpointer a, gconstpointer b)
{
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *files_below(const char *path)
{
  found = g_ptr_array_new_with_free_func(g_free);
  base_n = strlen(path);
  g_assert_cmpint(nftw(path, note, 16, FTW_PHYS), ==, 0);
  g_ptr_array_sort(found, compare);
  g_ptr_array_add(found, NULL);
  char *all = g_strjoinv(" ", (char **)found->pdata);
  g_ptr_array_unref(found);
  return all;
}

/* "GOOD files", or "REFUSED why". */
static char *unpack(const Attack *attack, const GByteArray *blob, gsize portion)
{
  g_autofree char *outer = g_dir_make_tmp("quavon-attack-XXXXXX", NULL);
  g_autofree char *inner = g_build_filename(outer, "repo", NULL);
  gboolean overlay = strstr(attack->with, "overlay") != NULL;
  g_assert_nonnull(outer);
  g_assert_cmpint(mkdir(inner, 0700), ==, 0);
  int root = open(inner, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (overlay) {
    put_file(root, "a", "old");
    g_assert_cmpint(mkdirat(root, "dir", 0755), ==, 0);
    put_file(root, "dir/keep", "old");
  }
  QvEntryUnpack *state = qv_entry_unpack_new(root, 1000000000, overlay);
  for (gsize at = 0; at < blob->len; at += portion)
    qv_entry_unpack_feed(state, (const char *)blob->data + at, MIN(portion, blob->len - at));
  QvEntryUnpackVerdict verdict = qv_entry_unpack_end(state);
  g_autofree char *inside = files_below(inner);
  g_autofree char *everything = files_below(outer);
  g_auto(GStrv) beside = g_strsplit(everything, " ", -1);
  for (gsize i = 0; beside[i] != NULL; i++)
    g_assert_true(g_str_has_prefix(beside[i], "repo/"));
  char *reached = verdict == QV_ENTRY_UNPACK_GOOD ? g_strconcat("GOOD ", inside, NULL)
                                                  : g_strconcat("REFUSED ", qv_entry_unpack_why(state), NULL);
  g_assert_cmpint(verdict, !=, QV_ENTRY_UNPACK_FULL);
  qv_entry_unpack_free(state);
  close(root);
  g_assert_true(qv_fd_remove_tree(outer, NULL));
  return reached;
}

static void test_attack(gconstpointer data)
{
  static const gsize portions[] = {G_MAXSIZE / 2, 512, 1};
  const Attack *attack = data;
  g_autoptr(GByteArray) blob = g_byte_array_new();
  attack_play(attack, blob, obey, NULL);
  for (gsize i = 0; i < G_N_ELEMENTS(portions); i++) {
    if (portions[i] == 1 && blob->len > PORTION_SMALL_MAX)
      continue;
    g_autofree char *reached = unpack(attack, blob, portions[i]);
    g_auto(GStrv) wanted = g_strsplit(attack->verdict, " ", 2);
    gboolean good = strcmp(wanted[0], "GOOD") == 0;
    if (good ? strcmp(reached, attack->verdict) != 0
             : !g_str_has_prefix(reached, "REFUSED ") || (wanted[1] != NULL && strstr(reached, wanted[1]) == NULL))
      g_test_fail_printf("%s in portions of %zu: expected %s, reached %s", attack->name, portions[i], attack->verdict, reached);
  }
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_autoptr(GPtrArray) attacks = attack_load("snapshot.attack", ATTACKS_MIN);
  attack_add_tests(attacks, "/attack/snapshot/", test_attack);
  return g_test_run();
}
