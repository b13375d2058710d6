/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the reading of whole members. Input gathers until it is longer than a member of the profile can be, or until it
 * ends; then the first member is there as a whole, so no attempt is in vain. What libdeflate does not take as such a
 * member goes to zlib, which finds the reason, or has to do with a stream of another profile that is right. What libdeflate
 * takes and zlib would not is let be: to find it would be a second decoder, and it can do no harm (members.h). */
#include "format/members.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"

enum {
  HEADER_BYTES = 10,
  TRAILER_BYTES = 8,
  /* Stored blocks of 65,535 bytes at worst, and any writer's own slack. */
  MEMBER_BYTES_MAX = QV_GZIP_MEMBER_BYTES + QV_GZIP_MEMBER_BYTES / 64,
  HELD_BYTES = 2 * MEMBER_BYTES_MAX, /* so that what is left over is moved seldom */
};

struct QvMembers {
  struct libdeflate_decompressor *deflate;
  QvGunzip *stream; /* zlib, once it has taken over */
  uint64_t left;    /* of the cap */
  bool any;
  size_t from, to; /* what is held */
  uint8_t held[HELD_BYTES];
  uint8_t out[QV_GZIP_MEMBER_BYTES];
};

QvMembers *qv_members_new(uint64_t max_output_bytes)
{
  QvMembers *members = malloc(sizeof *members);
  if (!members)
    return NULL;
  memset(members, 0, offsetof(QvMembers, held));
  members->left = max_output_bytes;
  members->deflate = libdeflate_alloc_decompressor();
  if (members->deflate)
    return members;
  free(members);
  return NULL;
}

void qv_members_free(QvMembers *members)
{
  if (!members)
    return;
  libdeflate_free_decompressor(members->deflate);
  qv_gunzip_free(members->stream);
  free(members);
}

static uint32_t little_endian(const uint8_t *bytes)
{
  return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* The member that begins what is held, whole and right, into OUT. */
static bool inflate_member(QvMembers *members, size_t *out_n)
{
  static const uint8_t start[] = {0x1f, 0x8b, 8, 0}; /* FLG 0 */
  const uint8_t *held = members->held + members->from;
  size_t held_n = members->to - members->from, used, made;
  if (held_n < HEADER_BYTES + TRAILER_BYTES || memcmp(held, start, sizeof start) != 0)
    return false;
  size_t room = members->left < QV_GZIP_MEMBER_BYTES ? (size_t)members->left : QV_GZIP_MEMBER_BYTES;
  if (libdeflate_deflate_decompress_ex(members->deflate, held + HEADER_BYTES, held_n - HEADER_BYTES - TRAILER_BYTES,
                                       members->out, room, &used, &made) != LIBDEFLATE_SUCCESS)
    return false;
  const uint8_t *trailer = held + HEADER_BYTES + used;
  if (little_endian(trailer) != libdeflate_crc32(0, members->out, made) || little_endian(trailer + 4) != made)
    return false;
  members->from += HEADER_BYTES + used + TRAILER_BYTES;
  members->left -= made;
  members->any = true;
  *out_n = made;
  return true;
}

/* Takes input in as far as there is room. */
static void hold(QvMembers *members, const uint8_t **bytes, size_t *n)
{
  size_t held_n = members->to - members->from;
  if (held_n >= MEMBER_BYTES_MAX)
    return;
  if (members->to + *n > HELD_BYTES) {
    memmove(members->held, members->held + members->from, held_n);
    members->from = 0;
    members->to = held_n;
  }
  size_t taken = *n < HELD_BYTES - members->to ? *n : HELD_BYTES - members->to;
  if (taken > 0)
    memcpy(members->held + members->to, *bytes, taken);
  members->to += taken;
  *bytes += taken;
  *n -= taken;
}

/* What is held first, then the input. */
static QvGunzipStatus step_stream(QvMembers *members, const uint8_t **bytes, size_t *n, size_t *out_n)
{
  if (members->from == members->to)
    return qv_gunzip_step(members->stream, bytes, n, members->out, sizeof members->out, out_n);
  const uint8_t *held = members->held + members->from;
  size_t held_n = members->to - members->from;
  QvGunzipStatus status = qv_gunzip_step(members->stream, &held, &held_n, members->out, sizeof members->out, out_n);
  members->from = members->to - held_n;
  return status == QV_GUNZIP_MORE && *n > 0 ? QV_GUNZIP_OUTPUT : status;
}

QvGunzipStatus qv_members_step(QvMembers *members, const uint8_t **bytes, size_t *n, bool last, const uint8_t **out,
                               size_t *out_n)
{
  *out = members->out;
  *out_n = 0;
  if (!members->stream) {
    hold(members, bytes, n);
    size_t held_n = members->to - members->from;
    if (held_n == 0 || (held_n < MEMBER_BYTES_MAX && !last))
      return QV_GUNZIP_MORE;
    if (inflate_member(members, out_n))
      return QV_GUNZIP_OUTPUT;
    members->stream = qv_gunzip_new(members->left);
    if (!members->stream)
      return QV_GUNZIP_BAD;
  }
  return step_stream(members, bytes, n, out_n);
}

QvGzipReason qv_members_reason(const QvMembers *members)
{
  return members->stream ? qv_gunzip_reason(members->stream) : QV_GZIP_MEMORY;
}

QvGzipReason qv_members_finish(const QvMembers *members)
{
  if (members->stream)
    return qv_gunzip_finish(members->stream);
  return members->any && members->from == members->to ? QV_GZIP_OK : QV_GZIP_TRUNCATED;
}
