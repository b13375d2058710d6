/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the probes of the kernel's identity: what it says of itself, and what
 * it is by the way it behaves, which a runtime that only prints another kernel's words cannot change. */
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/klog.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "probes/answer.h"
#include "sandbox/probe_text.h"

static void answer_file(const char *path)
{
  char text[512];
  long n = qv_slurp(path, text, sizeof text);
  if (n < 0)
    qv_answer_error(errno);
  else
    qv_answer(text);
}

void qv_probe_uname_release(void)
{
  struct utsname name;
  uname(&name);
  qv_answer(name.release);
}

void qv_probe_proc_version(void)
{
  answer_file("/proc/version");
}

void qv_probe_boot_id(void)
{
  answer_file("/proc/sys/kernel/random/boot_id");
}

void qv_probe_proc_cmdline(void)
{
  answer_file("/proc/cmdline");
}

void qv_probe_kernel_log(void)
{
  static char text[262144];
  int n = klogctl(3 /* read all */, text, sizeof text - 1);
  if (n < 0)
    qv_answer_error(errno);
  else
    qv_answer(strstr(text, "Starting gVisor") != NULL ? "GVISOR" : "OTHER");
}

void qv_probe_sentry_meminfo(void)
{
  qv_answer_result(access("/proc/sentry-meminfo", F_OK));
}

void qv_probe_vdso(void)
{
  char hash[QV_VDSO_HASH_CAP];
  qv_vdso_hash(getauxval(AT_SYSINFO_EHDR), hash);
  qv_answer(hash);
}

void qv_probe_monotonic_age(void)
{
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  qv_answer_number(now.tv_sec);
}

void qv_probe_sysinfo_age(void)
{
  struct sysinfo info;
  sysinfo(&info);
  qv_answer_number(info.uptime);
}

void qv_probe_proc_uptime(void)
{
  char text[128];
  if (qv_slurp("/proc/uptime", text, sizeof text) < 0)
    qv_answer_error(errno);
  else
    qv_answer_number(strtoll(text, NULL, 10));
}

void qv_probe_filesystems(void)
{
  static const char *const foreign[] = {"ext4", "xfs", "btrfs", "bpf", "cgroup2", "debugfs", "tracefs", "fuseblk"};
  char text[8192];
  if (qv_slurp("/proc/filesystems", text, sizeof text) < 0) {
    qv_answer_error(errno);
    return;
  }
  for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
    if (strstr(text, foreign[i]) != NULL) {
      qv_answer(foreign[i]);
      return;
    }
  }
  qv_answer("NONE");
}

/* ENOENT, EMPTY, ZERO (addresses without a digit but 0), DATA. */
static void answer_addresses(const char *path)
{
  char text[4096];
  long n = qv_slurp(path, text, sizeof text);
  if (n < 0) {
    qv_answer_error(errno);
    return;
  }
  const char *what = n == 0 ? "EMPTY" : "ZERO";
  for (char *line = text; n > 0 && *line != '\0'; line += strcspn(line, "\n") + (strchr(line, '\n') != NULL))
    if (strtoull(line, NULL, 16) != 0)
      what = "DATA";
  qv_answer(what);
}

void qv_probe_kallsyms(void)
{
  answer_addresses("/proc/kallsyms");
}

void qv_probe_iomem(void)
{
  answer_addresses("/proc/iomem");
}

static void answer_content(const char *path)
{
  char text[256];
  long n = qv_slurp(path, text, sizeof text);
  if (n < 0)
    qv_answer_error(errno);
  else
    qv_answer(n == 0 ? "EMPTY" : "DATA");
}

void qv_probe_modules(void)
{
  answer_content("/proc/modules");
}

void qv_probe_kernel_config(void)
{
  answer_content("/proc/config.gz");
}

void qv_probe_kmsg(void)
{
  answer_content("/proc/kmsg");
}

void qv_probe_interrupts(void)
{
  answer_content("/proc/interrupts");
}

void qv_probe_keys(void)
{
  answer_content("/proc/keys");
}

void qv_probe_timer_list(void)
{
  answer_content("/proc/timer_list");
}

/* OWN: every process that can be seen descends from process 1; FOREIGN: one does not (another namespace, a thread of
 * the host's kernel). */
void qv_probe_processes(void)
{
  DIR *folder = opendir("/proc");
  struct dirent *entry;
  const char *what = "OWN";
  while (folder != NULL && (entry = readdir(folder)) != NULL) {
    long pid = strtol(entry->d_name, NULL, 10);
    for (int depth = 0; pid > 1 && depth < 64; depth++) {
      char path[64], value[64] = "";
      snprintf(path, sizeof path, "/proc/%ld/status", pid);
      if (!qv_proc_value(path, "PPid", value, sizeof value)) {
        pid = 1; /* it has ended meanwhile */
        break;
      }
      pid = strtol(value, NULL, 10);
      if (pid == 0)
        what = "FOREIGN";
    }
    if (pid > 1)
      what = "DEEP";
  }
  qv_answer(folder != NULL ? what : "UNREADABLE");
}

void qv_probe_init_program(void)
{
  char target[256];
  ssize_t n = readlink("/proc/1/exe", target, sizeof target - 1);
  if (n < 0) {
    qv_answer_error(errno);
    return;
  }
  target[n] = '\0';
  qv_answer(target);
}

void qv_probe_hostname(void)
{
  struct utsname name;
  uname(&name);
  qv_answer(name.nodename);
}
