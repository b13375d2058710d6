/* SPDX-License-Identifier: Apache-2.0 */
/* A step's environment: lists of "NAME=value" laid over one another. */
#pragma once

#include <stddef.h>

typedef struct {
  char **vars; /* NULL at the end; the texts are the list's own */
  size_t n, cap;
} QvEntryEnv;

/* Sets one; a later one of the same name replaces the earlier. Text without "=" is left out. Aborts
 * without memory. */
void qv_entry_env_put(QvEntryEnv *env, const char *text);
void qv_entry_env_put_all(QvEntryEnv *env, char *const *texts);
void qv_entry_env_printf(QvEntryEnv *env, const char *format, ...) __attribute__((format(printf, 2, 3)));
void qv_entry_env_clear(QvEntryEnv *env);
