#!/usr/bin/env bash
# Builds the packages and tries them in a system where nothing else is installed:
#   tests/package.sh [ROOT]
# - the .deb files, installed by apt into a bare Debian 12 (debootstrap --variant=minbase);
# - the tarball, in the same system before anything is installed.
# The commands of demo.sh run with both. Needs root, debootstrap and a mirror. ROOT is the directory for the bare
# system, about 250 MB. A given ROOT is kept and used again. The variable MIRROR names the mirror; the default is
# that of this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
source=$PWD
keep=${1:-}
root=${1:-$(mktemp -d)}
mirror=${MIRROR:-$(sed -n 's/^URIs: *\([^ ]*debian\)\/*$/\1/p' /etc/apt/sources.list.d/debian.sources | head -n 1)}

unmount() { for dir in proc dev; do mountpoint -q "$root/$dir" && umount "$root/$dir"; done || true; }
clean() {
  unmount
  [ -n "$keep" ] || rm -rf --one-file-system "$root"
}
trap clean EXIT

in_root() { chroot "$root" env -i PATH=/usr/bin:/usr/sbin:/bin:/sbin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }

# Runs the commands of demo.sh with the program $1.
demonstrate() {
  in_root rm -rf /tmp/demo
  in_root "$1" convert /sample -o /tmp/demo --dtype f32 --shards 2 --reference /sample/golden.safetensors --quiet
  in_root "$1" run /tmp/demo --prompt "And it came to pass" --max-new 60 --quiet
  in_root "$1" verify /tmp/demo --quiet
  in_root "$1" check /tmp/demo
}

echo "package.sh: building"
cmake --preset package >/dev/null
rm -rf build/package/packages
cmake --build build/package --target ferry ferry_library ferry_portable -- --quiet
(cd build/package && cpack >/dev/null && cpack -G TGZ >/dev/null)
tarball=$(ls "$source"/build/package/packages/*.tar.gz)
packages=$(ls "$source"/build/package/packages/*.deb)
ls -l $packages "$tarball"

if [ ! -e "$root/etc/debian_version" ]; then
  echo "package.sh: a bare Debian 12 in $root"
  debootstrap --variant=minbase bookworm "$root" "$mirror" >/dev/null
fi
cp /etc/resolv.conf "$root/etc/"
for dir in proc dev; do mountpoint -q "$root/$dir" || mount --bind "/$dir" "$root/$dir"; done
rm -rf "$root/sample" "$root/opt/ferry" "$root/packages"
cp -r testdata/trained "$root/sample"
in_root apt-get -qq autoremove --purge -y ferry libferry-dev >/dev/null 2>&1 || true

echo "package.sh: the tarball, with nothing installed"
mkdir -p "$root/opt/ferry" "$root/packages"
tar -xzf "$tarball" -C "$root/opt/ferry" --strip-components=1
needed=$(readelf -d "$root/opt/ferry/bin/ferry" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | sort | tr '\n' ' ')
echo "needs: $needed"
for library in $needed; do
  case $library in
    libc.so.6 | libm.so.6 | ld-linux-*.so.*) ;;
    *) echo "package.sh: $library is not glibc's" >&2; exit 1 ;;
  esac
done
in_root /opt/ferry/bin/ferry --version
demonstrate /opt/ferry/bin/ferry

echo "package.sh: the packages, installed by apt"
cp $packages "$root/packages"
in_root apt-get -qq -o Acquire::Check-Valid-Until=false update
in_root sh -c 'apt-get -qq install -y --no-install-recommends /packages/ferry_*.deb' >/dev/null
in_root dpkg-query -W -f 'depends: ${Depends}\n' ferry
in_root sh -c 'dpkg -V ferry && ferry --version'
demonstrate ferry
in_root apt-get -qq autoremove --purge -y ferry >/dev/null
in_root sh -c '! command -v ferry'
echo "package.sh: passed"
