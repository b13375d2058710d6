/* SPDX-License-Identifier: Apache-2.0 */
/* deploy/valkey/users.acl, in the program: the private Valkey has the users that are shipped, wherever they were
 * installed. Made by embed.py. */
#pragma once

#include <glib.h>

extern const char qv_users_acl[]; /* a NUL follows */
extern const gsize qv_users_acl_n;
