/* SPDX-License-Identifier: Apache-2.0 */
/* A private Docker engine for a test: its own folder /tmp/qv-docker-XXXXXX, socket, containerd, network and mount
 * namespace, control group (see dockerd.py, which keeps it). It ends with the test, however that ends, and takes all of it along. */
#pragma once

#include <glib.h>

typedef struct QvTestDockerd QvTestDockerd;

/* NULL, or why there can be none here ("no dockerd is installed"): then the test is skipped. */
const char *qv_test_dockerd_missing(void);

typedef enum {
  QV_TEST_DOCKERD_USUAL,
  QV_TEST_DOCKERD_PLAIN, /* as on a host, so that runsc refuses networks on new kernels */
  QV_TEST_DOCKERD_SMALL, /* a data root of 48 MiB: <dir>/data, in the mount namespace of the engine's process */
} QvTestDockerdKind;

/* Answers when it returns; a failure ends the test. */
QvTestDockerd *qv_test_dockerd_start(QvTestDockerdKind kind);
/* Requires that nothing of it is left. NULL is fine. */
void qv_test_dockerd_free(QvTestDockerd *dockerd);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvTestDockerd, qv_test_dockerd_free)

const char *qv_test_dockerd_socket(const QvTestDockerd *dockerd); /* borrowed */
const char *qv_test_dockerd_dir(const QvTestDockerd *dockerd);    /* borrowed */
void qv_test_dockerd_kill(QvTestDockerd *dockerd);     /* SIGKILL the engine; containers live on */
void qv_test_dockerd_kill_all(QvTestDockerd *dockerd); /* and containerd */
void qv_test_dockerd_stop(QvTestDockerd *dockerd);     /* SIGTERM the engine and wait: it ends its containers */
void qv_test_dockerd_restart(QvTestDockerd *dockerd);  /* what does not run: the same socket and data */
GPid qv_test_dockerd_pid(QvTestDockerd *dockerd);      /* for SIGSTOP */
GPid qv_test_dockerd_containerd(QvTestDockerd *dockerd);

/* An image of one layer with the content of FOLDER, for ARCHITECTURE (NULL: this one): its digest. Free with g_free. */
char *qv_test_dockerd_image(QvTestDockerd *dockerd, const char *folder, const char *architecture);
/* docker load. */
void qv_test_dockerd_load(QvTestDockerd *dockerd, const char *archive);
/* GET, POST or DELETE of PATH with BODY (NULL: none): the answer's body; *STATUS may be NULL. Free with g_free. */
char *qv_test_dockerd_call(QvTestDockerd *dockerd, const char *method, const char *path, const char *body, int *status);
