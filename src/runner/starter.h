/* SPDX-License-Identifier: Apache-2.0 */
/* Where job processes come from. To execute the program anew for each links twenty libraries each time, for the job process and
 * once more for its unpack process. The starter did that once: a process of this program that has seen nothing, has one
 * thread and holds one socket. For each job it forks, and what it forks becomes the job process, whose parent is the
 * supervisor as if that had executed it; that first forks its unpack process, before it has read a byte of its channel.
 *
 *   supervisor ──channel, lock──> starter ──clone(CLONE_PARENT)──> job ──fork──> unpack
 *        └──<── its process id ──────┘
 *
 * A starter that dies between clone and answer leaves a child of the supervisor that nobody knows of. So the kernel itself writes the
 * child's process id into a page that both share, before the child runs: once such a starter is reaped, the supervisor ends that child.
 *
 * What comes out of one starter has one layout in memory. So there is a new one after QV_STARTER_JOBS_MAX jobs, and at once
 * after one whose output was bad, whose unpack process crashed or whose process died: no job that starts later has the layout that a
 * failed try has shown to be wrong (docs/THREATS.md). Without a starter, until it is ready, or where it fails, job processes are
 * executed as all roles are. */
#pragma once

#include <glib.h>

typedef struct QvStarter QvStarter;

enum { QV_STARTER_JOBS_MAX = 64 };

/* Then another one is made. The answer's is far below the shortest lock of a job: the caller waits for it. */
typedef struct {
  guint answer_ms, ready_ms;
} QvStarterPatience;

#define QV_STARTER_PATIENCE ((QvStarterPatience){.answer_ms = 500, .ready_ms = 30000})

/* Its process is started here and now, and makes itself ready in the meantime. ENGINE: its jobs will speak to a container
 * engine, so that the libraries for that are loaded, too. */
QvStarter *qv_starter_new(gboolean engine, QvStarterPatience patience);
/* Ends its process. Job processes of it go on. */
void qv_starter_free(QvStarter *starter);

/* A job process with CHANNEL and LOCK, of which the caller keeps its own copies, as one of spawn.h; the caller reaps it. FALSE: not
 * this way (the starter is not ready yet, or the reason is logged), and CHANNEL is not to be used for anything else. */
gboolean qv_starter_job(QvStarter *starter, int channel, int lock, GPid *pid);

/* What comes next has another layout. Waits for nothing: until the new one is ready, job processes are executed. */
void qv_starter_renew(QvStarter *starter);

/* It has linked, and takes a job now. */
gboolean qv_starter_is_ready(QvStarter *starter);

/* 0: there is none at the moment. */
GPid qv_starter_pid(const QvStarter *starter);

/* Descriptor of the role, see spawn.h. */
enum {
  QV_STARTER_FD = 3,
  QV_STARTER_NOTE_FD = 4, /* a file in memory: the process id, 32 bits, of what was forked last and not answered yet; 0: none */
};
/* main() of the role; in a job process that it has become, too: returns the exit status. */
int qv_starter_main(int argc, char **argv);
