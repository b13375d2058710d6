/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of setup steps with the real egress proxy: the proxy as a program, the machine's own registries
 * (read from its configuration and its resolver, written down nowhere), and a TLS server of
 * a CA of its own that serves a folder. */
#pragma once

#include "world.h"

/* Starts the proxy on a unix socket in the world's folder, as Valkey's user egress; it ends with the test. REGISTRIES: the
 * value of QUAVON_SANDBOX_REGISTRIES. Returns the socket's path when it listens. */
char *way_out_start_proxy(World *world, const char *registries, GPid *pid);
/* The same with HOSTS_FILE in the place of its /etc/hosts. */
char *way_out_start_proxy_with(World *world, const char *registries, const char *hosts_file, GPid *pid);
void way_out_stop(GPid pid);
/* A program that ends with the test; returns when it has made the file READY. */
GPid way_out_spawn(World *world, const char *const *argv, const char *ready);

/* An https URL that a client of this machine uses, taken apart. */
typedef struct {
  char *url;
  char *host_port;  /* of a job's egress */
  char *registries; /* host:port@address for each address of the host */
} WayOut;

void way_out_clear(WayOut *out);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(WayOut, way_out_clear)

/* FALSE and the test skipped with the reason, where URL is not https, its name has no address or no address of it
 * accepts connections. */
gboolean way_out_find(const char *url, WayOut *out);

/* The machine's CA bundle, or NULL. */
const char *way_out_ca_file(void);

/* A TLS server on 127.0.0.1 (name localhost, certificate by CA_FILE) that serves FOLDER; its port. */
guint16 way_out_serve(World *world, const char *folder, char **ca_file, GPid *pid);
/* The same for clients/registry.py, under the name WAY_OUT_REGISTRY, which no resolver knows. */
#define WAY_OUT_REGISTRY "registry.example"
guint16 way_out_serve_registry(World *world, const char *folder, char **ca_file, GPid *pid);
