#!/usr/bin/env bash
# Makes the Python environment with the original implementations that tests/conformance compares Ferry with:
#   environment.sh [--sample]     prints the folder of the environment on stdout, progress and errors on stderr
# The environment is made once, in the user's cache folder, from the versions in requirements.txt (8 GB; about 6
# minutes). --sample leaves out llama.cpp, which is compiled here (another 8 minutes on two cores).
# FERRY_CONFORMANCE_ENV=DIR uses the environment DIR as it is.
# Exit codes: 0: the environment exists; 77: it cannot be made here.
set -euo pipefail
cd "$(dirname "$0")"

say() { echo "environment.sh: $*" >&2; }
cannot() { say "cannot make the environment: $*"; exit 77; }

parts=(base listening towers llama)
[ "${1:-}" != --sample ] || parts=(base listening towers)

if [ -n "${FERRY_CONFORMANCE_ENV:-}" ]; then
  [ -x "$FERRY_CONFORMANCE_ENV/bin/python3" ] || cannot "FERRY_CONFORMANCE_ENV=$FERRY_CONFORMANCE_ENV has no bin/python3"
  echo "$FERRY_CONFORMANCE_ENV"
  exit
fi

cache=${XDG_CACHE_HOME:-$HOME/.cache}/ferry
dir=$cache/conformance-$(cat requirements.txt requirements-llama.txt | sha256sum | cut -c1-12)
log=$dir.log

complete() {
  local part
  for part in "${parts[@]}"; do [ -e "$dir/.complete-$part" ] || return 1; done
}
finish() { echo "$dir"; exit; }
! complete || finish

command -v python3 >/dev/null || cannot "python3 is not installed"
command -v flock >/dev/null || cannot "flock (util-linux) is not installed"
mkdir -p "$cache" 2>/dev/null || cannot "$cache is not a folder that can be written"

# One run makes the environment. Other runs wait for that run.
exec 9>"$dir.lock" || cannot "$dir.lock cannot be written"
waited=0
until flock -w 10 9; do
  waited=$((waited + 10))
  say "another run makes it, $waited s"
done
! complete || finish

room=$(df --output=avail --block-size=1G "$cache" | tail -n 1)
[ -e "$dir/.complete-base" ] || [ "$room" -ge 10 ] || cannot "$cache has ${room// /} GB of free space, it takes 10 GB"

# watched WHAT COMMAND...: runs the command with its output in the log, and prints a line every 10 seconds.
watched() {
  local what=$1 start=$SECONDS pid beat=0
  shift
  "$@" >>"$log" 2>&1 9>&- &
  pid=$!
  trap 'kill $pid 2>/dev/null; exit 143' INT TERM
  while kill -0 "$pid" 2>/dev/null; do
    sleep 1
    beat=$((beat + 1))
    [ $((beat % 10)) -ne 0 ] || say "$what, $((SECONDS - start)) s: $(tail -n 1 "$log" | tr -d '\r' | cut -c1-90)"
  done
  trap - INT TERM
  wait "$pid"
}

# Without --no-deps, packages would ask for other versions of each other than those that are pinned.
install() { "$dir/bin/python3" -m pip --disable-pip-version-check install --progress-bar off --retries 2 --timeout 30 --no-deps "$@"; }
why() { grep -E 'ERROR|rror:' "$log" | tail -n 1 | cut -c1-200; }

: >"$log"
if [ ! -e "$dir/.complete-base" ]; then
  rm -rf "$dir"
  python3 -m venv "$dir" >>"$log" 2>&1 || { rm -rf "$dir"; cannot "python3 has no venv ($(why)); on Debian: apt-get install python3-venv"; }
  watched "installing packages" install -r requirements.txt || { rm -rf "$dir"; cannot "$(why) (all of it in $log)"; }
  touch "$dir/.complete-base"
fi
if [ ! -e "$dir/.complete-listening" ]; then
  watched "installing mistral-common" install -r requirements-listening.txt || cannot "$(why) (all of it in $log)"
  touch "$dir/.complete-listening"
fi
if [ ! -e "$dir/.complete-towers" ]; then
  watched "installing timm" install -r requirements-towers.txt || cannot "$(why) (all of it in $log)"
  touch "$dir/.complete-towers"
fi
if ! complete; then
  watched "building llama.cpp" install -r requirements-llama.txt || cannot "$(why) (all of it in $log)"
  touch "$dir/.complete-llama"
fi
finish
