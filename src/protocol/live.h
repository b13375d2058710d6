/* SPDX-License-Identifier: Apache-2.0 */
/* Live logs (section 10): the key under which a job's chunks are sealed, and the message that tells of one. */
#pragma once

#include <glib.h>

#include "protocol/blob.h"

#define QV_LIVE_PART "live" /* of the blob id */

/* Of the blob <jobId>.live: the 32 bytes of the job's own SHA-256. Both sides know it, nobody has to send it, and no two
 * jobs share it. */
void qv_live_salt(const char job_sha256[65], guint8 salt[QV_SALT_BYTES]);

/* The derived key, 32 bytes. */
QvSecret *qv_live_key_derive(const QvKey *key, const char job_sha256[65], const char *tenant_id, const char *job_id);
/* Seals and unseals chunks under that key. */
QvBlobCipher *qv_live_cipher_new(const QvSecret *live_key, const char *tenant_id, const char *job_id);

/* TRUE and *N where the message is "<jobId> <n>" and about JOB_ID. Unsigned: whoever may publish can send it. */
gboolean qv_live_message_parse(const char *text, gsize len, const char *job_id, guint *n);
