#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test-image.sh [ENTRY]: builds the image base for the tests into build/test-images (packages are fetched once).
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$PWD/build/test-images
entry=${1:-$PWD/build/release/src/entry/entry}
mkdir -p "$folder"
exec 9>"$folder/.lock"
flock 9
QUAVON_TEST_BASE_TAR=$folder/base.tar deploy/images/base/build "$entry" "$folder"
mv "$folder/rootfs.erofs" "$folder/base.erofs"
rm -f "$folder/rootfs.tar"
