/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's random bytes. The pure rooms never call these: randomness
 * comes in as an argument. */
#pragma once

#include <stddef.h>

/* Fills all N bytes from getrandom(2), waiting for the kernel's pool where it
 * is not seeded yet; a kernel without it ends the process: nothing may go on with
 * guessable bytes. */
void qv_random_bytes(void *bytes, size_t n);

/* 36 characters and a NUL: a random (version 4) UUID in lower case. */
enum { QV_UUID_LEN = 36 };
void qv_random_uuid(char text[QV_UUID_LEN + 1]);
