/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104, FIPS 198-1) with libc
 * alone, for the entry program; the states are plain values. A program that
 * links libcrypto takes EVP for bulk data, which is several times as fast. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { QV_SHA256_BYTES = 32, QV_SHA256_BLOCK_BYTES = 64 };

typedef struct {
  uint32_t h[8];
  uint64_t total_bytes;
  uint8_t block[QV_SHA256_BLOCK_BYTES];
} QvSha256;

void qv_sha256_init(QvSha256 *state);
void qv_sha256_update(QvSha256 *state, const void *bytes, size_t n);
/* Writes the digest and wipes the state; copy the state first to go on. */
void qv_sha256_final(QvSha256 *state, uint8_t digest[QV_SHA256_BYTES]);
void qv_sha256(const void *bytes, size_t n, uint8_t digest[QV_SHA256_BYTES]);

typedef struct {
  QvSha256 inner;
  QvSha256 outer;
} QvHmacSha256;

void qv_hmac_sha256_init(QvHmacSha256 *state, const void *key, size_t key_n);
void qv_hmac_sha256_update(QvHmacSha256 *state, const void *bytes, size_t n);
/* Writes the code and wipes the state. */
void qv_hmac_sha256_final(QvHmacSha256 *state, uint8_t mac[QV_SHA256_BYTES]);
void qv_hmac_sha256(const void *key, size_t key_n, const void *bytes, size_t n, uint8_t mac[QV_SHA256_BYTES]);

/* Equal or not, in a time that depends on N alone. */
bool qv_equal_ct(const void *a, const void *b, size_t n);
