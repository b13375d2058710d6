/* SPDX-License-Identifier: Apache-2.0 */
/* The sweep role: removes what sandboxes left and, where it is told to, tries
 * the backend with a real start. A process of its own: the supervisor never
 * holds the backend. */
#pragma once

/* In place of a sandbox id: sweep nothing; say what the backend's engine is, and end, clean, when that may hold no longer
 * (qv_backend_await_change). */
#define QV_SWEEP_WATCH "watch"

enum {
  QV_SWEEP_CLEAN = 0,
  QV_SWEEP_UNUSABLE = 1, /* the backend cannot be opened, or its test failed */
  QV_SWEEP_LEFT = 3,     /* something could not be removed */
};

/* main() of the role; QV_EXIT_CONFIG where the settings forbid it. */
int qv_sweep_main(const char *order);
