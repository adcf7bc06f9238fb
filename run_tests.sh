#!/usr/bin/env bash
# Builds and passes the tests.
set -euo pipefail
cd "$(dirname "$0")"
./build.sh release

# Tests write thousands of small bundles and sync each of them. Where there is room in memory, no disk
# is waited for.
memory=/dev/shm
room=$(df --output=avail --block-size=1G "$memory" 2>/dev/null | tail -n 1 || true)
if [ -z "${TMPDIR:-}" ] && [ -w "$memory" ] && [ "${room:-0}" -ge 4 ]; then export TMPDIR=$memory; fi

# One more than there are processors: some tests wait for other programs.
ctest --preset release --parallel "$(($(nproc) + 1))"
