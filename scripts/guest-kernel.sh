#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# guest-kernel.sh: Debian's cloud kernel of the machine's own release for the guest of tests/guest, into
# build/guest-kernel/vmlinuz, unless it is there. The package is fetched and unpacked, never installed; apt's sources and
# lists of this fetch live in a private folder that is removed.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$PWD/build/guest-kernel
if [ -s "$folder/vmlinuz" ]; then exit 0; fi
code=$(. /etc/os-release && echo "$VERSION_CODENAME")
work=$(mktemp -d /tmp/qv-kernel.XXXXXX)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$folder" "$work/parts" "$work/preferences" "$work/lists/partial" "$work/debs"
scripts/debian-mirror.sh deb "$code" >"$work/sources.list"

apt() {
  apt-get -q -y -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts="$work/parts" \
    -o Dir::Etc::PreferencesParts="$work/preferences" -o Dir::State::Lists="$work/lists" -o Dir::Cache::pkgcache= \
    -o Dir::Cache::srcpkgcache= -o Acquire::Languages=none -o Acquire::Retries=3 -o APT::Sandbox::User=root "$@"
}

apt update >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
# linux-image-cloud-amd64 only names the newest one.
package=$(apt-cache -o Dir::State::Lists="$work/lists" -o Dir::Etc::SourceList="$work/sources.list" \
  -o Dir::Etc::SourceParts="$work/parts" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= depends linux-image-cloud-amd64 |
  sed -n 's/.*Depends: \(linux-image-[^ ]*\).*/\1/p' | head -n 1)
(cd "$work/debs" && apt download "$package" >>"$work/log" 2>&1) || { cat "$work/log" >&2; exit 1; }
dpkg-deb -x "$work"/debs/*.deb "$work/tree"
install -m 644 "$work"/tree/boot/vmlinuz-* "$folder/vmlinuz.new"
mv "$folder/vmlinuz.new" "$folder/vmlinuz"
