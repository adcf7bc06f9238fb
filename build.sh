#!/usr/bin/env bash
# Installs missing packages of packages.txt (Debian, as root) and builds Ferry:
#   build.sh [PRESET [TARGET...]]      the preset `release` and everything in it by default
# Prints a line every eight seconds, and all output of a command that fails.
set -euo pipefail
cd "$(dirname "$0")"
preset=${1:-release}
shift || true
log=$(mktemp)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -f "$log"' EXIT

# Runs a command. Shows the last line of its output every eight seconds, and all output if it fails.
quietly() {
  local status=0 progress
  while sleep 8 >&/dev/null; do echo "build.sh: $(tail -n 1 "$log" | cut -c 1-90)"; done &
  progress=$!
  "$@" >"$log" 2>&1 || status=$?
  kill "$progress"
  wait "$progress" 2>/dev/null || true
  # The lines of finished build steps are left out.
  [ "$status" = 0 ] || sed '/^\[[0-9]*\/[0-9]*\] /d' "$log" >&2
  return "$status"
}

if command -v dpkg-query >/dev/null; then
  missing=()
  while read -r package; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done < packages.txt
  if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" != 0 ]; then
      echo "build.sh: please install: ${missing[*]}" >&2
      exit 2
    fi
    echo "build.sh: installing ${#missing[@]} packages"
    export DEBIAN_FRONTEND=noninteractive
    quietly apt-get update
    quietly apt-get install -y --no-install-recommends "${missing[@]}"
  fi
fi

echo "build.sh: building ${*:-everything} (preset $preset)"
quietly cmake --preset "$preset"
quietly cmake --build --preset "$preset" ${1:+--target "$@"}
sed '/^\[[0-9]*\/[0-9]*\] /d; /^ninja: no work to do/d' "$log"
