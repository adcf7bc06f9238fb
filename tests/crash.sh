#!/bin/sh
# Runs all crash tests: SIGKILL at every call that changes a disk and at any time, damaged stages, and
# simulated power failures. Prints the counts. Takes about 10 minutes of processor time.
#
#   [FERRY_CRASH_POINTS=N] tests/crash.sh [BUILD_DIRECTORY] [GTEST_FILTER]
#
# With N, tries at most N points of each test.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
filter=${2:-'*Crash*:StageTest.*:DiskSpace.*:*LostWrites*:DiskModel.*'}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
FERRY_CRASH_POINTS=${FERRY_CRASH_POINTS:-1000000} "$build/bin/faults_tests" --gtest_filter="$filter" >"$log" 2>&1 || {
  grep -v '^\[' "$log" | tail -n 40
  exit 1
}
grep '^crash: ' "$log"
awk '/^crash: /{for (i = 1; i < NF; ++i) if ($(i + 1) ~ /^(points|trials|states):?$/) n[$(i + 1)] += $i}
     END {printf "in all:"; for (k in n) printf " %d %s", n[k], k; printf " passed\n"}' "$log"
