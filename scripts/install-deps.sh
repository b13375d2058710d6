#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install-deps.sh [--build | --bench] [--check]
#
# Installs what scripts/packages.list names and this machine lacks, from the machine's own mirror. --build
# leaves out what only the tests need, --bench adds the peers that benchmarks compare with; --check only says what is missing (exit 1 where something is).
#
# A good guest: sources, pins and package lists live in a private folder that is removed at the end; no service
# is started or enabled; nothing that is installed is removed, and no named package is upgraded.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
work=
saved_policy=
build_only=
bench_too=
check_only=
for option in "$@"; do
  case $option in
  --build) build_only=yes ;;
  --bench) bench_too=yes ;;
  --check) check_only=yes ;;
  *) echo "install-deps: unknown option '$option' (--build, --bench, --check)" >&2; exit 64 ;;
  esac
done

say() { echo "install-deps: $*" >&2; }

clean_up() {
  status=$?
  trap - EXIT INT TERM HUP
  if [ "$saved_policy" = none ]; then rm -f /usr/sbin/policy-rc.d; fi
  if [ -n "$saved_policy" ] && [ "$saved_policy" != none ]; then mv -f "$saved_policy" /usr/sbin/policy-rc.d; fi
  if [ -n "$work" ]; then rm -rf "$work"; fi
  exit "$status"
}

installed() { [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null | cut -c 2)" = i ]; }

# Is what the package brings there already?
docker_part() {
  case $1 in
  docker-cli) command -v docker >/dev/null 2>&1 ;;
  docker-compose) docker compose version >/dev/null 2>&1 ;;
  *) command -v dockerd >/dev/null 2>&1 ;;
  esac
}

# Lines "package origin" of what is missing.
missing() {
  grep -v '^#' "$here/packages.list" | while read -r package user origin reason; do
    if [ "$user" = test ] && [ -n "$build_only" ]; then continue; fi
    if [ "$user" = bench ] && [ -z "$bench_too" ]; then continue; fi
    case $origin in
    node | npm) command -v "$origin" >/dev/null 2>&1 || echo "$package stable" ;;
    # An engine that is there, from wherever, is not replaced; neither are the parts that it brought.
    trixie) docker_part "$package" || installed "$package" || echo "$package $origin" ;;
    *) installed "$package" || echo "$package $origin" ;;
    esac
  done
}

# Services must not start while packages are set up: a policy of our own for that time, the machine's own one
# where it forbids the same.
forbid_services() {
  policy=/usr/sbin/policy-rc.d
  if [ -x "$policy" ]; then
    refused=0
    "$policy" valkey-server start >/dev/null 2>&1 || refused=$?
    if [ "$refused" -eq 101 ]; then return; fi
    saved_policy=$policy.quavon-saved
    mv -f "$policy" "$saved_policy"
  elif [ -e "$policy" ] || [ -L "$policy" ]; then
    saved_policy=$policy.quavon-saved
    mv -f "$policy" "$saved_policy"
  else
    saved_policy=none
  fi
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
}

# What a package of the list enabled would start at the next boot.
disable_service() {
  if command -v systemctl >/dev/null 2>&1; then
    systemctl disable "$1.service" >/dev/null 2>&1 || say "could not disable $1.service"
    if [ -e "/lib/systemd/system/$1.socket" ]; then systemctl disable "$1.socket" >/dev/null 2>&1 || say "could not disable $1.socket"; fi
  fi
  if [ -e "/etc/init.d/$1" ] && command -v update-rc.d >/dev/null 2>&1; then
    update-rc.d "$1" disable >/dev/null 2>&1 || true
  fi
}

wanted=$(missing)
if [ -z "$wanted" ]; then
  say "nothing is missing"
  exit 0
fi
say "missing: $(echo "$wanted" | cut -d ' ' -f 1 | tr '\n' ' ')"
if [ -n "$check_only" ]; then exit 1; fi
if [ "$(id -u)" -ne 0 ]; then
  say "needs root: run 'sudo make deps', or install the packages above"
  exit 1
fi

code=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
if [ "$code" != bookworm ]; then
  say "made for Debian bookworm, this is '${code:-unknown}'"
  exit 1
fi

trap clean_up EXIT
trap 'exit 1' INT TERM HUP
work=$(mktemp -d /tmp/qv-deps.XXXXXX)
chmod 755 "$work"
mkdir -p "$work/parts" "$work/preferences" "$work/lists/partial"
"$here/debian-mirror.sh" deb "$code" >"$work/sources.list"
"$here/debian-mirror.sh" deb "$code-backports" >>"$work/sources.list"
for suite in "$code-updates" "$code-security"; do
  case $suite in
  *-security) "$here/debian-mirror.sh" deb "$suite" >>"$work/sources.list" 2>/dev/null || true ;;
  *) "$here/debian-mirror.sh" deb "$suite" >>"$work/sources.list" ;;
  esac
done

apt() {
  apt-get -q -y \
    -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts="$work/parts" \
    -o Dir::Etc::Preferences="$work/none" -o Dir::Etc::PreferencesParts="$work/preferences" \
    -o Dir::State::Lists="$work/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
    -o Acquire::Languages=none -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@"
}

# Of the next release only what the list names may come, and it comes only where it needs nothing else from there.
case $wanted in
*trixie*)
  "$here/debian-mirror.sh" deb "$code" trixie >>"$work/sources.list"
  printf 'Package: *\nPin: release n=trixie\nPin-Priority: -1\n' >"$work/preferences/others"
  ;;
esac

names=$(echo "$wanted" | while read -r package origin; do
  case $origin in
  backports) echo "$package/$code-backports" ;;
  trixie)
    # apt reads no file with a dot in its name.
    printf 'Package: %s\nPin: release n=trixie\nPin-Priority: 990\n' "$package" >"$work/preferences/$(echo "$package" | tr . -)"
    echo "$package"
    ;;
  *) echo "$package" ;;
  esac
done)
apt update >&2
forbid_services
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive apt install --no-install-recommends --no-remove --no-upgrade $names >&2
for service in valkey-server tinyproxy squid; do
  case $wanted in *"$service"*) disable_service "$service" ;; esac
done
case $wanted in *docker.io*)
  disable_service docker
  disable_service containerd
  ;;
esac
say "done"
