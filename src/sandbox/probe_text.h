/* SPDX-License-Identifier: Apache-2.0 */
/* What the probe program and the host must do alike, so that their answers can
 * be compared: the form of an answer, and the hash of the kernel's own page of code. libc alone. */
#pragma once

#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { QV_PROBE_ANSWER_MAX = 120, QV_VDSO_HASH_CAP = 20, QV_VDSO_BYTES_MAX = 65536 };

/* TEXT as an answer, with its NUL: no blanks around it, those within as '_', '?' for what is not printable, cut at
 * QV_PROBE_ANSWER_MAX; "EMPTY" where nothing is left. */
static inline void qv_probe_answer_format(const char *text, char answer[QV_PROBE_ANSWER_MAX + 1])
{
  size_t n = strnlen(text, QV_PROBE_ANSWER_MAX);
  while (n > 0 && strchr(" \t\n", text[n - 1]) != NULL)
    n--;
  for (size_t i = 0; i < n; i++) {
    char c = text[i];
    answer[i] = strchr(" \t\n", c) != NULL ? '_' : c > 32 && c < 127 ? c : '?';
  }
  answer[n] = '\0';
  if (n == 0)
    snprintf(answer, QV_PROBE_ANSWER_MAX + 1, "EMPTY");
}

/* FNV-1a over the code that a kernel maps into each process (vDSO): the kernel's own bytes, which no filter and no mount
 * can change. ADDRESS: AT_SYSINFO_EHDR of the auxiliary vector; "NONE" where there is none. */
static inline void qv_vdso_hash(unsigned long address, char hash[QV_VDSO_HASH_CAP])
{
  const Elf64_Ehdr *head = (const Elf64_Ehdr *)address;
  uint64_t n = head != NULL ? head->e_shoff : 0, sum = 14695981039346656037u;
  snprintf(hash, QV_VDSO_HASH_CAP, "NONE");
  if (n == 0 || n > QV_VDSO_BYTES_MAX)
    return;
  for (uint64_t i = 0; i < n; i++)
    sum = (sum ^ ((const uint8_t *)head)[i]) * 1099511628211u;
  snprintf(hash, QV_VDSO_HASH_CAP, "%016llx", (unsigned long long)sum);
}
