/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the list of problems. */
#include "runner/problems.h"

#include <string.h>

enum { TEXTS_MAX = 32, TEXT_BYTES_MAX = 512 };

static const struct {
  const char *word;
  gboolean stops;
} kinds[] = {
#define X(name, word, stops) {word, stops},
  QV_PROBLEM_KINDS(X)
#undef X
};

typedef struct {
  QvProblemKind kind;
  char *id;
  char *text;
  guint64 stamp; /* of the last time that it was set */
} Problem;

struct QvProblems {
  GPtrArray *list; /* of Problem, in the order of their first setting */
  guint64 stamp;
  void (*changed)(gpointer data);
  gpointer data;
};

static void problem_free(gpointer data)
{
  Problem *problem = data;
  g_free(problem->id);
  g_free(problem->text);
  g_free(problem);
}

QvProblems *qv_problems_new(void (*changed)(gpointer data), gpointer data)
{
  QvProblems *problems = g_new0(QvProblems, 1);
  problems->list = g_ptr_array_new_with_free_func(problem_free);
  problems->changed = changed;
  problems->data = data;
  return problems;
}

void qv_problems_free(QvProblems *problems)
{
  if (problems == NULL)
    return;
  g_ptr_array_unref(problems->list);
  g_free(problems);
}

static Problem *find(const QvProblems *problems, QvProblemKind kind, const char *id)
{
  for (guint i = 0; i < problems->list->len; i++) {
    Problem *problem = problems->list->pdata[i];
    if (problem->kind == kind && g_strcmp0(problem->id, id) == 0)
      return problem;
  }
  return NULL;
}

void qv_problems_set(QvProblems *problems, QvProblemKind kind, const char *id, const char *text)
{
  Problem *problem = find(problems, kind, id);
  gboolean same = problem != NULL && strcmp(problem->text, text) == 0;
  if (problem == NULL) {
    problem = g_new0(Problem, 1);
    *problem = (Problem){.kind = kind, .id = g_strdup(id)};
    g_ptr_array_add(problems->list, problem);
  }
  problem->stamp = ++problems->stamp;
  if (same)
    return;
  g_free(problem->text);
  problem->text = g_strdup(text);
  problems->changed(problems->data);
}

void qv_problems_clear(QvProblems *problems, QvProblemKind kind, const char *id)
{
  if (g_ptr_array_remove(problems->list, find(problems, kind, id)))
    problems->changed(problems->data);
}

guint64 qv_problems_mark(const QvProblems *problems)
{
  return problems->stamp + 1;
}

gboolean qv_problems_clear_until(QvProblems *problems, QvProblemKind kind, guint64 mark)
{
  guint before = problems->list->len;
  for (guint i = before; i > 0; i--) {
    const Problem *problem = problems->list->pdata[i - 1];
    if (problem->kind == kind && problem->stamp < mark)
      g_ptr_array_remove_index(problems->list, i - 1);
  }
  if (problems->list->len != before)
    problems->changed(problems->data);
  return !qv_problems_any(problems, kind);
}

gboolean qv_problems_any(const QvProblems *problems, QvProblemKind kind)
{
  for (guint i = 0; i < problems->list->len; i++) {
    if (((const Problem *)problems->list->pdata[i])->kind == kind)
      return TRUE;
  }
  return FALSE;
}

gboolean qv_problems_stop(const QvProblems *problems)
{
  for (guint i = 0; i < problems->list->len; i++) {
    if (kinds[((const Problem *)problems->list->pdata[i])->kind].stops)
      return TRUE;
  }
  return FALSE;
}

/* One line of valid UTF-8, cut between characters; WORD may be empty. */
static char *one_line(const char *word, const char *text)
{
  g_autofree char *valid = g_utf8_make_valid(text, -1);
  char *line = g_strconcat(word, *word != '\0' ? ": " : "", valid, NULL);
  for (char *c = line; *c != '\0'; c++) {
    if ((guchar)*c < 0x20 || *c == 0x7f)
      *c = ' ';
  }
  if (strlen(line) > TEXT_BYTES_MAX)
    *g_utf8_find_prev_char(line, line + TEXT_BYTES_MAX + 1) = '\0';
  return line;
}

char *qv_problems_why(const QvProblems *problems)
{
  for (guint i = 0; i < problems->list->len; i++) {
    const Problem *problem = problems->list->pdata[i];
    if (kinds[problem->kind].stops)
      return one_line("", problem->text);
  }
  return NULL;
}

char **qv_problems_texts(const QvProblems *problems)
{
  guint n = MIN(problems->list->len, TEXTS_MAX);
  char **texts = g_new0(char *, n + 1);
  for (guint i = 0; i < n; i++) {
    const Problem *problem = problems->list->pdata[i];
    texts[i] = one_line(kinds[problem->kind].word, problem->text);
  }
  return texts;
}
