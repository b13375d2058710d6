/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the list of what a job process may no longer do. A list of refusals, not of
 * permissions: the process runs GLib's main loop, libcurl and libcrypto, whose calls differ by release. */
#include "runner/drop.h"

#include <errno.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"

static const int refused[] = {
  SCMP_SYS(execve), SCMP_SYS(execveat),
#if !defined(__SANITIZE_ADDRESS__) /* the search for leaks at the end of the process traces its threads */
  SCMP_SYS(ptrace),
#endif
  SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev), SCMP_SYS(kcmp), SCMP_SYS(pidfd_getfd),
  SCMP_SYS(mount), SCMP_SYS(umount2), SCMP_SYS(pivot_root), SCMP_SYS(chroot), SCMP_SYS(move_mount), SCMP_SYS(open_tree),
  SCMP_SYS(fsopen), SCMP_SYS(fsconfig), SCMP_SYS(fsmount), SCMP_SYS(mount_setattr),
  SCMP_SYS(unshare), SCMP_SYS(setns),
  SCMP_SYS(init_module), SCMP_SYS(finit_module), SCMP_SYS(delete_module), SCMP_SYS(kexec_load), SCMP_SYS(kexec_file_load),
  SCMP_SYS(bpf), SCMP_SYS(perf_event_open), SCMP_SYS(userfaultfd), SCMP_SYS(io_uring_setup),
  SCMP_SYS(keyctl), SCMP_SYS(add_key), SCMP_SYS(request_key),
  SCMP_SYS(open_by_handle_at), SCMP_SYS(reboot), SCMP_SYS(swapon), SCMP_SYS(swapoff), SCMP_SYS(acct), SCMP_SYS(quotactl),
  SCMP_SYS(settimeofday), SCMP_SYS(clock_settime), SCMP_SYS(sethostname), SCMP_SYS(setdomainname), SCMP_SYS(mknod),
  SCMP_SYS(mknodat), SCMP_SYS(setuid), SCMP_SYS(setresuid), SCMP_SYS(setreuid),
};

static gboolean drop_capabilities(GError **error)
{
  struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
  const guint32 kept = 1u << CAP_KILL;
  struct __user_cap_data_struct data[2] = {{.effective = kept, .permitted = kept}, {0}};
  /* The bounding set first: it needs CAP_SETPCAP. A capability that this kernel does not know ends the loop. */
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++)
    if (capability != CAP_KILL && prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 && errno != EPERM)
      return qv_error_set_errno(error, errno, "cannot drop capability %d", capability);
  if (syscall(SYS_capset, &head, data) != 0)
    return qv_error_set_errno(error, errno, "cannot drop capabilities");
  return TRUE;
}

static gboolean enter_filter(GError **error)
{
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  int status = filter != NULL ? 0 : -ENOMEM;
  for (gsize i = 0; i < G_N_ELEMENTS(refused) && status == 0; i++)
    status = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), refused[i], 0);
  /* Every thread: GLib has one that waits for children. */
  if (status == 0)
    status = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
  if (status == 0)
    status = seccomp_load(filter);
  seccomp_release(filter);
  if (status != 0)
    return qv_error_set_errno(error, -status, "cannot load the job process's filter");
  return TRUE;
}

gboolean qv_drop_after_start(GError **error)
{
  if (geteuid() != 0)
    return TRUE;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return qv_error_set_errno(error, errno, "no_new_privs");
  return drop_capabilities(error) && enter_filter(error);
}
