#!/bin/sh
# Tests the CPU kernels under the sanitizers: run.sh BUILD_DIR PYTHON
# The test programs are built in BUILD_DIR/sanitize, with the address and undefined behavior sanitizers, and in
# BUILD_DIR/thread, with the thread sanitizer. PYTHON needs onnxruntime, onnx, numpy and ml_dtypes; the variable CMAKE
# names another cmake. Every instruction set that the machine has is tested. Where it lacks AVX-512 with VNNI, those loops
# are compiled in terms of AVX2 (avx512_emulation.h) and tested so; MOJO_EMULATE_AVX512=ON does it anywhere. Exits with 1
# on a failure.
set -eu
if [ $# -ne 2 ]; then
  echo "usage: run.sh BUILD_DIR PYTHON" >&2
  exit 2
fi
build=$1
python=$2
here=$(cd "$(dirname "$0")" && pwd)

emulate=${MOJO_EMULATE_AVX512:-OFF}
if grep -qsw avx2 /proc/cpuinfo && ! grep -qsw avx512_vnni /proc/cpuinfo; then
  emulate=ON
fi

# compile FOLDER SANITIZERS TEST...
compile() {
  folder=$1
  "${CMAKE:-cmake}" -S "$here/.." -B "$folder" -DMOJO_SANITIZE="$2" -DMOJO_TESTS=ON \
    -DMOJO_EMULATE_AVX512="$emulate" >/dev/null
  shift 2
  for test; do
    "${CMAKE:-cmake}" --build "$folder" --target "$test" --parallel 2 >/dev/null
  done
}

compile "$build/sanitize" address,undefined mojo_kernel_test mojo_runtime_test
"$build/sanitize/mojo_kernel_test"
if [ "$emulate" = ON ]; then # what follows is about all that is around the loops
  export MOJO_CPU_ISA=avx2
fi
echo "in a stand-in for onnxruntime"
for version in 15 16 17 18 23 24 latest; do
  "$build/sanitize/mojo_runtime_test" $version
done

echo "calls with random and hostile shapes, types, attributes and data"
compile "$build/sanitize" address,undefined mojo_call_fuzz
"$build/sanitize/mojo_call_fuzz" --calls "${MOJO_CALLS:-300}" --seed "${MOJO_SEED:-1}"

echo "in the stand-in, with the thread sanitizer"
compile "$build/thread" thread mojo_runtime_test
# Where the kernel randomises more of the address space than the sanitizer of the compiler knows, it must not.
fixed=
"$build/thread/mojo_runtime_test" 15 >/dev/null 2>&1 || fixed="setarch $(uname -m) -R"
$fixed "$build/thread/mojo_runtime_test" latest

# Python must load GCC's sanitizer first, and libstdc++ for the sanitizer to find what throws exceptions. Python leaks by
# design, so leaks are not looked for.
sanitizer=$("${CXX:-c++}" -print-file-name=libasan.so)
if [ -e "$sanitizer" ]; then
  echo "through onnxruntime, with the sanitizers: what is refused, in place, loaded; the stand-in ran the rest"
  compile "$build/sanitize" address,undefined mojo_ops
  ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$sanitizer $("${CXX:-c++}" -print-file-name=libstdc++.so.6)" \
    "$python" "$here/ort_test.py" "$build/sanitize/libmojo_ops.so" --failfast \
    -k bad -k errors -k in_place -k InPlaceTest -k LoadTest -k no_keys -k zero -k left_out
fi
