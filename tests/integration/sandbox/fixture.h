/* SPDX-License-Identifier: Apache-2.0 */
/* A state folder, an image that holds the probe as its entry, an opened
 * backend, and conversations with sandboxes. Every wait is a poll with one long deadline.
 * The backend is that of the row of support/backends.h. */
#pragma once

#include <glib.h>
#include <sys/types.h>

#include "sandbox/backend.h"
#include "support/backends.h"

/* Long enough for a machine ten times as slow as a slow one. */
#define DEADLINE_MS 180000

typedef struct {
  char *dir;    /* everything of the test */
  char *state;  /* the state folder */
  char *root;   /* the image as a folder */
  char *image;  /* the file, NULL with docker-* */
  char *digest; /* the image's, NULL with runsc */
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

typedef struct {
  guint on; /* the backends it is for */
  const char *name;
  void (*func)(Fixture *fixture, gconstpointer data);
} FixtureCase;

/* A test program: chooses the backend, and runs those of CASES that are for it, each in a fixture of its own that must
 * leave nothing: no sandbox, mount or child. */
int fixture_main(int argc, char **argv, const char *program, const FixtureCase *cases, gsize n);

QvBackend *fixture_backend(Fixture *fixture, const char *runner_id);
/* The options of a backend of this fixture; borrows. */
QvBackendOptions fixture_options(Fixture *fixture, const char *runner_id);
/* A folder like the image's with PROGRAM as its entry, NULL: without one. Free with g_free. */
char *fixture_root(Fixture *fixture, const char *name, const char *program);
/* qv_backend_check with the image file ROOTFS_FILE, or with the engine's image of that digest. */
gboolean check_with(QvBackend *backend, const char *rootfs_file, char **version, GError **error);

extern const QvSandboxLimits SMALL;
/* ID NULL: a new one. */
QvSandboxRequest fixture_request(Fixture *fixture, const char *id, const QvSandboxLimits *limits);
Guest *guest_start_request(QvBackend *backend, const QvSandboxRequest *request);
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
/* Sweeps (ID NULL: all), which must remove that many, find that many that live, and fail with none. */
void sweep_ok(QvBackend *backend, const char *id, guint removed, guint busy);
/* The same, and that many of which more may come; of sweep_ok none may. */
void sweep_says(QvBackend *backend, const char *id, guint removed, guint busy, guint later);
/* The process id of a leftover "process <pid> (COMM) …" of ID, 0 when there is none. */
pid_t leftover_process(QvBackend *backend, const char *id, const char *comm);
