#!/usr/bin/env bash
# Tests ferry against the original implementations (tests/conformance/README.md):
#   tests/conformance.sh [--sample] [--seed N] [--seconds N] [PROMISE...]
# Tests all promises by default; --list prints their names. --seconds leaves out what does not end in that time.
# Makes the environment with the originals first (tests/conformance/environment.sh), and builds ferry; FERRY=BIN tests that
# program instead. Prints a table at the end. --sample takes about 8 minutes on two cores.
# Exit codes: 0: all promises hold; 1: one does not hold; 77: the environment cannot be made here.
set -euo pipefail
cd "$(dirname "$0")/.."

promises=(real_model mutations official_runtime official_export random_exports official_llms native_packages gguf_peers gguf_random projectors signatures adapters cards quantized_checkpoints families reference pictures videos sounds labelled_sounds listening encoder_decoders hub_names wheel)
sample=() seed=1 deadline= chosen=()
while [ $# -gt 0 ]; do
  case $1 in
    --sample) sample=(--sample) ;;
    --seed) seed=$2; shift ;;
    --seconds) deadline=$2; shift ;;
    --list) printf '%s\n' "${promises[@]}"; exit ;;
    -*) sed -n '2,8p' "$0" >&2; exit 2 ;;
    *) chosen+=("$1") ;;
  esac
  shift
done
[ ${#chosen[@]} -gt 0 ] || chosen=("${promises[@]}")
for promise in "${chosen[@]}"; do
  [[ " ${promises[*]} " == *" $promise "* ]] || { echo "conformance.sh: no promise '$promise'; --list prints them" >&2; exit 2; }
done

# left WANTED: the seconds that a step may take. 124 is the exit code of timeout.
left() {
  local rest=$1
  [ -z "$deadline" ] || [ $((deadline - SECONDS)) -gt "$rest" ] || rest=$((deadline - SECONDS))
  echo $((rest > 1 ? rest : 1))
}

code=0
environment=$(timeout --kill-after=10 "$(left 36000)" tests/conformance/environment.sh "${sample[@]}") || code=$?
[ "$code" -ne 124 ] || { echo "conformance.sh: the environment was not made in $deadline s" >&2; exit 77; }
[ "$code" -eq 0 ] || exit "$code"
export HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1
if [ -z "${FERRY:-}" ]; then
  ./build.sh release ferry
  FERRY=build/release/bin/ferry
fi

# Bundles of a real model are written and removed again. If /dev/shm has enough space, they need no disk.
room=$(df --output=avail --block-size=1G /dev/shm 2>/dev/null | tail -n 1 || true)
if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ] && [ "${room:-0}" -ge 6 ]; then export TMPDIR=/dev/shm; fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# A promise whose script does not end counts as one that does not hold.
limit=7200
[ ${#sample[@]} -eq 0 ] || limit=600
table=() status=0
for promise in "${chosen[@]}"; do
  script=tests/conformance/$promise.py options=("${sample[@]}" --seed "$seed") seconds=$limit
  echo "== $promise"
  start=$SECONDS last=
  # families.py and gguf_random.py count their cases instead of having a sample.
  [ "$promise" != families ] || options=(--seed "$seed" --count "$([ ${#sample[@]} -gt 0 ] && echo 40 || echo 600)" --keep "$scratch/families")
  [ "$promise" != gguf_random ] || options=(--seed "$seed" --count "$([ ${#sample[@]} -gt 0 ] && echo 60 || echo 900)" --keep "$scratch/gguf")
  command=("$environment/bin/python3" "$script" --ferry "$FERRY" "${options[@]}")
  # The wheel is compiled first, in 10 minutes on two cores.
  [ "$promise" != wheel ] || { script=tests/wheel.sh command=(tests/wheel.sh "$environment/bin/python3") seconds=3600; }
  if [ ! -e "$script" ]; then
    last="not there"
  elif [ -n "$deadline" ] && [ "$SECONDS" -ge "$deadline" ]; then
    last="left out: the time is over"
  elif [[ $promise = gguf_* ]] && ! "$environment/bin/python3" -c 'import llama_cpp' 2>/dev/null; then
    last="left out: llama.cpp is not in the environment"
  else
    code=0 allowed=$(left "$seconds")
    timeout --kill-after=10 "$allowed" "${command[@]}" 2>"$scratch/err" </dev/null |
      tee "$scratch/out" || code=$?
    last=$(tail -n 1 "$scratch/out")
    case $code in
      0 | 1) ;;
      124 | 137)
        if [ "$allowed" -lt "$seconds" ] && ! grep -q '^WRONG' "$scratch/out"; then
          last="left out: the time is over" code=0
        else
          last="more than $seconds s, after $(grep -c '^ok' "$scratch/out" || true) right cases"
        fi
        ;;
      *) last="exit code $code" ;;
    esac
    # The stderr of packages is of interest only if the script itself failed.
    [[ $last =~ [0-9]+/[0-9]+ ]] || tail -n 5 "$scratch/err" >&2
    [ "$code" -eq 0 ] || status=1
  fi
  table+=("$(printf '%-22s %7s s   %s' "$promise" $((SECONDS - start)) "$last")")
done
printf '%s\n' "" "promise                seconds   N/M" "${table[@]}"
exit "$status"
