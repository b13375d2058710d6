#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In the place of quavon-sandbox-runner: what a sweep says and how long it takes is the test's.
. "${QUAVON_SANDBOX_STATE_DIR%/*}/fake"
