/* SPDX-License-Identifier: Apache-2.0 */
/* Owns SHA-256 as FIPS 180-4 section 6.2 writes it, and HMAC on top. */
#include "base/sha256.h"

#include <string.h>

static const uint32_t round_constants[64] = {
  0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
  0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
  0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
  0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
  0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
  0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
  0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
  0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int n)
{
  return x >> n | x << (32 - n);
}

static uint32_t load32(const uint8_t *p)
{
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void store32(uint8_t *p, uint32_t x)
{
  for (int i = 0; i < 4; i++)
    p[i] = (uint8_t)(x >> (24 - 8 * i));
}

static void compress(uint32_t h[8], const uint8_t *block)
{
  uint32_t w[64];
  for (int t = 0; t < 16; t++)
    w[t] = load32(block + 4 * t);
  for (int t = 16; t < 64; t++) {
    uint32_t s0 = rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ w[t - 15] >> 3;
    uint32_t s1 = rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  uint32_t v[8];
  memcpy(v, h, sizeof v);
  for (int t = 0; t < 64; t++) {
    uint32_t s1 = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25);
    uint32_t choose = (v[4] & v[5]) ^ (~v[4] & v[6]);
    uint32_t t1 = v[7] + s1 + choose + round_constants[t] + w[t];
    uint32_t s0 = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22);
    uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
    memmove(v + 1, v, 7 * sizeof v[0]);
    v[4] += t1;
    v[0] = t1 + s0 + majority;
  }
  for (int i = 0; i < 8; i++)
    h[i] += v[i];
  explicit_bzero(w, sizeof w);
}

void qv_sha256_init(QvSha256 *state)
{
  static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memset(state, 0, sizeof *state);
  memcpy(state->h, start, sizeof start);
}

void qv_sha256_update(QvSha256 *state, const void *bytes, size_t n)
{
  const uint8_t *p = bytes;
  size_t held = state->total_bytes % QV_SHA256_BLOCK_BYTES;
  state->total_bytes += n;
  if (held > 0) {
    size_t room = QV_SHA256_BLOCK_BYTES - held;
    size_t take = n < room ? n : room;
    if (take > 0)
      memcpy(state->block + held, p, take);
    if (take < room)
      return;
    compress(state->h, state->block);
    p += take;
    n -= take;
  }
  for (; n >= QV_SHA256_BLOCK_BYTES; p += QV_SHA256_BLOCK_BYTES, n -= QV_SHA256_BLOCK_BYTES)
    compress(state->h, p);
  if (n > 0)
    memcpy(state->block, p, n);
}

void qv_sha256_final(QvSha256 *state, uint8_t digest[QV_SHA256_BYTES])
{
  static const uint8_t padding[QV_SHA256_BLOCK_BYTES] = {0x80};
  uint64_t bits = state->total_bytes * 8;
  uint8_t length[8];
  store32(length, (uint32_t)(bits >> 32));
  store32(length + 4, (uint32_t)bits);
  size_t held = state->total_bytes % QV_SHA256_BLOCK_BYTES;
  qv_sha256_update(state, padding, held < 56 ? 56 - held : 120 - held);
  qv_sha256_update(state, length, sizeof length);
  for (int i = 0; i < 8; i++)
    store32(digest + 4 * i, state->h[i]);
  explicit_bzero(state, sizeof *state);
}

void qv_sha256(const void *bytes, size_t n, uint8_t digest[QV_SHA256_BYTES])
{
  QvSha256 state;
  qv_sha256_init(&state);
  qv_sha256_update(&state, bytes, n);
  qv_sha256_final(&state, digest);
}

void qv_hmac_sha256_init(QvHmacSha256 *state, const void *key, size_t key_n)
{
  uint8_t pad[QV_SHA256_BLOCK_BYTES] = {0};
  if (key_n > sizeof pad)
    qv_sha256(key, key_n, pad);
  else if (key_n > 0)
    memcpy(pad, key, key_n);
  for (size_t i = 0; i < sizeof pad; i++)
    pad[i] ^= 0x36;
  qv_sha256_init(&state->inner);
  qv_sha256_update(&state->inner, pad, sizeof pad);
  for (size_t i = 0; i < sizeof pad; i++)
    pad[i] ^= 0x36 ^ 0x5c;
  qv_sha256_init(&state->outer);
  qv_sha256_update(&state->outer, pad, sizeof pad);
  explicit_bzero(pad, sizeof pad);
}

void qv_hmac_sha256_update(QvHmacSha256 *state, const void *bytes, size_t n)
{
  qv_sha256_update(&state->inner, bytes, n);
}

void qv_hmac_sha256_final(QvHmacSha256 *state, uint8_t mac[QV_SHA256_BYTES])
{
  uint8_t digest[QV_SHA256_BYTES];
  qv_sha256_final(&state->inner, digest);
  qv_sha256_update(&state->outer, digest, sizeof digest);
  qv_sha256_final(&state->outer, mac);
  explicit_bzero(digest, sizeof digest);
}

void qv_hmac_sha256(const void *key, size_t key_n, const void *bytes, size_t n, uint8_t mac[QV_SHA256_BYTES])
{
  QvHmacSha256 state;
  qv_hmac_sha256_init(&state, key, key_n);
  qv_hmac_sha256_update(&state, bytes, n);
  qv_hmac_sha256_final(&state, mac);
}

bool qv_equal_ct(const void *a, const void *b, size_t n)
{
  const volatile uint8_t *x = a;
  const volatile uint8_t *y = b;
  uint8_t differs = 0;
  for (size_t i = 0; i < n; i++)
    differs |= x[i] ^ y[i];
  return differs == 0;
}
