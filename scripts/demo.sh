#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh [docker-runsc]: the main job on real input. Takes the source package of zlib from Debian, runs its own test suite in a
# sandbox without network, through a private Valkey and the queue, shows the result whose signature was checked, and
# takes the library that it built out of it. With docker-runsc the same in a container of a private Docker engine, which gets the
# image by `quavon images load`. Everything it starts ends with it; what it makes is below build and /tmp, and of /tmp nothing
# stays.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
export PATH=$PATH:/usr/sbin:/sbin

backend=${1:-runsc}
case $backend in
runsc | docker-runsc) ;;
*) sed -n 's/^# \(demo\.sh \[[^]]*\]\).*/usage: \1/p' "$0" >&2; exit 64 ;;
esac
if [ "$(id -u)" -ne 0 ]; then
  echo "demo: needs root, for sandboxes are made by root: run 'sudo make demo'" >&2
  exit 77
fi
for variable in $(compgen -e | grep -E '^(QUAVON|VALKEY)_'); do unset "$variable"; done

work=$(mktemp -d /tmp/qv-demo.XXXXXX)
finish() {
  # The keeper of the engine takes the end of its input for the order to end it, and removes its folder itself.
  if [ -n "${ENGINE_PID-}" ]; then
    eval "exec ${ENGINE[1]}>&-"
    wait "$ENGINE_PID"
  fi
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

step() { printf '\n-- %s\n' "$*"; }

# apt with sources and lists of its own, in a folder that goes away.
private_apt() {
  apt-get -q -y -o Dir::Etc::SourceList="$work/apt/sources.list" -o Dir::Etc::SourceParts="$work/apt/parts" \
    -o Dir::State::Lists="$work/apt/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
    -o Acquire::Languages=none -o Acquire::Retries=3 -o APT::Sandbox::User=root "$@"
}

fetch_zlib() {
  local code
  code=$(. /etc/os-release && echo "$VERSION_CODENAME")
  mkdir -p "$work/apt/parts" "$work/apt/lists/partial" "$work/download"
  scripts/debian-mirror.sh deb-src "$code" >"$work/apt/sources.list"
  private_apt update >"$work/apt.log" 2>&1 &&
    (cd "$work/download" && private_apt --download-only source zlib >>"$work/apt.log" 2>&1) ||
    { cat "$work/apt.log"; return 1; }
  dpkg-source --no-check --extract "$work"/download/zlib_*.dsc "$work/zlib" >"$work/unpack.log" 2>&1 ||
    { cat "$work/unpack.log"; return 1; }
}

step "the sandbox image: Debian's packages and our entry program, named by digest"
scripts/test-image.sh
export QUAVON_SANDBOX_IMAGES_FILE=$root/build/test-images/images.lock.json
build/release/src/cli/quavon images list

start_engine() {
  local folder answer
  folder=$(mktemp -d /tmp/qv-docker-XXXXXX)
  coproc ENGINE { exec python3 tests/support/dockerd.py "$folder"; }
  echo start >&"${ENGINE[1]}"
  read -r answer <&"${ENGINE[0]}"
  if [ "$answer" != ready ]; then echo "demo: the private Docker engine: $answer" >&2; exit 1; fi
  export QUAVON_SANDBOX_DOCKER_SOCKET=$folder/docker.sock
}

export QUAVON_SANDBOX_BACKEND=$backend
if [ "$backend" = docker-runsc ]; then
  step "a private Docker engine with the same image: its id there is the digest"
  start_engine
  build/release/src/cli/quavon images load
fi

step "the repository: zlib's source package"
fetch_zlib
ls -C -w 110 "$work/zlib"

step "its own test suite, in gVisor ($backend), without network"
status=0
build/release/src/cli/quavon run --repo "$work/zlib" --artefact libz.a --output "$work/out" --timeout 20m \
  -- sh -c './configure && make test' || status=$?
if [ "$status" -ne 0 ]; then
  echo "demo: quavon run ended with $status" >&2
  exit 1
fi

step "the artefact"
find "$work/out" -type f -exec ls -l {} +
library=$(find "$work/out" -name libz.a -type f)
if [ -z "$library" ] || ! ar t "$library" | grep -q inflate; then
  echo "demo: libz.a is missing or is no library" >&2
  exit 1
fi
ar t "$library" | tr '\n' ' '
printf '\n\ndemo: the result was verified, the library is there\n'
