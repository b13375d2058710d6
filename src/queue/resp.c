/* SPDX-License-Identifier: Apache-2.0 */
/* hiredis's reader builds our QvReply through its table of functions, so that its
 * own objects, whose allocation of arrays is unchecked in 0.14, are not used. Whatever a peer sends, a reader
 * holds at most QV_RESP_BYTES_MAX that wait and as many again of one reply that is being built: the second is counted
 * as each part is made, since ten bytes can announce an array of a million. What is announced too large is refused
 * before it is waited for. */
#include "queue/resp.h"

#include <hiredis/hiredis.h>
#include <hiredis/read.h>
#include <string.h>

#include "base/error.h"

/* From here on a text can be kept without a copy, and what was read of the stream is given back when it has been taken: chunks
 * of blobs, of which several are on their way at once. */
#define LONG_BYTES 65536

struct QvRespReader {
  redisReader *reader;
  gsize most_bytes;  /* that the reader has held since it was made */
  gsize built_bytes; /* of the reply in progress, as it is in memory */
  const char *why;   /* a bound was met; NULL: none */
};

/* FALSE: the functions below then return NULL, which hiredis takes for the end of the stream. */
static gboolean afford(const redisReadTask *task, gsize bytes)
{
  QvRespReader *r = task->privdata;
  r->built_bytes += bytes;
  if (r->built_bytes <= QV_RESP_BYTES_MAX)
    return TRUE;
  r->why = "a reply that takes too much memory";
  return FALSE;
}

static QvReply *adopt(const redisReadTask *task, QvReply *reply)
{
  if (task->parent) {
    QvReply *parent = task->parent->obj;
    parent->elements[task->idx] = reply;
  }
  return reply;
}

static void *create_string(const redisReadTask *task, char *text, size_t len)
{
  if (task->type != REDIS_REPLY_STRING && len > QV_RESP_LINE_MAX)
    ((QvRespReader *)task->privdata)->why = "a line that is too long";
  if (((QvRespReader *)task->privdata)->why || !afford(task, sizeof(QvReply) + len + 1))
    return NULL;
  gboolean is_long = task->type == REDIS_REPLY_STRING && len >= LONG_BYTES;
  QvReply *reply = g_malloc(sizeof(QvReply) + (is_long ? 0 : len + 1));
  char *own = is_long ? g_malloc(len + 1) : (char *)(reply + 1);
  *reply = (QvReply){ .text = own, .len = len, .bytes = is_long ? g_bytes_new_take(own, len) : NULL };
  reply->type = task->type == REDIS_REPLY_ERROR    ? QV_REPLY_ERROR
                : task->type == REDIS_REPLY_STATUS ? QV_REPLY_STATUS
                                                   : QV_REPLY_STRING;
  memcpy(reply->text, text, len);
  reply->text[len] = '\0';
  return adopt(task, reply);
}

static void *create_array(const redisReadTask *task, int elements_n)
{
  if (elements_n < 0 || elements_n > QV_RESP_ELEMENTS_MAX)
    ((QvRespReader *)task->privdata)->why = "an array of too many elements";
  if (((QvRespReader *)task->privdata)->why || !afford(task, sizeof(QvReply) + elements_n * sizeof(QvReply *)))
    return NULL;
  QvReply *reply = g_malloc0(sizeof(QvReply) + elements_n * sizeof(QvReply *));
  reply->type = QV_REPLY_ARRAY;
  reply->elements = (QvReply **)(reply + 1);
  reply->elements_n = elements_n;
  return adopt(task, reply);
}

static void *create_integer(const redisReadTask *task, long long value)
{
  if (!afford(task, sizeof(QvReply)))
    return NULL;
  QvReply *reply = g_new0(QvReply, 1);
  reply->type = QV_REPLY_INTEGER;
  reply->integer = value;
  return adopt(task, reply);
}

static void *create_nil(const redisReadTask *task)
{
  return afford(task, sizeof(QvReply)) ? adopt(task, g_new0(QvReply, 1)) : NULL;
}

static void free_object(void *reply)
{
  qv_reply_free(reply);
}

static redisReplyObjectFunctions object_functions = {
  create_string, create_array, create_integer, create_nil, free_object,
};

static void renew(QvRespReader *r)
{
  if (r->reader)
    redisReaderFree(r->reader);
  r->reader = redisReaderCreateWithFunctions(&object_functions);
  g_assert(r->reader);
  r->reader->privdata = r;
  r->most_bytes = 0;
}

QvRespReader *qv_resp_reader_new(void)
{
  QvRespReader *r = g_new0(QvRespReader, 1);
  renew(r);
  return r;
}

void qv_resp_reader_free(QvRespReader *r)
{
  if (!r)
    return;
  redisReaderFree(r->reader);
  g_free(r);
}

gboolean qv_resp_reader_feed(QvRespReader *r, const void *bytes, gsize n, GError **error)
{
  if (r->reader->len - r->reader->pos + n > QV_RESP_BYTES_MAX) {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "a reply of more than %d bytes", QV_RESP_BYTES_MAX);
    return FALSE;
  }
  if (redisReaderFeed(r->reader, bytes, n) != REDIS_OK) {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "not the Valkey protocol: %s", r->reader->errstr);
    return FALSE;
  }
  r->most_bytes = MAX(r->most_bytes, r->reader->len);
  return TRUE;
}

/* hiredis frees a large buffer when the next bytes come, which may be long after. */
static void give_back(QvRespReader *r)
{
  const redisReader *h = r->reader;
  if (r->most_bytes >= LONG_BYTES && h->len == h->pos && h->ridx < 0)
    renew(r);
}

/* What is there of an item that is not whole yet: its type was taken, its line begins at pos. */
static gboolean check_item(const QvRespReader *r, GError **error)
{
  const redisReader *h = r->reader;
  gsize n = h->len - h->pos;
  int type = h->ridx >= 0 ? h->rstack[h->ridx].type : -1;
  if (type < 0 || n == 0)
    return TRUE;
  if (type != REDIS_REPLY_STRING && n > QV_RESP_LINE_MAX) {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "a line of more than %d bytes", QV_RESP_LINE_MAX);
    return FALSE;
  }
  const char *text = h->buf + h->pos; /* a NUL is behind it */
  gsize digits = strspn(text, "0123456789");
  if (type != REDIS_REPLY_STRING || digits == 0)
    return TRUE;
  guint64 announced = g_ascii_strtoull(text, NULL, 10);
  if (announced + r->built_bytes <= QV_RESP_BYTES_MAX && digits < 20)
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "a reply of %" G_GUINT64_FORMAT " bytes is announced, more than %d", announced,
              QV_RESP_BYTES_MAX);
  return FALSE;
}

gboolean qv_resp_reader_next(QvRespReader *r, QvReply **reply, GError **error)
{
  void *object = NULL;
  if (redisReaderGetReply(r->reader, &object) != REDIS_OK) {
    if (r->why)
      g_set_error_literal(error, QV_ERROR, QV_ERROR_FORMAT, r->why);
    else /* its text quotes a byte of the peer's, escaped */
      g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "not the Valkey protocol: %s", r->reader->errstr);
    return FALSE;
  }
  if (!object)
    return (*reply = NULL, check_item(r, error));
  r->built_bytes = 0;
  *reply = object;
  give_back(r);
  return TRUE;
}

/* Writing. By hand: hiredis prints every length with sprintf, which was a tenth of a small job's cost. */

typedef struct {
  gsize len;
  char text[];
} Formatted;

static void formatted_free(gpointer data)
{
  Formatted *f = data;
  explicit_bzero(f->text, f->len);
  g_free(f);
}

static gsize digits_n(gsize n)
{
  gsize digits = 1;
  for (; n >= 10; n /= 10)
    digits++;
  return digits;
}

/* "*3\r\n", "$11\r\n" */
static char *put_count(char *p, char kind, gsize n)
{
  gsize digits = digits_n(n);
  *p++ = kind;
  for (char *d = p + digits; d > p; n /= 10)
    *--d = (char)('0' + n % 10);
  p += digits;
  *p++ = '\r';
  *p++ = '\n';
  return p;
}

GBytes *qv_resp_format(int argc, const char *const *argv, const gsize *lens)
{
  gsize size = 3 + digits_n(argc);
  for (int i = 0; i < argc; i++) {
    gsize n = lens ? lens[i] : strlen(argv[i]);
    size += 5 + digits_n(n) + n;
  }
  Formatted *f = g_malloc(sizeof *f + size);
  f->len = size;
  char *p = put_count(f->text, '*', argc);
  for (int i = 0; i < argc; i++) {
    gsize n = lens ? lens[i] : strlen(argv[i]);
    p = put_count(p, '$', n);
    memcpy(p, argv[i], n);
    p += n;
    *p++ = '\r';
    *p++ = '\n';
  }
  g_assert(p == f->text + size);
  return g_bytes_new_with_free_func(f->text, size, formatted_free, f);
}
