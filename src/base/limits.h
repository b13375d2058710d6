/* SPDX-License-Identifier: Apache-2.0 */
/* Every bound that the protocol fixes: name, unit, source (a section of the
 * wire protocol). A bound that an operator may change is in base/config.def;
 * one that a single file invents stands in that file. */
#pragma once

enum {
  /* Section 0: encodings. */
  QV_JSON_DEPTH_MAX = 32,                /* levels of nesting */
  QV_JOB_JSON_BYTES_MAX = 1024 * 1024,   /* job data */
  QV_RESULT_JSON_BYTES_MAX = 1024 * 1024,
  QV_RECORD_JSON_BYTES_MAX = 64 * 1024,  /* every other record */
  QV_IDENTIFIER_BYTES_MAX = 128,
  QV_JOB_ID_BYTES = 36,                  /* lower-case UUID */
  QV_KEY_ID_HEX_N = 16,
  QV_SALT_BYTES = 32,
  QV_SIG_BYTES = 32,
  QV_STREAM_KEY_BYTES = 32,

  /* Section 1: keys. */
  QV_KEY_BYTES_MIN = 32,
  QV_KEY_BYTES_MAX = 64,
  QV_KEY_FILE_BYTES_MAX = 128,           /* base64 of 64 bytes and an LF is 89 */

  /* Section 2: jobs. */
  QV_JOB_BACKENDS_MAX = 5,
  QV_JOB_DELETES_MAX = 10000,
  QV_JOB_EGRESS_MAX = 32,
  QV_JOB_STEPS_MAX = 16,
  QV_JOB_ARTEFACT_GLOBS_MAX = 64,
  QV_GLOB_BYTES_MAX = 1024,
  QV_STEP_ARGV_MAX = 256,                /* strings */
  QV_STEP_ARGV_BYTES_MAX = 128 * 1024,   /* in all */
  QV_STEP_ENV_MAX = 64,                  /* names */
  QV_STEP_ENV_NAME_BYTES_MAX = 128,
  QV_STEP_ENV_VALUE_BYTES_MAX = 32 * 1024,

  /* Section 2, defaults and ceilings of a job's limits. milliCpus' ceiling is 1,000 x cores. */
  QV_WALL_MS_DEFAULT = 600000,
  QV_WALL_MS_CEILING = 1800000,
  QV_MEMORY_MIB_DEFAULT = 2048,
  QV_MEMORY_MIB_CEILING = 8192,
  QV_MILLI_CPUS_DEFAULT = 2000,
  QV_MILLI_CPUS_PER_CORE = 1000,
  QV_PIDS_DEFAULT = 512,
  QV_PIDS_CEILING = 4096,
  QV_WORK_MIB_DEFAULT = 1024,
  QV_WORK_MIB_CEILING = 4096,
  QV_LOG_BYTES_DEFAULT = 65536,
  QV_LOG_BYTES_CEILING = 1048576,
  QV_ARTEFACT_BYTES_DEFAULT = 8388608,
  QV_ARTEFACT_BYTES_CEILING = 67108864,
  QV_ARTEFACT_COUNT_DEFAULT = 64,
  QV_ARTEFACT_COUNT_CEILING = 256,
  QV_BLOB_MIB_DEFAULT = 128,             /* gzip of base and overlay together */

  /* Section 2.1: the runner's checks. */
  QV_EXPIRY_GRACE_MS = 30000,            /* after notAfter */
  QV_NOT_AFTER_AHEAD_MS_MAX = 930000,
  QV_ISSUED_AHEAD_MS_MAX = 30000,
  QV_VALIDITY_MS_MAX = 900000,           /* notAfter - issuedAt */
  QV_KEY_TTL_EXTRA_MS = 120000,          /* guard and blobs live this long after notAfter */
  QV_REPLAY_NONCE_BYTES = 16,

  /* Section 2.2: producers. */
  QV_MAX_WAITING_DEFAULT = 64,           /* jobs */
  QV_LOST_EXTRA_MS = 180000,             /* after notAfter + wallMs */

  /* Section 2.3: cancel. */
  QV_CANCEL_POLL_MS = 5000,

  /* Section 3: blobs. */
  QV_CHUNK_BYTES = 1048576,              /* plaintext */
  QV_CHUNK_IV_BYTES = 12,
  QV_CHUNK_TAG_BYTES = 16,
  QV_CHUNK_SEALED_BYTES_MAX = QV_CHUNK_IV_BYTES + QV_CHUNK_BYTES + QV_CHUNK_TAG_BYTES,
  QV_CHUNK_GETRANGE_END = 1048604,       /* inclusive: one byte more than a sealed chunk may have */
  QV_CHUNKS_IN_MEMORY_MAX = 4,           /* a job */
  QV_BLOB_KEY_BYTES = 32,

  /* Section 4: snapshots. */
  QV_PATH_BYTES_MAX = 1024,
  QV_SNAPSHOT_ENTRIES_MAX = 200000,
  QV_SNAPSHOT_BYTES_MAX = 512 * 1024 * 1024, /* plain */
  QV_SNAPSHOT_FILE_BYTES_MAX = 64 * 1024 * 1024,
  QV_GZIP_MEMBER_BYTES = 1048576,        /* of tar */
  QV_GZIP_LEVEL = 1,

  /* Section 9: images lock. A file, no record: 256 entries need more than 64 KiB. */
  QV_IMAGES_LOCK_BYTES_MAX = 1024 * 1024,

  /* Section 5: entry. */
  QV_REQUEST_LINE_BYTES_MAX = 1024 * 1024,
  QV_SANDBOX_UID = 65532,
  QV_SANDBOX_GID = 65532,
  QV_STDERR_BYTES_MAX = 64 * 1024,
  QV_BASE_MTIME_S = 1000000000,
  QV_OVERLAY_MTIME_S = 1000000001,

  /* Section 6: results. */
  QV_PAYLOAD_TTL_MS = 900000,

  /* Section 10: live logs. */
  QV_LIVE_EVERY_MS = 1000,               /* one member at most */
  QV_LIVE_BYTES_MAX = 16 * 1024,         /* a member */
  QV_LIVE_ALL_BYTES_MAX = 4 * 1024 * 1024, /* a job */
  QV_LIVE_MEMBERS_MAX = 86400,           /* one a second of the longest wallMs that an operator can set */
  QV_LIVE_TTL_MS = 900000,

  /* Section 9: images lock. */
  QV_IMAGES_MAX = 256,

  /* Operations contract, backends: memory of the sandbox on top of memoryMiB and workMiB. */
  QV_SANDBOX_TMP_MIB = 256,
  QV_SANDBOX_HEADROOM_MIB = 128,
  QV_GVISOR_PIDS_FACTOR = 4,
  QV_GVISOR_PIDS_EXTRA = 1024,
};
