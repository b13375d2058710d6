/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs for tests of the way to the proxy, and a runner whose clock jumps. */
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

/* A runner's settings, beside EXTRA, whose clock can be made to jump: way_job_jump() puts it WAY_JOB_JUMP_S ahead, until the runner
 * has ended and way_job_unjump() was called. Its locks last longer than that. Free with g_strfreev. */
enum { WAY_JOB_JUMP_S = 425 };
char **way_job_jumping(const World *world, const char *const *extra);
void way_job_jump(const World *world);
void way_job_unjump(const World *world);
/* JOB's setup stops its entry for good, so that the runner's clock alone ends it. WALL: at wallMs, which lies within the jump; else the
 * token's time does, and wallMs lies far behind it. */
void way_job_never_ends(QvJob *job, gboolean wall);

/* The key in Valkey of the token that came to PROXY last. Free with g_free. */
char *way_job_token_key(FakeProxy *proxy);
/* This machine's addresses and one that is nobody's, as Python has them in a list: 'a','b'. Free with g_free. */
char *way_job_host_addresses(void);
