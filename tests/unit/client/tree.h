/* SPDX-License-Identifier: Apache-2.0 */
/* Trees for the tests: a scratch folder, files, and programs run in it. A failure ends the test. */
#pragma once

#include <glib.h>

/* A new folder below TMPDIR. */
char *tree_new(void);
/* Removes it and all below; frees the name. */
void tree_free(char *root);

char *tree_path(const char *root, const char *path);
/* Makes parents; mode of a file (0644, 0755, …). */
void tree_write(const char *root, const char *path, const char *text, int mode);
void tree_write_bytes(const char *root, const char *path, const void *bytes, gsize n);
void tree_mkdir(const char *root, const char *path);

/* Runs a program (NULL at the end) in the folder; it must end with 0. */
void tree_run(const char *dir, const char *program, ...) G_GNUC_NULL_TERMINATED;

/* A repository without any configuration but the author, everything committed. */
void tree_git_init(const char *dir);
void tree_git_commit(const char *dir);
