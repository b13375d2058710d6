#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh [--lock FILE] [--from IMAGE@sha256:HEX] [--docker-archive DIR] [--load] [NAME...]
#
# Builds sandbox images (base and node without names) and writes the lock, as `quavon images build` does; an image that
# was current stays in the lock as the previous one. --from builds NAME on an existing image instead. --docker-archive
# also writes DIR/NAME.tar; --load gives each image to the engine at QUAVON_SANDBOX_DOCKER_SOCKET.
set -euo pipefail

usage() { sed -n 's/^# \(build\.sh \[.*\)/usage: \1/p' "$0" >&2; exit 64; }

here=$(cd "$(dirname "$0")" && pwd)
quavon=${QUAVON:-}
if [ -z "$quavon" ]; then
  for quavon in "$here/../../../build/release/src/cli/quavon" "$here/../../../../../bin/quavon" "$(command -v quavon || true)"; do
    if [ -x "$quavon" ]; then break; fi
  done
fi
if [ ! -x "$quavon" ]; then echo "build.sh: quavon is not built: run 'make'" >&2; exit 69; fi

from=() archives='' load='' names=()
while [ $# -gt 0 ]; do
  case $1 in
  --lock) if [ $# -lt 2 ]; then usage; fi; QUAVON_SANDBOX_IMAGES_FILE=$(realpath -m "$2"); export QUAVON_SANDBOX_IMAGES_FILE; shift ;;
  --from) if [ $# -lt 2 ]; then usage; fi; from=(--from "$2"); shift ;;
  --docker-archive) if [ $# -lt 2 ]; then usage; fi; archives=$2; shift ;;
  --load) load=yes ;;
  -*) usage ;;
  *) names+=("$1") ;;
  esac
  shift
done
if [ ${#names[@]} -eq 0 ] && [ ${#from[@]} -eq 0 ]; then names=(base node); fi
if [ ${#from[@]} -gt 0 ] && [ ${#names[@]} -ne 1 ]; then echo "build.sh: --from makes one image: give it one name" >&2; exit 64; fi

for name in "${names[@]}"; do
  echo "build.sh: building $name" >&2
  digest=$("$quavon" images build "${from[@]}" "$name")
  echo "$name $digest"
  if [ -n "$archives" ]; then
    mkdir -p "$archives"
    "$quavon" images export --output "$archives/$name.tar" "$name"
  fi
  if [ -n "$load" ]; then
    "$quavon" images load "$name@$digest" >&2
  fi
done
