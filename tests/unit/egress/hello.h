/* SPDX-License-Identifier: Apache-2.0 */
/* ClientHellos made by hand, for tests. */
#pragma once

#include <glib.h>

/* A record with a ClientHello that names NAME (NULL: no server name), with some other extensions. Free it. */
GByteArray *t_hello(const char *name);
/* The same with EXTENSIONS, their bytes as they stand, in place of all. */
GByteArray *t_hello_with(const GByteArray *extensions);
/* Appends an extension. */
void t_extension(GByteArray *extensions, guint type, const void *bytes, gsize n);
/* Appends the server name extension. */
void t_server_name(GByteArray *extensions, const char *name, gsize n);
/* The message of HELLO cut into records of N bytes. */
GByteArray *t_hello_cut(const GByteArray *hello, gsize n);
