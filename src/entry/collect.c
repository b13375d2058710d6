/* SPDX-License-Identifier: Apache-2.0 */
/* A walk from the repository's descriptor, one part at a time (entry/tree.h).
 * Entries of a folder are sorted as if a folder's name ended in a slash, which
 * gives the order of whole paths by memcmp. Bounded by the longest path, a
 * number of entries, and the request's two caps. */
#include "entry/collect.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/io.h"
#include "entry/tree.h"
#include "format/glob.h"
#include "format/tar.h"

enum {
  VISITS_MAX = 1000000, /* entries looked at; a tree that has more loses the rest */
  READ_BYTES = 64 * 1024,
};

#define MEMBER_PREFIX "artefacts/"
enum { PREFIX_BYTES = sizeof MEMBER_PREFIX - 1 };

typedef struct {
  const QvEntryCollectSpec *spec;
  QvEntryOutput *output;
  QvGlob **globs;
  uint64_t dropped, taken, bytes;
  size_t visits;
  char member[PREFIX_BYTES + QV_PATH_BYTES_MAX + NAME_MAX + 2]; /* artefacts/, then the path */
  char buffer[READ_BYTES];
} Collect;

typedef struct {
  bool is_folder;
  size_t n; /* of the name, with a folder's slash */
  char name[];
} Entry;

static char *path_of(Collect *collect)
{
  return collect->member + PREFIX_BYTES;
}

static bool is_wanted(const Collect *collect, const char *path, size_t n)
{
  for (size_t i = 0; i < collect->spec->globs_n; i++)
    if (qv_glob_match(collect->globs[i], path, n))
      return true;
  return false;
}

static bool may_hold_wanted(const Collect *collect, const char *dir, size_t n)
{
  for (size_t i = 0; i < collect->spec->globs_n; i++)
    if (qv_glob_may_match_below(collect->globs[i], dir, n))
      return true;
  return false;
}

/* The whole file, or the whole stream is worth nothing: its header is out. */
static void copy(Collect *collect, int fd, uint64_t size)
{
  while (size > 0) {
    ssize_t got = read(fd, collect->buffer, size < READ_BYTES ? (size_t)size : READ_BYTES);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0) {
      fprintf(stderr, "entry: an artefact shrank while it was read\n");
      exit(EX_IOERR);
    }
    qv_entry_output_bytes(collect->output, collect->buffer, (size_t)got);
    size -= (uint64_t)got;
  }
}

static void take(Collect *collect, int dir_fd, const char *name, size_t path_n)
{
  const QvEntryCollectSpec *spec = collect->spec;
  struct stat info;
  const size_t member_n = PREFIX_BYTES + path_n;
  collect->dropped++; /* until it is through */
  if (member_n > QV_PATH_BYTES_MAX || qv_tar_path_check(collect->member, member_n, true) != QV_TAR_OK ||
      qv_tar_path_check(path_of(collect), path_n, true) != QV_TAR_OK || collect->taken >= spec->count_max)
    return;
  QV_AUTOFD int fd = qv_entry_tree_open_file(dir_fd, name, &info);
  if (fd < 0 || (uint64_t)info.st_size > spec->bytes_max - collect->bytes)
    return;
  collect->member[member_n] = '\0';
  qv_entry_output_begin(collect->output, collect->member, (uint64_t)info.st_size, info.st_mode & S_IXUSR);
  copy(collect, fd, (uint64_t)info.st_size);
  qv_entry_output_end(collect->output);
  collect->bytes += (uint64_t)info.st_size;
  collect->taken++;
  collect->dropped--;
}

static int by_path(const void *a, const void *b)
{
  const Entry *x = *(Entry *const *)a, *y = *(Entry *const *)b;
  int order = memcmp(x->name, y->name, x->n < y->n ? x->n : y->n);
  return order != 0 ? order : (x->n > y->n) - (x->n < y->n);
}

/* DT_REG, DT_DIR, or 0 for what is never collected. */
static int kind_of(int dir_fd, const struct dirent *entry)
{
  struct stat info;
  if (entry->d_type != DT_UNKNOWN)
    return entry->d_type == DT_REG || entry->d_type == DT_DIR ? entry->d_type : 0;
  if (fstatat(dir_fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
    return 0;
  return S_ISREG(info.st_mode) ? DT_REG : S_ISDIR(info.st_mode) ? DT_DIR : 0;
}

static bool is_dots(const char *name)
{
  return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* The entries of DIR that may matter, sorted, in an array of *N. */
static Entry **list(Collect *collect, DIR *dir, size_t *n)
{
  Entry **entries = NULL;
  size_t cap = 0;
  *n = 0;
  for (struct dirent *entry; (entry = readdir(dir));) {
    if (is_dots(entry->d_name))
      continue;
    if (collect->visits++ >= VISITS_MAX) {
      collect->dropped++;
      break;
    }
    int kind = kind_of(dirfd(dir), entry);
    if (kind == 0)
      continue;
    size_t name_n = strlen(entry->d_name);
    Entry *kept = malloc(sizeof *kept + name_n + 2);
    if (*n == cap) {
      cap = cap ? 2 * cap : 64;
      entries = realloc(entries, cap * sizeof *entries);
    }
    if (!kept || !entries)
      abort();
    kept->is_folder = kind == DT_DIR;
    kept->n = name_n + (kept->is_folder ? 1 : 0);
    memcpy(kept->name, entry->d_name, name_n);
    strcpy(kept->name + name_n, kept->is_folder ? "/" : "");
    entries[(*n)++] = kept;
  }
  if (*n > 0)
    qsort(entries, *n, sizeof *entries, by_path);
  return entries;
}

static void walk(Collect *collect, int fd, size_t path_n);

static void visit_folder(Collect *collect, int dir_fd, size_t path_n, const Entry *entry)
{
  char *path = path_of(collect);
  const size_t n = path_n + entry->n;
  if (!may_hold_wanted(collect, path, n - 1))
    return;
  path[n - 1] = '\0';
  int fd = n < QV_PATH_BYTES_MAX ? qv_entry_tree_open_folder(dir_fd, path + path_n) : -1;
  path[n - 1] = '/';
  if (fd < 0)
    collect->dropped++; /* nobody can say how many are in it */
  else
    walk(collect, fd, n);
}

/* Below the folder FD, which is closed, whose path with its slash is the first
 * PATH_N bytes. */
static void walk(Collect *collect, int fd, size_t path_n)
{
  DIR *dir = fdopendir(fd);
  if (!dir) {
    close(fd);
    collect->dropped++;
    return;
  }
  size_t n;
  Entry **entries = list(collect, dir, &n);
  for (size_t i = 0; i < n; i++) {
    char *path = path_of(collect);
    memcpy(path + path_n, entries[i]->name, entries[i]->n);
    if (entries[i]->is_folder)
      visit_folder(collect, dirfd(dir), path_n, entries[i]);
    else if (is_wanted(collect, path, path_n + entries[i]->n))
      take(collect, dirfd(dir), entries[i]->name, path_n + entries[i]->n);
    free(entries[i]);
  }
  free(entries);
  closedir(dir);
}

uint64_t qv_entry_collect(int root_fd, const QvEntryCollectSpec *spec, QvEntryOutput *output)
{
  if (spec->globs_n == 0)
    return 0;
  Collect *collect = calloc(1, sizeof *collect);
  QvGlob **globs = calloc(spec->globs_n, sizeof *globs);
  if (!collect || !globs)
    abort();
  collect->spec = spec;
  collect->output = output;
  collect->globs = globs;
  memcpy(collect->member, MEMBER_PREFIX, PREFIX_BYTES);
  for (size_t i = 0; i < spec->globs_n; i++)
    if (!(globs[i] = qv_glob_new(spec->globs[i], strlen(spec->globs[i]))))
      abort();
  int fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0)
    walk(collect, fd, 0);
  uint64_t dropped = collect->dropped;
  for (size_t i = 0; i < spec->globs_n; i++)
    qv_glob_free(globs[i]);
  free(globs);
  free(collect);
  return dropped;
}
