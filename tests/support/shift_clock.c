/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a program whose clock is to be wrong: QV_SHIFT_CLOCK_S seconds are added to the time of day; where
 * QV_SHIFT_CLOCK_WHILE names a file, while that is there. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift_s(void)
{
  const char *text = getenv("QV_SHIFT_CLOCK_S"), *file = getenv("QV_SHIFT_CLOCK_WHILE");
  if (file != NULL && syscall(SYS_faccessat, AT_FDCWD, file, F_OK) != 0)
    return 0;
  return text != NULL ? strtol(text, NULL, 10) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
  int status = (int)syscall(SYS_clock_gettime, clock, now);
  if (status == 0 && clock == CLOCK_REALTIME)
    now->tv_sec += shift_s();
  return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
  struct timespec exact;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &exact) != 0)
    return -1;
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out)
{
  struct timespec exact;
  if (clock_gettime(CLOCK_REALTIME, &exact) != 0)
    return -1;
  if (out != NULL)
    *out = exact.tv_sec;
  return exact.tv_sec;
}
