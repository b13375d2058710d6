/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/footprint.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runner/probes_program.h"

/* A mapping of its own, with advice of its own, is not mapped along with its neighbours. Both are advice: whoever reads
 * it all the same finds it. */
static void leave_probes(void)
{
  guintptr page = (guintptr)sysconf(_SC_PAGESIZE);
  guintptr from = ((guintptr)qv_probes_program + page - 1) / page * page;
  guintptr until = ((guintptr)qv_probes_program + qv_probes_program_n) / page * page;
  if (from >= until)
    return;
  madvise((void *)from, until - from, MADV_RANDOM);
  madvise((void *)from, until - from, MADV_DONTNEED);
}

void qv_footprint_limit(gboolean probes)
{
  mallopt(M_MMAP_THRESHOLD, QV_FOOTPRINT_LARGE_BYTES);
  mallopt(M_ARENA_MAX, 1); /* the one other thread renews locks: it is no rival */
  if (!probes)
    leave_probes();
}
