/* SPDX-License-Identifier: Apache-2.0 */
/* What a backend is made of: a table of functions, and the head that its
 * QvBackend and QvSandbox begin with. A new backend is a table in backend.c's list. */
#pragma once

#include "sandbox/backend.h"

typedef struct {
  const char *name;
  const char *platform;
  gboolean takes_rootfs;
  QvBackend *(*open)(const QvBackendOptions *options, GError **error);
  void (*free)(QvBackend *backend);
  const char *(*cgroup)(const QvBackend *backend);
  /* The network of jobs with egress, NULL: none; NULL function: never one. */
  const char *(*network)(const QvBackend *backend);
  gboolean (*look_network)(QvBackend *backend, QvSandboxNetwork *network, GError **error); /* where there is one */
  gboolean (*version)(QvBackend *backend, char **version, GError **error);
  /* Are all images there, and what they must be? NULL: the start of one says it. */
  gboolean (*check_images)(QvBackend *backend, const QvBackendImages *images, GError **error);
  QvSandbox *(*start)(QvBackend *backend, const QvSandboxRequest *request, QvSandboxFunc func, gpointer data,
                      GError **error);
  gboolean (*sweep)(QvBackend *backend, const char *sandbox_id, QvSweepReport *report, GError **error);
  /* Removes what sandboxes share and the last of them may not have been able to remove; NULL: there is nothing. */
  void (*tidy)(const QvBackendOptions *options);
  char *(*engine)(const QvBackend *backend); /* NULL: there is none */
  void (*await_change)(QvBackend *backend, gboolean (*watched)(gpointer data), gpointer data); /* where there is an engine */
  /* Of one sandbox, or of all with NULL. */
  char **(*leftovers)(QvBackend *backend, const char *sandbox_id);
  /* Do the limits of a living sandbox hold? */
  gboolean (*verify)(QvSandbox *sandbox, GError **error);
  void (*usage)(QvSandbox *sandbox, QvSandboxUsage *usage);
  /* NULL: a sandbox of this backend never has a network. */
  gboolean (*cut_network)(QvSandbox *sandbox, GError **error);
  void (*end)(QvSandbox *sandbox);
  gboolean (*kill)(QvSandbox *sandbox, GError **error);
  void (*free_sandbox)(QvSandbox *sandbox);
} QvBackendOps;

struct QvBackend {
  const QvBackendOps *ops;
};

struct QvSandbox {
  QvBackend *backend;
  char *id;
  int stdin_fd;
  int stdout_fd;
  QvSandboxFunc func;
  gpointer data;
  gboolean started;
  int wait_status; /* -1: not ended */
  char *failure;
  GString *diagnostics;
};

extern const QvBackendOps qv_runsc_ops;
extern const QvBackendOps qv_docker_runsc_ops;
extern const QvBackendOps qv_docker_runc_ops;
