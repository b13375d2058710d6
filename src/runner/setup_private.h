/* SPDX-License-Identifier: Apache-2.0 */
/* What the texts between processes have in common. */
#pragma once

#include <jansson.h>

#include "runner/setup.h"

/* Takes ROOT; N may be NULL. */
char *qv_setup_dump(json_t *root, gsize *n);
json_t *qv_setup_place_build(const QvPlace *place);
gboolean qv_setup_place_parse(json_t *json, QvPlace *place, json_error_t *why);
