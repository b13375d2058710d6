# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Part of the Compose installer (quavon, beside this): the way of setup steps to registries. Where .env lists some there are, on
# this host: the jobs' network and the firewall around it (quavon-egress-network up), a unit that keeps both, and the settings of
# runner and proxy that go with them. Where it lists none any more, they are removed.
# Of the installer: dir, dry, here, root, project; change, fail, env_get, env_set, env_unset.
# shellcheck disable=SC2154

# Who of the host keeps the rules, where systemd runs. The name is not the packages' unit's.
keeper_unit=$project-compose-egress-network.service
keeper_folder=/etc/systemd/system
systemd_runs() { [ -d /run/systemd/system ]; }

egress_network() {
  local path
  for path in "$root/deploy/docker/quavon-egress-network" "$here/../../../sbin/quavon-egress-network"; do
    if [ -x "$path" ]; then realpath "$path"; return; fi
  done
  fail "quavon-egress-network is missing"
}

# The command's settings, NAME=VALUE a line: what .env says, and the socket under the name that it has outside of a container.
egress_settings() {
  local name value
  for name in QUAVON_SANDBOX_EGRESS_NETWORK QUAVON_SANDBOX_EGRESS_PROXY; do
    value=$(env_get "$name")
    if [ -n "$value" ]; then echo "$name=$value"; fi
  done
  value=$(env_get QUAVON_DOCKER_SOCKET)
  if [ -n "$value" ]; then echo "QUAVON_SANDBOX_DOCKER_SOCKET=$value"; fi
}

egress_do() { # verb
  local settings tool
  tool=$(egress_network)
  mapfile -t settings < <(egress_settings)
  env -u QUAVON_SANDBOX_EGRESS_NETWORK -u QUAVON_SANDBOX_EGRESS_PROXY "${settings[@]}" "$tool" "$1"
}

# ---- the keeper

# The packages' unit, with this stack's settings written into it, and the program from where it is: in a clone that may be below
# somebody's home, which root without capabilities does not see, and be executable for that somebody alone.
keeper_text() {
  local template=$here/quavon-egress-network.service.in tool settings
  if [ ! -f "$template" ]; then template=$root/deploy/systemd/quavon-egress-network.service.in; fi
  tool=$(egress_network)
  mapfile -t settings < <(egress_settings)
  python3 - "$template" "$tool" "${settings[@]}" <<'PYTHON'
import sys
path, tool, *settings = sys.argv[1:]
def quoted(word):
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'
for line in open(path, encoding="utf-8"):
    if line.startswith("EnvironmentFile="):
        for setting in settings:
            print("Environment=" + quoted(setting))
    elif line.startswith("Description="):
        print(line.rstrip() + ", of the Compose stack")
    elif line.startswith("ProtectHome="):
        print("ProtectHome=read-only")
    elif line.startswith("CapabilityBoundingSet="):
        print(line.rstrip() + " CAP_DAC_READ_SEARCH")
    elif not line.startswith(("#", "ConditionPathExists=", "Before=")):
        print(line.replace("@sbindir@/quavon-egress-network", "/bin/sh " + quoted(tool)), end="")
PYTHON
}

keep_registries() {
  local path=$keeper_folder/$keeper_unit text
  if ! systemd_runs; then
    echo "- systemd does not run here: what keeps the rules is yours. At each start of this host, for as long as it is up:"
    echo "    env $(egress_settings | tr '\n' ' ')sh -c '$(egress_network) up && exec $(egress_network) keep'"
    return
  fi
  text=$(keeper_text)
  if [ "$(cat "$path" 2>/dev/null)" = "$text" ] && systemctl --quiet is-enabled "$keeper_unit" && systemctl --quiet is-active "$keeper_unit"; then
    return
  fi
  if change "$path: a unit that makes network and rules at each start of the host, and loads rules again that are flushed; enabled and started"; then
    echo "$text" >"$path.new"
    chmod 644 "$path.new"
    mv "$path.new" "$path"
    systemctl daemon-reload
    systemctl --quiet enable "$keeper_unit"
    systemctl restart "$keeper_unit"
  fi
}

# ---- what the installer calls

# Before the services start. Where nothing is listed there is nothing to make.
prepare_registries() {
  local line settings
  if [ -z "$(env_get QUAVON_SANDBOX_REGISTRIES)" ]; then return; fi
  if change "the Docker network of jobs with egress, and the firewall around it ($(egress_network) up)"; then
    settings=$(egress_do up)
    for line in $settings; do env_set "${line%%=*}" "${line#*=}"; done
    env_set QUAVON_EGRESS_NETWORK_MODE host
  fi
  keep_registries
}

egress_names="QUAVON_EGRESS_NETWORK_MODE QUAVON_EGRESS_LISTEN QUAVON_SANDBOX_EGRESS_NETWORK QUAVON_SANDBOX_EGRESS_PROXY"

# The services are started without a way out already while .env still says where the network is that is to be removed: what the
# environment says comes before it. In a subshell: the programs refuse names that they do not know.
hide_registries() {
  local name
  if [ -n "$(env_get QUAVON_SANDBOX_REGISTRIES)" ] || [ "$(env_get QUAVON_EGRESS_NETWORK_MODE)" != host ]; then return 0; fi
  for name in $egress_names; do export "$name="; done
}

# After the services have started without: by then no container is on the network.
remove_registries_unlisted() {
  if [ -z "$(env_get QUAVON_SANDBOX_REGISTRIES)" ]; then remove_registries; fi
}

# What prepare_registries made. The settings stay until the network is gone: they say which one it is.
remove_registries() {
  local name path=$keeper_folder/$keeper_unit kept=''
  if [ "$(env_get QUAVON_EGRESS_NETWORK_MODE)" != host ]; then return; fi
  if [ -f "$path" ]; then kept=yes; fi
  if change "the Docker network of jobs with egress and its firewall: removed${kept:+, and $path, which keeps them}"; then
    # Else it loads the rules again.
    if [ -n "$kept" ] && systemd_runs; then systemctl stop "$keeper_unit"; fi
    if ! egress_do down; then
      if [ -n "$kept" ] && systemd_runs; then systemctl start "$keeper_unit" || true; fi
      echo "quavon: the network could not be removed (above is why): it, its firewall and their settings stay; the same command removes them later" >&2
      return
    fi
    if [ -n "$kept" ]; then
      if systemd_runs; then systemctl --quiet disable "$keeper_unit"; fi
      rm -f "$path"
      if systemd_runs; then systemctl daemon-reload; fi
    fi
  fi
  for name in $egress_names; do env_unset "$name"; done
}
