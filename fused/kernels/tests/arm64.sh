#!/bin/sh
# Builds the kernels for Linux on arm64 and runs their tests in an emulator: arm64.sh BUILD_DIR
# Needs aarch64-linux-gnu-g++, and for running qemu-aarch64; the variable CMAKE names another cmake. Where the compiler
# is missing, it is installed if nobody is there to ask (root, no terminal, apt-get); otherwise nothing is tested.
set -eu
if [ $# -ne 1 ]; then
  echo "usage: arm64.sh BUILD_DIR" >&2
  exit 2
fi
build=$1
here=$(cd "$(dirname "$0")" && pwd)
packages="g++-aarch64-linux-gnu qemu-user-static"
if ! command -v aarch64-linux-gnu-g++ >/dev/null && [ "$(id -u)" = 0 ] && ! [ -t 0 ] && command -v apt-get >/dev/null; then
  # shellcheck disable=SC2086 # a list
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages; } \
    </dev/null >/dev/null 2>&1 || true
fi
if ! command -v aarch64-linux-gnu-g++ >/dev/null; then
  echo "arm64: skipped, there is no cross compiler: apt-get install $packages"
  exit 0
fi

"${CMAKE:-cmake}" -S "$here/.." -B "$build" --no-warn-unused-cli -DMOJO_TESTS=ON \
  -DCMAKE_TOOLCHAIN_FILE="$here/../cmake/aarch64-linux-gnu.cmake" >/dev/null
"${CMAKE:-cmake}" --build "$build" --parallel 2 >/dev/null
emulator=$(command -v qemu-aarch64 || command -v qemu-aarch64-static || true)
if [ -z "$emulator" ]; then
  echo "arm64: built; its tests were skipped, there is no emulator: apt-get install qemu-user-static"
  exit 0
fi
echo "arm64: in $(basename "$emulator")"
"$emulator" -L /usr/aarch64-linux-gnu "$build/mojo_kernel_test"
"$emulator" -L /usr/aarch64-linux-gnu "$build/mojo_runtime_test" latest
