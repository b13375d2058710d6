/* SPDX-License-Identifier: Apache-2.0 */
/* Owns environment lists. They are short: a linear search is enough. */
#include "entry/env.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Takes TEXT. */
static void put_taken(QvEntryEnv *env, char *text)
{
  const char *equals = strchr(text, '=');
  size_t name_n = equals ? (size_t)(equals - text) + 1 : 0;
  if (name_n < 2) {
    free(text);
    return;
  }
  for (size_t i = 0; i < env->n; i++) {
    if (strncmp(env->vars[i], text, name_n) == 0) {
      free(env->vars[i]);
      env->vars[i] = text;
      return;
    }
  }
  if (env->n + 1 >= env->cap) {
    env->cap = env->cap ? 2 * env->cap : 32;
    env->vars = realloc(env->vars, env->cap * sizeof *env->vars);
    if (!env->vars)
      abort();
  }
  env->vars[env->n++] = text;
  env->vars[env->n] = NULL;
}

void qv_entry_env_put(QvEntryEnv *env, const char *text)
{
  char *copy = strdup(text);
  if (!copy)
    abort();
  put_taken(env, copy);
}

void qv_entry_env_put_all(QvEntryEnv *env, char *const *texts)
{
  for (; texts && *texts; texts++)
    qv_entry_env_put(env, *texts);
}

void qv_entry_env_printf(QvEntryEnv *env, const char *format, ...)
{
  char *text;
  va_list args;
  va_start(args, format);
  int n = vasprintf(&text, format, args);
  va_end(args);
  if (n < 0)
    abort();
  put_taken(env, text);
}

void qv_entry_env_clear(QvEntryEnv *env)
{
  for (size_t i = 0; i < env->n; i++)
    free(env->vars[i]);
  free(env->vars);
  *env = (QvEntryEnv){0};
}
