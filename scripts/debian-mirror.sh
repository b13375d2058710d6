#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# debian-mirror.sh TYPE SUITE
#
# Prints one apt source line (TYPE deb or deb-src, component main) for a suite of the machine's own Debian
# release, on the mirror that the machine itself uses, with its options; the machine's sources need not
# name the suite. SUITE: CODENAME, or CODENAME-updates, -backports, -security. A third argument is another
# release (trixie) whose line is printed in place of SUITE's. Reads both forms of apt's sources
# (.list and .sources). Exit 1: the machine has no such source.
set -eu

type=${1:?usage: debian-mirror.sh deb|deb-src SUITE [OTHER]}
suite=${2:?usage: debian-mirror.sh deb|deb-src SUITE [OTHER]}
printed=${3:-$suite}
root=${QUAVON_TEST_APT_DIR:-/etc/apt}

case $suite in
*-security) code=${suite%-security} wanted=$suite ;;
*-*) code=${suite%%-*} wanted=${suite%%-*} ;;
*) code=$suite wanted=$suite ;;
esac

# Every enabled binary source as a line: suite TAB URI TAB options TAB components.
one_line_sources() {
  for file in "$root/sources.list" "$root"/sources.list.d/*.list; do
    [ -r "$file" ] || continue
    awk '
      { sub(/#.*/, "") }
      $1 == "deb" {
        line = $0; options = ""
        if (match(line, /\[[^]]*\]/)) {
          options = substr(line, RSTART + 1, RLENGTH - 2)
          line = substr(line, 1, RSTART - 1) substr(line, RSTART + RLENGTH)
        }
        n = split(line, part, /[ \t]+/)
        gsub(/^[ \t]+|[ \t]+$/, "", options)
        components = ""
        for (i = 4; i <= n; i++) components = components " " part[i]
        printf "%s\t%s\t%s\t%s \n", part[3], part[2], options, components
      }' "$file"
  done
}

deb822_sources() {
  for file in "$root"/sources.list.d/*.sources; do
    [ -r "$file" ] || continue
    awk '
      function flush(  s, u, i, j, n, m, options) {
        if (field["types"] ~ /(^| )deb( |$)/ && tolower(field["enabled"]) !~ /^(no|false|0)$/) {
          options = ""
          # An embedded key block has no form on one line: apt then takes its own keyrings.
          if (field["signed-by"] ~ /^\//) options = options " signed-by=" field["signed-by"]
          if (field["trusted"] != "") options = options " trusted=" field["trusted"]
          if (field["check-valid-until"] != "") options = options " check-valid-until=" field["check-valid-until"]
          sub(/^ /, "", options)
          n = split(field["suites"], s, / +/); m = split(field["uris"], u, / +/)
          for (i = 1; i <= n; i++) for (j = 1; j <= m; j++)
            printf "%s\t%s\t%s\t %s \n", s[i], u[j], options, field["components"]
        }
        for (name in field) delete field[name]
        last = ""
      }
      /^#/ { next }
      /^[ \t]*$/ { flush(); next }
      /^[ \t]/ { sub(/^[ \t]+/, ""); if (last != "") field[last] = field[last] " " $0; next }
      {
        last = tolower(substr($0, 1, index($0, ":") - 1))
        value = substr($0, index($0, ":") + 1)
        gsub(/^[ \t]+|[ \t]+$/, "", value)
        field[last] = value
      }
      END { flush() }' "$file"
  done
}

found=$({ one_line_sources; deb822_sources; } | awk -F '\t' -v wanted="$wanted" -v code="$code" '
  { s = $1; sub(/\/$/, "", s); if (s == "stable" && code == wanted) s = wanted }
  s == wanted && $4 ~ / main / { print $2 "\t" $3; exit }')
if [ -z "$found" ]; then
  echo "debian-mirror.sh: no apt source of this machine holds $wanted main" >&2
  exit 1
fi
uri=$(printf '%s' "$found" | cut -f 1)
options=$(printf '%s' "$found" | cut -f 2)
printf '%s %s%s %s main\n' "$type" "${options:+[$options] }" "$uri" "$printed"
