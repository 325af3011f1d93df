#!/bin/sh
# Tests the CPU kernels: run.sh BUILD_DIR PYTHON
# BUILD_DIR holds libmojo_ops.so; the two test programs are built in BUILD_DIR/sanitize, with the address
# and undefined behaviour sanitizers. PYTHON needs onnxruntime, onnx, numpy and ml_dtypes; the variable
# CMAKE names another cmake. Every instruction set that the machine has is tested. Exits with 1 on a
# failure.
set -eu
if [ $# -ne 2 ]; then
  echo "usage: run.sh BUILD_DIR PYTHON" >&2
  exit 2
fi
build=$1
python=$2
here=$(cd "$(dirname "$0")" && pwd)

cmake=${CMAKE:-cmake}
"$cmake" -S "$here/.." -B "$build/sanitize" -DMOJO_SANITIZE=ON -DMOJO_TESTS=ON >/dev/null
for test in mojo_kernel_test mojo_runtime_test; do
  "$cmake" --build "$build/sanitize" --target $test --parallel 2 >/dev/null
done
"$build/sanitize/mojo_kernel_test"
echo "in a stand-in for onnxruntime"
for version in 15 16 17 18 23 24 latest; do
  "$build/sanitize/mojo_runtime_test" $version
done

for isa in portable avx2 avx512; do
  echo "through onnxruntime, MOJO_CPU_ISA=$isa"
  MOJO_CPU_ISA=$isa "$python" "$here/ort_test.py" "$build/libmojo_ops.so" --failfast
done
