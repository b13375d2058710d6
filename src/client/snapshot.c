/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the choice of the source and the reading of its files. */
#include "client/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/limits.h"
#include "client/git.h"
#include "client/packer.h"
#include "client/path.h"
#include "client/work_tree.h"

enum { PROGRESS_FILES = 64 };

typedef struct {
  char *root; /* absolute, without links */
  int root_fd;
  QvGit *git; /* NULL: a plain folder */
  char *prefix; /* of root inside the repository */
} Source;

static void source_clear(Source *source)
{
  g_free(source->root);
  g_free(source->prefix);
  qv_git_free(source->git);
  if (source->root_fd >= 0)
    close(source->root_fd);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Source, source_clear)

/* The next folder up that has a `.git`, on the same file system, as git looks for it. */
static char *find_top(const char *root)
{
  struct stat start, st;
  if (stat(root, &start) != 0)
    return NULL;
  for (g_autofree char *dir = g_strdup(root);;) {
    g_autofree char *dot_git = g_build_filename(dir, ".git", NULL);
    if (lstat(dot_git, &st) == 0)
      return g_steal_pointer(&dir);
    char *parent = g_path_get_dirname(dir);
    gboolean end = strcmp(parent, dir) == 0 || stat(parent, &st) != 0 || st.st_dev != start.st_dev;
    g_free(dir);
    dir = parent;
    if (end)
      return NULL;
  }
}

/* The .gitignore files above the folder are opened by libgit2 as well. */
static gboolean check_rules_above(const char *top, const char *root, GError **error)
{
  for (g_autofree char *dir = g_strdup(root); strcmp(dir, top) != 0;) {
    char *parent = g_path_get_dirname(dir);
    g_free(dir);
    dir = parent;
    g_autofree char *rules = g_build_filename(dir, ".gitignore", NULL);
    struct stat st;
    if (lstat(rules, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
      g_autofree char *shown = qv_path_show(rules);
      g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "%s is not a regular file: the ignore rules cannot be read",
                  shown);
      return FALSE;
    }
  }
  return TRUE;
}

static gboolean open_git(Source *source, const char *rev, GError **error)
{
  g_autofree char *top = find_top(source->root);
  if (top == NULL) {
    source->git = rev != NULL ? qv_git_open(source->root, TRUE, error) : NULL;
    if (rev != NULL && source->git == NULL)
      g_prefix_error(error, "there is no git repository: ");
    return rev == NULL || source->git != NULL;
  }
  const char *below = source->root + strlen(top);
  g_free(source->prefix);
  source->prefix = g_strdup(*below == '/' ? below + 1 : below);
  source->git = qv_git_open(top, FALSE, error);
  if (source->git == NULL)
    return FALSE;
  if (rev != NULL)
    return TRUE;
  gboolean ignored = FALSE;
  if (!qv_git_load_index(source->git, error) || !check_rules_above(top, source->root, error))
    return FALSE;
  if (*source->prefix != '\0' && !qv_git_tracks_below(source->git, source->prefix) &&
      !qv_git_ignores(source->git, source->prefix, TRUE, &ignored, error))
    return FALSE;
  if (ignored) /* somebody who names it wants it: an unpacked tree in a build folder */
    g_clear_pointer(&source->git, qv_git_free);
  return TRUE;
}

static gboolean source_open(Source *source, const QvSnapshotOptions *options, GError **error)
{
  source->root = realpath(options->dir, NULL);
  source->prefix = g_strdup("");
  if (source->root != NULL)
    source->root_fd = open(source->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (source->root_fd < 0) {
    int err = errno;
    g_set_error(error, QV_ERROR, err == ENOENT || err == ENOTDIR ? QV_ERROR_NOT_FOUND : QV_ERROR_SYSTEM, "%s: %s",
                options->dir, g_strerror(err));
    return FALSE;
  }
  if (options->all && options->rev == NULL)
    return TRUE;
  if (open_git(source, options->rev, error))
    return TRUE;
  if (options->rev == NULL)
    g_prefix_error(error, "git work tree (all files of the folder can be packed with --all): ");
  return FALSE;
}

static gboolean same_file(const struct stat *a, const struct stat *b)
{
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
         a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
         a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static gboolean changed_error(const char *path, GError **error)
{
  g_autofree char *shown = qv_path_show(path);
  g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "%s changed while it was read", shown);
  return FALSE;
}

static gboolean too_big(const char *path, guint64 size, guint64 max_bytes, GError **error)
{
  if (size <= max_bytes)
    return FALSE;
  g_autofree char *shown = qv_path_show(path);
  g_set_error(error, QV_ERROR, QV_ERROR_LIMIT,
              "%s: %" G_GUINT64_FORMAT " bytes, at most %" G_GUINT64_FORMAT " a file", shown, size, max_bytes);
  return TRUE;
}

static gboolean copy_file(int fd, const char *path, const struct stat *before, QvPacker *packer, GError **error)
{
  for (guint64 left = (guint64)before->st_size; left > 0;) {
    gsize room_n;
    guint8 *room = qv_packer_room(packer, &room_n);
    ssize_t n = qv_io_read_full(fd, room, room_n);
    if (n < 0) {
      int err = errno;
      g_autofree char *shown = qv_path_show(path);
      return qv_error_set_errno(error, err, "%s", shown);
    }
    if (n == 0)
      return changed_error(path, error);
    if (!qv_packer_took(packer, (gsize)n, error))
      return FALSE;
    left -= (guint64)n;
  }
  struct stat after;
  guint8 more;
  if (qv_io_read_full(fd, &more, 1) != 0 || fstat(fd, &after) != 0 || !same_file(before, &after))
    return changed_error(path, error);
  return TRUE;
}

/* What is mounted over a file, other than a file: so dev containers and bubblewrap hide one, with /dev/null. 0: nothing is.
 * Anything else that is no file now took its place since the walk. */
static mode_t mask_of(const Source *source, const char *path)
{
  QV_AUTOFD int fd = qv_io_open_beneath(source->root_fd, path, O_PATH, 0);
  struct statx st;
  if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &st) != 0 || S_ISREG(st.stx_mode) || S_ISDIR(st.stx_mode) ||
      S_ISLNK(st.stx_mode))
    return 0;
  gboolean untold = (st.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) == 0; /* before Linux 5.8 */
  return untold || (st.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0 ? st.stx_mode & S_IFMT : 0;
}

static gboolean pack_file(const Source *source, const char *path, guint64 max_bytes, QvPacker *packer,
                          QvLeftOut *left_out, GError **error)
{
  /* O_NONBLOCK: a FIFO that took the file's place since the walk must not hang us. */
  QV_AUTOFD int fd = qv_io_open_beneath(source->root_fd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
  struct stat before;
  int err = fd < 0 || fstat(fd, &before) != 0 ? errno : 0;
  mode_t mask = err != 0 || !S_ISREG(before.st_mode) ? mask_of(source, path) : 0; /* not every device lets itself be opened */
  if (mask != 0) {
    qv_left_out_count(left_out, mask);
    return TRUE;
  }
  if (err != 0) {
    if (err == ENOENT || err == ELOOP || err == ENOTDIR)
      return changed_error(path, error);
    g_autofree char *shown = qv_path_show(path);
    return qv_error_set_errno(error, err, "%s", shown);
  }
  if (!S_ISREG(before.st_mode))
    return changed_error(path, error);
  if (too_big(path, (guint64)before.st_size, max_bytes, error))
    return FALSE;
  return qv_packer_begin(packer, path, (guint64)before.st_size, (before.st_mode & S_IXUSR) != 0, error) &&
         copy_file(fd, path, &before, packer, error) && qv_packer_end(packer, error);
}

static gboolean pack_blob(const Source *source, const QvListingEntry *entry, guint64 max_bytes, QvPacker *packer,
                          GError **error)
{
  g_autoptr(GBytes) bytes = qv_git_read_blob(source->git, entry, max_bytes, error);
  if (bytes == NULL)
    return FALSE;
  gsize n = 0;
  const void *data = g_bytes_get_data(bytes, &n);
  return qv_packer_begin(packer, entry->path, n, entry->executable, error) &&
         qv_packer_add(packer, data, n, error) && qv_packer_end(packer, error);
}

static gboolean cancelled(GCancellable *cancellable, GError **error)
{
  if (!g_cancellable_is_cancelled(cancellable))
    return FALSE;
  g_set_error_literal(error, QV_ERROR, QV_ERROR_CANCELLED, "cancelled while packing");
  return TRUE;
}

static gboolean pack_all(const Source *source, QvListing *listing, const QvSnapshotOptions *options,
                         QvPacker *packer, QvSnapshotProgress progress, gpointer data, GCancellable *cancellable,
                         GError **error)
{
  guint64 max_bytes = options->max_file_bytes != 0 ? options->max_file_bytes : QV_SNAPSHOT_FILE_BYTES_MAX;
  guint files_n = qv_listing_n(listing);
  for (guint i = 0; i < files_n; i++) {
    QvListingEntry entry = qv_listing_entry(listing, i);
    if (cancelled(cancellable, error))
      return FALSE;
    if (progress != NULL && i % PROGRESS_FILES == 0)
      progress(i, files_n, data);
    if (options->rev != NULL ? !pack_blob(source, &entry, max_bytes, packer, error)
                             : !pack_file(source, entry.path, max_bytes, packer, &listing->left_out, error))
      return FALSE;
  }
  if (progress != NULL)
    progress(files_n, files_n, data);
  return TRUE;
}

QvSnapshot *qv_snapshot_build(const QvSnapshotOptions *options, QvSnapshotProgress progress, gpointer data,
                              GCancellable *cancellable, GError **error)
{
  g_auto(Source) source = { .root_fd = -1 };
  if (!source_open(&source, options, error))
    return NULL;
  g_autoptr(QvListing) listing =
      qv_listing_new(options->max_entries != 0 ? options->max_entries : QV_SNAPSHOT_ENTRIES_MAX);
  gboolean listed = options->rev != NULL
                        ? qv_git_list_tree(source.git, options->rev, source.prefix, listing, error)
                        : qv_work_tree_list(source.root_fd, source.root, source.git, source.prefix, listing, error);
  if (!listed || !qv_listing_sort(listing, error))
    return NULL;
  g_autoptr(QvPacker) packer = qv_packer_new(
      options->threads_n, options->max_tar_bytes != 0 ? options->max_tar_bytes : QV_SNAPSHOT_BYTES_MAX, error);
  QvPacked packed;
  if (packer == NULL || !pack_all(&source, listing, options, packer, progress, data, cancellable, error) ||
      !qv_packer_finish(packer, &packed, error))
    return NULL;
  QvSnapshot *snapshot = g_new0(QvSnapshot, 1);
  snapshot->fd = packed.fd;
  snapshot->gzip_bytes = packed.gzip_bytes;
  snapshot->tar_bytes = packed.tar_bytes;
  snapshot->files_n = packed.files_n;
  snapshot->left_out = listing->left_out;
  memcpy(snapshot->sha256, packed.sha256, sizeof snapshot->sha256);
  memcpy(snapshot->tree_sha256, packed.tree_sha256, sizeof snapshot->tree_sha256);
  return snapshot;
}

void qv_snapshot_free(QvSnapshot *snapshot)
{
  if (snapshot == NULL)
    return;
  close(snapshot->fd);
  g_free(snapshot);
}

char *qv_left_out_describe(const QvLeftOut *left_out)
{
  const struct {
    guint64 n;
    const char *one, *many;
  } kinds[] = {
    { left_out->git, ".git", ".git" },
    { left_out->links, "symbolic link", "symbolic links" },
    { left_out->devices, "device", "devices" },
    { left_out->sockets, "socket", "sockets" },
    { left_out->fifos, "FIFO", "FIFOs" },
    { left_out->submodules, "submodule", "submodules" },
    { left_out->ignored, "ignored path", "ignored paths" },
  };
  g_autoptr(GString) text = g_string_new(NULL);
  for (guint i = 0; i < G_N_ELEMENTS(kinds); i++) {
    if (kinds[i].n > 0)
      g_string_append_printf(text, "%s%" G_GUINT64_FORMAT " %s", text->len > 0 ? ", " : "", kinds[i].n,
                             kinds[i].n == 1 ? kinds[i].one : kinds[i].many);
  }
  return text->len > 0 ? g_string_free(g_steal_pointer(&text), FALSE) : NULL;
}
