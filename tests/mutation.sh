#!/usr/bin/env bash
# The whole mutation test (docs/verifying.md): builds it, runs every kind of wrong conversion on every
# model in every dtype, prints the table. Exit code 1 if a wrong conversion passes or is not named.
#   tests/mutation.sh [options of mutation_test, e.g. --model llama --kind rope_theta --all]
set -euo pipefail
cd "$(dirname "$0")/.."
[ -d build/release ] || cmake --preset release > /dev/null
cmake --build --preset release --target mutation_test > /dev/null
build/release/bin/mutation_test --jobs "$(nproc)" "$@"
