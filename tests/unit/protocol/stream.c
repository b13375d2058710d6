/* SPDX-License-Identifier: Apache-2.0 */
#include "stream.h"

#include <string.h>

#include "base/base64.h"
#include "base/sha256.h"
#include "format/tar.h"

const guint8 t_stream_key[32] = "0123456789abcdef0123456789abcde";

void t_stream_init(TStream *stream)
{
  stream->bytes = g_byte_array_new();
}

void t_stream_clear(TStream *stream)
{
  g_byte_array_unref(stream->bytes);
}

void t_stream_raw(TStream *stream, const void *bytes, gsize n)
{
  g_byte_array_append(stream->bytes, bytes, (guint)n);
}

void t_stream_member(TStream *stream, const char *path, const void *bytes, gsize n)
{
  guint8 header[QV_TAR_HEADER_BYTES_MAX];
  gsize header_n = 0;
  g_assert_cmpint(qv_tar_header(path, n, false, header, &header_n), ==, QV_TAR_OK);
  t_stream_raw(stream, header, header_n);
  if (n > 0)
    t_stream_raw(stream, bytes, n);
  t_stream_raw(stream, qv_tar_zeros, qv_tar_padding(n));
}

void t_stream_text(TStream *stream, const char *path, const char *text)
{
  t_stream_member(stream, path, text, strlen(text));
}

void t_stream_step(TStream *stream, int i, const char *name, int exit_code, const char *log)
{
  g_autofree char *record = g_strdup_printf("{\"name\":\"%s\",\"exitCode\":%d,\"signal\":null,\"timedOut\":false,"
                                            "\"startedMs\":%d,\"durationMs\":5,\"logTotalBytes\":%zu,\"logTruncated\":false}",
                                            name, exit_code, 10 + i, strlen(log));
  g_autofree char *record_path = i < 0 ? g_strdup("setup.json") : g_strdup_printf("steps/%d.json", i);
  g_autofree char *log_path = i < 0 ? g_strdup("logs/setup.log") : g_strdup_printf("logs/%d.log", i);
  t_stream_text(stream, record_path, record);
  t_stream_text(stream, log_path, log);
}

void t_stream_exit(TStream *stream, const char *before_mac, const char *behind_mac)
{
  QvHmacSha256 hmac;
  guint8 mac[32];
  char mac_text[QV_BASE64_LEN(32) + 1];
  g_autofree char *before = g_strdelimit(g_strdup(before_mac), "'", '"');
  g_autofree char *behind = g_strdelimit(g_strdup(behind_mac), "'", '"');
  g_autofree char *bare = g_strdup_printf("{%s,%s}", before, behind);
  qv_hmac_sha256_init(&hmac, t_stream_key, sizeof t_stream_key);
  qv_hmac_sha256_update(&hmac, stream->bytes->data, stream->bytes->len);
  qv_hmac_sha256_update(&hmac, bare, strlen(bare));
  qv_hmac_sha256_final(&hmac, mac);
  qv_base64_encode(mac, sizeof mac, mac_text);
  g_autofree char *text = g_strdup_printf("{%s,\"mac\":\"%s\",%s}", before, mac_text, behind);
  t_stream_text(stream, "exit.json", text);
}

void t_stream_done(TStream *stream)
{
  t_stream_exit(stream, "'artefactsDropped':0,'code':null,'forkFailed':false", "'status':'done','v':1");
}

void t_stream_end(TStream *stream)
{
  t_stream_raw(stream, qv_tar_zeros, QV_TAR_END_BYTES);
}
