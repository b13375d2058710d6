/* SPDX-License-Identifier: Apache-2.0 */
/* The table of codes.def as rows. */
#pragma once

#include <glib.h>

typedef enum { QV_CODE_DOCTOR, QV_CODE_REJECT, QV_CODE_RESULT, QV_CODE_WORKER } QvCodeKind;

typedef struct {
  QvCodeKind kind;
  const char *code;
  const char *meaning;
  const char *remedy;
} QvCodeRow;

/* i from 0; NULL past the end. */
const QvCodeRow *qv_code_row(guint i);
const QvCodeRow *qv_code_row_find(const char *code);

/* The section of docs/TROUBLESHOOTING.md, Markdown. Free with g_free. */
char *qv_codes_markdown(void);

/* `quavon help codes [CODE]`: exit status. */
int qv_help_codes(const char *code);
