#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deb.sh: Debian packages of this tree in build/deb, from deploy/debian: an optimised build with prefix /usr, staged,
# stripped and divided. Two runs of one tree give the same bytes.
set -euo pipefail
export LC_ALL=C SOURCE_DATE_EPOCH=1735689600 TZ=UTC
umask 022
cd "$(dirname "$0")/.."
root=$PWD
out=$root/build/deb
build=$root/build/deb-tree
source=$root/deploy/debian
version=$(sed -n "s/.*version: '\([0-9.]*\)', license.*/\1/p" meson.build)
arch=$(dpkg --print-architecture)

if [ ! -f "$build/build.ninja" ]; then
  meson setup "$build" --buildtype=release -Ddebug=true --prefix=/usr --libexecdir=libexec -Dsystemdunitdir=/lib/systemd/system >/dev/null
fi
ninja -C "$build" programs >"$build/ninja.log" 2>&1 || { tail -n 20 "$build/ninja.log"; exit 1; }

work=$(mktemp -d "$build/stage.XXXXXX")
trap 'rm -rf "$work"' EXIT
stage=$work/stage
meson install -C "$build" --no-rebuild --quiet --destdir "$stage"

strip_one() { # file
  case $(head -c 4 "$1" | od -An -c | tr -d ' \n') in
  177ELF) strip --strip-unneeded --remove-section=.comment --remove-section=.note "$1" ;;
  *) case $1 in *.a) strip --strip-debug --enable-deterministic-archives --remove-section=.comment --remove-section=.note "$1" ;; esac ;;
  esac
}
while IFS= read -r file; do strip_one "$file"; done < <(find "$stage" -type f ! -path '*/man/*')
find "$stage/usr/share/man" -type f -exec gzip -9n {} +
chmod 644 "$stage"/usr/lib/*/libquavon.so.0.*

# Fields of a package of packages.def; Files: one a line.
field() { # package, field
  awk -v package="$1" -v field="$2" '
    /^#/ { next }
    /^$/ { inside = 0; at = "" }
    $1 == "Package:" { inside = ($2 == package) }
    inside && /^[A-Z][A-Za-z-]*:/ { at = $1; sub(/:$/, "", at); if (at == field) { sub(/^[^:]*: ?/, ""); if ($0 != "") print }; next }
    inside && at == field { sub(/^ /, field == "Description" ? " " : ""); print }' "$source/packages.def"
}

libraries() { # package folder
  local files=() file
  while IFS= read -r file; do
    if [ "$(head -c 4 "$file" | od -An -c | tr -d ' \n')" = 177ELF ]; then files+=("$file"); fi
  done < <(find "$1/usr" -type f ! -name entry)
  if [ ${#files[@]} -eq 0 ]; then return; fi
  mkdir -p "$work/shlibs/debian"
  printf 'Source: quavon\n\nPackage: x\nArchitecture: any\n' >"$work/shlibs/debian/control"
  (cd "$work/shlibs" && dpkg-shlibdeps -O "${files[@]/#/-e}" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}

join() { # field, parts…
  local name=$1 all=''
  shift
  for part in "$@"; do if [ -n "$part" ]; then all=${all:+$all, }$part; fi; done
  if [ -n "$all" ]; then echo "$name: ${all//\$\{Version\}/$version}"; fi
}

pack() { # package
  local name=$1 folder=$work/$1 pattern file
  mkdir -p "$folder/DEBIAN" "$folder/usr/share/doc/$name"
  while IFS= read -r pattern; do
    for file in "$stage"/$pattern; do
      if [ ! -e "$file" ] && [ ! -L "$file" ]; then continue; fi
      mkdir -p "$folder/$(dirname "${file#"$stage"/}")"
      cp -a "$file" "$folder/${file#"$stage"/}"
    done
  done < <(field "$name" Files)
  cp "$source/copyright" "$folder/usr/share/doc/$name/copyright"
  gzip -9n <"$source/changelog" >"$folder/usr/share/doc/$name/changelog.gz"
  if [ -f "$source/$name.lintian-overrides" ]; then
    install -D -m 644 "$source/$name.lintian-overrides" "$folder/usr/share/lintian/overrides/$name"
  fi
  if [ "$name" = quavon-sandbox-runner ]; then
    install -D -m 644 -t "$folder/usr/share/doc/$name/examples" "$source/runner.env" "$source/egress.env"
  fi
  for script in postinst prerm postrm; do
    if [ -f "$source/$name.$script" ]; then install -m 755 "$source/$name.$script" "$folder/DEBIAN/$script"; fi
  done
  if [ "$name" = libquavon0 ]; then
    echo "libquavon 0 libquavon0 (>= $version)" >"$folder/DEBIAN/shlibs"
    echo 'activate-noawait ldconfig' >"$folder/DEBIAN/triggers"
  fi
  {
    echo "Package: $name"
    echo "Source: quavon"
    echo "Version: $version"
    echo "Architecture: $arch"
    echo "Maintainer: $(sed -n 's/^ -- \(.*>\)  .*/\1/p' "$source/changelog" | head -n 1)"
    echo "Installed-Size: $(du -sk --apparent-size --exclude=DEBIAN "$folder" | cut -f 1)"
    join Pre-Depends "$(field "$name" Pre-Depends)"
    join Depends "$(field "$name" Depends)" "$(libraries "$folder")"
    join Recommends "$(field "$name" Recommends)"
    join Suggests "$(field "$name" Suggests)"
    echo "Section: $(field "$name" Section)"
    echo "Priority: optional"
    echo "Description: $(field "$name" Description)"
  } >"$folder/DEBIAN/control"
  (cd "$folder" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$folder/DEBIAN/md5sums"
  find "$folder" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group -Zxz --build "$folder" "$out/${name}_${version}_$arch.deb" >/dev/null
  echo "$out/${name}_${version}_$arch.deb"
}

rm -rf "$out"
mkdir -p "$out"
for package in $(sed -n 's/^Package: //p' "$source/packages.def"); do pack "$package"; done
