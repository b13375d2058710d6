/* SPDX-License-Identifier: Apache-2.0 */
/* A state folder, an image that holds the probe as its entry, an opened
 * backend, and conversations with sandboxes. Every wait is a poll with one long deadline. */
#pragma once

#include <glib.h>
#include <sys/types.h>

#include "sandbox/backend.h"

/* Long enough for a machine ten times as slow as a slow one. */
#define DEADLINE_MS 180000

typedef struct {
  char *dir;    /* everything of the test */
  char *state;  /* the state folder */
  char *image;
  QvBackend *backend;
} Fixture;

typedef struct {
  QvSandbox *sandbox;
  int in;
  int out;
  guint started, oom, pids, exited;
  GString *said; /* read from stdout, not yet taken */
  gboolean closed;
} Guest;

/* Builds the image once a program. RUNSC and DEADLINE may be NULL and 0. */
void fixture_open(Fixture *fixture, const char *runsc, guint start_deadline_ms);
/* Requires that nothing is left, and removes the folder. */
void fixture_close(Fixture *fixture);
QvBackend *fixture_backend(Fixture *fixture, const char *runner_id);
/* qv_backend_check with the image file ROOTFS_FILE. */
gboolean check_with(QvBackend *backend, const char *rootfs_file, char **version, GError **error);

extern const QvSandboxLimits SMALL;
Guest *guest_start(Fixture *fixture, QvBackend *backend, const QvSandboxLimits *limits, const char *egress_socket);
/* Until the sandbox runs; an exit in its place fails the test. */
Guest *guest_started(Fixture *fixture, const QvSandboxLimits *limits);
void guest_free(Guest *guest);

/* Iterates the main context until *FLAG is set. */
void wait_until(const guint *flag);
/* Sends a line and waits for one. */
char *guest_ask(Guest *guest, const char *line);
void guest_send(Guest *guest, const char *line);
#define guest_expect(guest, line, answer) \
  do { \
    g_autofree char *said_ = guest_ask(guest, line); \
    g_assert_cmpstr(said_, ==, answer); \
  } while (0)

/* The number of leftovers that hold TEXT. */
guint leftovers_with(QvBackend *backend, const char *text);
void assert_no_leftovers(QvBackend *backend);
/* The process id of a leftover "process <pid> (COMM) …" of ID, 0 when there is none. */
pid_t leftover_process(QvBackend *backend, const char *id, const char *comm);
