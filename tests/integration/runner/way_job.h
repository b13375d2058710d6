/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs for tests of the way to the proxy. */
#pragma once

#include "engine_way.h"
#include "fake_proxy.h"

/* A job with egress to HOST_PORT, on the engine of WAY (NULL: the backend runsc). Its base holds dial.py and FILES (path, content, …,
 * NULL; may be NULL). SETUP is a shell script that has it as `dial HOST:PORT WHAT`: a tunnel through the forwarder, its status line, then
 * WHAT: ping; hold it; wait for its end; none of these. */
QvJob *way_job_new(World *world, const EngineWay *way, const char *host_port, const char *const *files, const char *setup, const char *run);
/* A setup script that leaves a tunnel to HOST_PORT (a string literal) open behind itself. */
#define WAY_JOB_HOLDS(host_port) \
  "setsid python3 dial.py " host_port " hold > held 2>&1 &\nwhile ! grep -q 200 held; do sleep 0.1; done"

/* The key in Valkey of the token that came to PROXY last. Free with g_free. */
char *way_job_token_key(FakeProxy *proxy);
/* This machine's addresses and one that is nobody's, as Python has them in a list: 'a','b'. Free with g_free. */
char *way_job_host_addresses(void);
