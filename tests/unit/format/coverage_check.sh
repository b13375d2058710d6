#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Holds the coverage of format and protocol (scripts/coverage.sh --check) where QUAVON_TEST_LONG is 1.
if [ "${QUAVON_TEST_LONG:-}" != 1 ]; then echo "QUAVON_TEST_LONG is not 1"; exit 77; fi
exec "$QUAVON_SOURCE_ROOT/scripts/coverage.sh" --check
