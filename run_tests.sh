#!/usr/bin/env bash
# Builds and runs the tests.
set -euo pipefail
cd "$(dirname "$0")"
./build.sh release

# Tests write thousands of small bundles and sync each of them. In /dev/shm, if that has enough space, they
# do not wait for a disk.
memory=/dev/shm
room=$(df --output=avail --block-size=1G "$memory" 2>/dev/null | tail -n 1 || true)
if [ -z "${TMPDIR:-}" ] && [ -w "$memory" ] && [ "${room:-0}" -ge 4 ]; then export TMPDIR=$memory; fi

# Some tests wait for other programs, so one more test runs than there are processors.
ctest --preset release --parallel "$(($(nproc) + 1))"
