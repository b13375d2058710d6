/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hex.h"

static char *read_below(const char *variable, const char *folder, const char *name, gsize *n)
{
  const char *root = g_getenv(variable);
  g_assert_nonnull(root);
  g_autofree char *path = g_build_filename(root, folder, name, NULL);
  char *text = NULL;
  GError *error = NULL;
  g_file_get_contents(path, &text, n, &error);
  g_assert_no_error(error);
  return text;
}

char *t_vector_text(const char *name, gsize *n)
{
  return read_below("QUAVON_SOURCE_ROOT", "vectors", name, n);
}

json_t *t_shared_json(const char *name)
{
  const char *folder = g_getenv("QUAVON_VECTORS");
  if (folder == NULL || !g_file_test(folder, G_FILE_TEST_IS_DIR)) {
    g_test_skip("the shared vectors are not beside this clone (QUAVON_VECTORS)");
    return NULL;
  }
  gsize n = 0;
  g_autofree char *text = read_below("QUAVON_VECTORS", "", name, &n);
  json_t *json = json_loadb(text, n, 0, NULL);
  g_assert_nonnull(json);
  return json;
}

GPtrArray *t_vector_rows(const char *name)
{
  g_autofree char *text = t_vector_text(name, NULL);
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  GPtrArray *rows = g_ptr_array_new_with_free_func((GDestroyNotify)g_strfreev);
  for (guint i = 0; lines[i] != NULL; i++)
    if (lines[i][0] != '\0' && lines[i][0] != '#')
      g_ptr_array_add(rows, g_strsplit(lines[i], "\t", -1));
  g_assert_cmpuint(rows->len, >, 0);
  return rows;
}

GByteArray *t_hex(const char *hex)
{
  GByteArray *bytes = g_byte_array_new();
  if (strcmp(hex, "-") == 0)
    return bytes;
  gsize n = strlen(hex) / 2;
  g_byte_array_set_size(bytes, (guint)n);
  g_assert_true(qv_hex_decode(hex, strlen(hex), bytes->data, n));
  return bytes;
}

char *t_to_hex(const void *bytes, gsize n)
{
  char *text = g_malloc(2 * n + 1);
  qv_hex_encode(bytes, n, text);
  return text;
}

QvKey *t_key(guint8 fill)
{
  guint8 bytes[32];
  memset(bytes, fill, sizeof bytes);
  return qv_key_new(bytes, sizeof bytes);
}

void t_assert_error(GError **error, int code, const char *part)
{
  g_assert_error(*error, QV_ERROR, code);
  if (strstr((*error)->message, part) == NULL)
    g_error("\"%s\" does not say \"%s\"", (*error)->message, part);
  g_clear_error(error);
}

json_t *t_json(const char *text)
{
  g_autofree char *quoted = g_strdelimit(g_strdup(text), "'", '"');
  json_error_t why;
  json_t *json = json_loads(quoted, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
  if (json == NULL)
    g_error("%s: %s", quoted, why.text);
  return json;
}

json_t *t_repeat(gsize n, json_t *value)
{
  json_t *array = json_array();
  for (gsize i = 0; i < n; i++)
    json_array_append(array, value);
  json_decref(value);
  return array;
}

json_t *t_text(gsize n, char c)
{
  g_autofree char *text = g_strnfill(n, c);
  return json_string(text);
}

static json_t *step_into(json_t *at, const char *part)
{
  return g_ascii_isdigit(part[0]) ? json_array_get(at, (size_t)atoi(part)) : json_object_get(at, part);
}

void t_edit(json_t *root, const char *path, json_t *value)
{
  g_autofree char *plain = g_strdelimit(g_strdup(path), "[", '.');
  g_autofree char *dotted = g_strdelimit(g_strdup(plain), "]", ' ');
  g_auto(GStrv) parts = g_strsplit(dotted, ".", -1);
  json_t *at = root;
  guint i = 0;
  for (; parts[i + 1] != NULL; i++)
    at = step_into(at, g_strstrip(parts[i]));
  g_assert_nonnull(at);
  const char *last = g_strstrip(parts[i]);
  int failed;
  if (json_is_array(at))
    failed = value != NULL ? json_array_set_new(at, (size_t)atoi(last), value) : json_array_remove(at, (size_t)atoi(last));
  else
    failed = value != NULL ? json_object_set_new(at, last, value) : json_object_del(at, last);
  if (failed)
    g_error("nothing at %s", path);
}

json_t *t_job_body(void)
{
  return t_json("{'v':1,'jobId':'" T_JOB_ID "','tenantId':'acme','pool':'default','kind':'check','backends':['runsc'],"
                "'image':{'name':'base','digest':'" T_DIGEST "'},"
                "'base':{'blobId':'" T_JOB_ID ".base','size':2097153,'chunks':3,'sha256':'" T_HEX64 "',"
                "'salt':'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=','treeSha256':'" T_HEX64 "'},"
                "'overlay':{'blobId':'" T_JOB_ID ".overlay','size':1,'chunks':1,'sha256':'" T_HEX64 "',"
                "'salt':'AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=','treeSha256':'" T_HEX64 "'},"
                "'deletes':['old','src/gone.c'],'setup':{'name':'setup','argv':['make','deps'],'timeoutMs':60000},"
                "'egress':['registry.example.org:443'],"
                "'run':[{'name':'lint','argv':['make','lint'],'cwd':'src','env':{'B':'2','A':''},"
                "'continueOnFailure':true},{'name':'test','argv':['make','test']}],"
                "'artefacts':['build/**','*.log'],'limits':{'wallMs':120000,'logBytes':1000,'artefactBytes':5000,"
                "'artefactCount':3},'issuedAt':1700000000000,'notAfter':1700000600000}");
}

void t_policy(QvLimitsPolicy *policy)
{
  qv_limits_policy_standard(policy, 4);
}

QvJob *t_job(void)
{
  QvLimitsPolicy policy;
  GError *error = NULL;
  json_t *body = t_job_body();
  t_policy(&policy);
  QvJob *job = qv_job_parse(body, &policy, &error);
  g_assert_no_error(error);
  json_decref(body);
  return job;
}
