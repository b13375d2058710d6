/* SPDX-License-Identifier: Apache-2.0 */
/* The words of each stage, on a terminal (one line, written again) and without one (a line a change). */
#include "cli/progress.h"

#include <fcntl.h>
#include <pty.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const QuavonProgress stages[] = {
  { .stage = QUAVON_STAGE_PACKING, .done = 1, .total = 2 },
  { .stage = QUAVON_STAGE_PACKED, .done = 2, .total = 10, .detail = "1 symbolic link" },
  { .stage = QUAVON_STAGE_SENDING, .done = 5, .total = 10 },
  { .stage = QUAVON_STAGE_WAITING },
  { .stage = QUAVON_STAGE_WAITING, .elapsed_ms = 200 },
  { .stage = QUAVON_STAGE_PREPARING, .elapsed_ms = 400 },
  { .stage = QUAVON_STAGE_SETUP, .elapsed_ms = 600 },
  { .stage = QUAVON_STAGE_STEP, .done = 1, .total = 2, .elapsed_ms = 800 },
  { .stage = QUAVON_STAGE_STEP, .done = 2, .total = 2, .elapsed_ms = 1000, .detail = "test" },
  { .stage = QUAVON_STAGE_FINISHING, .elapsed_ms = 1200 },
};

/* What the stages write where THEIRS is standard error; closes both. Short: the terminal or pipe holds it all. */
static char *shown(int ours, int theirs)
{
  fflush(stderr);
  int kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
  g_assert_cmpint(kept, >=, 0);
  g_assert_cmpint(dup2(theirs, STDERR_FILENO), ==, STDERR_FILENO);
  close(theirs);
  QvProgress progress;
  qv_progress_init(&progress, FALSE, NULL);
  for (guint i = 0; i < G_N_ELEMENTS(stages); i++)
    qv_progress_show(&stages[i], &progress);
  qv_progress_end_line(&progress);
  fflush(stderr);
  dup2(kept, STDERR_FILENO);
  close(kept);
  GString *text = g_string_new(NULL);
  char buffer[512];
  for (ssize_t n; (n = read(ours, buffer, sizeof buffer)) > 0;)
    g_string_append_len(text, buffer, n);
  close(ours);
  return g_string_free(text, FALSE);
}

static char *shown_on_terminal(const char *term)
{
  int ours = -1, theirs = -1;
  g_assert_cmpint(openpty(&ours, &theirs, NULL, NULL, NULL), ==, 0);
  g_setenv("TERM", term, TRUE);
  return shown(ours, theirs);
}

static void has_all(const char *text, const char *const *parts)
{
  for (; *parts != NULL; parts++) {
    const char *at = strstr(text, *parts);
    if (at == NULL)
      g_error("no \"%s\" (in its place) in:\n%s", *parts, text);
    text = at + strlen(*parts);
  }
}

static const char *const plain_lines[] = {
  "quavon: packing (0.0 s)", "quavon: packed 2 files, 10", "; left out: 1 symbolic link (0.0 s)",
  "quavon: sending (0.0 s)", "quavon: waiting for a runner (0.0 s)", "quavon: preparing the sandbox (0.4 s)",
  "quavon: setup (0.6 s)", "quavon: step 1 of 2 (0.8 s)", "quavon: step 2 of 2: test (1.0 s)",
  "quavon: finishing (1.2 s)", NULL,
};

static void test_terminal(void)
{
  static const char *const lines[] = {
    "packing 1 of 2 files, 0.0 s\r\033[K", "quavon: packed 2 files, 10", "; left out: 1 symbolic link (0.0 s)\r\n",
    "sending 50 %, 0.0 s\r\033[K", "waiting for a runner, 0.0 s\r\033[K", "waiting for a runner, 0.2 s\r\033[K",
    "preparing the sandbox, 0.4 s\r\033[K", "setup, 0.6 s\r\033[K", "step 1 of 2, 0.8 s\r\033[K",
    "step 2 of 2: test, 1.0 s\r\033[K", "finishing, 1.2 s\r\033[K", NULL,
  };
  g_autofree char *text = shown_on_terminal("xterm");
  has_all(text, lines);
  g_assert_true(g_str_has_suffix(text, "\033[K"));
}

static void test_dumb(void)
{
  g_autofree char *text = shown_on_terminal("dumb");
  has_all(text, plain_lines);
  g_assert_null(strchr(text, '\033'));
}

static void test_plain(void)
{
  int ends[2];
  g_assert_cmpint(pipe2(ends, O_CLOEXEC), ==, 0);
  g_setenv("TERM", "xterm", TRUE);
  g_autofree char *text = shown(ends[0], ends[1]);
  has_all(text, plain_lines);
  g_assert_null(strpbrk(text, "\r\033"));
  g_assert_null(strstr(text, "(0.2 s)")); /* nothing new */
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/progress/terminal", test_terminal);
  g_test_add_func("/progress/dumb", test_dumb);
  g_test_add_func("/progress/plain", test_plain);
  return g_test_run();
}
