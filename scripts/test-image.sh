#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test-image.sh [NAME…] [services] [ENTRY]: builds images for the tests (base without a name; ENTRY is a path, with a slash in it)
# into build/test-images, unless what is there is still fresh: the lock (images.lock.json), each image by digest, and
# NAME.erofs, a link to the current one; `services`: what the packages of the service images unpack to, in services. A recipe stands
# in deploy/images/sandbox, or in tests/support/images. The packages are fetched once (NAME.tar); a new entry program only packs again. Tests find
# the folder in QUAVON_TEST_IMAGES.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$PWD/build/test-images
entry=$PWD/build/release/src/entry/entry
tool=$PWD/build/release/tests/integration/images/build_image

services='' names=() targets=(tests/integration/images/build_image src/entry/entry)
for word in "$@"; do
  case $word in
  services) services=yes ;;
  */*) entry=$word targets=(tests/integration/images/build_image) ;;
  *) names+=("$word") ;;
  esac
done
if [ ${#names[@]} -eq 0 ] && [ -z "$services" ]; then names=(base); fi

mkdir -p "$folder"
exec 9>"$folder/.lock"
flock 9
if [ ! -f build/release/build.ninja ]; then meson setup build/release --buildtype=release -Ddebug=true >/dev/null; fi
ninja -C build/release -j2 "${targets[@]}" >"$folder/ninja.log" 2>&1 || { tail -n 20 "$folder/ninja.log"; exit 1; }

for name in "${names[@]}"; do
  recipes=deploy/images/sandbox own=deploy/images/sandbox/$name
  if [ ! -d "$own" ]; then own=tests/support/images/$name; fi
  recipe=$(cat "$recipes"/{recipe,customize} "$own"/* scripts/debian-mirror.sh | sha256sum | cut -c 1-64)
  stamp=$(cat "$entry" <(echo "$recipe") | sha256sum | cut -c 1-64)
  if [ "$(cat "$folder/$name.stamp" 2>/dev/null)" = "$stamp" ] && [ -s "$folder/$name.erofs" ]; then continue; fi
  if [ "$(cat "$folder/$name.recipe" 2>/dev/null)" != "$recipe" ]; then rm -f "$folder/$name.tar"; fi
  install -m 755 "$entry" "$folder/entry"
  QUAVON_TEST_BASE_TAR=$folder/$name.tar "$tool" "$name" "$PWD/$own" "$folder/entry" "$folder/images.lock.json"
  echo "$recipe" >"$folder/$name.recipe"
  digest=$("$tool" --current "$name" "$folder/images.lock.json")
  ln -sfn "$digest.erofs" "$folder/$name.erofs"
  echo "$stamp" >"$folder/$name.stamp"
done
if [ -n "$services" ]; then
  mkdir -p "$folder/services"
  for name in valkey runner egress; do QUAVON_TEST_TREES=$folder/services deploy/images/service/build.sh "$name"; done
fi
