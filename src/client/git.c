/* SPDX-License-Identifier: Apache-2.0 */
/* Owns libgit2.
 *
 * git_repository_open_bare is the one way in that reads no configuration file; the
 * work tree and a configuration of our choice (the user's, for core.excludesFile) are set
 * afterwards. So `.git` as a file (linked work trees, submodules) is resolved here. */
#include "client/git.h"

#include <errno.h>
#include <fcntl.h>
#include <git2.h>
#include <git2/sys/repository.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "client/path.h"

G_DEFINE_AUTOPTR_CLEANUP_FUNC(git_object, git_object_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(git_tree, git_tree_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(git_tree_entry, git_tree_entry_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(git_index, git_index_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(git_config, git_config_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(git_odb, git_odb_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(git_odb_object, git_odb_object_free)

enum { GITFILE_MAX_BYTES = 4096 + 16 };

struct QvGit {
  git_repository *repo;
  GHashTable *tracked; /* set of paths */
  GHashTable *folders; /* set of every folder above a tracked path */
};

static void git_error_take(GError **error, int code, int rc, const char *what)
{
  const git_error *last = git_error_last();
  g_autofree char *shown = qv_path_show(what);
  /* libgit2 quotes paths of the tree as they are. */
  g_autofree char *why = qv_path_show(last != NULL && last->message != NULL ? last->message : "libgit2 failed");
  g_set_error(error, QV_ERROR, rc == GIT_ENOTFOUND ? QV_ERROR_NOT_FOUND : code, "%s: %s", shown, why);
}

/* The folder that `top/.git` is or names. */
static char *git_dir_find(const char *top, GError **error)
{
  g_autofree char *dot_git = g_build_filename(top, ".git", NULL);
  g_autofree char *shown = qv_path_show(dot_git);
  struct stat st;
  if (stat(dot_git, &st) != 0) {
    g_set_error(error, QV_ERROR, errno == ENOENT ? QV_ERROR_NOT_FOUND : QV_ERROR_SYSTEM, "%s: %s", shown, g_strerror(errno));
    return NULL;
  }
  if (S_ISDIR(st.st_mode))
    return g_steal_pointer(&dot_git);
  g_autofree char *text = NULL;
  gsize len = 0;
  if (!S_ISREG(st.st_mode) || st.st_size > GITFILE_MAX_BYTES ||
      !g_file_get_contents(dot_git, &text, &len, NULL) || !g_str_has_prefix(text, "gitdir: ") ||
      strlen(text) != len) {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "%s is neither a folder nor a gitdir file", shown);
    return NULL;
  }
  return g_canonicalize_filename(g_strchomp(text + strlen("gitdir: ")), top);
}

/* Opening a FIFO would wait for ever, so what libgit2 will open is looked at before. */
static gboolean must_be_regular(const char *folder, const char *name, GError **error)
{
  g_autofree char *path = g_build_filename(folder, name, NULL);
  struct stat st;
  if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
    g_autofree char *shown = qv_path_show(path);
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "%s is not a regular file", shown);
    return FALSE;
  }
  return TRUE;
}

QvGit *qv_git_open(const char *top, gboolean bare, GError **error)
{
  static gsize started;
  if (g_once_init_enter(&started)) {
    git_libgit2_init();
    g_once_init_leave(&started, 1);
  }
  g_autofree char *dir = bare ? g_strdup(top) : git_dir_find(top, error);
  if (dir == NULL)
    return NULL;
  static const char *const opened[] = { "HEAD", "index", "info/exclude", "packed-refs", "commondir", "shallow",
                                         "objects/info/alternates" };
  for (guint i = 0; i < G_N_ELEMENTS(opened); i++) {
    if (!must_be_regular(dir, opened[i], error))
      return NULL;
  }
  g_autoptr(QvGit) git = g_new0(QvGit, 1);
  int rc = git_repository_open_bare(&git->repo, dir);
  if (rc != 0) {
    git_error_take(error, QV_ERROR_FORMAT, rc, dir);
    return NULL;
  }
  g_autoptr(git_config) config = NULL;
  if (git_config_open_default(&config) != 0 && git_config_new(&config) != 0)
    g_error("libgit2: no memory");
  rc = git_repository_set_config(git->repo, config);
  if (rc == 0 && !bare)
    rc = git_repository_set_workdir(git->repo, top, 0);
  if (rc != 0) {
    git_error_take(error, QV_ERROR_FORMAT, rc, dir);
    return NULL;
  }
  return g_steal_pointer(&git);
}

void qv_git_free(QvGit *git)
{
  if (git == NULL)
    return;
  git_repository_free(git->repo);
  g_clear_pointer(&git->tracked, g_hash_table_unref);
  g_clear_pointer(&git->folders, g_hash_table_unref);
  g_free(git);
}

gboolean qv_git_load_index(QvGit *git, GError **error)
{
  g_autofree char *path = g_build_filename(git_repository_path(git->repo), "index", NULL);
  g_autoptr(git_index) index = NULL;
  int rc = git_index_open(&index, path);
  if (rc != 0) {
    git_error_take(error, QV_ERROR_FORMAT, rc, path);
    return FALSE;
  }
  git->tracked = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  git->folders = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  gsize n = git_index_entrycount(index);
  for (gsize i = 0; i < n; i++) {
    const git_index_entry *entry = git_index_get_byindex(index, i);
    g_autofree char *folder = g_strdup(entry->path);
    if (entry->mode == GIT_FILEMODE_COMMIT)
      g_hash_table_add(git->folders, g_strdup(folder)); /* a submodule: its own index tells more */
    else
      g_hash_table_add(git->tracked, g_strdup(folder));
    for (char *slash; (slash = strrchr(folder, '/')) != NULL;) {
      *slash = '\0';
      if (g_hash_table_contains(git->folders, folder))
        break;
      g_hash_table_add(git->folders, g_strdup(folder));
    }
  }
  return TRUE;
}

gboolean qv_git_tracks(const QvGit *git, const char *path)
{
  return g_hash_table_contains(git->tracked, path);
}

gboolean qv_git_tracks_below(const QvGit *git, const char *folder)
{
  return g_hash_table_contains(git->folders, folder);
}

gboolean qv_git_ignores(QvGit *git, const char *path, gboolean is_folder, gboolean *ignored, GError **error)
{
  g_autofree char *name = g_strconcat(path, is_folder ? "/" : "", NULL);
  int answer = 0;
  int rc = git_ignore_path_is_ignored(&answer, git->repo, name);
  if (rc != 0) {
    git_error_take(error, QV_ERROR_FORMAT, rc, path);
    return FALSE;
  }
  *ignored = answer != 0;
  return TRUE;
}

static gboolean list_tree(QvGit *git, const git_tree *tree, const char *prefix, QvListing *listing, GError **error);

static gboolean list_entry(QvGit *git, const git_tree_entry *entry, const char *path, QvListing *listing,
                           GError **error)
{
  const char *name = git_tree_entry_name(entry);
  git_filemode_t mode = git_tree_entry_filemode(entry);
  if (strcmp(name, ".git") == 0) {
    listing->left_out.git++;
    return TRUE;
  }
  switch (mode) {
  case GIT_FILEMODE_LINK:
    listing->left_out.links++;
    return TRUE;
  case GIT_FILEMODE_COMMIT:
    listing->left_out.submodules++;
    return TRUE;
  case GIT_FILEMODE_BLOB:
  case GIT_FILEMODE_BLOB_EXECUTABLE:
    return qv_listing_add(listing, path, git_tree_entry_id(entry)->id, mode == GIT_FILEMODE_BLOB_EXECUTABLE, error);
  case GIT_FILEMODE_TREE: {
    /* The check bounds the recursion: a path has at most 512 parts. */
    if (!qv_path_check(path, FALSE, error) || !qv_listing_add_folder(listing, path, error))
      return FALSE;
    g_autoptr(git_tree) below = NULL;
    int rc = git_tree_lookup(&below, git->repo, git_tree_entry_id(entry));
    if (rc != 0) {
      git_error_take(error, QV_ERROR_FORMAT, GIT_ERROR, path);
      return FALSE;
    }
    return list_tree(git, below, path, listing, error);
  }
  default: {
    g_autofree char *shown = qv_path_show(path);
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "%s: a tree entry of unknown mode %o", shown, (unsigned)mode);
    return FALSE;
  }
  }
}

static gboolean list_tree(QvGit *git, const git_tree *tree, const char *prefix, QvListing *listing, GError **error)
{
  gsize n = git_tree_entrycount(tree);
  for (gsize i = 0; i < n; i++) {
    const git_tree_entry *entry = git_tree_entry_byindex(tree, i);
    g_autofree char *path = g_strconcat(prefix, *prefix != '\0' ? "/" : "", git_tree_entry_name(entry), NULL);
    if (!list_entry(git, entry, path, listing, error))
      return FALSE;
  }
  return TRUE;
}

gboolean qv_git_list_tree(QvGit *git, const char *rev, const char *prefix, QvListing *listing, GError **error)
{
  g_autoptr(git_object) object = NULL;
  g_autoptr(git_object) peeled = NULL;
  int rc = git_revparse_single(&object, git->repo, rev);
  if (rc == 0)
    rc = git_object_peel(&peeled, object, GIT_OBJECT_TREE);
  if (rc != 0) {
    git_error_take(error, QV_ERROR_NOT_FOUND, rc, rev);
    return FALSE;
  }
  const git_tree *tree = (const git_tree *)peeled;
  if (*prefix == '\0')
    return list_tree(git, tree, "", listing, error);
  g_autoptr(git_tree_entry) entry = NULL;
  g_autoptr(git_tree) below = NULL;
  rc = git_tree_entry_bypath(&entry, tree, prefix);
  if (rc == 0)
    rc = git_tree_lookup(&below, git->repo, git_tree_entry_id(entry));
  if (rc != 0) {
    git_error_take(error, QV_ERROR_NOT_FOUND, rc, prefix);
    return FALSE;
  }
  return list_tree(git, below, "", listing, error);
}

GBytes *qv_git_read_blob(QvGit *git, const QvListingEntry *entry, guint64 max_bytes, GError **error)
{
  g_autoptr(git_odb) odb = NULL;
  g_autoptr(git_odb_object) object = NULL;
  git_oid oid;
  memcpy(oid.id, entry->oid, QV_OID_BYTES);
  size_t len = 0;
  git_object_t type = GIT_OBJECT_INVALID;
  int rc = git_repository_odb(&odb, git->repo);
  if (rc == 0)
    rc = git_odb_read_header(&len, &type, odb, &oid);
  if (rc == 0 && type == GIT_OBJECT_BLOB && len > max_bytes) {
    g_autofree char *shown = qv_path_show(entry->path);
    g_set_error(error, QV_ERROR, QV_ERROR_LIMIT, "%s: %zu bytes, at most %" G_GUINT64_FORMAT " a file", shown, len,
                max_bytes);
    return NULL;
  }
  if (rc == 0)
    rc = git_odb_read(&object, odb, &oid);
  if (rc != 0 || git_odb_object_type(object) != GIT_OBJECT_BLOB || git_odb_object_size(object) != len) {
    git_error_take(error, QV_ERROR_FORMAT, GIT_ERROR, entry->path);
    return NULL;
  }
  return g_bytes_new(git_odb_object_data(object), len);
}
