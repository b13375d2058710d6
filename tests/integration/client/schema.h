/* SPDX-License-Identifier: Apache-2.0 */
/* The words of JSON schema, draft 7, that ours use, and no other: with another one the test ends. */
#pragma once

#include <glib.h>
#include <jansson.h>

gboolean schema_holds(json_t *value, json_t *schema);
