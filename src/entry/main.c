/* SPDX-License-Identifier: Apache-2.0 */
/* The entry program: PID 1 of a sandbox. It holds nothing that a step could
 * not have, but for the stream key, and during setup the proxy's token: so it puts
 * its memory out of reach before it reads a byte. */
#include <errno.h>
#include <jansson.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "entry/pid1.h"
#include "entry/run.h"

/* JSON values hold the key and the token for a while. */
static void wiping_free(void *memory)
{
  if (memory)
    explicit_bzero(memory, malloc_usable_size(memory));
  free(memory);
}

int main(int argc, char **argv)
{
  int signal_fd = qv_entry_pid1_harden();
  if (signal_fd < 0 || getpid() != 1) {
    fprintf(stderr, "entry: %s\n", signal_fd < 0 ? strerror(errno) : "is the first process of a sandbox or nothing");
    return EX_OSERR;
  }
  json_set_alloc_funcs(malloc, wiping_free);
  const QvEntryPlace place = {.in_fd = STDIN_FILENO,
                              .out_fd = STDOUT_FILENO,
                              .signal_fd = signal_fd,
                              .work = "/workspace",
                              .tmp = "/tmp",
                              .env = environ};
  return qv_entry_run(&place);
}
