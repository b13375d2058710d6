/* SPDX-License-Identifier: Apache-2.0 */
/* Archives made by the writer, then damaged in one place each; fed whole, in odd portions and one byte at a time. */
#include <string.h>

#include "format/error.h"
#include "format/tar.h"
#include "vectors.h"

static const QvTarCaps wide = {.entries_max = 1000, .total_bytes_max = 1 << 20, .file_bytes_max = 1 << 16};

typedef struct {
  GString *seen; /* "path:size:x:bytes;" a file */
  GByteArray *heard;
  guint64 heard_on_entry; /* bytes heard before the last entry */
  gboolean ended;
} Seen;

static void hear(void *user, const guint8 *bytes, gsize n)
{
  g_byte_array_append(((Seen *)user)->heard, bytes, (guint)n);
}

static void take(QvTarReader *reader, QvTarEvent event, Seen *seen)
{
  switch (event) {
  case QV_TAR_ENTRY:
    g_assert_cmpuint(strlen(reader->entry.path), ==, reader->entry.path_n);
    g_string_append_printf(seen->seen, "%s:%" G_GUINT64_FORMAT ":%s:", reader->entry.path, reader->entry.size,
                           reader->entry.executable ? "x" : "-");
    seen->heard_on_entry = seen->heard->len;
    break;
  case QV_TAR_DATA:
    g_string_append_len(seen->seen, (const char *)reader->data, (gssize)reader->data_n);
    break;
  case QV_TAR_ENTRY_END:
    g_string_append_c(seen->seen, ';');
    break;
  default:
    g_assert_cmpint(event, ==, QV_TAR_END);
    g_assert_false(seen->ended);
    seen->ended = TRUE;
  }
}

static QvTarReason read_in(const guint8 *bytes, gsize n, gsize portion, const QvTarCaps *caps, Seen *seen)
{
  QvTarReader reader;
  qv_tar_reader_init(&reader, caps);
  reader.tap = hear;
  reader.tap_user = seen;
  for (gsize at = 0; at < n;) {
    gsize part = MIN(portion, n - at);
    g_autofree guint8 *exact = g_memdup2(bytes + at, part);
    const guint8 *b = exact;
    at += part;
    QvTarEvent event;
    while ((event = qv_tar_reader_step(&reader, &b, &part)) != QV_TAR_MORE && event != QV_TAR_BAD)
      take(&reader, event, seen);
    if (event == QV_TAR_BAD) {
      /* For good. */
      g_assert_cmpint(qv_tar_reader_step(&reader, &b, &part), ==, QV_TAR_BAD);
      break;
    }
    g_assert_cmpuint(part, ==, 0);
  }
  QvTarReason reason = qv_tar_reader_finish(&reader);
  if (reason == QV_TAR_OK)
    g_assert_cmpmem(seen->heard->data, seen->heard->len, bytes, n);
  qv_tar_reader_clear(&reader);
  return reason;
}

static void clear(Seen *seen)
{
  g_string_free(seen->seen, TRUE);
  g_byte_array_unref(seen->heard);
}

/* The verdict, the same for every way of feeding; WANTED is what is seen where it is accepted. */
static QvTarReason read_with(const GByteArray *tar, const QvTarCaps *caps, const char *wanted)
{
  static const gsize portions[] = {G_MAXSIZE, 1, 511, 512, 513, 7};
  QvTarReason first = QV_TAR_OK;
  for (gsize i = 0; i < G_N_ELEMENTS(portions); i++) {
    Seen seen = {.seen = g_string_new(NULL), .heard = g_byte_array_new()};
    QvTarReason reason = read_in(tar->data, tar->len, portions[i], caps, &seen);
    if (i == 0)
      first = reason;
    g_assert_cmpstr(qv_tar_reason_name(reason), ==, qv_tar_reason_name(first));
    if (reason == QV_TAR_OK && wanted) {
      g_assert_true(seen.ended);
      g_assert_cmpstr(seen.seen->str, ==, wanted);
    }
    clear(&seen);
  }
  return first;
}

static void add(GByteArray *tar, const char *path, const char *text, gboolean executable)
{
  guint8 header[QV_TAR_HEADER_BYTES_MAX];
  gsize n = 0, size = strlen(text);
  g_assert_cmpint(qv_tar_header(path, size, executable, header, &n), ==, QV_TAR_OK);
  g_byte_array_append(tar, header, (guint)n);
  g_byte_array_append(tar, (const guint8 *)text, (guint)size);
  g_byte_array_append(tar, qv_tar_zeros, (guint)qv_tar_padding(size));
}

static void end(GByteArray *tar)
{
  g_byte_array_append(tar, qv_tar_zeros, QV_TAR_END_BYTES);
}

static void mend_checksum(guint8 *block)
{
  memset(block + 148, ' ', 8);
  guint sum = 0;
  for (gsize i = 0; i < 512; i++)
    sum += block[i];
  g_autofree char *text = g_strdup_printf("%06o", sum);
  memcpy(block + 148, text, 7);
}

static GByteArray *sample(void)
{
  GByteArray *tar = g_byte_array_new();
  add(tar, "a.txt", "hello", FALSE);
  add(tar, "bin/run", "", TRUE);
  return tar;
}

static void test_fine(void)
{
  g_autoptr(GByteArray) tar = sample();
  g_autofree char *part = g_strnfill(200, 'p'), *path = g_strdup_printf("%s/%s/%s/%s/%s", part, part, part, part, part);
  g_autofree char *text = g_strnfill(512, 't');
  add(tar, path, text, FALSE);
  add(tar, "z", "1", FALSE);
  end(tar);
  g_autofree char *wanted = g_strdup_printf("a.txt:5:-:hello;bin/run:0:x:;%s:512:-:%s;z:1:-:1;", path, text);
  g_assert_cmpint(read_with(tar, &wide, wanted), ==, QV_TAR_OK);
  g_autoptr(GByteArray) nothing = g_byte_array_new();
  end(nothing);
  g_assert_cmpint(read_with(nothing, &wide, ""), ==, QV_TAR_OK);
}

/* What is heard when an entry is announced is the stream before that entry's header, extended header included. */
static void test_tap(void)
{
  for (gsize portion = 1; portion < 2000; portion += 37) {
    g_autoptr(GByteArray) tar = sample();
    g_autofree char *path = g_strnfill(150, 'p');
    gsize before = tar->len;
    add(tar, path, "x", FALSE);
    end(tar);
    Seen seen = {.seen = g_string_new(NULL), .heard = g_byte_array_new()};
    g_assert_cmpint(read_in(tar->data, tar->len, portion, &wide, &seen), ==, QV_TAR_OK);
    g_assert_cmpuint(seen.heard_on_entry, ==, before);
    clear(&seen);
  }
}

/* One byte, or text, put into the first header. */
static void check_damage(gsize at, const char *text, gsize n, gboolean mend, QvTarReason wanted)
{
  g_autoptr(GByteArray) tar = sample();
  end(tar);
  memcpy(tar->data + at, text, n);
  if (mend)
    mend_checksum(tar->data);
  QvTarReason reason = read_with(tar, &wide, NULL);
  if (reason != wanted)
    g_error("at %" G_GSIZE_FORMAT ": %s, not %s", at, qv_tar_reason_name(reason), qv_tar_reason_name(wanted));
}

static void test_headers(void)
{
  check_damage(0, "b", 1, FALSE, QV_TAR_CHECKSUM);
  check_damage(148, "       ", 7, FALSE, QV_TAR_CHECKSUM);
  check_damage(257, "ustar  ", 7, TRUE, QV_TAR_MAGIC);
  check_damage(257, "\0\0\0\0\0\0\0", 8, TRUE, QV_TAR_MAGIC);
  check_damage(263, "01", 2, TRUE, QV_TAR_MAGIC);
  for (int type = 0; type < 256; type++) {
    char byte = (char)type;
    if (type != '0' && type != 'x')
      check_damage(156, &byte, 1, TRUE, QV_TAR_TYPE);
  }
  check_damage(124, "0000000000 5", 12, TRUE, QV_TAR_FIELD);
  check_damage(124, "00000000008\0", 12, TRUE, QV_TAR_FIELD);
  check_damage(124, "-0000000005\0", 12, TRUE, QV_TAR_FIELD);
  check_damage(124, "000000000005", 12, TRUE, QV_TAR_FIELD);
  check_damage(124, "\0\0\0\0\0\0\0\0\0\0\0\0", 12, TRUE, QV_TAR_FIELD);
  check_damage(124, "\x80\0\0\0\0\0\0\0\0\0\0\5", 12, TRUE, QV_TAR_FIELD);
  check_damage(124, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12, TRUE, QV_TAR_FIELD);
  check_damage(100, "  00644\0", 8, TRUE, QV_TAR_FIELD);
  check_damage(100, "abc", 3, TRUE, QV_TAR_FIELD);
  check_damage(108, "9", 1, TRUE, QV_TAR_FIELD);
  check_damage(116, "9", 1, TRUE, QV_TAR_FIELD);
  check_damage(329, "9", 1, TRUE, QV_TAR_FIELD);
  check_damage(337, "9", 1, TRUE, QV_TAR_FIELD);
  check_damage(337, "0000001", 7, TRUE, QV_TAR_FIELD_SET);
  check_damage(136, "0x", 2, TRUE, QV_TAR_FIELD);
  check_damage(157, "target", 6, TRUE, QV_TAR_FIELD_SET);
  check_damage(265, "root", 4, TRUE, QV_TAR_FIELD_SET);
  check_damage(297, "root", 4, TRUE, QV_TAR_FIELD_SET);
  check_damage(329, "0000001", 7, TRUE, QV_TAR_FIELD_SET);
  check_damage(345, "dir", 3, TRUE, QV_TAR_FIELD_SET);
  check_damage(500, "x", 1, TRUE, QV_TAR_FIELD_SET);
  check_damage(8, "x", 1, TRUE, QV_TAR_FIELD_SET); /* behind the name's NUL */
  check_damage(517, "x", 1, FALSE, QV_TAR_PADDING);
  /* Owner, time and set-user-id say nothing here. */
  check_damage(100, "0004755", 7, TRUE, QV_TAR_OK);
  check_damage(108, "0001750", 7, TRUE, QV_TAR_OK);
  check_damage(136, "14000000000", 11, TRUE, QV_TAR_OK);
}

static void test_names(void)
{
  check_damage(0, "../txt", 6, TRUE, QV_TAR_PATH_DOT);
  check_damage(0, "/.txt", 5, TRUE, QV_TAR_PATH_ABSOLUTE);
  check_damage(0, "\0\0\0\0\0", 5, TRUE, QV_TAR_PATH_EMPTY);
  check_damage(0, "a\n", 2, TRUE, QV_TAR_PATH_CONTROL);
  check_damage(0, "\xff", 1, TRUE, QV_TAR_PATH_UTF8);
  check_damage(0, "a.tx/", 5, TRUE, QV_TAR_PATH_EMPTY);
  check_damage(0, ".git/", 5, TRUE, QV_TAR_PATH_GIT);
  check_damage(0, ".git/config", 11, TRUE, QV_TAR_PATH_GIT);
  check_damage(0, ".g\xef\xbb\xbfit/", 8, TRUE, QV_TAR_PATH_GIT); /* a mark that some file systems do not see */
  check_damage(0, ".x\0\0\0", 5, TRUE, QV_TAR_OK);
  check_damage(0, "bin/run", 7, TRUE, QV_TAR_PATH_TWICE);
  check_damage(0, "bin\0\0", 5, TRUE, QV_TAR_PATH_CONFLICT);
  check_damage(0, "bin/run/x", 9, TRUE, QV_TAR_PATH_CONFLICT);
}

/* BODY as an extended header, then a file named pax. */
static QvTarReason read_pax(const char *body, gsize body_n, const char *name)
{
  g_autoptr(GByteArray) tar = g_byte_array_new();
  guint8 header[QV_TAR_HEADER_BYTES_MAX];
  gsize n;
  qv_tar_header(name, body_n, FALSE, header, &n);
  header[156] = 'x';
  mend_checksum(header);
  g_byte_array_append(tar, header, 512);
  g_byte_array_append(tar, (const guint8 *)body, (guint)body_n);
  g_byte_array_append(tar, qv_tar_zeros, (guint)qv_tar_padding(body_n));
  add(tar, "pax", "", FALSE);
  end(tar);
  return read_with(tar, &wide, NULL);
}

static void test_pax(void)
{
  g_autofree char *p = g_strnfill(102, 'p');
  char *record = g_strdup_printf("112 path=%s\n", p);
  g_assert_cmpint(read_pax(record, 112, "pax"), ==, QV_TAR_OK);
  g_assert_cmpint(read_pax(record, 112, "PaxHeaders/x"), ==, QV_TAR_PAX);
  g_assert_cmpint(read_pax(record, 112, "paX"), ==, QV_TAR_PAX);
  g_assert_cmpint(read_pax(record, 111, "pax"), ==, QV_TAR_PAX);
  g_assert_cmpint(read_pax(record, 0, "pax"), ==, QV_TAR_PAX);
  g_assert_cmpint(read_pax("99", 2, "pax"), ==, QV_TAR_PAX);
  g_assert_cmpint(read_pax("7 path=", 7, "pax"), ==, QV_TAR_PAX);
  g_free(record);
  static const char *const formats[] = {
    "0 path=%s\n",    "012 path=%s\n",  "113 path=%s\n",      "+12 path=%s\n",      "112 Path=%s\n",
    "112 size=%s\n",  "112\tpath=%s\n", "116 linkpath=%s\n",  "112 path=%s ",       "99999999999999999999 path=%s\n",
    "-112 path=%s\n", "path=%s\n",      "112 path=%s\n9 x=y\n", "9 x=yyy\n112 path=%s\n", "\n",
  };
  for (gsize i = 0; i < G_N_ELEMENTS(formats); i++) {
    g_autofree char *begin = g_strndup(formats[i], strcspn(formats[i], "%"));
    const char *rest = strstr(formats[i], "%s");
    g_autofree char *body = g_strconcat(begin, rest ? p : "", rest ? rest + 2 : "", NULL);
    g_assert_cmpint(read_pax(body, strlen(body), "pax"), ==, QV_TAR_PAX);
  }
  /* A path that a header can hold has one form. */
  g_autofree char *q = g_strnfill(100, 'p'), *shorter = g_strdup_printf("110 path=%s\n", q);
  g_assert_cmpint(read_pax(shorter, 110, "pax"), ==, QV_TAR_PAX_SHORT);
  /* A NUL in a path is no end of it. */
  g_autofree char *cut = g_strdup_printf("112 path=%s\n", p);
  cut[50] = '\0';
  g_assert_cmpint(read_pax(cut, 112, "pax"), ==, QV_TAR_PATH_CONTROL);
  g_autofree char *huge = g_strnfill(1600, 'p');
  g_assert_cmpint(read_pax(huge, 1600, "pax"), ==, QV_TAR_PATH_LONG);
  g_autofree char *l = g_strnfill(1025, 'p'), *longer = g_strdup_printf("1036 path=%s\n", l);
  g_assert_cmpint(read_pax(longer, 1036, "pax"), ==, QV_TAR_PATH_LONG);
}

static void test_pax_alone(void)
{
  g_autofree char *p = g_strnfill(101, 'p');
  guint8 header[QV_TAR_HEADER_BYTES_MAX];
  gsize n;
  qv_tar_header(p, 0, FALSE, header, &n);
  g_autoptr(GByteArray) tar = g_byte_array_new();
  g_byte_array_append(tar, header, (guint)n - 512);
  g_assert_cmpint(read_with(tar, &wide, NULL), ==, QV_TAR_PAX_ALONE);
  end(tar);
  g_assert_cmpint(read_with(tar, &wide, NULL), ==, QV_TAR_PAX_ALONE);
  g_byte_array_set_size(tar, (guint)n - 512);
  g_byte_array_append(tar, header, (guint)n);
  end(tar);
  g_assert_cmpint(read_with(tar, &wide, NULL), ==, QV_TAR_PAX_ALONE);
  /* The file of an extended header is named pax. */
  g_byte_array_set_size(tar, (guint)n - 512);
  add(tar, "other", "", FALSE);
  end(tar);
  g_assert_cmpint(read_with(tar, &wide, NULL), ==, QV_TAR_PAX);
}

/* The header behind an extended one is judged as any other; so is the padding of its record. */
static void test_pax_damage(void)
{
  g_autofree char *p = g_strnfill(101, 'p');
  g_autoptr(GByteArray) tar = g_byte_array_new();
  add(tar, p, "", FALSE);
  end(tar);
  g_assert_cmpuint(tar->len, ==, 3 * 512 + QV_TAR_END_BYTES);
  g_assert_cmpint(read_with(tar, &wide, NULL), ==, QV_TAR_OK);
  tar->data[1023] = 1;
  g_assert_cmpint(read_with(tar, &wide, NULL), ==, QV_TAR_PADDING);
  tar->data[1023] = 0;
  tar->data[1024] ^= 1;
  g_assert_cmpint(read_with(tar, &wide, NULL), ==, QV_TAR_CHECKSUM);
  tar->data[1024] ^= 1;
  for (guint n = 1; n < tar->len; n++) {
    Seen seen = {.seen = g_string_new(NULL), .heard = g_byte_array_new()};
    QvTarReason reason = read_in(tar->data, n, G_MAXSIZE, &wide, &seen);
    g_assert_cmpint(reason, ==, n == 1024 ? QV_TAR_PAX_ALONE : QV_TAR_TRUNCATED);
    clear(&seen);
  }
  tar->data[1024 + 156] = '5';
  mend_checksum(tar->data + 1024);
  g_assert_cmpint(read_with(tar, &wide, NULL), ==, QV_TAR_TYPE);
}

static void test_ends(void)
{
  g_autoptr(GByteArray) tar = sample();
  end(tar);
  guint whole = tar->len;
  for (guint n = 0; n < whole; n++) {
    Seen seen = {.seen = g_string_new(NULL), .heard = g_byte_array_new()};
    g_assert_cmpint(read_in(tar->data, n, G_MAXSIZE, &wide, &seen), ==, QV_TAR_TRUNCATED);
    g_assert_false(seen.ended);
    clear(&seen);
  }
  g_byte_array_append(tar, qv_tar_zeros, 1);
  g_assert_cmpint(read_with(tar, &wide, NULL), ==, QV_TAR_TRAILING);
  g_byte_array_append(tar, qv_tar_zeros, 511);
  g_assert_cmpint(read_with(tar, &wide, NULL), ==, QV_TAR_TRAILING);
  g_byte_array_set_size(tar, whole - 512);
  add(tar, "more", "", FALSE);
  g_assert_cmpint(read_with(tar, &wide, NULL), ==, QV_TAR_LONE_ZERO_BLOCK);
}

static void test_caps(void)
{
  g_autoptr(GByteArray) tar = sample();
  end(tar);
  QvTarCaps caps = {.entries_max = 2, .total_bytes_max = tar->len, .file_bytes_max = 5};
  g_assert_cmpint(read_with(tar, &caps, NULL), ==, QV_TAR_OK);
  caps.file_bytes_max = 4;
  g_assert_cmpint(read_with(tar, &caps, NULL), ==, QV_TAR_FILE_CAP);
  caps.file_bytes_max = 5;
  caps.entries_max = 1;
  g_assert_cmpint(read_with(tar, &caps, NULL), ==, QV_TAR_ENTRIES_CAP);
  caps.entries_max = 2;
  for (guint total = 0; total < tar->len; total++) {
    caps.total_bytes_max = total;
    Seen seen = {.seen = g_string_new(NULL), .heard = g_byte_array_new()};
    g_assert_cmpint(read_in(tar->data, tar->len, total % 3 ? 1 : G_MAXSIZE, &caps, &seen), ==, QV_TAR_TOTAL_CAP);
    clear(&seen);
  }
}

/* Many entries, deep folders: each path once, and what is kept of them is bounded. */
static void test_many(void)
{
  g_autoptr(GByteArray) tar = g_byte_array_new();
  for (int i = 0; i < 3000; i++) {
    g_autofree char *path = g_strdup_printf("d%d/e%d/f%d", i % 7, i % 100, i);
    add(tar, path, "", FALSE);
  }
  end(tar);
  QvTarCaps caps = {.entries_max = 3000, .total_bytes_max = 4 << 20, .file_bytes_max = 1};
  Seen seen = {.seen = g_string_new(NULL), .heard = g_byte_array_new()};
  g_assert_cmpint(read_in(tar->data, tar->len, G_MAXSIZE, &caps, &seen), ==, QV_TAR_OK);
  clear(&seen);
  g_byte_array_set_size(tar, tar->len - QV_TAR_END_BYTES);
  add(tar, "d0/e0/f0", "", FALSE);
  end(tar);
  caps.entries_max = 3001;
  seen = (Seen){.seen = g_string_new(NULL), .heard = g_byte_array_new()};
  g_assert_cmpint(read_in(tar->data, tar->len, G_MAXSIZE, &caps, &seen), ==, QV_TAR_PATH_TWICE);
  clear(&seen);

  g_autoptr(GByteArray) deep = g_byte_array_new();
  for (int i = 0; i < 60; i++) {
    GString *path = g_string_new(NULL);
    for (int k = 0; k < 250; k++)
      g_string_append_printf(path, "%c%c/", 'a' + i % 26, 'a' + i / 26 + k % 20);
    g_string_append(path, "f");
    add(deep, path->str, "", FALSE);
    g_string_free(path, TRUE);
  }
  end(deep);
  caps.entries_max = 100;
  seen = (Seen){.seen = g_string_new(NULL), .heard = g_byte_array_new()};
  g_assert_cmpint(read_in(deep->data, deep->len, G_MAXSIZE, &caps, &seen), ==, QV_TAR_ENTRIES_CAP);
  clear(&seen);
}

/* Names that differ in a bit or two are different names, be they files or folders. */
static void test_similar(void)
{
  g_autoptr(GByteArray) tar = g_byte_array_new();
  for (int a = 0x21; a < 0x7f; a++) {
    if (a == '.' || a == '/')
      continue;
    for (int b = '0'; b < '8'; b++) {
      g_autofree char *file = g_strdup_printf("%cx%c", a, b), *folder = g_strdup_printf("%cy%c/f", a, b);
      add(tar, file, "", FALSE);
      add(tar, folder, "", FALSE);
    }
  }
  end(tar);
  QvTarCaps caps = {.entries_max = 2000, .total_bytes_max = 4 << 20};
  Seen seen = {.seen = g_string_new(NULL), .heard = g_byte_array_new()};
  g_assert_cmpint(read_in(tar->data, tar->len, G_MAXSIZE, &caps, &seen), ==, QV_TAR_OK);
  clear(&seen);
}

static void test_texts(void)
{
  for (int i = 0; i <= QV_TAR_MEMORY; i++)
    g_assert_true(*qv_tar_reason_text((QvTarReason)i) && g_str_has_prefix(qv_tar_reason_name((QvTarReason)i), "QV_TAR_"));
  g_autoptr(GError) error = NULL;
  qv_tar_set_error(&error, QV_TAR_PATH_CONTROL, "payload", "a\nb\x1b[m");
  g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
  g_assert_cmpstr(error->message, ==, "payload: a\\nb\\x1b[m: a control character in a path");
  g_clear_error(&error);
  qv_tar_set_error(&error, QV_TAR_TOTAL_CAP, "payload", NULL);
  g_assert_error(error, QV_ERROR, QV_ERROR_LIMIT);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/tar/reader/fine", test_fine);
  g_test_add_func("/tar/reader/tap", test_tap);
  g_test_add_func("/tar/reader/headers", test_headers);
  g_test_add_func("/tar/reader/names", test_names);
  g_test_add_func("/tar/reader/pax", test_pax);
  g_test_add_func("/tar/reader/pax-alone", test_pax_alone);
  g_test_add_func("/tar/reader/pax-damage", test_pax_damage);
  g_test_add_func("/tar/reader/ends", test_ends);
  g_test_add_func("/tar/reader/caps", test_caps);
  g_test_add_func("/tar/reader/many", test_many);
  g_test_add_func("/tar/reader/similar", test_similar);
  g_test_add_func("/tar/reader/texts", test_texts);
  return g_test_run();
}
