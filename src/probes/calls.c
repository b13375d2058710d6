/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the probes that make a system call which must be refused, or must fail
 * in the way that this kernel fails it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/quota.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "probes/answer.h"

/* Numbers that older headers lack; x86-64 and arm64 share them. */
#define NR_PIDFD_OPEN 434
#define NR_OPEN_TREE 428
#define NR_FSOPEN 430
#define NR_IO_URING_SETUP 425
#define NR_MOUNT_SETATTR 442
#define NR_LANDLOCK_CREATE_RULESET 444
#define NR_MEMFD_SECRET 447
#define NR_CACHESTAT 451

static char buffer[4096] __attribute__((aligned(4096)));

#define CALL(name, expression)                 \
  void qv_probe_##name(void)                   \
  {                                            \
    qv_answer_result((long)(expression));      \
  }

CALL(mount_tmpfs, mount("tmpfs", "/tmp", "tmpfs", 0, ""))
CALL(remount_root, mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL))
CALL(mount_proc, mount("proc", "/workspace/home", "proc", 0, ""))
CALL(umount_proc, umount2("/proc", MNT_DETACH))
CALL(umount_workspace, umount2("/workspace", MNT_DETACH))
CALL(pivot_root, syscall(SYS_pivot_root, "/tmp", "/tmp"))
CALL(chroot, chroot("/tmp"))
CALL(unshare_user, unshare(CLONE_NEWUSER))
CALL(unshare_mount, unshare(CLONE_NEWNS))
CALL(unshare_net, unshare(CLONE_NEWNET))
CALL(setns_init_net, setns(open("/proc/1/ns/net", O_RDONLY | O_CLOEXEC), CLONE_NEWNET))
CALL(add_key, syscall(SYS_add_key, "user", "probe", "x", 1, -2))
CALL(request_key, syscall(SYS_request_key, "user", "probe", NULL, -2))
CALL(init_module, syscall(SYS_init_module, buffer, sizeof buffer, ""))
CALL(finit_module, syscall(SYS_finit_module, open("/proc/self/exe", O_RDONLY | O_CLOEXEC), "", 0))
CALL(delete_module, syscall(SYS_delete_module, "probe", O_NONBLOCK))
CALL(kexec_load, syscall(SYS_kexec_load, 0, 0, NULL, ~0ul))
CALL(reboot, syscall(SYS_reboot, 1, 2, 0, NULL)) /* wrong magic numbers: nothing can happen */
CALL(swapon, syscall(SYS_swapon, "/workspace/none", 0))
CALL(acct, syscall(SYS_acct, NULL))
CALL(quotactl, syscall(SYS_quotactl, QCMD(Q_QUOTAON, USRQUOTA), "/dev/none", 0, "/none"))
CALL(userfaultfd, syscall(SYS_userfaultfd, 0))
CALL(io_uring, syscall(NR_IO_URING_SETUP, 1, buffer))
CALL(fsopen, syscall(NR_FSOPEN, "tmpfs", 0))
CALL(open_tree, syscall(NR_OPEN_TREE, AT_FDCWD, "/", 1))
CALL(mount_setattr, syscall(NR_MOUNT_SETATTR, AT_FDCWD, "/", 0, buffer, 32))
CALL(fanotify, syscall(SYS_fanotify_init, 0, 0))
CALL(pidfd_open_init, syscall(NR_PIDFD_OPEN, 1, 0))
CALL(landlock, syscall(NR_LANDLOCK_CREATE_RULESET, NULL, 0, 1))
CALL(memfd_secret, syscall(NR_MEMFD_SECRET, 0))
CALL(cachestat, syscall(NR_CACHESTAT, 0, NULL, NULL, 0))
CALL(vmsplice, syscall(SYS_vmsplice, 1, &(struct iovec){buffer, 0}, 1, 0))
CALL(kcmp, syscall(SYS_kcmp, 1, getpid(), 0, 0, 0))
CALL(ptrace_init, ptrace(PTRACE_SEIZE, 1, NULL, NULL))
CALL(sethostname, syscall(SYS_sethostname, "probe", 5))
CALL(setdomainname, syscall(SYS_setdomainname, "probe", 5))
CALL(syslog_clear, syscall(SYS_syslog, 5, NULL, 0))
CALL(personality, syscall(SYS_personality, 0x0040000))

#if defined(__x86_64__)
CALL(iopl, syscall(SYS_iopl, 3))
CALL(ioperm, syscall(SYS_ioperm, 0x80, 1, 1))
#else
/* No such calls on this architecture: what an unprivileged process gets elsewhere. */
void qv_probe_iopl(void)
{
  qv_answer("EPERM");
}

void qv_probe_ioperm(void)
{
  qv_answer("EPERM");
}
#endif

void qv_probe_unshare_user_mount(void)
{
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
    qv_answer_error(errno);
    return;
  }
  /* Inside a namespace of its own it may mount, but must not reach what the sandbox does not show it. */
  qv_answer_result(mount("/dev/sda", "/tmp", "ext4", 0, "") == 0 ? 0 : mount("none", "/tmp", "tmpfs", 0, ""));
}

void qv_probe_clone3_user(void)
{
  struct clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
  long pid = syscall(SYS_clone3, &args, sizeof args);
  if (pid == 0)
    _exit(0);
  qv_answer_result(pid);
}

void qv_probe_bpf(void)
{
  union bpf_attr attr = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
  qv_answer_result(syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof attr));
}

void qv_probe_perf_event(void)
{
  struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE, .size = sizeof attr, .config = PERF_COUNT_SW_CPU_CLOCK};
  qv_answer_result(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0));
}

void qv_probe_process_vm_init(void)
{
  struct iovec local = {buffer, 8}, remote = {(void *)(uintptr_t)0x400000, 8};
  qv_answer_result(process_vm_readv(1, &local, 1, &remote, 1, 0));
}

void qv_probe_clock_settime(void)
{
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  qv_answer_result(clock_settime(CLOCK_REALTIME, &now));
}

void qv_probe_adjtimex(void)
{
  struct timex change = {.modes = ADJ_FREQUENCY};
  qv_answer_result(adjtimex(&change));
}

void qv_probe_name_to_handle(void)
{
  struct {
    struct file_handle head;
    char bytes[128];
  } handle = {.head.handle_bytes = 128};
  int mount_id;
  qv_answer_result(name_to_handle_at(AT_FDCWD, "/", &handle.head, &mount_id, 0));
}

void qv_probe_open_by_handle(void)
{
  struct {
    struct file_handle head;
    char bytes[128];
  } handle = {.head = {.handle_bytes = 8, .handle_type = 1}};
  int fd = open("/", O_RDONLY | O_CLOEXEC);
  qv_answer_result(open_by_handle_at(fd, &handle.head, O_RDONLY));
}

/* Making a node is no harm where opening it is refused: the answer is that of the open. */
static void answer_node(const char *path, mode_t type, unsigned major_n, unsigned minor_n)
{
  unlink(path);
  int made = mknod(path, type | 0600, makedev(major_n, minor_n));
  int error = errno;
  int fd = made == 0 ? open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK) : -1;
  if (made == 0)
    error = errno;
  unlink(path);
  if (fd >= 0)
    qv_answer("OPENED");
  else
    qv_answer_error(error);
}

void qv_probe_node_mem(void)
{
  answer_node("/tmp/.probe-mem", S_IFCHR, 1, 1);
}

void qv_probe_node_disk(void)
{
  answer_node("/tmp/.probe-disk", S_IFBLK, 8, 0);
}

void qv_probe_node_kmsg(void)
{
  answer_node("/workspace/home/.probe-kmsg", S_IFCHR, 1, 11);
}

void qv_probe_node_kvm(void)
{
  answer_node("/workspace/home/.probe-kvm", S_IFCHR, 10, 232);
}
