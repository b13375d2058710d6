/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots of git work trees and commits, hostile ones among them. */
#include <git2.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "client/git.h"
#include "client/listing.h"
#include "client/snapshot.h"
#include "tree.h"

/* The paths that a snapshot of the folder holds, joined by blanks: by the listing itself. */
static char *paths(const char *root, const char *prefix, const char *rev)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvListing) listing = qv_listing_new(1000);
  g_autoptr(QvGit) git = qv_git_open(root, FALSE, &error);
  g_assert_no_error(error);
  g_assert_nonnull(rev);
  qv_git_list_tree(git, rev, prefix, listing, &error);
  g_assert_no_error(error);
  qv_listing_sort(listing, &error);
  g_assert_no_error(error);
  g_autoptr(GString) text = g_string_new(NULL);
  for (guint i = 0; i < qv_listing_n(listing); i++) {
    QvListingEntry entry = qv_listing_entry(listing, i);
    g_string_append_printf(text, "%s%s%s", i > 0 ? " " : "", entry.path, entry.executable ? "*" : "");
  }
  return g_string_free(g_steal_pointer(&text), FALSE);
}

static QvSnapshot *snapshot_of(const QvSnapshotOptions *options)
{
  g_autoptr(GError) error = NULL;
  QvSnapshot *snapshot = qv_snapshot_build(options, NULL, NULL, NULL, &error);
  g_assert_no_error(error);
  return snapshot;
}

/* The snapshot of the folder equals the one of a plain folder that holds just these files ("path=content" texts). */
static void holds(const QvSnapshotOptions *options, const char *const *files)
{
  char *plain = tree_new();
  for (guint i = 0; files[i] != NULL; i++) {
    g_auto(GStrv) parts = g_strsplit(files[i], "=", 2);
    tree_write(plain, parts[0], parts[1], 0644);
  }
  g_autoptr(QvSnapshot) is = snapshot_of(options);
  g_autoptr(QvSnapshot) wanted = snapshot_of(&(QvSnapshotOptions){ .dir = plain });
  g_assert_cmpuint(is->files_n, ==, wanted->files_n);
  g_assert_cmpstr(is->tree_sha256, ==, wanted->tree_sha256);
  tree_free(plain);
}

static void refused(const QvSnapshotOptions *options, QvError code, const char *text)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvSnapshot) snapshot = qv_snapshot_build(options, NULL, NULL, NULL, &error);
  if (snapshot != NULL || error->code != (int)code || strstr(error->message, text) == NULL)
    g_error("%s: wanted an error %d with \"%s\", not \"%s\"", options->dir, code, text,
            error != NULL ? error->message : "a snapshot");
}

static void test_ignored(void)
{
  char *root = tree_new();
  tree_git_init(root);
  tree_write(root, ".gitignore", "*.o\nbuild/\n!keep.o\n", 0644);
  tree_write(root, "a.c", "a", 0644);
  tree_write(root, "build/tracked.c", "t", 0644);
  tree_run(root, "git", "add", "-f", "build/tracked.c", "a.c", ".gitignore", NULL);
  tree_run(root, "git", "commit", "-qm", "c", NULL);
  tree_write(root, "build/junk.c", "j", 0644);
  tree_write(root, "x.o", "o", 0644);
  tree_write(root, "keep.o", "k", 0644);
  tree_write(root, "new.c", "n", 0644);
  tree_write(root, "sub/.gitignore", "*.log\n", 0644);
  tree_write(root, "sub/x.log", "l", 0644);
  tree_write(root, "sub/x.txt", "x", 0644);
  tree_write(root, "private", "p", 0644);
  tree_write(root, ".git/info/exclude", "private\n", 0644);
  g_autofree char *gone = tree_path(root, "a.c");
  g_assert_cmpint(g_unlink(gone), ==, 0); /* tracked and deleted: not there, no error */
  QvSnapshotOptions options = { .dir = root };
  holds(&options, (const char *const[]){ ".gitignore=*.o\nbuild/\n!keep.o\n", "build/tracked.c=t", "keep.o=k",
                                         "new.c=n", "sub/.gitignore=*.log\n", "sub/x.txt=x", NULL });
  g_autoptr(QvSnapshot) snapshot = snapshot_of(&options);
  g_assert_cmpuint(snapshot->left_out.ignored, ==, 4); /* build/ is not ignored as a whole, build/junk.c is */
  g_assert_cmpuint(snapshot->left_out.git, ==, 1);
  tree_free(root);
}

static void test_all_and_below(void)
{
  char *root = tree_new();
  tree_git_init(root);
  tree_write(root, ".gitignore", "*.o\nvendor/\n", 0644);
  tree_write(root, "sub/a", "a", 0644);
  tree_git_commit(root);
  tree_write(root, "sub/x.o", "o", 0644);
  tree_write(root, "vendor/lib/y.o", "y", 0644);
  g_autofree char *sub = tree_path(root, "sub");
  g_autofree char *vendor = tree_path(root, "vendor/lib");
  holds(&(QvSnapshotOptions){ .dir = root, .all = TRUE },
        (const char *const[]){ ".gitignore=*.o\nvendor/\n", "sub/a=a", "sub/x.o=o", "vendor/lib/y.o=y", NULL });
  holds(&(QvSnapshotOptions){ .dir = sub }, (const char *const[]){ "a=a", NULL }); /* the rules of the top hold */
  holds(&(QvSnapshotOptions){ .dir = sub, .all = TRUE }, (const char *const[]){ "a=a", "x.o=o", NULL });
  holds(&(QvSnapshotOptions){ .dir = sub, .rev = "HEAD" }, (const char *const[]){ "a=a", NULL });
  /* Ignored, and asked for by name. */
  holds(&(QvSnapshotOptions){ .dir = vendor }, (const char *const[]){ "y.o=y", NULL });
  tree_free(root);
}

static void test_rev(void)
{
  char *root = tree_new();
  tree_git_init(root);
  tree_write(root, "a", "first", 0644);
  tree_write(root, "dir/tool", "t", 0755);
  tree_git_commit(root);
  tree_run(root, "git", "tag", "v1", NULL);
  tree_write(root, "a", "second", 0644);
  g_autofree char *link = tree_path(root, "link");
  g_assert_cmpint(symlink("a", link), ==, 0);
  tree_git_commit(root);
  tree_write(root, "a", "not committed", 0644);
  tree_write(root, "new", "not committed", 0644);
  g_autofree char *first = paths(root, "", "v1");
  g_assert_cmpstr(first, ==, "a dir/tool*");
  g_autofree char *below = paths(root, "dir", "HEAD~1");
  g_assert_cmpstr(below, ==, "tool*");
  g_autoptr(QvSnapshot) second = snapshot_of(&(QvSnapshotOptions){ .dir = root, .rev = "HEAD" });
  g_assert_cmpuint(second->files_n, ==, 2);
  g_assert_cmpuint(second->left_out.links, ==, 1);
  g_assert_cmpuint(second->left_out.git, ==, 0);
  refused(&(QvSnapshotOptions){ .dir = root, .rev = "no-such-branch" }, QV_ERROR_NOT_FOUND, "no-such-branch");
  refused(&(QvSnapshotOptions){ .dir = root, .rev = "HEAD", .max_file_bytes = 5 }, QV_ERROR_LIMIT, "a: 6 bytes");
  /* A bare clone has commits as well. */
  g_autofree char *bare = g_strconcat(root, "-bare", NULL);
  tree_run("/", "git", "clone", "-q", "--bare", root, bare, NULL);
  g_autoptr(QvSnapshot) of_bare = snapshot_of(&(QvSnapshotOptions){ .dir = bare, .rev = "HEAD" });
  g_assert_cmpstr(of_bare->tree_sha256, ==, second->tree_sha256);
  tree_free(g_steal_pointer(&bare));
  tree_free(root);
}

/* Nothing of the repository's configuration counts, no program of it is started. */
static void test_hostile_configuration(void)
{
  char *root = tree_new();
  tree_git_init(root);
  tree_write(root, "a", "a\r\n", 0644);
  tree_write(root, ".gitattributes", "* text=auto eol=crlf filter=evil\n", 0644);
  tree_git_commit(root);
  g_autoptr(QvSnapshot) before = snapshot_of(&(QvSnapshotOptions){ .dir = root });
  g_autofree char *mark = tree_path(root, "mark");
  g_autofree char *config = g_strdup_printf(
      "[core]\n\tworktree = /etc\n\tfsmonitor = touch %s\n\thooksPath = /tmp\n\tbare = true\n\tautocrlf = true\n"
      "\texcludesFile = /etc/passwd\n[filter \"evil\"]\n\tclean = touch %s\n\tsmudge = touch %s\n"
      "[extensions]\n\tunheardOf = true\n[include]\n\tpath = fifo\n",
      mark, mark, mark);
  tree_write(root, ".git/config", config, 0644);
  g_autofree char *fifo = tree_path(root, ".git/fifo");
  g_assert_cmpint(mkfifo(fifo, 0600), ==, 0);
  g_autoptr(QvSnapshot) after = snapshot_of(&(QvSnapshotOptions){ .dir = root });
  g_assert_cmpstr(after->tree_sha256, ==, before->tree_sha256);
  g_autoptr(QvSnapshot) commit = snapshot_of(&(QvSnapshotOptions){ .dir = root, .rev = "HEAD" });
  g_assert_cmpuint(commit->files_n, ==, 2);
  g_assert_false(g_file_test(mark, G_FILE_TEST_EXISTS));
  tree_free(root);
}

/* A FIFO where libgit2 would open a file. */
static void test_fifos(void)
{
  static const char *const places[] = { ".git/index", ".git/HEAD", ".git/info/exclude", ".git/packed-refs", ".gitignore",
                                        "sub/.gitignore" };
  for (guint i = 0; i < G_N_ELEMENTS(places); i++) {
    char *root = tree_new();
    tree_git_init(root);
    tree_write(root, "sub/a", "a", 0644);
    tree_git_commit(root);
    tree_write(root, "sub/untracked", "u", 0644);
    g_autofree char *path = tree_path(root, places[i]);
    g_unlink(path);
    g_assert_cmpint(mkfifo(path, 0600), ==, 0);
    g_autofree char *sub = tree_path(root, "sub");
    refused(&(QvSnapshotOptions){ .dir = root }, QV_ERROR_FORMAT, "not a regular file");
    refused(&(QvSnapshotOptions){ .dir = sub }, QV_ERROR_FORMAT, "not a regular file");
    tree_free(root);
  }
}

static void test_damaged(void)
{
  char *root = tree_new();
  tree_git_init(root);
  tree_write(root, "a", "a", 0644);
  tree_git_commit(root);
  tree_write(root, ".git/index", "DIRC\0\0\0\2garbage", 0644);
  refused(&(QvSnapshotOptions){ .dir = root }, QV_ERROR_FORMAT, "--all");
  g_autoptr(QvSnapshot) all = snapshot_of(&(QvSnapshotOptions){ .dir = root, .all = TRUE });
  g_assert_cmpuint(all->files_n, ==, 1);
  tree_write(root, ".git/HEAD", "nonsense", 0644);
  refused(&(QvSnapshotOptions){ .dir = root, .rev = "HEAD" }, QV_ERROR_NOT_FOUND, "HEAD");
  tree_free(root);
  char *empty = tree_new();
  tree_mkdir(empty, ".git");
  tree_write(empty, "a", "a", 0644);
  refused(&(QvSnapshotOptions){ .dir = empty }, QV_ERROR_NOT_FOUND, "--all");
  tree_free(empty);
}

static void test_nested(void)
{
  char *root = tree_new();
  tree_git_init(root);
  tree_write(root, "a", "a", 0644);
  tree_mkdir(root, "inner");
  g_autofree char *inner = tree_path(root, "inner");
  tree_git_init(inner);
  tree_write(inner, ".gitignore", "*.o\n", 0644);
  tree_write(inner, "b", "b", 0644);
  tree_git_commit(inner);
  tree_write(inner, "x.o", "o", 0644);
  tree_write(inner, "new", "n", 0644);
  tree_run(root, "git", "-c", "advice.addEmbeddedRepo=false", "add", "-A", NULL); /* inner: a link to a commit */
  tree_run(root, "git", "commit", "-qm", "c", NULL);
  tree_write(root, "fixture/.git/nothing", "n", 0644);
  tree_write(root, "fixture/f", "f", 0644);
  holds(&(QvSnapshotOptions){ .dir = root },
        (const char *const[]){ "a=a", "fixture/f=f", "inner/.gitignore=*.o\n", "inner/b=b", "inner/new=n", NULL });
  g_autoptr(QvSnapshot) commit = snapshot_of(&(QvSnapshotOptions){ .dir = root, .rev = "HEAD" });
  g_assert_cmpuint(commit->files_n, ==, 1);
  g_assert_cmpuint(commit->left_out.submodules, ==, 1);
  tree_free(root);
}

static void test_linked_work_tree(void)
{
  char *root = tree_new();
  tree_git_init(root);
  tree_write(root, "a", "a", 0644);
  tree_git_commit(root);
  g_autofree char *linked = g_strconcat(root, "-linked", NULL);
  tree_run(root, "git", "worktree", "add", "-q", linked, NULL);
  tree_write(linked, "new", "n", 0644);
  holds(&(QvSnapshotOptions){ .dir = linked }, (const char *const[]){ "a=a", "new=n", NULL });
  holds(&(QvSnapshotOptions){ .dir = linked, .rev = "HEAD" }, (const char *const[]){ "a=a", NULL });
  tree_free(g_steal_pointer(&linked));
  tree_free(root);
}

/* Trees that git itself would never write. */
typedef struct {
  const char *name;
  git_filemode_t mode;
} RawEntry;

static void raw_tree(git_repository *repo, const RawEntry *entries, gsize n, const git_oid *child, git_oid *oid)
{
  g_autoptr(GByteArray) bytes = g_byte_array_new();
  git_oid blob;
  git_odb *odb = NULL;
  g_assert_cmpint(git_blob_create_from_buffer(&blob, repo, "x", 1), ==, 0);
  for (gsize i = 0; i < n; i++) {
    g_autofree char *head = g_strdup_printf("%o %s", (unsigned)entries[i].mode, entries[i].name);
    g_byte_array_append(bytes, (const guint8 *)head, (guint)strlen(head) + 1);
    g_byte_array_append(bytes, entries[i].mode == GIT_FILEMODE_TREE ? child->id : blob.id, 20);
  }
  g_assert_cmpint(git_repository_odb(&odb, repo), ==, 0);
  g_assert_cmpint(git_odb_write(oid, odb, bytes->data, bytes->len, GIT_OBJECT_TREE), ==, 0);
  git_odb_free(odb);
}

static void test_hostile_trees(void)
{
  char *root = tree_new();
  tree_git_init(root);
  git_repository *repo = NULL;
  git_libgit2_init();
  git_libgit2_opts(GIT_OPT_ENABLE_STRICT_OBJECT_CREATION, 0);
  g_assert_cmpint(git_repository_open(&repo, root), ==, 0);
  static const struct {
    RawEntry entries[2];
    gsize n;
    QvError code;
    const char *text;
  } cases[] = {
    { { { "..", GIT_FILEMODE_BLOB } }, 1, QV_ERROR_FORMAT, ".." },
    { { { "a/b", GIT_FILEMODE_BLOB }, { "a", GIT_FILEMODE_BLOB } }, 2, QV_ERROR_FORMAT, "a" },
    { { { "twice", GIT_FILEMODE_BLOB }, { "twice", GIT_FILEMODE_BLOB } }, 2, QV_ERROR_FORMAT, "twice" },
    { { { "new\nline", GIT_FILEMODE_BLOB } }, 1, QV_ERROR_FORMAT, "new" },
    { { { ".Git", GIT_FILEMODE_BLOB } }, 1, QV_ERROR_FORMAT, ".Git" },
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    git_oid oid;
    raw_tree(repo, cases[i].entries, cases[i].n, NULL, &oid);
    const char *rev = git_oid_tostr_s(&oid);
    refused(&(QvSnapshotOptions){ .dir = root, .rev = rev }, cases[i].code, cases[i].text);
  }
  /* Ten folders in each of 40 generations, and not one file. */
  git_oid child;
  RawEntry empty[1];
  raw_tree(repo, empty, 0, NULL, &child);
  for (int depth = 0; depth < 40; depth++) {
    char names[10][2];
    RawEntry ten[10];
    for (int i = 0; i < 10; i++) {
      names[i][0] = (char)('a' + i);
      names[i][1] = '\0';
      ten[i] = (RawEntry){ names[i], GIT_FILEMODE_TREE };
    }
    git_oid next;
    raw_tree(repo, ten, 10, &child, &next);
    child = next;
  }
  refused(&(QvSnapshotOptions){ .dir = root, .rev = git_oid_tostr_s(&child), .max_entries = 1000 }, QV_ERROR_LIMIT,
          "more than 1000 folders");
  git_repository_free(repo);
  tree_free(root);
}

int main(int argc, char **argv)
{
  g_setenv("GIT_CONFIG_NOSYSTEM", "1", TRUE);
  g_test_init(&argc, &argv, NULL);
  /* The user's own excludes file counts, so there must be none. */
  git_libgit2_init();
  git_libgit2_opts(GIT_OPT_SET_SEARCH_PATH, GIT_CONFIG_LEVEL_GLOBAL, "/nowhere");
  git_libgit2_opts(GIT_OPT_SET_SEARCH_PATH, GIT_CONFIG_LEVEL_XDG, "/nowhere");
  git_libgit2_opts(GIT_OPT_SET_SEARCH_PATH, GIT_CONFIG_LEVEL_SYSTEM, "/nowhere");
  g_test_add_func("/git/ignored", test_ignored);
  g_test_add_func("/git/all-and-below", test_all_and_below);
  g_test_add_func("/git/rev", test_rev);
  g_test_add_func("/git/hostile-configuration", test_hostile_configuration);
  g_test_add_func("/git/fifos", test_fifos);
  g_test_add_func("/git/damaged", test_damaged);
  g_test_add_func("/git/nested", test_nested);
  g_test_add_func("/git/linked-work-tree", test_linked_work_tree);
  g_test_add_func("/git/hostile-trees", test_hostile_trees);
  return g_test_run();
}
