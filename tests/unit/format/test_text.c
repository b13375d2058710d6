/* SPDX-License-Identifier: Apache-2.0 */
#include "format/text.h"

#include <stdlib.h>
#include <string.h>

#include "vectors.h"

#define FFFD "\xef\xbf\xbd"

static void check_tail(const char *in, gsize n, gsize max, gboolean cut, const char *wanted)
{
  gsize out_n = 0;
  char *out = qv_text_repair_tail(in, n, max, cut, &out_n);
  g_assert_cmpstr(out, ==, wanted);
  g_assert_cmpuint(out_n, ==, strlen(wanted));
  free(out);
}

static void test_repair(void)
{
  check_tail("", 0, 10, FALSE, "");
  check_tail("plain\n", 6, 10, FALSE, "plain\n");
  check_tail("a\0b\0", 4, 10, FALSE, "ab");
  check_tail("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, 100, FALSE, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  /* The Unicode Standard's own example of maximal subparts (table 3-8). */
  check_tail("a\xf1\x80\x80\xe1\x80\xc2" "b\x80" "c\x80\xbf" "d", 13, 100, FALSE, "a" FFFD FFFD FFFD "b" FFFD "c" FFFD FFFD "d");
  check_tail("\xc0\xaf", 2, 100, FALSE, FFFD FFFD);
  check_tail("\xed\xa0\x80", 3, 100, FALSE, FFFD FFFD FFFD);
  check_tail("\xf4\x90\x80\x80", 4, 100, FALSE, FFFD FFFD FFFD FFFD);
  check_tail("\xe2\x82", 2, 100, FALSE, FFFD);
}

static void test_tail(void)
{
  check_tail("abcdef", 6, 3, FALSE, "def");
  check_tail("abcdef", 6, 0, FALSE, "");
  check_tail("a\xe2\x82\xac" "b", 5, 4, FALSE, "\xe2\x82\xac" "b");
  check_tail("a\xe2\x82\xac" "b", 5, 3, FALSE, "b");
  check_tail("a\xe2\x82\xac" "b", 5, 2, FALSE, "b");
  /* The start is the rest of a character that was cut. */
  check_tail("\x82\xac" "b", 3, 10, TRUE, "b");
  check_tail("\x82\xac" "b", 3, 10, FALSE, FFFD FFFD "b");
  check_tail("\x80\x80\x80\x80" "b", 5, 10, TRUE, FFFD "b");
  check_tail("\x80", 1, 10, TRUE, "");
  /* Invalid bytes grow threefold: the cap is on what comes out. */
  check_tail("\xff\xff\xff\xff", 4, 7, FALSE, FFFD FFFD);
}

static void test_head(void)
{
  gsize n;
  char *head = qv_text_repair_head("a\xe2\x82\xac" "b", 5, 3, &n);
  g_assert_cmpstr(head, ==, "a");
  g_assert_cmpuint(n, ==, 1);
  free(head);
  head = qv_text_repair_head("a\xe2\x82\xac" "b", 5, 4, &n);
  g_assert_cmpstr(head, ==, "a\xe2\x82\xac");
  free(head);
}

static void test_characters(void)
{
  guint32 c;
  g_assert_cmpuint(qv_text_char((const guint8 *)"\xf4\x8f\xbf\xbf", 4, &c), ==, 4);
  g_assert_cmpuint(c, ==, 0x10ffff);
  g_assert_cmpuint(qv_text_char((const guint8 *)"\xee\x80\x80", 3, &c), ==, 3);
  g_assert_cmpuint(c, ==, 0xe000);
  g_assert_cmpuint(qv_text_char((const guint8 *)"\xc2\x80", 2, &c), ==, 2);
  g_assert_cmpuint(c, ==, 0x80);
  g_assert_cmpuint(qv_text_char((const guint8 *)"\xc2\x80", 1, &c), ==, 0);
  g_assert_cmpuint(qv_text_char((const guint8 *)"\xe0\x9f\x80", 3, &c), ==, 0);
  g_assert_true(qv_text_is_utf8("", 0));
  g_assert_true(qv_text_is_utf8("a\0b", 3));
  /* Every code point, written by GLib, is one character; nothing else is. */
  for (guint32 point = 0; point < 0x110000; point += point < 0x3000 ? 1 : 61) {
    char text[6];
    int n = g_unichar_to_utf8(point, text);
    gboolean surrogate = point >= 0xd800 && point < 0xe000;
    g_assert_cmpuint(qv_text_char((const guint8 *)text, (gsize)n, &c), ==, surrogate ? 0 : (gsize)n);
    g_assert_true(surrogate || c == point);
  }
}

static void collect(void *user, const char *text, gsize n)
{
  g_string_append_len(user, text, (gssize)n);
}

static void check_print(const char *in, gsize n, gboolean colours, const char *wanted)
{
  char *out = qv_text_printable(in, n, colours, NULL);
  g_assert_cmpstr(out, ==, wanted);
  free(out);
  for (gsize portion = 1; portion < 8; portion++) {
    GString *pieces = g_string_new(NULL);
    QvTextPrinter printer;
    qv_text_printer_init(&printer, colours, collect, pieces);
    for (gsize at = 0; at < n; at += portion)
      qv_text_printer_add(&printer, in + at, MIN(portion, n - at));
    qv_text_printer_finish(&printer);
    g_assert_cmpstr(pieces->str, ==, wanted);
    g_string_free(pieces, TRUE);
  }
}

static void check(const char *in, gboolean colours, const char *wanted)
{
  check_print(in, strlen(in), colours, wanted);
}

static void test_controls(void)
{
  check("plain \xc3\xa9\n\tx\n", TRUE, "plain \xc3\xa9\n\tx\n");
  check("a\bb\x07" "c\x7f\v\f", TRUE, "a\\x08b\\x07c\\x7f\\x0b\\x0c");
  check_print("a\0b", 3, TRUE, "a\\x00b");
  check("one\r\ntwo\rthree\r", TRUE, "one\ntwo\nthree\n");
  check("\xc2\x9b" "31m\xc2\x85", TRUE, "\\u009b31m\\u0085");
  check("a\xe2\x80\xae" "b\xe2\x81\xa6" "c\xe2\x80\xa8" "d\xef\xbb\xbf" "e\xd8\x9c", TRUE,
        "a\\u202eb\\u2066c\\u2028d\\ufeffe\\u061c");
  check("\xff\xc3(", TRUE, "\\ufffd\\ufffd(");
  check("\xe2\x82", TRUE, "\\ufffd\\ufffd");
}

static gboolean is_printed_as_it_is(gunichar c)
{
  char in[8] = "";
  int n = g_unichar_to_utf8(c, in);
  char *out = qv_text_printable_line(in, (gsize)n);
  gboolean same = strcmp(in, out) == 0;
  g_assert_true(same || *out == '\\');
  free(out);
  return same;
}

/* By GLib's own tables, which may be older than ours, and by the blocks that have such characters. */
static void test_invisible(void)
{
  static const gunichar more[] = {0x34f, 0x115f, 0x180b, 0x180e, 0x200b, 0x2065, 0x3164, 0xffa0, 0xfff0, 0x1343f, 0xe0000, 0xe0041, 0xe0fff},
                        shown[] = {0xa0, 0xe9, 0x0301, 0x180a, 0x2010, 0x2027, 0x202f, 0x205f, 0x2070, 0xfe0f, 0xfffd, 0x1f600};
  for (gunichar c = 0x80; c <= 0x10ffff; c++) {
    GUnicodeType type = g_unichar_type(c);
    if (type == G_UNICODE_FORMAT || type == G_UNICODE_CONTROL || type == G_UNICODE_LINE_SEPARATOR ||
        type == G_UNICODE_PARAGRAPH_SEPARATOR)
      g_assert_false(is_printed_as_it_is(c));
    else if (type != G_UNICODE_SURROGATE && g_unichar_isgraph(c) && !g_unichar_iszerowidth(c))
      g_assert_true(is_printed_as_it_is(c) || c == 0x3164 || c == 0xffa0 || c == 0x115f);
  }
  for (gsize i = 0; i < G_N_ELEMENTS(more); i++)
    g_assert_false(is_printed_as_it_is(more[i]));
  for (gsize i = 0; i < G_N_ELEMENTS(shown); i++)
    g_assert_true(is_printed_as_it_is(shown[i]));
  check("a\xc2\xad" "b\xe2\x81\xa0" "c\xf3\xa0\x81\x81" "d\xe2\x80\x8d" "e", TRUE, "a\\u00adb\\u2060c\\U000e0041d\\u200de");
  check("\xe2\x80\x8b::error::y", TRUE, "\\u200b::error::y"); /* nothing is trimmed off its start any more */
}

static void test_colours(void)
{
  check("\x1b[31mred\x1b[0m", TRUE, "\x1b[31mred\x1b[0m\x1b[0m");
  check("\x1b[31mred\x1b[0m", FALSE, "\\x1b[31mred\\x1b[0m");
  check("\x1b[mx\x1b[1;38;5;200;48;2;1;2;3m", TRUE, "\x1b[mx\x1b[1;38;5;200;48;2;1;2;3m\x1b[0m");
  check("\x1b[8mhidden\x1b[5m", TRUE, "\\x1b[8mhidden\\x1b[5m");
  check("\x1b[2J\x1b[1A\x1b[H\x1b[?25l\x1b[6n", TRUE, "\\x1b[2J\\x1b[1A\\x1b[H\\x1b[?25l\\x1b[6n");
  check("\x1b]0;title\x07\x1b]8;;file:///x\x1b\\", TRUE, "\\x1b]0;title\\x07\\x1b]8;;file:///x\\x1b\\");
  check("\x1b" "c\x1bP\x1b", TRUE, "\\x1bc\\x1bP\\x1b");
  check("\x1b[38;5m\x1b[38m\x1b[999999999999m", TRUE, "\\x1b[38;5m\\x1b[38m\\x1b[999999999999m");
  check("\x1b[1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1m", TRUE, "\\x1b[1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1m");
}

static void test_ci_commands(void)
{
  check("::set-output name=a::b\n", TRUE, "\\x3a:set-output name=a::b\n");
  check("x\n  \t::error::y", TRUE, "x\n  \t\\x3a:error::y");
  check("\xe3\x80\x80::error::y", TRUE, "\xe3\x80\x80\\x3a:error::y");
  check("\r::error::y", TRUE, "\n\\x3a:error::y");
  check("\x1b[1m::error::y", TRUE, "\x1b[1m\\x3a:error::y\x1b[0m");
  check("std::string a::b :: :::", TRUE, "std::string a::b :: :::");
  check(":x\n:", TRUE, ":x\n:");
  check(":::", TRUE, "\\x3a::");
  check("##[group]a", TRUE, "\\x23#[group]a");
  check("text ##[error]a", TRUE, "text \\x23#[error]a");
  check("###[x]", TRUE, "#\\x23#[x]");
  check("##vso[task.setvariable]x", TRUE, "\\x23#vso[task.setvariable]x");
  check("##teamcity[x]", TRUE, "\\x23#teamcity[x]");
  check("# a ## b ### c [x] ##1[", TRUE, "# a ## b ### c [x] ##1[");
  check("##", TRUE, "##");
  g_autofree char *letters = g_strnfill(100, 'a'), *in = g_strconcat("##", letters, "[x]", NULL),
                  *wanted = g_strconcat("\\x23#", letters, "[x]", NULL);
  check(in, TRUE, wanted);
}

static void test_line(void)
{
  char *line = qv_text_printable_line("a\nb\tc\r\x1b[31m", 11);
  g_assert_cmpstr(line, ==, "a\\nb\\tc\\n\\x1b[31m");
  free(line);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/text/repair", test_repair);
  g_test_add_func("/text/tail", test_tail);
  g_test_add_func("/text/head", test_head);
  g_test_add_func("/text/characters", test_characters);
  g_test_add_func("/text/controls", test_controls);
  g_test_add_func("/text/invisible", test_invisible);
  g_test_add_func("/text/colours", test_colours);
  g_test_add_func("/text/ci-commands", test_ci_commands);
  g_test_add_func("/text/line", test_line);
  return g_test_run();
}
