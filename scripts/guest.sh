#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# guest.sh before FILE: notes the machine's settings before anything is installed; guest.sh after FILE: says, as TAP,
# whether they are still the same: apt's sources, pins and keys, the policy of services, which services start at
# boot, which run, the programs in /usr/local. sh and coreutils alone, for it runs before install-deps.sh has.
set -eu

settings() {
  find /etc/apt -type f -exec cksum {} + 2>/dev/null | sed 's/^/apt: /'
  find /usr/sbin/policy-rc.d* -exec cksum {} + 2>/dev/null | sed 's/^/policy: /'
  for service in valkey docker containerd redis; do
    find /etc/systemd/system /etc/rc[0-6S].d \( -path '*.wants/*' -o -name 'S*' \) -name "*$service*" 2>/dev/null |
      sed 's/^/starts at boot: /'
  done
  find /usr/local/bin /usr/local/sbin 2>/dev/null | sed 's/^/local: /'
  for status in /proc/[0-9]*/status; do
    name=$(sed -n '1s/^Name:[[:space:]]*//p' "$status" 2>/dev/null) || continue
    case $name in valkey-server | dockerd | containerd | redis-server) echo "runs: $name" ;; esac
  done
}

case ${1-} in
before)
  mkdir -p "$(dirname "$2")"
  settings | sort -u >"$2"
  ;;
after)
  settings | sort -u >"$2.after"
  echo 1..1
  if [ ! -s "$2" ]; then
    echo "ok 1 guest: settings of the machine # SKIP nothing was noted before: this is not 'make test'"
  elif cmp -s "$2" "$2.after"; then
    echo "ok 1 guest: apt's settings, services and programs in /usr/local are what they were"
  else
    echo "not ok 1 guest: settings of the machine have changed"
    diff "$2" "$2.after" | sed -n 's/^[<>]/# &/p'
  fi
  rm -f "$2" "$2.after"
  ;;
*)
  echo "usage: guest.sh before|after FILE" >&2
  exit 64
  ;;
esac
