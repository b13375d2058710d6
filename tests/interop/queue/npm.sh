#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# npm.sh SOURCE FOLDER: makes FOLDER hold this folder's programs and what package-lock.json names.
# Exit 77, with the reason on stdout: npm or its registry is not there.
set -eu
source=$1
folder=$2
command -v node >/dev/null || { echo "node is not installed"; exit 77; }
command -v npm >/dev/null || { echo "npm is not installed"; exit 77; }
mkdir -p "$folder"
exec 9>"$folder/.lock"
flock 9
for file in "$source"/*.mjs; do
  name=$(basename "$file")
  cmp -s "$file" "$folder/$name" || { cp "$file" "$folder/.$name.new" && mv "$folder/.$name.new" "$folder/$name"; }
done
cmp -s "$source/package-lock.json" "$folder/.installed" && exit 0
cp "$source/package.json" "$source/package-lock.json" "$folder/"
for try in 1 2 3; do
  if (cd "$folder" && npm ci --cache "$folder/.npm" --ignore-scripts --no-audit --no-fund --no-update-notifier >npm.log 2>&1); then
    cp "$source/package-lock.json" "$folder/.installed"
    exit 0
  fi
  sleep "$try"
done
if grep -Eq 'ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ECONNRESET|ENETUNREACH|network' "$folder/npm.log"; then
  echo "npm's registry cannot be reached: $(tail -n 1 "$folder/npm.log")"
  exit 77
fi
cat "$folder/npm.log"
exit 1
