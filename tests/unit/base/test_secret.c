/* SPDX-License-Identifier: Apache-2.0 */
/* A secret's pages: locked and out of dumps as the kernel reports them, wiped
 * in a child, gone after the free. */
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/secret.h"

static void test_value(void)
{
  char source[] = "0123456789abcdef0123456789abcdef";
  g_autoptr(QvSecret) a = qv_secret_new_copy(source, 32);
  g_autoptr(QvSecret) b = qv_secret_new_take(source, 32);
  g_autoptr(QvSecret) c = qv_secret_dup(a);
  g_assert_cmpuint(qv_secret_len(a), ==, 32);
  for (gsize i = 0; i < 32; i++)
    g_assert_cmpint(source[i], ==, 0);
  g_assert_true(qv_secret_equal(a, b));
  g_assert_true(qv_secret_equal(a, c));
  qv_secret_bytes_mut(c)[31] ^= 1;
  g_assert_false(qv_secret_equal(a, c));
  g_autoptr(QvSecret) shorter = qv_secret_new_copy(qv_secret_bytes(a), 31);
  g_assert_false(qv_secret_equal(a, shorter));
  qv_secret_free(NULL);
}

/* The VmFlags line of the mapping that holds ADDRESS, or NULL. */
static char *flags_of(const void *address)
{
  g_autofree char *maps = NULL;
  g_assert_true(g_file_get_contents("/proc/self/smaps", &maps, NULL, NULL));
  g_auto(GStrv) lines = g_strsplit(maps, "\n", -1);
  gboolean inside = FALSE;
  for (char **line = lines; *line != NULL; line++) {
    unsigned long from, to;
    if (sscanf(*line, "%lx-%lx ", &from, &to) == 2)
      inside = (unsigned long)address >= from && (unsigned long)address < to;
    else if (inside && g_str_has_prefix(*line, "VmFlags:"))
      return g_strconcat(*line, " ", NULL);
  }
  return NULL;
}

static void test_pages(void)
{
  QvSecret *secret = qv_secret_new_copy("x", 1);
  g_autofree char *flags = flags_of(qv_secret_bytes(secret));
  g_assert_nonnull(flags);
  g_assert_nonnull(strstr(flags, " dd "));
  g_assert_nonnull(strstr(flags, " wf "));
  /* Whether a lock works here: the address sanitizer has none, and the limit may be zero. */
  void *probe = mmap(NULL, 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  g_assert_true(probe != MAP_FAILED);
  (void)mlock(probe, 1);
  g_autofree char *probe_flags = flags_of(probe);
  g_assert_cmpint(strstr(flags, " lo ") != NULL, ==, strstr(probe_flags, " lo ") != NULL);
  munmap(probe, 1);
  qv_secret_free(secret);
}

static void test_child(void)
{
  g_autoptr(QvSecret) secret = qv_secret_new_copy("secret", 6);
  pid_t child = fork();
  if (child == 0)
    _exit(qv_secret_bytes(secret)[0] == 0 && qv_secret_len(secret) == 0 ? 0 : 1);
  int status;
  g_assert_cmpint(waitpid(child, &status, 0), ==, child);
  g_assert_cmpint(status, ==, 0);
  g_assert_cmpmem(qv_secret_bytes(secret), 6, "secret", 6);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/secret/value", test_value);
  g_test_add_func("/secret/pages", test_pages);
  g_test_add_func("/secret/child", test_child);
  return g_test_run();
}
