/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot that is large where it is unpacked, and small before. */
#pragma once

#include <glib.h>

/* The gzip of a tar of one file, "big", of SIZE zeros. */
GBytes *qv_test_zeros(guint64 size);
