/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the seccomp filter of the process that parses the guest's output. Reads are
 * allowed from the sandbox's stream alone and writes to the job process and
 * stderr alone; memory can be mapped, but not executable. */
#include "runner/unpack_filter.h"

#include <errno.h>
#include <grp.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "runner/unpack.h"

static const int plain_calls[] = {
  SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(brk), SCMP_SYS(madvise), SCMP_SYS(exit_group), SCMP_SYS(futex),
  SCMP_SYS(rt_sigreturn), SCMP_SYS(restart_syscall),
#if defined(__SANITIZE_ADDRESS__)
  SCMP_SYS(sigaltstack), SCMP_SYS(gettid), SCMP_SYS(getpid), SCMP_SYS(sched_yield), SCMP_SYS(rt_sigprocmask),
#endif
};

static int add_rules(scmp_filter_ctx filter)
{
  int status = 0;
  for (gsize i = 0; i < G_N_ELEMENTS(plain_calls) && status == 0; i++)
    status = seccomp_rule_add(filter, SCMP_ACT_ALLOW, plain_calls[i], 0);
  if (status == 0)
    status = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(read), 1, SCMP_A0(SCMP_CMP_EQ, QV_UNPACK_GUEST_FD));
  if (status == 0)
    status = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(write), 1, SCMP_A0(SCMP_CMP_EQ, QV_UNPACK_OUT_FD));
  if (status == 0)
    status = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(write), 1, SCMP_A0(SCMP_CMP_EQ, 2));
  if (status == 0)
    status = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
                              SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
  return status;
}

static gboolean limit(int resource, rlim_t value, const char *what, GError **error)
{
  if (setrlimit(resource, &(struct rlimit){value, value}) == 0)
    return TRUE;
  return qv_error_set_errno(error, errno, "cannot limit %s of the unpack process", what);
}

/* Root without a capability would still own the host's files. */
static gboolean leave_root(GError **error)
{
  pid_t parent = getppid();
  if (geteuid() != 0)
    return TRUE;
  if (setgroups(0, NULL) != 0 || setresgid(QV_UNPACK_UID, QV_UNPACK_UID, QV_UNPACK_UID) != 0 ||
      setresuid(QV_UNPACK_UID, QV_UNPACK_UID, QV_UNPACK_UID) != 0)
    return qv_error_set_errno(error, errno, "cannot become nobody");
  /* A change of user gives up both. */
  prctl(PR_SET_DUMPABLE, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() == parent)
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "the job process is gone");
  return FALSE;
}

gboolean qv_unpack_limits_enter(GError **error)
{
  /* The limit of files holds for a stderr that is one, too: a line of log is lost then (EFBIG), not the process. */
  signal(SIGXFSZ, SIG_IGN);
#if !defined(__SANITIZE_ADDRESS__)
  if (!limit(RLIMIT_AS, QV_UNPACK_MEMORY_BYTES, "the memory", error))
    return FALSE;
#endif
  return limit(RLIMIT_CPU, QV_UNPACK_CPU_SECONDS, "the time", error) && limit(RLIMIT_FSIZE, 0, "files", error) &&
         limit(RLIMIT_NPROC, 0, "processes", error) && leave_root(error);
}

gboolean qv_unpack_filter_enter(GError **error)
{
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
  if (filter == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "no memory for a seccomp filter");
    return FALSE;
  }
  int status = add_rules(filter);
  if (status == 0)
    status = seccomp_load(filter);
  seccomp_release(filter);
  if (status != 0)
    return qv_error_set_errno(error, -status, "cannot load the seccomp filter");
  return TRUE;
}
