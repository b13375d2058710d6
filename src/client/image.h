/* SPDX-License-Identifier: Apache-2.0 */
/* Which digest an image's name stands for here: the current one of the images lock. */
#pragma once

#include "base/config.h"

/* NOT_FOUND, with the remedy; FORMAT. Free with g_free. */
char *qv_image_current_digest(const QvConfig *config, const char *name, GError **error);
