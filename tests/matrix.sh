#!/usr/bin/env bash
# Checks what one build and its suite cannot show of the sources:
#   tests/matrix.sh [STEP...]     all steps by default; --list prints their names
# Installs the tools that a step needs, as root on Debian 12. Prints little unless a step fails.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)
export CMAKE_BUILD_PARALLEL_LEVEL=$jobs CTEST_PARALLEL_LEVEL=$jobs
export CTEST_OUTPUT_ON_FAILURE=1 CMAKE_COLOR_DIAGNOSTICS=OFF

# need COMMAND PACKAGE: installs the package if the command is absent.
need() {
  command -v "$1" >/dev/null && return
  if [ "$(id -u)" != 0 ]; then
    echo "matrix.sh: please install $2" >&2
    return 2
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends "$2" >/dev/null
}

# configure DIRECTORY CMAKE-OPTIONS...: configures with -Werror.
configure() {
  local directory=$1
  mkdir -p "$(dirname "$directory")"
  cmake -S . -B "$directory" -G Ninja -DFERRY_WERROR=ON "${@:2}" >"$directory.log" 2>&1 ||
    { cat "$directory.log" >&2; return 1; }
}

# build DIRECTORY CMAKE-OPTIONS... -- TARGETS...: configures and builds.
build() {
  local directory=$1 options=()
  shift
  while [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  shift
  configure "$directory" "${options[@]}"
  cmake --build "$directory" ${1:+--target "$@"} -- --quiet
}

# configure_sources DIRECTORY CMAKE-OPTIONS...: makes a compile_commands.json that works without a build,
# because it uses no precompiled headers and all sources are generated.
configure_sources() {
  configure "$1" --preset release -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DFERRY_BENCH=ON "${@:2}"
  cmake --build "$1" --target formats/generated/{program,flat_tensor,blob,bundled,native_graph}_generated.h \
    report/page_parts.cc ferry_build_version -- --quiet
}

step_format() {
  need clang-format clang-format
  git ls-files '*.cc' '*.h' | xargs clang-format --dry-run -Werror
}

# Compiles each source alone for the warnings of g++. A missing include is an error, because precompiled
# headers are off. Warnings that need the optimiser are errors in CI, which compiles everything.
step_gcc() {
  configure_sources build/matrix-gcc -DFERRY_GROUPS=OFF
  sed -n 's/^ *"command": "\(.*\)",$/\1/p' build/matrix-gcc/compile_commands.json |
    sed -e 's/\\\(.\)/\1/g' -e 's/ -o [^ ]* -c / -fsyntax-only /' |
    xargs -d '\n' -P "$jobs" -I{} sh -c {}
}

# tidy CLANG-TIDY-OPTIONS...: checks the sources and groups whose names come from stdin.
tidy() {
  local here
  here=$(pwd -P)
  xargs -r -P "$jobs" -n 1 clang-tidy --quiet -p build/matrix-tidy "$@" \
    --header-filter="^$here/[a-z]+/[a-z0-9_/]*\.(h|cc)\$" 2>/dev/null
}
# Checks all sources and fuzz targets for the warnings of clang and clang-tidy. It checks one group at a time,
# which takes a sixth of the time, because headers are parsed once per group. Tests may copy, multiply and
# compare bytes in the most readable way, and have names that the linker prescribes.
step_tidy() {
  need clang-tidy clang-tidy
  need clang++ clang
  configure_sources build/matrix-tidy -DCMAKE_CXX_COMPILER=clang++ -DFERRY_FUZZ=ON
  local sources=build/matrix-tidy/sources lenient=-performance-\*,-cert-err34-c
  lenient+=,-bugprone-implicit-widening-of-multiplication-result
  lenient+=,-bugprone-suspicious-memory-comparison,-bugprone-reserved-identifier
  lenient+=,-bugprone-not-null-terminated-result
  lenient+=,-clang-analyzer-deadcode.DeadStores,-clang-analyzer-security.FloatLoopCounter
  sed -n 's/^ *"file": "\(.*\)"$/\1/p' build/matrix-tidy/compile_commands.json | sort -u >$sources
  grep -v -e '/generated/' -e '/tests/' $sources | tidy
  grep -e '/tests/' $sources | tidy --checks="$lenient"
}

# Checks that each header compiles alone.
step_headers() {
  git ls-files '*.h' | grep -v -e '-inl.h$' -e '^tests/' | xargs -P "$jobs" -I{} \
    g++ -std=c++20 -fsyntax-only -Werror -Wall -Wextra -I. -Iinclude $(pkg-config --cflags hdf5) \
    -include {} -x c++ /dev/null
}

# These tests limit the address space. Sanitizers and emulators need more than they allow.
limited=ThreadPool.RefusedThreadsAreDoneWithout
limited+=:TorchMemory.AStorageIsNotLoadedForAStridedView
limited+=:TorchMemory.CompressedStoragesAreReleasedOnceRead

# suites PATH...: prints the suites of these files and folders of tests as a filter of GoogleTest.
suites() {
  (cd tests && grep -rhoP '^TEST(_F|_P)?\(\K\w+' "$@") | sort -u | sed 's,.*,&.*:*/&.*,' | paste -sd :
}

in_process=(audit batch checkpoint conversion converters core dialects
  end_to_end/hostile_files_test.cc formats graph kernels media packer plan prompt proof report runner
  signing text)
# The tests with sanitizers and the fuzz targets share objects, which compile in half of the time without
# optimisation. Precompiled headers are on here, because step_gcc compiles each source without them.
sanitized=(build/matrix-fuzz --preset fuzz -DFERRY_TESTS=ON -DFERRY_GROUPS=ON
  -DCMAKE_DISABLE_PRECOMPILE_HEADERS=OFF "-DCMAKE_CXX_FLAGS_DEBUG=-O0 -g1")
# Runs the tests with the address and undefined-behaviour sanitizers. The tests of cli and end_to_end are left
# out, because they start the program thousands of times; the tests of hostile files do not, and are run. Those
# of the bytes of programs are run, because clang evaluates arguments in another order than g++.
step_asan() {
  need clang++ clang
  build "${sanitized[@]}" -- ferry_tests
  build/matrix-fuzz/bin/ferry_tests --gtest_brief=1 \
    --gtest_filter="$(suites "${in_process[@]}" end_to_end/program_bytes_test.cc)-$limited"
}
# Runs the tests of folders that use threads with the thread sanitizer. With this sanitizer GCC 12 wrongly warns
# of uninitialised members and copies out of bounds, so warnings are no errors here.
step_tsan() {
  build build/matrix-tsan --preset tsan -DFERRY_GROUPS=ON -DFERRY_WERROR=OFF -- ferry_tests
  build/matrix-tsan/bin/ferry_tests --gtest_brief=1 \
    --gtest_filter="$(suites core packer runner)-$limited"
}

# Runs each fuzz target for FUZZ_SECONDS (60), starting from its kept inputs. No target may crash, or take 25 s
# for one input.
step_fuzz() {
  need clang++ clang
  build "${sanitized[@]}" -DFERRY_FUZZ_SECONDS="${FUZZ_SECONDS:-60}" -- fuzzers
  ctest --test-dir build/matrix-fuzz --quiet -R '^fuzz\.'
}

# Unpacks the arm64 packages of the libraries in packages.txt and of their dependencies. apt gets a state of its
# own, so that the packages of this machine stay as they are.
unpack_aarch64_root() {
  local root=$PWD/build/aarch64-root apt=$PWD/build/aarch64-apt package
  [ ! -e "$root/complete" ] || return 0
  mkdir -p "$apt"/{lists,archives}/partial "$root"/usr/lib
  : >"$apt/status"
  ln -sfn usr/lib "$root/lib"
  cat >"$apt/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
Dir::State::status "$apt/status";
Dir::State::lists "$apt/lists";
Dir::Cache "$apt";
APT::Sandbox::User "root";
Debug::NoLocking "true";
Acquire::Languages "none";
END
  APT_CONFIG=$apt/apt.conf apt-get -qq update
  grep -e '-dev$' packages.txt |
    APT_CONFIG=$apt/apt.conf xargs apt-get -qq install --yes --download-only \
      --no-install-recommends >"$apt/log" 2>&1 || { cat "$apt/log" >&2; return 1; }
  for package in "$apt"/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" --keep-directory-symlink
  done
  # Links to other directories of the root are absolute, such as libz.so.
  find "$root" -lname '/*' -printf '%p %l\n' | while read -r link to; do
    ln -sfn "$root$to" "$link"
  done
  # Debian makes this link, an alternative, when the package is installed.
  ln -sf hdf5-serial.pc "$root/usr/lib/aarch64-linux-gnu/pkgconfig/hdf5.pc"
  touch "$root/complete"
}

# Runs on aarch64 the tests of five folders and of hostile files, conversions whose bundles must have the same
# bytes as on x86, and one proof. qemu-user has no seccomp, without which the reader of HDF5 files refuses to work,
# and no limits of the address space, which three other tests need.
step_aarch64() {
  need aarch64-linux-gnu-g++ g++-aarch64-linux-gnu
  need qemu-aarch64-static qemu-user-static
  unpack_aarch64_root
  local arm=build/matrix-aarch64 samples=build/matrix-samples sample name
  local refused=Hdf5*:KerasShards*:Formats/HostileTest.*/hdf5:$limited
  ./build.sh release ferry
  build $arm --preset release --toolchain "$PWD/cmake/aarch64-linux-gnu.cmake" -- \
    ferry ferry_tests
  export QEMU_LD_PREFIX=$PWD/build/aarch64-root
  qemu-aarch64-static $arm/bin/ferry_tests --gtest_brief=1 \
    --gtest_filter="$(suites core end_to_end/hostile_files_test.cc formats graph kernels runner)-$refused"
  rm -rf $samples
  mkdir -p $samples/x86 $samples/arm
  for sample in testdata/{llama3_tied,qwen3_5_text,golden/{gemma3,phi3_window,qwen3_moe_bf16}} \
    testdata/gguf/llama3_tied_q8_0.gguf; do
    name=${sample##*/}
    build/release/bin/ferry convert "$sample" -o "$samples/x86/$name" >/dev/null
    qemu-aarch64-static $arm/bin/ferry convert "$sample" -o "$samples/arm/$name" >/dev/null
  done
  diff -r $samples/x86 $samples/arm
  qemu-aarch64-static $arm/bin/ferry verify $samples/arm/llama3_tied \
    --reference testdata/llama3_tied/golden.safetensors >/dev/null
}

steps=$(compgen -A function step_ | sed 's/^step_//')
if [ "${1:-}" = --list ]; then
  echo "$steps"
  exit
fi
for step in ${@:-$steps}; do
  echo "== $step"
  TIMEFORMAT="   %R s, %U s of processor time"
  time "step_$step"
done
