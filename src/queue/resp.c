/* SPDX-License-Identifier: Apache-2.0 */
/* hiredis's reader builds our QvReply through its table of functions, so that its
 * own objects, whose allocation of arrays is unchecked in 0.14, are not used. */
#include "queue/resp.h"

#include <hiredis/hiredis.h>
#include <hiredis/read.h>
#include <string.h>

#include "base/error.h"

struct QvRespReader {
  redisReader *reader;
};

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
  QvReply *reply = g_new0(QvReply, 1);
  reply->type = task->type == REDIS_REPLY_ERROR    ? QV_REPLY_ERROR
                : task->type == REDIS_REPLY_STATUS ? QV_REPLY_STATUS
                                                   : QV_REPLY_STRING;
  reply->text = g_malloc(len + 1);
  memcpy(reply->text, text, len);
  reply->text[len] = '\0';
  reply->len = len;
  return adopt(task, reply);
}

static void *create_array(const redisReadTask *task, int elements_n)
{
  if (elements_n < 0 || elements_n > QV_RESP_ELEMENTS_MAX)
    return NULL;
  QvReply *reply = g_new0(QvReply, 1);
  reply->type = QV_REPLY_ARRAY;
  reply->elements = g_new0(QvReply *, elements_n);
  reply->elements_n = elements_n;
  return adopt(task, reply);
}

static void *create_integer(const redisReadTask *task, long long value)
{
  QvReply *reply = g_new0(QvReply, 1);
  reply->type = QV_REPLY_INTEGER;
  reply->integer = value;
  return adopt(task, reply);
}

static void *create_nil(const redisReadTask *task)
{
  return adopt(task, g_new0(QvReply, 1));
}

static void free_object(void *reply)
{
  qv_reply_free(reply);
}

static redisReplyObjectFunctions object_functions = {
  create_string, create_array, create_integer, create_nil, free_object,
};

QvRespReader *qv_resp_reader_new(void)
{
  QvRespReader *r = g_new0(QvRespReader, 1);
  r->reader = redisReaderCreateWithFunctions(&object_functions);
  g_assert(r->reader);
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
  return TRUE;
}

gboolean qv_resp_reader_next(QvRespReader *r, QvReply **reply, GError **error)
{
  void *object = NULL;
  if (redisReaderGetReply(r->reader, &object) != REDIS_OK) {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "not the Valkey protocol: %s", r->reader->errstr);
    return FALSE;
  }
  *reply = object;
  return TRUE;
}

typedef struct {
  char *text;
  gsize len;
} Formatted;

static void formatted_free(gpointer data)
{
  Formatted *f = data;
  explicit_bzero(f->text, f->len);
  redisFreeCommand(f->text);
  g_free(f);
}

GBytes *qv_resp_format(int argc, const char *const *argv, const gsize *lens)
{
  Formatted *f = g_new0(Formatted, 1);
  long long len = redisFormatCommandArgv(&f->text, argc, (const char **)argv, lens);
  g_assert(len > 0);
  f->len = len;
  return g_bytes_new_with_free_func(f->text, f->len, formatted_free, f);
}
