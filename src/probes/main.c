/* SPDX-License-Identifier: Apache-2.0 */
/* probes: runs inside a sandbox, tries what must not work there and looks at what must hold,
 * and prints a line a probe: "probe NAME ANSWER". It judges nothing: the host does, with sandbox/probes.def.
 * Static, libc alone; shipped by the runner as a snapshot, so that it runs in any image.
 *
 *   probes facts   every probe of the table that is asked inside
 *   probes forks   children until there can be no more: "probe forks ANSWER"
 *   probes burn N  two processes that compute for N ms of wall clock
 *   probes hog     touches memory until it is killed
 *   probes reach TARGET…   what can be reached, where there is a network: reach.h
 *
 * Each probe has a process of its own, which ends with it, whatever it has done to itself. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probes/answer.h"
#include "probes/limits.h"
#include "probes/reach.h"
#include "sandbox/probe_text.h"

/* Longer than any probe needs on a machine that is busy. */
enum { PROBE_SECONDS = 30, ANSWERS_MAX = QV_PROBE_ANSWER_MAX * 4 };

typedef struct {
  const char *name;
  void (*ask)(void);
} Probe;

static const Probe probes[] = {
#define QV_PROBE(name, tries, runsc, docker_runsc, docker_runc) {#name, qv_probe_##name},
#define QV_PROBE_HOST(name, tries, runsc, docker_runsc, docker_runc)
#include "sandbox/probes.def"
#undef QV_PROBE
#undef QV_PROBE_HOST
};

static void ask_in_child(const Probe *probe, int out)
{
  alarm(PROBE_SECONDS);
  dup2(out, STDOUT_FILENO);
  probe->ask();
  _exit(0);
}

/* The first line of what the child said; one that was killed or said nothing answers with that. */
static void run(const Probe *probe)
{
  char answer[ANSWERS_MAX] = "";
  int out[2], status = 0;
  size_t n = 0;
  ssize_t got;
  if (pipe(out) != 0) {
    printf("probe %s NOPIPE\n", probe->name);
    return;
  }
  pid_t pid = fork();
  if (pid == 0)
    ask_in_child(probe, out[1]);
  close(out[1]);
  while (pid > 0 && n < sizeof answer - 1 && (got = read(out[0], answer + n, sizeof answer - 1 - n)) > 0)
    n += (size_t)got;
  close(out[0]);
  if (pid < 0) {
    printf("probe %s NOFORK\n", probe->name);
    return;
  }
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
    ;
  size_t line = strcspn(answer, "\n");
  if (WIFSIGNALED(status))
    printf("probe %s SIGNAL%d\n", probe->name, WTERMSIG(status));
  else if (line == 0 || answer[line] != '\n' || answer[line + 1] != '\0')
    printf("probe %s NOANSWER\n", probe->name);
  else
    printf("probe %s %.*s\n", probe->name, (int)line, answer);
}

int main(int argc, char **argv)
{
  const char *what = argc > 1 ? argv[1] : "";
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (strcmp(what, "facts") == 0) {
    for (size_t i = 0; i < sizeof probes / sizeof probes[0]; i++)
      run(&probes[i]);
    return 0;
  }
  if (strcmp(what, "forks") == 0)
    return qv_limit_forks();
  if (strcmp(what, "burn") == 0)
    return qv_limit_burn(argc > 2 ? atoi(argv[2]) : 0);
  if (strcmp(what, "hog") == 0)
    return qv_limit_hog();
  if (strcmp(what, "reach") == 0)
    return qv_reach(argv + 2, argc - 2);
  if (strcmp(what, "euid") == 0) { /* what a set-user-id copy of this program is: privilege.c */
    qv_answer_number(geteuid());
    return 0;
  }
  fprintf(stderr, "usage: probes facts | forks | burn MS | hog | reach TARGET...\n");
  return 64;
}
