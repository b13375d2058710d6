#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# coverage.sh: unit tests and corpora with counters; the page is build/coverage/html/index.html.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -f build/coverage/build.ninja ]; then meson setup build/coverage -Db_coverage=true -Dbuildtype=debug >/dev/null; fi
ninja -C build/coverage -j2 --quiet
meson test -C build/coverage --no-rebuild --suite unit --suite fuzz --num-processes 2 || true
lcov --quiet --capture --directory build/coverage --output-file build/coverage/all.info
lcov --quiet --extract build/coverage/all.info "$PWD/src/*" --output-file build/coverage/src.info
genhtml --quiet build/coverage/src.info --output-directory build/coverage/html
lcov --summary build/coverage/src.info
