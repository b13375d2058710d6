/* SPDX-License-Identifier: Apache-2.0 */
/* What is signed, against the numbers and documents that RFC 8785 itself prints. */
#include <stdlib.h>
#include <string.h>

#include "format/jcs.h"
#include "format/json.h"
#include "protocol/envelope.h"
#include "support.h"

static void test_numbers(void)
{
  g_autoptr(GPtrArray) rows = t_vector_rows("rfc8785/numbers.tsv");
  g_assert_cmpuint(rows->len, ==, 26);
  for (guint i = 0; i < rows->len; i++) {
    char **row = rows->pdata[i];
    guint64 bits = g_ascii_strtoull(row[0], NULL, 16);
    double value;
    char text[QV_JCS_NUMBER_BYTES] = "";
    memcpy(&value, &bits, sizeof value);
    size_t n = qv_jcs_number(value, text);
    g_assert_cmpuint(n, ==, strlen(row[1]));
    if (n > 0)
      g_assert_cmpstr(text, ==, row[1]);
  }
}

static void test_documents(void)
{
  static const char *const names[] = { "sample", "sorting" };
  for (gsize i = 0; i < G_N_ELEMENTS(names); i++) {
    gsize n = 0, hex_n = 0;
    size_t canonical_n = 0;
    g_autofree char *input_name = g_strdup_printf("rfc8785/%s.input.json", names[i]);
    g_autofree char *want_name = g_strdup_printf("rfc8785/%s.canonical.hex", names[i]);
    g_autofree char *input = t_vector_text(input_name, &n);
    g_autofree char *want = t_vector_text(want_name, &hex_n);
    json_t *json = qv_json_parse(input, n, n, QV_JSON_ANY, NULL);
    g_assert_nonnull(json);
    char *canonical = qv_jcs(json, &canonical_n);
    g_autofree char *got = t_to_hex(canonical, canonical_n);
    g_assert_cmpstr(got, ==, g_strchomp(want));
    free(canonical);
    json_decref(json);
  }
}

/* The RFC's own numbers are no numbers of a signed body: that is the schema's matter, not the canonicaliser's. */
static void test_signed_bodies_are_narrower(void)
{
  gsize n = 0;
  g_autofree char *input = t_vector_text("rfc8785/sample.input.json", &n);
  QvJsonError error;
  g_assert_null(qv_json_parse(input, n, n, QV_JSON_SIGNED, &error));
  g_assert_cmpint(error.reason, ==, QV_JSON_NOT_INTEGER);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/rfc8785/numbers", test_numbers);
  g_test_add_func("/rfc8785/documents", test_documents);
  g_test_add_func("/rfc8785/signed-bodies-are-narrower", test_signed_bodies_are_narrower);
  return g_test_run();
}
