/* SPDX-License-Identifier: Apache-2.0 */
/* A plain main for a fuzz target: feeds it every file of the folders named, one case a file, no fuzzer
 * needed. The empty input always comes first. Also replays a crash: replay_NAME FILE. */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

enum { INPUT_BYTES_MAX = 8 * 1024 * 1024 };

static int cases_n;

static void run_file(const char *path)
{
  FILE *file = fopen(path, "rb");
  uint8_t *bytes = malloc(INPUT_BYTES_MAX);
  if (!file || !bytes) {
    printf("not ok %d %s: cannot be read\n", ++cases_n, path);
    exit(1);
  }
  size_t n = fread(bytes, 1, INPUT_BYTES_MAX, file);
  fclose(file);
  /* A copy of exactly that length, so that a sanitizer sees a read behind its end. */
  uint8_t *exact = malloc(n ? n : 1);
  if (!exact)
    abort();
  memcpy(exact, bytes, n);
  free(bytes);
  LLVMFuzzerTestOneInput(exact, n);
  free(exact);
  const char *name = strrchr(path, '/');
  printf("ok %d %s\n", ++cases_n, name ? name + 1 : path);
  fflush(stdout);
}

static int visible(const struct dirent *entry)
{
  return entry->d_name[0] != '.';
}

static void run_path(const char *path)
{
  struct stat status;
  if (stat(path, &status) != 0) {
    printf("ok %d %s # SKIP not here\n", ++cases_n, path);
    return;
  }
  if (S_ISREG(status.st_mode)) {
    run_file(path);
    return;
  }
  struct dirent **entries;
  int n = S_ISDIR(status.st_mode) ? scandir(path, &entries, visible, alphasort) : 0;
  if (n <= 0)
    return;
  for (int i = 0; i < n; i++) {
    char *child = NULL;
    if (asprintf(&child, "%s/%s", path, entries[i]->d_name) < 0)
      abort();
    run_path(child);
    free(child);
    free(entries[i]);
  }
  free(entries);
}

int main(int argc, char **argv)
{
  LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
  printf("ok %d the empty input\n", ++cases_n);
  for (int i = 1; i < argc; i++)
    run_path(argv[i]);
  printf("1..%d\n", cases_n);
  return 0;
}
