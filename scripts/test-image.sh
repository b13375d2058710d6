#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test-image.sh [ENTRY]: builds the image base for the tests into build/test-images, unless what is there is still fresh: the
# lock (images.lock.json), the image by digest, and base.erofs, a link to the current one. The packages are fetched
# once (base.tar); a new entry program only packs again. Tests find the folder in QUAVON_TEST_IMAGES.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$PWD/build/test-images
entry=${1:-$PWD/build/release/src/entry/entry}
tool=$PWD/build/release/tests/integration/images/build_image

mkdir -p "$folder"
exec 9>"$folder/.lock"
flock 9
if [ ! -f build/release/build.ninja ]; then meson setup build/release --buildtype=release -Ddebug=true >/dev/null; fi
targets=(tests/integration/images/build_image)
if [ $# -eq 0 ]; then targets+=(src/entry/entry); fi
ninja -C build/release -j2 "${targets[@]}" >"$folder/ninja.log" 2>&1 || { tail -n 20 "$folder/ninja.log"; exit 1; }

recipe=$(cat deploy/images/base/* scripts/debian-mirror.sh | sha256sum | cut -c 1-64)
stamp=$(cat "$entry" <(echo "$recipe") | sha256sum | cut -c 1-64)
if [ "$(cat "$folder/stamp" 2>/dev/null)" = "$stamp" ] && [ -s "$folder/base.erofs" ]; then exit 0; fi
if [ "$(cat "$folder/recipe" 2>/dev/null)" != "$recipe" ]; then rm -f "$folder/base.tar"; fi
install -m 755 "$entry" "$folder/entry"
QUAVON_TEST_BASE_TAR=$folder/base.tar "$tool" "$PWD/deploy/images/base" "$folder/entry" "$folder/images.lock.json"
echo "$recipe" >"$folder/recipe"
digest=$("$tool" --current "$folder/images.lock.json")
ln -sfn "$digest.erofs" "$folder/base.erofs"
echo "$stamp" >"$folder/stamp"
