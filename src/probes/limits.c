/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the probes of limits: those that the sandbox survives answer, the others are seen by the host. */
#include "probes/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "probes/answer.h"

enum { FORKS_MAX = 3000, HOG_MIB = 1024 };
#define MIB ((size_t)1024 * 1024)

int qv_limit_forks(void)
{
  static pid_t made[FORKS_MAX];
  size_t n = 0;
  int error = 0;
  while (n < FORKS_MAX && error == 0) {
    pid_t pid = fork();
    if (pid == 0)
      for (;;)
        pause();
    if (pid < 0)
      error = errno;
    else
      made[n++] = pid;
  }
  for (size_t i = 0; i < n; i++)
    kill(made[i], SIGKILL);
  while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
    ;
  printf("probe forks %s\n", error == 0 ? "OK" : strerrorname_np(error));
  return 0;
}

static long long now_ms(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int qv_limit_burn(int ms)
{
  long long until = now_ms() + ms;
  pid_t other = fork();
  while (now_ms() < until)
    ;
  if (other == 0)
    _exit(0);
  waitpid(other, NULL, 0);
  return other < 0;
}

int qv_limit_hog(void)
{
  for (int i = 0; i < HOG_MIB; i++) {
    char *bytes = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED)
      return 3;
    memset(bytes, i + 1, MIB);
  }
  return 0;
}

/* ---- asked among the facts */

/* The error that ends the writing; OK where MAX bytes fit. The file is gone afterwards. */
static void answer_fill(const char *path, size_t max)
{
  static char block[65536];
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  int error = fd < 0 ? errno : 0;
  memset(block, 'x', sizeof block);
  for (size_t total = 0; error == 0 && total < max;) {
    ssize_t n = write(fd, block, sizeof block);
    if (n < 0)
      error = errno;
    else
      total += (size_t)n;
  }
  unlink(path);
  if (error == 0)
    qv_answer("OK");
  else
    qv_answer_error(error);
}

void qv_probe_workspace_full(void)
{
  answer_fill("/workspace/home/.fill", 256 * MIB);
}

void qv_probe_tmp_full(void)
{
  answer_fill("/tmp/.fill", 512 * MIB);
}

void qv_probe_shm_full(void)
{
  answer_fill("/dev/shm/.fill", 256 * MIB);
}

void qv_probe_core_limit(void)
{
  struct rlimit limit = {0};
  getrlimit(RLIMIT_CORE, &limit);
  qv_answer_number((long long)limit.rlim_max);
}

void qv_probe_open_files(void)
{
  struct rlimit limit = {0};
  getrlimit(RLIMIT_NOFILE, &limit);
  qv_answer(limit.rlim_max == RLIM_INFINITY || limit.rlim_max > 1048576 ? "UNLIMITED" : "LIMITED");
}

void qv_probe_cpus(void)
{
  const char *cpus = getenv("QUAVON_CPUS");
  qv_answer(cpus != NULL ? cpus : "NONE");
}
