#!/usr/bin/env bash
# Builds and passes the tests.
set -euo pipefail
cd "$(dirname "$0")"
./build.sh release
ctest --preset release --parallel "$(nproc)"
