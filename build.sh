#!/usr/bin/env bash
# Installs what packages.txt names (Debian, as root, only where something is missing) and builds:
#   build.sh [PRESET [TARGET...]]      the preset `release` and everything in it by default
# Prints little, unless something fails.
set -euo pipefail
cd "$(dirname "$0")"
preset=${1:-release}
shift || true

# Runs a command and shows its output only if it fails.
quietly() {
  local log status=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 || status=$?
  [ "$status" = 0 ] || cat "$log" >&2
  rm -f "$log"
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
cmake --build --preset "$preset" ${1:+--target "$@"} -- --quiet
