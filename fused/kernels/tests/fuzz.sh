#!/bin/sh
# Calls the CPU kernels with hostile arguments under the sanitizers: fuzz.sh BUILD_DIR [ARGUMENTS]
# The program is call_fuzz.cc, which says what ARGUMENTS are; it is built in BUILD_DIR/sanitize.
set -eu
build=$1
here=$(cd "$(dirname "$0")" && pwd)
shift
"${CMAKE:-cmake}" -S "$here/.." -B "$build/sanitize" -DMOJO_SANITIZE=address,undefined -DMOJO_TESTS=ON >/dev/null
"${CMAKE:-cmake}" --build "$build/sanitize" --target mojo_call_fuzz --parallel 2 >/dev/null
exec "$build/sanitize/mojo_call_fuzz" "$@"
