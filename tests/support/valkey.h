/* SPDX-License-Identifier: Apache-2.0 */
/* A private valkey-server for a test: on a unix socket in a folder /tmp/qv-XXXXXX,
 * with the shipped ACL file, passwords of its own and one more user `admin` that
 * may do everything. It dies with the test (parent-death signal). */
#pragma once

#include <glib.h>

typedef enum {
  QV_TEST_VALKEY_PLAIN = 0,
  QV_TEST_VALKEY_TLS = 1 << 0,     /* also a TLS port on 127.0.0.1, certificate by a CA of its own */
  QV_TEST_VALKEY_PERSIST = 1 << 1, /* append-only file, fsync always: a killed server comes back with its data */
  QV_TEST_VALKEY_TCP = 1 << 2,     /* also a plain port on 127.0.0.1 */
} QvTestValkeyFlags;

typedef struct QvTestValkey QvTestValkey;

/* Ready to serve when it returns; a failure ends the test. */
QvTestValkey *qv_test_valkey_start(QvTestValkeyFlags flags);
/* Kills the server (this one process) and removes the folder. NULL is fine. */
void qv_test_valkey_free(QvTestValkey *valkey);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvTestValkey, qv_test_valkey_free)

void qv_test_valkey_kill(QvTestValkey *valkey);    /* SIGKILL, reaped; the folder stays */
void qv_test_valkey_restart(QvTestValkey *valkey); /* after kill: the same address, ports, users */
/* From the next restart on: more of the server's arguments, NULL at the end. */
void qv_test_valkey_set_options(QvTestValkey *valkey, const char *const *options);
GPid qv_test_valkey_pid(const QvTestValkey *valkey); /* for SIGSTOP and the like */

/* The rest is borrowed and lives as long as valkey. user: worker, sandbox, egress, admin. */
const char *qv_test_valkey_dir(const QvTestValkey *valkey);
const char *qv_test_valkey_url(QvTestValkey *valkey, const char *user);     /* unix://user:password@/path */
const char *qv_test_valkey_tcp_url(QvTestValkey *valkey, const char *user); /* redis://user:password@127.0.0.1:port */
const char *qv_test_valkey_tls_url(QvTestValkey *valkey, const char *user); /* rediss://user:password@localhost:port */
const char *qv_test_valkey_ca_file(const QvTestValkey *valkey);             /* for the TLS URL */
const char *qv_test_valkey_password(const QvTestValkey *valkey);            /* every user's */
guint16 qv_test_valkey_port(const QvTestValkey *valkey);
const char *qv_test_valkey_socket(const QvTestValkey *valkey);

/* Runs valkey-cli as admin with the NULL-terminated arguments; its standard output without the last newline. */
char *qv_test_valkey_cli(QvTestValkey *valkey, ...) G_GNUC_NULL_TERMINATED;
