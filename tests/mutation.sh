#!/usr/bin/env bash
# Builds and runs the whole mutation test (docs/verifying.md): every kind of wrong conversion on every model in
# every dtype. Prints a table. Exits with 1 if a wrong conversion passes or is not named.
#   tests/mutation.sh [options of mutation_test, e.g. --model llama --kind rope_theta --all]
set -euo pipefail
cd "$(dirname "$0")/.."
[ -d build/release ] || cmake --preset release > /dev/null
cmake --build --preset release --target mutation_test > /dev/null
build/release/bin/mutation_test --jobs "$(nproc)" "$@"
