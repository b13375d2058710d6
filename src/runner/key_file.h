/* SPDX-License-Identifier: Apache-2.0 */
/* Reading key files under the rule of protocol.md section 1. */
#pragma once

#include "protocol/key.h"

/* Errors name PATH and what is wrong with it: AUTH (permissions), FORMAT
 * (content), NOT_FOUND, SYSTEM. */
QvKey *qv_key_file_load(const char *path, GError **error);

/* The current key and the previous ones (PREVIOUS may be NULL). While keys are rotated (quavon-keys(1)) the file CURRENT.next
 * holds the one that comes, which is the ring's current one then, and CURRENT.previous the one that was. */
QvKeyring *qv_keyring_load(const char *current, const char *const *previous, GError **error);
