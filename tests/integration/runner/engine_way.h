/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of egress with docker-*: a private engine whose network namespace plays the host's. The network and its rules
 * are those of quavon-egress-network. Registries and Valkey are not to be reached from there, so a relay listens at the
 * gateway in the proxy's place and passes each connection on to the proxy's unix socket. */
#pragma once

#include "support/dockerd.h"
#include "world.h"

#define ENGINE_WAY_PROXY "10.89.213.1:3128"

typedef struct {
  World *world;
  const char *backend;
  QvTestDockerd *engine;
  GPid relay; /* 0: nobody listens */
  const char *socket; /* where the runner finds the engine; NULL: at the engine's own */
} EngineWay;

/* NULL, or why there can be none here: then the test is skipped. */
const char *engine_way_missing(void);
/* Starts the engine and gives it the test image NAME, which is the only one of the world's lock from then on. No network yet. */
EngineWay *engine_way_new(World *world, const char *backend, const char *name);
/* Requires that nothing of the engine is left. NULL is fine. */
void engine_way_free(EngineWay *way);

/* quavon-egress-network VERB, as root of that host. */
void engine_way_network(EngineWay *way, const char *verb);
/* A shell script there, with the docker command. */
void engine_way_inside(EngineWay *way, const char *script);
/* Somebody listens at ENGINE_WAY_PROXY and passes on to the socket PATH; NULL: nobody any more. */
void engine_way_relay(EngineWay *way, const char *path);

/* The runner's settings beside EXTRA; free with g_strfreev. */
char **engine_way_settings(const EngineWay *way, const char *const *extra);
/* A job that is for this backend. */
void engine_way_adopt(const EngineWay *way, QvJob *job);
/* Waits until no container is left, nor a process or folder of one. */
void engine_way_expect_clean(EngineWay *way);
