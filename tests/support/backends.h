/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of backends for the tests of sandbox and runner. A program's first argument chooses a row; the tests
 * take from it what a backend answers in its own way. */
#pragma once

#include <glib.h>

#include "support/dockerd.h"

/* Bits of tests: which backends they are for. */
enum { ON_RUNSC = 1, ON_DOCKER_RUNSC = 2, ON_DOCKER_RUNC = 4, ON_DOCKER = 6, ON_GVISOR = 3, ON_ALL = 7 };

typedef struct {
  const char *name;
  guint bit;
  const char *platform;
  const char *process;     /* name of the process that is the sandbox, as the leak check shows it */
  const char *stdout_open; /* a step opens PID 1's stdout for writing, its stdin for reading */
  const char *stdin_open;
  const char *groups;      /* an engine lists the user's own group once more */
  const char *root;        /* a file is made in the root, which is root's and read-only: which of the two counts */
  const char *workspace;   /* mode of the two work folders */
  const char *tmp;
  const char *forged;      /* the code of a job whose step writes into the result stream; NULL: it cannot, and succeeds */
  const char *first_killed; /* of a job whose step kills process 1; NULL: process 1 lives on, and the job succeeds */
} BackendRow;

/* Of the program's first argument; "runsc" without one. */
extern const BackendRow *row;
/* Before g_test_init. FALSE: the plan of a skipped program was printed. */
gboolean backend_select(int argc, char **argv);
/* Where the test is for this backend. */
#define ON(bits) (((bits) & row->bit) != 0)
/* The program's one private engine, started at its first use; for docker-*. */
QvTestDockerd *backend_dockerd(void);
/* Behind g_test_run: the engine ends. */
void backend_finish(void);
