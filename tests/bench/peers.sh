#!/usr/bin/env bash
# Compares decoding and prefill with llama.cpp in one run: tokens per second, their ratio, and the share of the
# machine's memory bandwidth that decoding reaches.
#   tests/bench/peers.sh BUNDLE GGUF [BUNDLE GGUF]...
# Each bundle is compared with the GGUF file after it. The two should have equal shapes and about equally many
# bits: bf16 with bf16, 8 bits with q8_0, 4 bits with q4_0. The bundles are stateful. A prefill of 512 tokens is
# left out if prefill length or context are shorter.
# Needs bundle_bench (preset bench) and llama-bench of llama.cpp. Environment variables:
#   BUNDLE_BENCH  program of this project; default: build/bench/bin/bundle_bench
#   LLAMA_BENCH   command, which may have several words; default: llama-bench from the PATH
#   THREADS       number of threads; default: the processors that this process may use
#   ROUNDS        number of rounds; default: 3. The programs take turns, and the best round of each counts
# The machine should be idle, because other load slows an engine whose threads wait for each other more.
set -euo pipefail
cd "$(dirname "$0")/../.."
bundle_bench=${BUNDLE_BENCH:-build/bench/bin/bundle_bench}
read -ra llama_bench <<< "${LLAMA_BENCH:-llama-bench}"
threads=${THREADS:-$(nproc)} rounds=${ROUNDS:-3}

die() { echo "peers.sh: $*" >&2; exit 2; }
[ $# -ge 2 ] && [ $(($# % 2)) = 0 ] || die "give a bundle and a GGUF file, or several such pairs"
[ -x "$bundle_bench" ] || die "no $bundle_bench: build the preset bench, or set BUNDLE_BENCH"
command -v "${llama_bench[0]}" > /dev/null || die "no ${llama_bench[0]}: install llama.cpp, or set LLAMA_BENCH"

results=$(mktemp)
trap 'rm -f "$results"' EXIT

ours() { # prints lines "pair ferry TEST tokens/s", and bandwidths in bytes/s
  FERRY_BENCH_BUNDLE=$2 FERRY_BENCH_THREADS=$threads "$bundle_bench" --benchmark_format=csv \
    --benchmark_filter='plain_read|decode|prefill' 2> /dev/null |
    awk -F, -v pair="$1" '
      { gsub(/"/, "", $1) }
      $1 ~ /^plain_read/ { print pair, "machine", "bytes", $6 }
      $1 ~ /^decode/ { print pair, "ferry", "decode", $7; print pair, "ferry", "bytes", $6 }
      $1 ~ /^prefill/ && $7 > 0 { split($1, part, "/"); print pair, "ferry", "prefill_" part[2], $7 }'
}
theirs() { # prints lines "pair llama TEST tokens/s"
  "${llama_bench[@]}" -m "$2" -t "$threads" -p 128,512 -n 32 -r 1 -o jsonl 2> /dev/null |
    sed -n 's/.*"n_prompt": \([0-9]*\), "n_gen": \([0-9]*\),.*"avg_ts": \([0-9.]*\).*/\1 \2 \3/p' |
    awk -v pair="$1" '{ print pair, "llama", ($1 > 0 ? "prefill_" $1 : "decode"), $3 }'
}

for ((round = 0; round < rounds; ++round)); do
  for ((i = 1; i < $#; i += 2)); do
    gguf=$((i + 1))
    ours "$i" "${!i}" >> "$results" || die "${!i}: bundle_bench failed"
    theirs "$i" "${!gguf}" >> "$results" || die "${!gguf}: ${llama_bench[*]} failed"
  done
done

echo "$threads threads, best of $rounds rounds, tokens/s"
for ((i = 1; i < $#; i += 2)); do
  gguf=$((i + 1))
  echo "${!i} beside ${!gguf}"
  awk -v pair="$i" '
    $1 == pair { key = $2 " " $3; if ($4 > best[key]) best[key] = $4 }
    END {
      count = split("decode prefill_128 prefill_512", tests, " ")
      for (t = 1; t <= count; ++t) {
        a = best["ferry " tests[t]]; b = best["llama " tests[t]]
        if (a > 0 && b > 0) {
          printf "  %-12s ferry %8.1f   llama.cpp %8.1f   ratio %.2f\n", tests[t], a, b, a / b
        } else {
          printf "  %-12s not measured\n", tests[t]
        }
      }
      read = best["machine bytes"]; used = best["ferry bytes"]
      printf "  bandwidth    %.1f GB/s read, decoding reads %.1f GB/s of weights = %.0f %%\n",
             read / 1e9, used / 1e9, 100 * used / read
    }' "$results"
done
