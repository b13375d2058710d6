/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <glib.h>
#include <string.h>
#include <unistd.h>

#include "entry/input.h"

typedef struct {
  QvEntryInput input;
  int fds[2];
} Fixture;

static void set_up(Fixture *fixture, gconstpointer unused)
{
  g_assert_cmpint(pipe(fixture->fds), ==, 0);
  qv_entry_input_init(&fixture->input, fixture->fds[0]);
}

static void tear_down(Fixture *fixture, gconstpointer unused)
{
  close(fixture->fds[0]);
}

static void feed_and_close(Fixture *fixture, const char *text)
{
  g_assert_cmpint(write(fixture->fds[1], text, strlen(text)), ==, (ssize_t)strlen(text));
  close(fixture->fds[1]);
}

static void test_line_and_bodies(Fixture *fixture, gconstpointer unused)
{
  char line[16];
  feed_and_close(fixture, "a line\nfirstsecond");
  g_assert_cmpint(qv_entry_input_line(&fixture->input, line, sizeof line), ==, 6);
  g_assert_cmpmem(line, 6, "a line", 6);
  size_t n;
  const char *view = qv_entry_input_take(&fixture->input, 5, &n);
  g_assert_cmpmem(view, n, "first", 5);
  g_assert_true(qv_entry_input_skip(&fixture->input, 3));
  view = qv_entry_input_take(&fixture->input, 100, &n);
  g_assert_cmpmem(view, n, "ond", 3);
  g_assert_null(qv_entry_input_take(&fixture->input, 1, &n));
  g_assert_cmpint(errno, ==, ENODATA);
  g_assert_false(qv_entry_input_skip(&fixture->input, 1));
  g_assert_true(qv_entry_input_skip(&fixture->input, 0));
}

static void test_line_of_the_cap(Fixture *fixture, gconstpointer unused)
{
  char line[6];
  feed_and_close(fixture, "sixsix\nsevenxx\n");
  g_assert_cmpint(qv_entry_input_line(&fixture->input, line, sizeof line), ==, 6);
  g_assert_cmpint(qv_entry_input_line(&fixture->input, line, sizeof line), ==, -1);
  g_assert_cmpint(errno, ==, EMSGSIZE);
}

static void test_line_without_end(Fixture *fixture, gconstpointer unused)
{
  char line[16];
  feed_and_close(fixture, "no end");
  g_assert_cmpint(qv_entry_input_line(&fixture->input, line, sizeof line), ==, -1);
  g_assert_cmpint(errno, ==, ENODATA);
}

/* The line holds secrets: no copy of it stays in the buffer. */
static void test_line_is_wiped(Fixture *fixture, gconstpointer unused)
{
  char line[16];
  feed_and_close(fixture, "secret\nrest");
  g_assert_cmpint(qv_entry_input_line(&fixture->input, line, sizeof line), ==, 6);
  g_assert_null(memmem(fixture->input.buffer, 16, "secret", 6));
}

#define ADD(name, func) g_test_add("/entry/input/" name, Fixture, NULL, set_up, func, tear_down)

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  ADD("line-and-bodies", test_line_and_bodies);
  ADD("line-of-the-cap", test_line_of_the_cap);
  ADD("line-without-end", test_line_without_end);
  ADD("line-is-wiped", test_line_is_wiped);
  return g_test_run();
}
