/* SPDX-License-Identifier: Apache-2.0 */
/* What every probe of the program shares: one answer a probe, on one line, of
 * printable characters without blanks. A probe function answers exactly once;
 * it runs in a process of its own and may leave anything behind there. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* In the form of sandbox/probe_text.h. */
void qv_answer(const char *text);
void qv_answer_number(long long value);
/* OK where RESULT is not negative, else the name of errno. */
void qv_answer_result(long result);
void qv_answer_error(int error);

/* The first N - 1 bytes of a file, NUL-terminated: their count, or -1 with errno. */
long qv_slurp(const char *path, char *text, size_t n);
/* Answers OK where the file can be opened with FLAGS, else why not. */
void qv_answer_open(const char *path, int flags);
/* The value of a line "NAME:<blanks>VALUE" of a /proc file, into VALUE; false where there is none. */
bool qv_proc_value(const char *path, const char *name, char *value, size_t n);

/* One function a probe of sandbox/probes.def. */
#define QV_PROBE(name, tries, runsc, docker_runsc, docker_runc) void qv_probe_##name(void);
#define QV_PROBE_HOST(name, tries, runsc, docker_runsc, docker_runc)
#include "sandbox/probes.def"
#undef QV_PROBE
#undef QV_PROBE_HOST
