#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh NAME ARCHIVE: makes the service image NAME (runner, egress or valkey) and writes it for `docker load`; prints its id.
# Debian's packages of NAME.packages unpacked and nothing else: no shell, no package manager. The programs are those
# of the build, or of the installation that this file belongs to. Two builds of the same packages and programs have one
# id. Needs root and mmdebstrap.
set -euo pipefail
export LC_ALL=C SOURCE_DATE_EPOCH=1735689600
umask 022

here=$(cd "$(dirname "$0")" && pwd)
name=$1
archive=${2:+$(realpath -m "$2")}
root=$here/../../..
mirror=$root/scripts/debian-mirror.sh
if [ ! -x "$mirror" ]; then mirror=$here/../sandbox/debian-mirror.sh; fi
if [ "$(id -u)" -ne 0 ]; then echo "build.sh: needs root" >&2; exit 77; fi
if [ ! -f "$here/$name.packages" ]; then echo "build.sh: no service image is called $name" >&2; exit 66; fi

# The program of the build, else the installed one.
program() { # room, name
  local path
  for path in "$root/build/release/src/$1/$2" "$here/../../../../sbin/$2"; do
    if [ -x "$path" ]; then echo "$path"; return; fi
  done
  echo "build.sh: $2 is not built: run 'make'" >&2
  return 1
}

if [ -n "${QUAVON_TEST_TREES:-}" ]; then mkdir -p "$QUAVON_TEST_TREES"; fi
work=$(mktemp -d "$(dirname "${archive:-${QUAVON_TEST_TREES:?}/tree}")/service.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 1' INT TERM HUP

code=$(. /etc/os-release && echo "${VERSION_CODENAME:?this is no Debian}")
packages=$(grep -v '^#' "$here/$name.packages" | paste -sd, -)
"$mirror" deb "$code" >"$work/sources.list"
for suite in "$code-updates" "$code-security" "$code-backports"; do
  "$mirror" deb "$suite" >>"$work/sources.list" 2>/dev/null || true
done
tree=$work/tree
mkdir "$tree"

# What of the packages runs, in the tree.
unpack_packages() {
  TMPDIR=$work mmdebstrap --quiet --mode=root --variant=extract --include="$packages" \
    --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "3"' \
    --format=tar "$code" "$work/base.tar" "$work/sources.list" >&2
  tar --extract --file "$work/base.tar" --directory "$tree" --numeric-owner --same-permissions --exclude='./dev/*'
  rm -rf "$tree"/var "$tree"/usr/share/{man,info,locale,lintian,bash-completion,bug,doc-base,mime,pkgconfig} "$tree"/etc/{apt,init.d,default,logrotate.d,cron.daily,dpkg} \
    "$tree"/{usr/,}lib/systemd "$tree"/usr/lib/*/perl* "$tree"/usr/share/perl* "$tree"/{tmp,run,dev,proc,sys,home,root,mnt,media,srv,boot,opt}
  find "$tree/usr/share/doc" -type f ! -name copyright -delete 2>/dev/null || true
}

# QUAVON_TEST_TREES: a folder that keeps what the packages unpacked to, so that tests need not fetch it again; without ARCHIVE
# that is all that is done.
kept=${QUAVON_TEST_TREES:+$QUAVON_TEST_TREES/$name.$(cat "$here/$name.packages" "$here/build.sh" | sha256sum | cut -c 1-16).tar}
if [ -n "$kept" ] && [ -s "$kept" ]; then
  if [ -n "$archive" ]; then tar --extract --file "$kept" --directory "$tree" --numeric-owner --same-permissions; fi
else
  unpack_packages
  if [ -n "$kept" ]; then
    tar --create --file "$work/kept.tar" --directory "$tree" --numeric-owner .
    mv "$work/kept.tar" "$kept"
  fi
fi
if [ -z "$archive" ]; then exit; fi

mkdir -p "$tree"/{etc/ssl/certs,tmp,run/{secrets,keys},dev,proc,sys,var/lib/quavon,data,run/valkey}
chmod 1777 "$tree/tmp"
if [ -d "$tree/usr/share/ca-certificates/mozilla" ]; then
  cat "$tree"/usr/share/ca-certificates/mozilla/*.crt >"$tree/etc/ssl/certs/ca-certificates.crt"
fi
echo 'quavon:x:65532:65532:quavon:/var/lib/quavon:/nonexistent' >"$tree/etc/passwd"
echo 'quavon:x:65532:' >"$tree/etc/group"
echo 'hosts: files dns' >"$tree/etc/nsswitch.conf"
chown 65532:65532 "$tree/var/lib/quavon" "$tree/data" "$tree/run/valkey"
chmod 700 "$tree/var/lib/quavon" "$tree/data"

case $name in
runner) install -D -m 755 "$(program runner quavon-sandbox-runner)" "$tree/usr/sbin/quavon-sandbox-runner"
  command=/usr/sbin/quavon-sandbox-runner ;;
egress) install -D -m 755 "$(program egress quavon-sandbox-egress)" "$tree/usr/sbin/quavon-sandbox-egress"
  command=/usr/sbin/quavon-sandbox-egress ;;
valkey) command=/usr/bin/valkey-server ;;
esac

tar --create --file "$work/layer.tar" --directory "$tree" --format=gnu --sort=name --numeric-owner \
  --mtime="@$SOURCE_DATE_EPOCH" --one-file-system .
"$here/pack.py" "$work/layer.tar" "$command" "$archive"
