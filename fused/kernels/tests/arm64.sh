#!/bin/sh
# Builds the kernels for Linux on arm64 and runs their tests in an emulator: arm64.sh BUILD_DIR
# Needs aarch64-linux-gnu-g++, and for running qemu-aarch64; the variable CMAKE names another cmake. What is not
# installed is not tested, and the output says so.
set -eu
if [ $# -ne 1 ]; then
  echo "usage: arm64.sh BUILD_DIR" >&2
  exit 2
fi
build=$1
here=$(cd "$(dirname "$0")" && pwd)
if ! command -v aarch64-linux-gnu-g++ >/dev/null; then
  echo "arm64: skipped: aarch64-linux-gnu-g++ is not installed: apt-get install g++-aarch64-linux-gnu qemu-user-static"
  exit 0
fi

# What is shipped another compiler makes: -O3 of this one would take twice as long.
"${CMAKE:-cmake}" -S "$here/.." -B "$build" --no-warn-unused-cli -DMOJO_TESTS=ON \
  -DCMAKE_TOOLCHAIN_FILE="$here/../cmake/aarch64-linux-gnu.cmake" -DCMAKE_CXX_FLAGS_RELEASE=-O1 >/dev/null
"${CMAKE:-cmake}" --build "$build" --parallel 2 >/dev/null
emulator=$(command -v qemu-aarch64 || command -v qemu-aarch64-static || true)
if [ -z "$emulator" ]; then
  echo "arm64: built; its tests are skipped: qemu-aarch64 is not installed: apt-get install qemu-user-static"
  exit 0
fi
echo "arm64: in $(basename "$emulator")"
"$emulator" -L /usr/aarch64-linux-gnu "$build/mojo_kernel_test"
# In an older version of the API each form runs once, and not in all ways, which takes minutes in the emulator.
"$emulator" -L /usr/aarch64-linux-gnu "$build/mojo_runtime_test" 24
