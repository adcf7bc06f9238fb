#!/usr/bin/env bash
# Measures conversions of a checkpoint as whole processes, in ratio to cp and sha256sum in the same run.
#   tests/bench/ratios.sh FERRY CHECKPOINT_DIR WORK_DIR [convert options...]
# Each figure is the best of five, with a warm page cache. cp does not wait for the disk, so it compares with
# --no-sync, and "cp and sync" with other conversions. Peak anonymous memory is sampled.
set -euo pipefail
ferry=$1 checkpoint=$2 work=$3
shift 3
mkdir -p "$work"
files=("$checkpoint"/*.safetensors)

seconds() { # prints the best of five times of a command; removes earlier outputs before each
  local best= t0 t1 t
  for _ in 1 2 3 4 5; do
    rm -rf "$work/copy"; mkdir "$work/copy"
    if [ "$1" = convert ] || [ "$1" = unsynced ]; then rm -rf "$work/bundle"; fi
    t0=$(date +%s.%N); "$@" > /dev/null; t1=$(date +%s.%N)
    t=$(echo "$t1 - $t0" | bc)
    if [ -z "$best" ] || [ "$(echo "$t < $best" | bc)" = 1 ]; then best=$t; fi
  done
  echo "$best"
}
copy() { cp "${files[@]}" "$work/copy/"; }
unsynced() { convert --no-sync "$@"; }
synced_copy() { copy; sync "$work"/copy/*; } # the bytes are on the disk then, like those of a bundle
convert() { "$ferry" convert "$checkpoint" -o "$work/bundle" --quiet "$@"; }
plan() { "$ferry" convert "$checkpoint" -o "$work/bundle" --dry-run --overwrite --quiet "$@"; }
peak_anonymous() { # prints the peak anonymous memory of a conversion in MiB
  "$ferry" convert "$checkpoint" -o "$work/bundle" --overwrite --quiet "$@" &
  local pid=$! peak=0 now
  while now=$(awk '/RssAnon/ {print $2}' "/proc/$pid/status" 2>/dev/null) && [ -n "$now" ]; do
    if [ "$now" -gt "$peak" ]; then peak=$now; fi
    sleep 0.01
  done
  wait "$pid"
  echo "scale=1; $peak / 1024" | bc
}

cat "${files[@]}" > /dev/null
t_cp=$(seconds copy)
t_synced=$(seconds synced_copy)
t_sha=$(seconds sha256sum "${files[@]}")
t_convert=$(seconds convert "$@")
t_unsynced=$(seconds unsynced "$@")
t_dry=$(seconds plan "$@")
t_check=$(seconds "$ferry" check "$work/bundle" --quiet)
echo "bytes            $(cat "${files[@]}" | wc -c)"
echo "cp               $t_cp s"
echo "cp and sync      $t_synced s"
echo "sha256sum        $t_sha s"
echo "convert          $t_convert s = $(echo "scale=2; $t_convert / $t_cp" | bc) x cp," \
  "$(echo "scale=2; $t_convert / $t_synced" | bc) x cp and sync"
echo "  with --no-sync $t_unsynced s = $(echo "scale=2; $t_unsynced / $t_cp" | bc) x cp"
echo "convert dry run  $t_dry s"
echo "check            $t_check s = $(echo "scale=2; $t_check / $t_sha" | bc) x sha256sum"
echo "peak anonymous   $(peak_anonymous "$@") MiB"
echo "bundle bytes     $(cat "$work"/bundle/* | wc -c)"
rm -rf "$work/copy"
