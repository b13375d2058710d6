/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the texts of codes. */
#include "cli/codes.h"

#include <stdio.h>
#include <string.h>

#include "cli/verb.h"

static const QvCodeRow rows[] = {
#define QV_CODE(kind, code, meaning, remedy) { QV_CODE_##kind, code, meaning, remedy },
#include "cli/codes.def"
#undef QV_CODE
};

static const char *const headings[] = {
  [QV_CODE_DOCTOR] = "Checks of `quavon doctor`",
  [QV_CODE_REJECT] = "Jobs that were not run (`failedReason`)",
  [QV_CODE_RESULT] = "Codes of results",
  [QV_CODE_WORKER] = "Verdicts of the worker's side",
};

const QvCodeRow *qv_code_row(guint i)
{
  return i < G_N_ELEMENTS(rows) ? &rows[i] : NULL;
}

const QvCodeRow *qv_code_row_find(const char *code)
{
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    if (g_ascii_strcasecmp(rows[i].code, code) == 0)
      return &rows[i];
  }
  return NULL;
}

/* The pipe would end a cell. */
static void add_cell(GString *text, const char *cell)
{
  for (; *cell != '\0'; cell++)
    g_string_append_printf(text, *cell == '|' ? "\\|" : "%c", *cell);
}

char *qv_codes_markdown(void)
{
  GString *text = g_string_new(NULL);
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    if (i == 0 || rows[i].kind != rows[i - 1].kind)
      g_string_append_printf(text, "%s### %s\n\n| code | means | what to do |\n| --- | --- | --- |\n", i == 0 ? "" : "\n",
                             headings[rows[i].kind]);
    g_string_append_printf(text, "| `%s` | ", rows[i].code);
    add_cell(text, rows[i].meaning);
    g_string_append(text, " | ");
    add_cell(text, rows[i].remedy);
    g_string_append(text, " |\n");
  }
  return g_string_free(text, FALSE);
}

static void print_row(const QvCodeRow *row)
{
  printf("%s\n    %s\n    do: %s\n", row->code, row->meaning, row->remedy);
}

int qv_help_codes(const char *code)
{
  if (code != NULL) {
    const QvCodeRow *row = qv_code_row_find(code);
    if (row == NULL)
      return qv_usage("help", "there is no code `%s`; `quavon help codes` lists them", code);
    print_row(row);
    return QV_CLI_OK;
  }
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    if (i == 0 || rows[i].kind != rows[i - 1].kind) {
      g_autofree char *heading = g_strdelimit(g_strdup(headings[rows[i].kind]), "`", '\'');
      printf("%s%s\n\n", i == 0 ? "" : "\n", heading);
    }
    print_row(&rows[i]);
  }
  return QV_CLI_OK;
}
