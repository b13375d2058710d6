/* SPDX-License-Identifier: Apache-2.0 */
/* Two layers: records are taken apart as they come, into one message; the
 * message is parsed once it is whole. */
#include "format/tls_hello.h"

#include <string.h>

enum {
  RECORD_HANDSHAKE = 22,
  RECORD_BYTES_MAX = 1 << 14,
  MESSAGE_CLIENT_HELLO = 1,
  MESSAGE_HEAD = 4,
  EXTENSION_SERVER_NAME = 0,
  EXTENSION_ENCRYPTED_HELLO = 0xfe0d,
  NAME_TYPE_HOST = 0,
  EXTENSIONS_MAX = 128,
};

/* What is left of a vector. */
typedef struct {
  const uint8_t *at;
  size_t n;
} Reader;

static bool take_number(Reader *from, size_t width, size_t *value)
{
  if (from->n < width)
    return false;
  *value = 0;
  for (size_t i = 0; i < width; i++)
    *value = *value << 8 | from->at[i];
  from->at += width;
  from->n -= width;
  return true;
}

static bool take_bytes(Reader *from, size_t n, Reader *part)
{
  if (from->n < n)
    return false;
  *part = (Reader){from->at, n};
  from->at += n;
  from->n -= n;
  return true;
}

/* A vector with a length of WIDTH bytes before it, of MIN to MAX bytes. */
static bool take_vector(Reader *from, size_t width, size_t min, size_t max, Reader *part)
{
  size_t n;
  return take_number(from, width, &n) && n >= min && n <= max && take_bytes(from, n, part);
}

void qv_tls_hello_init(QvTlsHello *hello)
{
  memset(hello, 0, offsetof(QvTlsHello, name));
  hello->name[0] = '\0';
}

static bool parse_server_name(QvTlsHello *hello, Reader extension)
{
  Reader list, name;
  size_t type;
  if (!take_vector(&extension, 2, 1, 0xffff, &list) || extension.n != 0 || !take_number(&list, 1, &type) ||
      type != NAME_TYPE_HOST || !take_vector(&list, 2, 1, QV_TLS_NAME_BYTES_MAX, &name) || list.n != 0 ||
      memchr(name.at, '\0', name.n) != NULL)
    return false;
  memcpy(hello->name, name.at, name.n);
  hello->name[name.n] = '\0';
  hello->name_n = (uint16_t)name.n;
  return true;
}

static QvTlsVerdict parse_extensions(QvTlsHello *hello, Reader all)
{
  uint16_t seen[EXTENSIONS_MAX];
  size_t seen_n = 0;
  bool encrypted = false;
  while (all.n > 0) {
    size_t type;
    Reader extension;
    if (!take_number(&all, 2, &type) || !take_vector(&all, 2, 0, 0xffff, &extension) || seen_n == EXTENSIONS_MAX)
      return QV_TLS_BAD;
    for (size_t i = 0; i < seen_n; i++)
      if (seen[i] == type)
        return QV_TLS_BAD;
    seen[seen_n++] = (uint16_t)type;
    if (type == EXTENSION_SERVER_NAME && !parse_server_name(hello, extension))
      return QV_TLS_BAD;
    encrypted |= type == EXTENSION_ENCRYPTED_HELLO;
  }
  if (encrypted)
    return QV_TLS_ENCRYPTED;
  return hello->name_n > 0 ? QV_TLS_DONE : QV_TLS_NO_NAME;
}

/* The whole message, its length checked. */
static QvTlsVerdict parse_message(QvTlsHello *hello)
{
  Reader body = {hello->bytes + MESSAGE_HEAD, (size_t)hello->used - MESSAGE_HEAD};
  Reader random, session, suites, compression, extensions;
  size_t version;
  if (!take_number(&body, 2, &version) || version < 0x0301 || version > 0x0303 || !take_bytes(&body, 32, &random) ||
      !take_vector(&body, 1, 0, 32, &session) || !take_vector(&body, 2, 2, 0xfffe, &suites) || suites.n % 2 != 0 ||
      !take_vector(&body, 1, 1, 255, &compression))
    return QV_TLS_BAD;
  if (body.n == 0)
    return QV_TLS_NO_NAME;
  if (!take_vector(&body, 2, 0, 0xffff, &extensions) || body.n != 0)
    return QV_TLS_BAD;
  return parse_extensions(hello, extensions);
}

/* One byte of a record's head; the verdict is MORE where the head may go on. */
static QvTlsVerdict head_byte(QvTlsHello *hello, uint8_t c)
{
  hello->head[hello->head_n++] = c;
  switch (hello->head_n) {
  case 1:
    return c == RECORD_HANDSHAKE ? QV_TLS_MORE : hello->records_n == 0 ? QV_TLS_NOT_TLS : QV_TLS_BAD;
  case 2:
    return c == 3 ? QV_TLS_MORE : hello->records_n == 0 ? QV_TLS_NOT_TLS : QV_TLS_BAD;
  case 3:
    return c <= 4 ? QV_TLS_MORE : QV_TLS_BAD;
  case 4:
    return QV_TLS_MORE;
  default:
    hello->record_left = (uint16_t)(hello->head[3] << 8 | c);
    hello->records_n++;
    if (hello->record_left == 0 || hello->record_left > RECORD_BYTES_MAX)
      return QV_TLS_BAD;
    return hello->records_n > QV_TLS_RECORDS_MAX ? QV_TLS_TOO_LONG : QV_TLS_MORE;
  }
}

/* Bytes of a record's body, as many as are wanted of it: the message's head one by one, then up to its end. */
static QvTlsVerdict body_bytes(QvTlsHello *hello, const uint8_t *bytes, size_t n, size_t *taken)
{
  size_t want = MESSAGE_HEAD;
  if (hello->used >= MESSAGE_HEAD)
    want += (size_t)hello->bytes[1] << 16 | (size_t)hello->bytes[2] << 8 | hello->bytes[3];
  size_t part = hello->used < MESSAGE_HEAD ? 1 : want - hello->used;
  if (part > n)
    part = n;
  if (part > hello->record_left)
    part = hello->record_left;
  memcpy(hello->bytes + hello->used, bytes, part);
  hello->used = (uint16_t)(hello->used + part);
  hello->record_left = (uint16_t)(hello->record_left - part);
  *taken = part;
  if (hello->bytes[0] != MESSAGE_CLIENT_HELLO)
    return QV_TLS_BAD;
  if (hello->used == MESSAGE_HEAD && want == MESSAGE_HEAD) {
    want += (size_t)hello->bytes[1] << 16 | (size_t)hello->bytes[2] << 8 | hello->bytes[3];
    if (want > QV_TLS_HELLO_BYTES_MAX)
      return QV_TLS_TOO_LONG;
  }
  if (hello->used < MESSAGE_HEAD || hello->used < want)
    return QV_TLS_MORE;
  /* Nothing else may stand in the hello's last record. */
  return hello->record_left > 0 ? QV_TLS_BAD : parse_message(hello);
}

QvTlsVerdict qv_tls_hello_feed(QvTlsHello *hello, const void *bytes, size_t n, size_t *taken)
{
  const uint8_t *from = bytes;
  size_t i = 0;
  while (hello->verdict == QV_TLS_MORE && i < n) {
    if (hello->record_left == 0) {
      if (hello->head_n == sizeof hello->head)
        hello->head_n = 0;
      hello->verdict = head_byte(hello, from[i++]);
      continue;
    }
    size_t part;
    hello->verdict = body_bytes(hello, from + i, n - i, &part);
    i += part;
  }
  *taken = i;
  return hello->verdict;
}
