#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# configure.sh BUILD PREFIX: sets BUILD up as an optimised build, or gives the one that is there another prefix.
set -eu
build=$1
prefix=$2

if [ ! -f "$build/build.ninja" ]; then
  exec meson setup "$build" --buildtype=release -Ddebug=true --prefix="$prefix"
fi
now=$(meson introspect "$build" --buildoptions |
  python3 -c 'import json, sys; print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')
if [ "$now" != "$prefix" ]; then meson configure "$build" --prefix="$prefix"; fi
