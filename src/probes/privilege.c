/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the probes of privilege: who the process is, and that it cannot become anybody else. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probes/answer.h"

void qv_probe_ids(void)
{
  char text[96];
  uid_t uid[3];
  gid_t gid[3];
  gid_t groups[64];
  int groups_n = getgroups(64, groups), others = 0;
  getresuid(&uid[0], &uid[1], &uid[2]);
  getresgid(&gid[0], &gid[1], &gid[2]);
  for (int i = 0; i < groups_n; i++)
    others += groups[i] != gid[0];
  snprintf(text, sizeof text, "%u:%u:%u/%u:%u:%u/%d", uid[0], uid[1], uid[2], gid[0], gid[1], gid[2],
           groups_n < 0 ? -1 : others);
  qv_answer(text);
}

static void answer_caps(const char *name)
{
  char value[64];
  qv_answer(qv_proc_value("/proc/self/status", name, value, sizeof value) ? value : "ABSENT");
}

void qv_probe_cap_inheritable(void)
{
  answer_caps("CapInh");
}

void qv_probe_cap_permitted(void)
{
  answer_caps("CapPrm");
}

void qv_probe_cap_effective(void)
{
  answer_caps("CapEff");
}

void qv_probe_cap_bounding(void)
{
  answer_caps("CapBnd");
}

void qv_probe_cap_ambient(void)
{
  answer_caps("CapAmb");
}

/* Of process 1, from which every step descends. */
void qv_probe_init_caps(void)
{
  char value[64];
  qv_answer(qv_proc_value("/proc/1/status", "CapPrm", value, sizeof value) ? value : "ABSENT");
}

void qv_probe_capset(void)
{
  struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct data[2] = {{~0u, ~0u, ~0u}, {~0u, ~0u, ~0u}};
  qv_answer_result(syscall(SYS_capset, &head, data));
}

void qv_probe_no_new_privs(void)
{
  int value = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
  if (value < 0)
    qv_answer_error(errno);
  else
    qv_answer_number(value);
}

void qv_probe_setuid_root(void)
{
  qv_answer_result(setuid(0));
}

void qv_probe_setgid_root(void)
{
  qv_answer_result(setgid(0));
}

void qv_probe_setgroups(void)
{
  gid_t root = 0;
  qv_answer_result(setgroups(1, &root));
}

static int copy_self(const char *path, mode_t mode)
{
  char bytes[65536];
  ssize_t n = -1;
  int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  int to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
  while (from >= 0 && to >= 0 && (n = read(from, bytes, sizeof bytes)) > 0)
    if (write(to, bytes, (size_t)n) != n)
      return -1;
  int status = to >= 0 && n == 0 ? fchmod(to, mode) : -1;
  close(from);
  close(to);
  return status;
}

void qv_probe_chown_root(void)
{
  static const char path[] = "/tmp/.probe-chown";
  close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  long result = chown(path, 0, 0);
  int error = errno;
  unlink(path);
  errno = error;
  qv_answer_result(result);
}

/* The copy prints its effective user id itself. */
static void answer_suid(const char *path)
{
  if (copy_self(path, 04755) != 0) {
    qv_answer_error(errno);
    return;
  }
  pid_t pid = fork();
  if (pid == 0) {
    execl(path, path, "euid", (char *)NULL);
    qv_answer_error(errno);
    _exit(0);
  }
  waitpid(pid, NULL, 0);
  unlink(path);
}

void qv_probe_suid_workspace(void)
{
  answer_suid("/workspace/home/.probe-suid");
}

void qv_probe_suid_tmp(void)
{
  answer_suid("/tmp/.probe-suid");
}

/* Test suites build and run there: this must work. */
void qv_probe_exec_memfd(void)
{
  char bytes[65536], path[64];
  ssize_t n;
  int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  int to = (int)syscall(SYS_memfd_create, "probe", 0);
  while ((n = read(from, bytes, sizeof bytes)) > 0)
    if (write(to, bytes, (size_t)n) != n)
      break;
  snprintf(path, sizeof path, "/proc/self/fd/%d", to);
  execl(path, path, "euid", (char *)NULL);
  qv_answer_error(errno);
}
