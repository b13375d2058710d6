/* SPDX-License-Identifier: Apache-2.0 */
/* A runner that is none: its signed record says that it is healthy, for tests of the worker's side that need somebody to submit to. */
#pragma once

#include "protocol/health.h"
#include "support/valkey.h"

/* A record of a healthy runner RUNNER_ID with backend runsc that offers IMAGE. Change it, sign it, or put it as it is. */
QvHealth *qv_test_health_new(const char *runner_id, const char *image, const char *digest);
/* Signs HEALTH as it is with the key in KEY_FILE and stores it; nobody removes it. */
void qv_test_health_put(QvTestValkey *valkey, const char *key_file, const QvHealth *health);
/* Both at once, for as long as a record counts from now. */
void qv_test_healthy_runner(QvTestValkey *valkey, const char *key_file, const char *image, const char *digest);
/* The same, offering every image of LOCK_FILE. */
void qv_test_healthy_runner_of(QvTestValkey *valkey, const char *key_file, const char *lock_file);
