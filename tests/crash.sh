#!/bin/sh
# All of the crash tests: SIGKILL at every call that changes a disk and at any time, damaged stages,
# power failures as a model. Prints the counts. About 10 minutes of processor time.
#
#   tests/crash.sh [BUILD_DIRECTORY] [GTEST_FILTER]
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
filter=${2:-'*Crash*:StageTest.*:DiskSpace.*:*LostWrites*:DiskModel.*'}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
FERRY_CRASH_FULL=1 "$build/bin/faults_tests" --gtest_filter="$filter" >"$log" 2>&1 || {
  grep -v '^\[' "$log" | tail -n 40
  exit 1
}
grep '^crash: ' "$log"
awk '/^crash: /{for (i = 1; i < NF; ++i) if ($(i + 1) ~ /^(points|trials|states):?$/) n[$(i + 1)] += $i}
     END {printf "in all:"; for (k in n) printf " %d %s", n[k], k; printf " passed\n"}' "$log"
