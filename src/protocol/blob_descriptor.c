/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the JSON of blob descriptors and image references (sections 2 and 3). */
#include <string.h>

#include "base/base64.h"
#include "protocol/fields.h"
#include "protocol/images_lock.h"
#include "protocol/job_internal.h"

gboolean qv_blob_descriptor_parse(const json_t *json, const char *path, const char *job_id, const char *part,
                                  gint64 max_bytes, QvBlobDescriptor *descriptor, GError **error)
{
  static const QvJsonMember table[] = {
    { "blobId", QV_JSON_STRING }, { "size", QV_JSON_INTEGER }, { "chunks", QV_JSON_INTEGER },
    { "sha256", QV_JSON_STRING }, { "salt", QV_JSON_STRING },  { "treeSha256", QV_JSON_STRING },
  };
  QvBlobDescriptor read = { 0 };
  qv_blob_id_format(job_id, part, read.blob_id);
  if (!qv_fields_shape(json, path, table, G_N_ELEMENTS(table), error) ||
      !qv_field_is(json, path, "blobId", read.blob_id, error) ||
      !qv_field_integer(json, path, "size", 1, max_bytes, &read.size, error))
    return FALSE;
  gint64 chunks = qv_blob_chunks(read.size);
  if (!qv_field_integer(json, path, "chunks", chunks, chunks, &read.chunks, error) ||
      !qv_field_text_into(json, path, "sha256", qv_sha256_hex_valid, read.sha256, sizeof read.sha256, error) ||
      !qv_field_bytes(json, path, "salt", read.salt, sizeof read.salt, error) ||
      !qv_field_text_into(json, path, "treeSha256", qv_sha256_hex_valid, read.tree_sha256, sizeof read.tree_sha256,
                          error))
    return FALSE;
  *descriptor = read;
  return TRUE;
}

json_t *qv_blob_descriptor_build(const QvBlobDescriptor *descriptor)
{
  char salt[QV_BASE64_LEN(QV_SALT_BYTES) + 1];
  json_t *json = json_object();
  qv_base64_encode(descriptor->salt, QV_SALT_BYTES, salt);
  json_object_set_new(json, "blobId", json_string(descriptor->blob_id));
  json_object_set_new(json, "size", json_integer(descriptor->size));
  json_object_set_new(json, "chunks", json_integer(descriptor->chunks));
  json_object_set_new(json, "sha256", json_string(descriptor->sha256));
  json_object_set_new(json, "salt", json_string(salt));
  json_object_set_new(json, "treeSha256", json_string(descriptor->tree_sha256));
  return json;
}

gboolean qv_image_ref_parse(const json_t *json, const char *path, QvImageRef *image, GError **error)
{
  static const QvJsonMember table[] = { { "name", QV_JSON_STRING }, { "digest", QV_JSON_STRING } };
  return qv_fields_shape(json, path, table, G_N_ELEMENTS(table), error) &&
         (image->name = qv_field_text(json, path, "name", qv_identifier_valid, error)) != NULL &&
         (image->digest = qv_field_text(json, path, "digest", qv_image_digest_valid, error)) != NULL;
}

json_t *qv_image_ref_build(const QvImageRef *image)
{
  json_t *json = json_object();
  json_object_set_new(json, "name", qv_text_or_null(image->name));
  json_object_set_new(json, "digest", qv_text_or_null(image->digest));
  return json;
}

void qv_image_ref_clear(QvImageRef *image)
{
  g_free(image->name);
  g_free(image->digest);
  memset(image, 0, sizeof *image);
}
