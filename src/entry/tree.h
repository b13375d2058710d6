/* SPDX-License-Identifier: Apache-2.0 */
/* Folders in a place where hostile code may have put links, and may put them
 * while we look. gVisor's release follows a link that is opened with
 * O_DIRECTORY | O_NOFOLLOW and has no openat2, so nothing here trusts a flag:
 * what was opened is compared with what lstat saw. Errors are errno. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Opens folder NAME, one part of a path, in DIR_FD for reading: the descriptor,
 * or -1. ELOOP: a link or something that was put in its place; ENOTDIR: another
 * file; EXDEV: on another file system. */
int qv_entry_tree_open_folder(int dir_fd, const char *name);

/* The same for a regular file; *INFO is that of what was opened. EINVAL: another kind. */
int qv_entry_tree_open_file(int dir_fd, const char *name, struct stat *info);

/* Removes NAME in DIR_FD and all that is below it. Absent is success. */
bool qv_entry_tree_remove(int dir_fd, const char *name);

/* Removes PATH below DIR_FD; a part that is absent or no folder means that there is nothing to
 * remove. The folder that held it gets the modification time MTIME_S. */
bool qv_entry_tree_delete(int dir_fd, const char *path, int64_t mtime_s);

bool qv_entry_tree_set_mtime(int fd, int64_t mtime_s);
