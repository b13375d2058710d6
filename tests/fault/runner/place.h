/* SPDX-License-Identifier: Apache-2.0 */
/* Where the sandboxes of a fault run are: started by the runner itself, or containers of a private engine, which
 * lives as long as the program. One line of a table a backend; whatever differs between them is here. */
#pragma once

#include "sandbox/backend.h"
#include "world.h"

/* The backend of every world from now on. FALSE: there is none of that name. */
gboolean place_choose(const char *backend);
gboolean place_has_engine(void);
/* NULL, or why the machine cannot have one. */
const char *place_missing(void);
/* Before the tests: the engine starts, with the test images of a world in it. */
void place_open(void);
/* Behind the tests: it ends, and nothing of it is left. */
void place_close(void);

/* What a runner has to be told, NAME=VALUE, NULL at the end; borrowed. */
const char *const *place_environment(void);
/* JOB is for the chosen backend, and for the image that is there. */
void place_job(QvJob *job);
QvBackend *place_backend(World *world);

typedef enum { PLACE_SANDBOX, PLACE_SHIM } PlaceProcess;

/* A process of a sandbox of an engine, or the shim of one, whichever comes as number AT (counted round); 0: there is none. */
GPid place_process(PlaceProcess which, guint at);
/* The engine is killed, containerd with it where ALL; up again when it returns, PAUSE_MS after that. */
void place_kill_engine(gboolean all, gint64 pause_ms);
/* The engine itself; for SIGSTOP and SIGCONT. */
GPid place_engine(void);
/* What an engine still has, seen from outside the code under test: containers, processes, control groups, mounts. Adds a line each. */
void place_leftovers(GPtrArray *lines);
/* A container with the labels of a runner, and of a job ID that nobody runs. */
void place_plant(const char *runner_id, const char *owner, const char *id);
