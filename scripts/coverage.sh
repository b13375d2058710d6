#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# coverage.sh [--check]: unit tests and corpora with counters, for all rooms; the page is build/coverage/html/index.html. --check: only what
# format and protocol need, without the page. Exit status 1 where one of these two has less than 95 % of its lines covered, or
# where a test failed.
set -euo pipefail
cd "$(dirname "$0")/.."
least=95
folder=build/coverage
failed=0

if [ ! -f $folder/build.ninja ]; then meson setup $folder -Db_coverage=true -Dbuildtype=debug >/dev/null; fi
if [ "${1:-}" = --check ]; then
  ninja -C $folder --quiet build.ninja # the list of targets is not made anew by itself
  # shellcheck disable=SC2046 # names of targets and tests hold no blanks
  ninja -C $folder -j2 --quiet $(ninja -C $folder -t targets all | grep -oE '^tests/(unit/(format|protocol)/[a-z_0-9]+|fuzz/replay_[a-z_0-9]+): ' | tr -d ': ')
  tests=$(meson test -C $folder --no-rebuild --list 2>/dev/null | grep -oE '(format|protocol|fuzz)/[a-z_0-9]+$')
else
  ninja -C $folder -j2 --quiet
  tests='--suite unit --suite fuzz'
fi
find $folder -name '*.gcda' -delete
# shellcheck disable=SC2086 # several words
meson test -C $folder --no-rebuild --num-processes 2 $tests || failed=1
lcov --quiet --capture --directory $folder --output-file $folder/all.info
lcov --quiet --extract $folder/all.info "$PWD/src/*" --output-file $folder/src.info
[ "${1:-}" = --check ] || genhtml --quiet $folder/src.info --output-directory $folder/html
lcov --summary $folder/src.info
for room in format protocol; do
  lcov --quiet --extract $folder/src.info "$PWD/src/$room/*" --output-file $folder/$room.info
  percent=$(lcov --summary $folder/$room.info | sed -n 's/^ *lines\.*: *\([0-9.]*\)%.*/\1/p')
  echo "coverage: $room $percent % of lines, at least $least wanted"
  if awk -v is="$percent" -v least=$least 'BEGIN { exit !(is < least) }'; then failed=1; fi
done
exit $failed
