/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a program whose clock is to be wrong: QV_SHIFT_CLOCK_S seconds are added to the time of day, and
 * QV_SHIFT_MONOTONIC_S to the clock that timers follow; where QV_SHIFT_CLOCK_WHILE names a file, while that is there. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift_s(clockid_t clock)
{
  const char *file = getenv("QV_SHIFT_CLOCK_WHILE");
  const char *text = clock == CLOCK_REALTIME    ? getenv("QV_SHIFT_CLOCK_S")
                     : clock == CLOCK_MONOTONIC ? getenv("QV_SHIFT_MONOTONIC_S") : NULL;
  if (text == NULL)
    return 0;
  if (file != NULL && syscall(SYS_faccessat, AT_FDCWD, file, F_OK) != 0)
    return 0;
  return strtol(text, NULL, 10);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
  int status = (int)syscall(SYS_clock_gettime, clock, now);
  if (status == 0)
    now->tv_sec += shift_s(clock);
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
