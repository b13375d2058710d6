/* SPDX-License-Identifier: Apache-2.0 */
/* quavon images load */
#pragma once

/* ARGV[0] is the verb, behind it names. SOCKET: of the engine, NULL: the usual one. */
int qv_images_load_run(int argc, char **argv, const char *lock_file, const char *socket);
