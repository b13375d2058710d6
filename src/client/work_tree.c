/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the walk over a folder.
 *
 * A scope is one repository and the folder that its paths are relative to; scopes
 * nest as repositories do. A file is packed when a scope around it tracks it, or when the
 * innermost does not ignore it. Inside an ignored folder only tracked files are looked for. */
#include "client/work_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "client/path.h"

typedef struct Scope {
  const struct Scope *outer;
  QvGit *git;
  gsize skip;         /* bytes of a walked path in front of this scope's paths */
  const char *prefix; /* put before what is left */
} Scope;

typedef struct {
  const char *root;
  QvListing *listing;
} Walk;

static gboolean walk_folder(const Walk *walk, int dir_fd, const char *path, const Scope *scope, gboolean ignored,
                            GError **error);

static char *scope_path(const Scope *scope, const char *path)
{
  const char *rest = path + scope->skip;
  return *scope->prefix != '\0' ? g_strconcat(scope->prefix, "/", rest, NULL) : g_strdup(rest);
}

static gboolean tracked(const Scope *scope, const char *path, gboolean is_folder)
{
  for (; scope != NULL; scope = scope->outer) {
    g_autofree char *inside = scope_path(scope, path);
    if (is_folder ? qv_git_tracks_below(scope->git, inside) : qv_git_tracks(scope->git, inside))
      return TRUE;
  }
  return FALSE;
}

static gboolean system_error(GError **error, const char *path)
{
  int err = errno;
  g_autofree char *shown = qv_path_show(*path != '\0' ? path : ".");
  return qv_error_set_errno(error, err, "%s", shown);
}

/* Whether an untracked path is left out by the rules. */
static gboolean ask_ignored(const Scope *scope, const char *path, gboolean is_folder, gboolean *ignored,
                            GError **error)
{
  g_autofree char *inside = scope_path(scope, path);
  return qv_git_ignores(scope->git, inside, is_folder, ignored, error);
}

/* Whether the folder is the top of a repository that can be used; a `.git` that is
 * none (a test's fixture) changes nothing. */
static QvGit *nested_git(const Walk *walk, int fd, const char *path)
{
  struct stat st;
  if (fstatat(fd, ".git", &st, AT_SYMLINK_NOFOLLOW) != 0)
    return NULL;
  g_autofree char *top = g_build_filename(walk->root, path, NULL);
  g_autoptr(QvGit) git = qv_git_open(top, FALSE, NULL);
  return git != NULL && qv_git_load_index(git, NULL) ? g_steal_pointer(&git) : NULL;
}

static gboolean walk_below(const Walk *walk, int parent_fd, const char *name, const char *path, const Scope *scope,
                           gboolean ignored, GError **error)
{
  if (strlen(path) > QV_PATH_BYTES_MAX) /* no file below could be packed; bounds the recursion */
    return qv_path_check(path, FALSE, error);
  if (!qv_listing_add_folder(walk->listing, path, error))
    return FALSE;
  int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return system_error(error, path);
  g_autoptr(QvGit) git = scope != NULL && !ignored ? nested_git(walk, fd, path) : NULL;
  Scope inner = { .outer = scope, .git = git, .skip = strlen(path) + 1, .prefix = "" };
  return walk_folder(walk, fd, path, git != NULL ? &inner : scope, ignored, error);
}

typedef struct {
  unsigned char type; /* DT_… */
  char name[];
} Name;

static Name *name_new(const struct dirent *entry)
{
  gsize n = strlen(entry->d_name) + 1;
  Name *name = g_malloc(sizeof *name + n);
  name->type = entry->d_type;
  memcpy(name->name, entry->d_name, n);
  return name;
}

static gboolean is_gitignore(const char *name)
{
  return strcmp(name, ".gitignore") == 0;
}

/* The kind of file, as S_IF…. 0: errno says why. The folder's listing tells it on most file systems, but of what lies below a
 * mount: a device may be mounted over a file to hide it, which whoever opens the file finds out (snapshot.c), and libgit2
 * opens `.gitignore` itself; and a file may be mounted over anything that is no folder. */
static mode_t kind_of(int dir_fd, const Name *entry)
{
  struct stat st;
  if (entry->type == DT_DIR || entry->type == DT_LNK || (entry->type == DT_REG && !is_gitignore(entry->name)))
    return DTTOIF(entry->type);
  return fstatat(dir_fd, entry->name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_mode & S_IFMT : 0;
}

static gboolean walk_entry(const Walk *walk, int dir_fd, const Name *entry, const char *path, const Scope *scope,
                           gboolean ignored, GError **error)
{
  QvListing *listing = walk->listing;
  const char *name = entry->name;
  if (strcmp(name, ".git") == 0) {
    listing->left_out.git++;
    return TRUE;
  }
  mode_t kind = kind_of(dir_fd, entry);
  if (kind == 0)
    return system_error(error, path);
  gboolean is_folder = S_ISDIR(kind);
  if (scope != NULL && is_gitignore(name) && !S_ISREG(kind) && !is_folder && !ignored) {
    g_autofree char *shown = qv_path_show(path);
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "%s is not a regular file: the ignore rules cannot be read", shown);
    return FALSE;
  }
  gboolean skip = FALSE;
  if (scope != NULL && !tracked(scope, path, is_folder)) {
    skip = ignored;
    if (!skip && !ask_ignored(scope, path, is_folder, &skip, error))
      return FALSE;
    if (skip) {
      listing->left_out.ignored++;
      return TRUE;
    }
  } else if (scope != NULL && is_folder && !ignored) {
    if (!ask_ignored(scope, path, TRUE, &skip, error))
      return FALSE;
  }
  if (is_folder)
    return walk_below(walk, dir_fd, name, path, scope, ignored || skip, error);
  if (S_ISREG(kind))
    return qv_listing_add(listing, path, NULL, FALSE, error);
  qv_left_out_count(&listing->left_out, kind);
  return TRUE;
}

static int compare_names(gconstpointer a, gconstpointer b)
{
  return strcmp((*(const Name *const *)a)->name, (*(const Name *const *)b)->name);
}

/* Takes dir_fd. Sorted, so that of two faults the same one is always reported, and
 * `.gitignore` is judged before libgit2 opens it. */
static GPtrArray *folder_names(int dir_fd, const char *path, DIR **dir, GError **error)
{
  *dir = fdopendir(dir_fd);
  if (*dir == NULL) {
    system_error(error, path);
    close(dir_fd);
    return NULL;
  }
  g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
  const struct dirent *entry;
  errno = 0;
  while ((entry = readdir(*dir)) != NULL) {
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
      g_ptr_array_add(names, name_new(entry));
    errno = 0;
  }
  if (errno != 0) {
    system_error(error, path);
    return NULL;
  }
  g_ptr_array_sort(names, compare_names);
  return g_steal_pointer(&names);
}

/* Takes dir_fd. */
static gboolean walk_folder(const Walk *walk, int dir_fd, const char *path, const Scope *scope, gboolean ignored,
                            GError **error)
{
  DIR *dir = NULL;
  g_autoptr(GPtrArray) names = folder_names(dir_fd, path, &dir, error);
  gboolean ok = names != NULL;
  for (int pass = 0; ok && pass < 2; pass++) {
    for (guint i = 0; ok && i < names->len; i++) {
      const Name *name = g_ptr_array_index(names, i);
      if (is_gitignore(name->name) != (pass == 0))
        continue;
      g_autofree char *below = *path != '\0' ? g_strconcat(path, "/", name->name, NULL) : g_strdup(name->name);
      ok = walk_entry(walk, dirfd(dir), name, below, scope, ignored, error);
    }
  }
  if (dir != NULL)
    closedir(dir);
  return ok;
}

gboolean qv_work_tree_list(int root_fd, const char *root, QvGit *git, const char *prefix, QvListing *listing,
                           GError **error)
{
  Walk walk = { .root = root, .listing = listing };
  Scope scope = { .git = git, .skip = 0, .prefix = prefix };
  int fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return system_error(error, "");
  return walk_folder(&walk, fd, "", git != NULL ? &scope : NULL, FALSE, error);
}
