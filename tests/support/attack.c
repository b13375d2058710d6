/* SPDX-License-Identifier: Apache-2.0 */
#include "support/attack.h"

#include <stdlib.h>
#include <string.h>

#include "format/tar.h"

/* The escapes of TEXT undone: its bytes. */
GByteArray *attack_unescape(const char *text)
{
  GByteArray *bytes = g_byte_array_new();
  for (const char *at = text; *at != '\0'; at++) {
    guint8 byte = (guint8)*at;
    if (*at == '\'') {
      byte = '"';
    } else if (*at == '\\') {
      at++;
      byte = *at == 'n' ? '\n' : *at == '0' ? 0 : (guint8)*at;
      if (*at == 'x') {
        const char digits[] = {at[1], at[2], '\0'};
        byte = (guint8)strtoul(digits, NULL, 16);
        at += 2;
      }
    }
    g_byte_array_append(bytes, &byte, 1);
  }
  return bytes;
}

static void put_zeros(GByteArray *bytes, gulong n)
{
  for (; n > 0; n -= MIN(n, QV_TAR_BLOCK_BYTES))
    g_byte_array_append(bytes, qv_tar_zeros, (guint)MIN(n, QV_TAR_BLOCK_BYTES));
}

static void mend_checksum(guint8 *header)
{
  guint sum = 0;
  memset(header + 148, ' ', 8);
  for (gsize i = 0; i < QV_TAR_BLOCK_BYTES; i++)
    sum += header[i];
  g_snprintf((char *)header + 148, 7, "%06o", sum);
  header[155] = ' ';
}

static void put_header(GByteArray *bytes, const char *path, guint64 size)
{
  guint8 header[QV_TAR_HEADER_BYTES_MAX];
  gsize n = 0;
  g_assert_cmpint(qv_tar_header("x", 0, false, header, &n), ==, QV_TAR_OK);
  g_assert_cmpuint(n, ==, QV_TAR_BLOCK_BYTES);
  memset(header, 0, 100);
  memcpy(header, path, MIN(strlen(path), 100));
  g_snprintf((char *)header + 124, 12, "%011" G_GINT64_MODIFIER "o", size);
  mend_checksum(header);
  g_byte_array_append(bytes, header, (guint)n);
}

void attack_put_member(GByteArray *bytes, const char *path, const void *data, gsize n)
{
  put_header(bytes, path, n);
  if (n > 0)
    g_byte_array_append(bytes, data, (guint)n);
  put_zeros(bytes, qv_tar_padding(n));
}

typedef struct {
  GByteArray *bytes;
  gsize last_header;
  AttackCommand more;
  gpointer data;
} Play;

static gboolean obey_tar(Play *play, const char *command, const char *first, const char *rest)
{
  GByteArray *bytes = play->bytes;
  g_autoptr(GByteArray) text = attack_unescape(rest);
  if (strcmp(command, "file") == 0) {
    attack_put_member(bytes, first, text->data, text->len);
  } else if (strcmp(command, "fill") == 0) {
    g_autofree char *letters = g_strnfill(strtoul(rest, NULL, 10), '[');
    attack_put_member(bytes, first, letters, strlen(letters));
  } else if (strcmp(command, "header") == 0) {
    play->last_header = bytes->len;
    put_header(bytes, first, strtoull(rest, NULL, 10));
  } else if (strcmp(command, "field") == 0) {
    memcpy(bytes->data + play->last_header + strtoul(first, NULL, 10), text->data, text->len);
    mend_checksum(bytes->data + play->last_header);
  } else if (strcmp(command, "zeros") == 0) {
    put_zeros(bytes, strtoul(first, NULL, 10));
  } else if (strcmp(command, "end") == 0) {
    put_zeros(bytes, QV_TAR_END_BYTES);
  } else if (strcmp(command, "flip") == 0) {
    bytes->data[bytes->len - strtoul(first, NULL, 10)] ^= 1;
  } else if (strcmp(command, "cut") == 0) {
    g_byte_array_set_size(bytes, bytes->len - (guint)strtoul(first, NULL, 10));
  } else {
    return FALSE;
  }
  return TRUE;
}

static void obey(Play *play, const char *line)
{
  g_auto(GStrv) words = g_strsplit(line, " ", 2);
  const char *all = words[1] != NULL ? words[1] : "";
  g_auto(GStrv) rest = g_strsplit(all, " ", 2);
  if (strcmp(words[0], "raw") == 0) {
    g_autoptr(GByteArray) raw = attack_unescape(all);
    g_byte_array_append(play->bytes, raw->data, raw->len);
  } else if (!obey_tar(play, words[0], rest[0] != NULL ? rest[0] : "", rest[0] != NULL && rest[1] != NULL ? rest[1] : "")) {
    if (play->more == NULL)
      g_error("unknown command: %s", line);
    play->more(words[0], all, play->bytes, play->data);
  }
}

void attack_play(const Attack *attack, GByteArray *bytes, AttackCommand more, gpointer data)
{
  Play play = {.bytes = bytes, .more = more, .data = data};
  for (guint i = 0; i < attack->lines->len; i++) {
    const char *line = attack->lines->pdata[i];
    if (!g_str_has_prefix(line, "repeat ")) {
      obey(&play, line);
      continue;
    }
    g_auto(GStrv) words = g_strsplit(line, " ", 3);
    g_auto(GStrv) parts = g_strsplit(words[2], "%d", -1);
    for (int k = 0; k < atoi(words[1]); k++) {
      g_autofree char *number = g_strdup_printf("%06d", k);
      g_autofree char *one = g_strjoinv(number, parts);
      obey(&play, one);
    }
  }
}

/* ---- the corpus */

static void attack_free(gpointer data)
{
  Attack *attack = data;
  g_free(attack->name);
  g_free(attack->with);
  g_free(attack->verdict);
  g_ptr_array_unref(attack->lines);
  g_free(attack);
}

static Attack *attack_new(const char *name)
{
  Attack *attack = g_new0(Attack, 1);
  attack->name = g_strdup(name);
  attack->with = g_strdup("");
  attack->lines = g_ptr_array_new_with_free_func(g_free);
  return attack;
}

static void add_line(GPtrArray *attacks, const char *line)
{
  Attack *attack = attacks->len > 0 ? attacks->pdata[attacks->len - 1] : NULL;
  if (line[0] == '\0' || line[0] == '#')
    return;
  if (g_str_has_prefix(line, "attack ")) {
    g_assert_true(attack == NULL || attack->verdict != NULL);
    g_ptr_array_add(attacks, attack_new(line + strlen("attack ")));
  } else if (g_str_has_prefix(line, "with ")) {
    g_autofree char *before = attack->with;
    attack->with = g_strconcat(before, " ", line + strlen("with "), NULL);
  } else if (g_str_has_prefix(line, "= ")) {
    g_assert_null(attack->verdict);
    attack->verdict = g_strdup(line + 2);
  } else {
    g_ptr_array_add(attack->lines, g_strdup(line));
  }
}

GPtrArray *attack_load(const char *name, guint attacks_min)
{
  g_autofree char *path = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "tests", "attack", name, NULL);
  g_autofree char *text = NULL;
  g_autoptr(GError) error = NULL;
  g_file_get_contents(path, &text, NULL, &error);
  g_assert_no_error(error);
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  GPtrArray *attacks = g_ptr_array_new_with_free_func(attack_free);
  for (gsize i = 0; lines[i] != NULL; i++)
    add_line(attacks, lines[i]);
  g_assert_cmpuint(attacks->len, >=, attacks_min);
  return attacks;
}

void attack_add_tests(GPtrArray *attacks, const char *path, void (*test)(gconstpointer attack))
{
  for (guint i = 0; i < attacks->len; i++) {
    const Attack *attack = attacks->pdata[i];
    g_autofree char *name = g_strconcat(path, attack->name, NULL);
    g_assert_nonnull(attack->verdict);
    g_test_add_data_func(name, attack, test);
  }
  g_test_message("%u attacks", attacks->len);
}
