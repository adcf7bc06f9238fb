#!/usr/bin/env bash
# Installs what packages.txt names (Debian, as root, only where something is missing) and builds:
#   build.sh [PRESET [TARGET...]]      the preset `release` and everything in it by default
set -euo pipefail
cd "$(dirname "$0")"
preset=${1:-release}
shift || true

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
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends "${missing[@]}"
  fi
fi

cmake --preset "$preset"
cmake --build --preset "$preset" ${1:+--target "$@"}
