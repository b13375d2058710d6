/* SPDX-License-Identifier: Apache-2.0 */
/* quavon as a program under test, mostly `quavon run` without VALKEY_URL: started, watched, killed in parts, and what it
 * leaves. */
#pragma once

#include <glib.h>

enum { RUN_DEADLINE_MS = 240000 };
#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

typedef struct {
  char *dir;  /* scratch; repo, out, stdout, stderr lie below */
  char *repo;
  GPid pid;   /* 0: ended */
  const char *terminal; /* NULL, or the device that is its standard error */
  gboolean terminal_out; /* and its standard output */
  char **extra; /* NAME=VALUE, beside the environment that every run has */
  /* Once a job runs: */
  char *folder; /* the keeper's, /run/quavon-… */
  char *sandbox_id;
  GPid keeper, runner, valkey;
} Run;

/* FALSE, and the test skipped, where the machine cannot run sandboxes (not root). */
gboolean run_possible(void);

Run *run_new(void);
void run_free(Run *run);

/* Starts `quavon run` with these words behind it (NULL at the end), in the repository; or quavon with another verb. */
void run_start(Run *run, const char *const *words);
void run_start_verb(Run *run, const char *const *words);
/* The same with a program and an environment of its own; as nobody. */
void run_start_as_nobody(Run *run, const char *const *words);
/* Waits for its end: exit status, or 128 + signal. */
int run_wait(Run *run);
/* Both. */
int run_all(Run *run, const char *const *words);
int run_all_verb(Run *run, const char *const *words);
/* With another verb: it must end with STATUS. */
void run_expect(Run *run, int status, const char *const *words);
/* The same with standard error, and where OUT is set standard output too, on a terminal of TERM=xterm; what came there. */
char *run_on_terminal(Run *run, gboolean out, int status, const char *const *words);
void run_setenv(Run *run, const char *name, const char *value);
/* The environment of quavon; for other programs of the same world. */
char **run_environment(const Run *run);

/* From now on it is a client of that Valkey, as user worker: a new pool key, whose path is returned, and a state folder. */
char *run_use_valkey(Run *run, const char *url);
/* A runner beside it, at that Valkey as user sandbox; SETTINGS: name, value, … NULL. Its log is runner.log. */
GPid run_start_runner(Run *run, const char *url, const char *const *settings);
/* Ends it as it should end; 0: there is none. */
void run_stop_runner(Run *run, GPid *runner);

char *run_stdout(const Run *run);
char *run_stderr(const Run *run);
/* PART is in TEXT, which it frees. */
void run_says(char *text, const char *part);

/* An image that somebody else made, as `docker save` writes it: dir/tiny.tar; a shell, id and env, with GREETING set. Gives
 * what names it: FILE@sha256:HEX. */
char *run_foreign_image(const Run *run);

/* Waits until its standard error has these words. */
void run_await_words(const Run *run, const char *words);

/* Waits until it has a runner, and finds folder and processes. */
void run_await_runner(Run *run);

/* kill -9 of the runner and of every process that it started. */
void run_kill_runner(const Run *run);

/* Waits until its command runs in the sandbox, and finds folder and processes. */
void run_await_step(Run *run);

/* Waits until nothing of it is left: folder, processes, cgroups, mounts. */
void run_expect_nothing_left(const Run *run);
