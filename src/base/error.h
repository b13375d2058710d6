/* SPDX-License-Identifier: Apache-2.0 */
/* One error domain. Codes are chosen by what the caller does next, not by
 * what went wrong: the text says that. Outputs are untouched on failure;
 * g_prefix_error adds context once a level. */
#pragma once

#include <glib.h>

typedef enum {
  QV_ERROR_SYSTEM,    /* the machine: errno, a missing program; the text names the remedy */
  QV_ERROR_FORMAT,    /* bytes that are not what they must be: refuse them */
  QV_ERROR_LIMIT,     /* a named limit was reached: refuse, name the limit */
  QV_ERROR_AUTH,      /* a signature, tag or permission: refuse, report nothing of the content */
  QV_ERROR_PEER,      /* the other side answered with an error */
  QV_ERROR_GONE,      /* the connection was lost, no answer came: may be tried again */
  QV_ERROR_TIMEOUT,   /* a deadline passed */
  QV_ERROR_CANCELLED, /* somebody asked for it */
  QV_ERROR_POLICY,    /* the operator's settings forbid it */
  QV_ERROR_NOT_FOUND, /* the named thing is absent */
  QV_ERROR_BUG,       /* ours */
} QvError;

#define QV_ERROR (qv_error_quark())
GQuark qv_error_quark(void);

/* An error of code SYSTEM (GONE and TIMEOUT for the errno values that mean
 * that) whose text is "<formatted>: <strerror(err)>". Always returns FALSE, so that
 * a caller may return it. */
gboolean qv_error_set_errno(GError **error, int err, const char *format, ...) G_GNUC_PRINTF(3, 4);
