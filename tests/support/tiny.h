/* SPDX-License-Identifier: Apache-2.0 */
/* A small image for a private engine: a shell, the programs that tests of a runner need, and the entry of this build. */
#pragma once

#include "support/dockerd.h"

/* Made in ENGINE; LOCK_FILE becomes an images lock with this one image, called NAME. Its digest; free with g_free. */
char *qv_test_tiny_image(QvTestDockerd *engine, const char *name, const char *lock_file);
/* "linux/amd64", "linux/arm64": this machine, as images locks have it. */
const char *qv_test_platform(void);
