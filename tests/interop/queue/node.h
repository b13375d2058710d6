/* SPDX-License-Identifier: Apache-2.0 */
/* Node programs of this folder as children of a test. */
#pragma once

#include "support/valkey.h"

typedef struct NodeProgram NodeProgram;

/* The folder in which they run, or NULL and the test skipped: npm or its registry is not there. Borrowed. */
const char *node_folder(void);

/* Runs `node PROGRAM MAJOR MORE...` as that user of the server; dies with the test. more: NULL-terminated, extra
 * "NAME=VALUE" settings in env likewise; either may be NULL. */
NodeProgram *node_start(QvTestValkey *valkey, const char *user, const char *program, const char *major,
                        const char *const *more, const char *const *env);
/* Waits until it prints a line that starts with that. */
void node_await_line(NodeProgram *node, const char *start);
/* Waits for its end, frees it; anything but exit status 0 fails the test with what it printed. The main context turns. */
void node_finish(NodeProgram *node);
/* What it printed so far; borrowed until the next call. node_turn: turns the main context for a moment and reads on; FALSE once it
 * has ended. */
const char *node_output(const NodeProgram *node);
gboolean node_turn(NodeProgram *node);
/* Sends a signal. */
void node_kill(NodeProgram *node, int signal_number);
/* Waits for its end whatever its status, and frees it. */
void node_reap(NodeProgram *node);
