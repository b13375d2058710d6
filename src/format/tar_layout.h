/* SPDX-License-Identifier: Apache-2.0 */
/* Where the fields of a ustar header are: POSIX.1-2017, pax, "ustar Interchange Format". Private to the room. */
#pragma once

#include <stdint.h>

enum {
  QV_TAR_NAME_AT = 0,
  QV_TAR_NAME_BYTES = 100,
  QV_TAR_MODE_AT = 100,
  QV_TAR_UID_AT = 108,
  QV_TAR_GID_AT = 116,
  QV_TAR_SIZE_AT = 124,
  QV_TAR_MTIME_AT = 136,
  QV_TAR_CHKSUM_AT = 148,
  QV_TAR_TYPE_AT = 156,
  QV_TAR_LINKNAME_AT = 157,
  QV_TAR_MAGIC_AT = 257,
  QV_TAR_UNAME_AT = 265,
  QV_TAR_DEVMAJOR_AT = 329,
  QV_TAR_DEVMINOR_AT = 337,
  QV_TAR_PREFIX_AT = 345,
  QV_TAR_PREFIX_BYTES = 155,
};

#define QV_TAR_SIZE_MAX ((uint64_t)077777777777) /* 11 octal digits */
