/* SPDX-License-Identifier: Apache-2.0 */
/* From GError, as the rooms below have it, to the error of quavon.h. */
#pragma once

#include <glib.h>

#include "client/quavon.h"

/* Takes `cause` and sets *error (where error is not NULL) to its text and the code that fits its own. */
void qv_api_error_take(QuavonError **error, GError *cause);
/* The same with a code of the caller's. */
void qv_api_error_take_as(QuavonError **error, QuavonErrorCode code, GError *cause);
void qv_api_error_set(QuavonError **error, QuavonErrorCode code, const char *format, ...) G_GNUC_PRINTF(3, 4);
