#!/bin/sh
# Runs the examples on a bundled model that is patched here: `make test-examples`.
#
# ONNXRUNTIME_LIB, MOJO_OPS_LIBRARY and MOJO_PYTHON (with onnx, onnxruntime and numpy) say what to run with.
set -eu
cd "$(dirname "$0")/../.."
: "${ONNXRUNTIME_LIB:?run make test-examples}" "${MOJO_OPS_LIBRARY:?}" "${MOJO_PYTHON:?}"
model=models/qwen3-dynamo-fp32
temp=$PWD/build/examples
mkdir -p "$temp"

die() { echo "examples: $1" >&2; shift; [ $# -eq 0 ] || cat "$@" >&2; exit 1; }
# ok NAME COMMAND…: the command ends well and says that the outputs are close.
ok() {
  name=$1
  shift
  "$@" >"$temp/log" 2>&1 || die "$name failed" "$temp/log"
  grep -q '^logits: largest difference [0-9.e-]* of' "$temp/log" || die "$name compared nothing" "$temp/log"
  echo "example $name: $(tail -1 "$temp/log")"
}
# fails NAME COMMAND…: the command fails, as it should.
fails() {
  name=$1
  shift
  ! "$@" >"$temp/log" 2>&1 || die "$name should fail" "$temp/log"
}

build/mojo-patch apply $model.onnx -o "$temp/patched.onnx" --require --verify off >"$temp/log" 2>&1 || die "cannot patch $model.onnx" "$temp/log"
rm -rf "$temp/golden" "$temp/wrong"
"$MOJO_PYTHON" -m zipfile -e $model.npz "$temp/golden"
# The same model without function bodies, which nothing but the kernels can run, and outputs that are wrong.
"$MOJO_PYTHON" - "$temp" <<'PYTHON'
import pathlib, shutil, sys
import numpy as np, onnx
temp = pathlib.Path(sys.argv[1])
model = onnx.load(temp / "patched.onnx")
del model.functions[:]
onnx.save(model, temp / "bare.onnx")
shutil.copytree(temp / "golden", temp / "wrong")
output = temp / "wrong" / "0.out.logits.npy"
wrong = np.load(output)
wrong.flat[-1] += 1e-2 * np.abs(wrong).max()
np.save(output, wrong)
PYTHON

# Python: the package of `make wheel` is tested by test-wheel; here it is its source with the library beside it.
rm -rf "$temp/package"
mkdir -p "$temp/package"
cp -R python/src/mojo_patch "$temp/package/"
cp "$MOJO_OPS_LIBRARY" "$temp/package/mojo_patch/"
ok python env PYTHONPATH="$temp/package" "$MOJO_PYTHON" docs/examples/python/run.py "$temp/bare.onnx" $model.npz

# The same model, divided over two processes: the first one's output is compared, and both must end well.
rm -rf "$temp/sharded"
build/mojo-patch shard $model.onnx --ranks 2 -o "$temp/sharded" >"$temp/log" 2>&1 || die "cannot divide $model.onnx" "$temp/log"
port=$("$MOJO_PYTHON" -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
# ranks COMMAND…: the command as two ranks.
ranks() {
  env RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "$@" >&2 &
  env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "$@" && wait $!
}
go build -o "$temp/go-sharded" ./docs/examples/go/sharded >"$temp/log" 2>&1 || die "the Go example does not compile" "$temp/log"
ok "go, two ranks" ranks "$temp/go-sharded" "$temp/sharded" $model.npz
fails "go, two ranks of which one has no model" ranks sh -c '[ $RANK = 0 ] || set -- "$1" missing "$3"; "$@"' - "$temp/go-sharded" "$temp/sharded" $model.npz
ok "python, two ranks" ranks env PYTHONPATH="$temp/package" "$MOJO_PYTHON" docs/examples/python/sharded.py "$temp/sharded" $model.npz

# Ray's decoder, which needs no Ray. The module finds the program in the bin folder beside it.
mkdir -p "$temp/package/bin"
ln -sf "$PWD/build/mojo-patch" "$temp/package/bin/mojo-patch"
PYTHONPATH="$temp/package" "$MOJO_PYTHON" docs/examples/ray/decoder_test.py models/llama-kv-dynamo-fp32.onnx models/smollm2 \
  >"$temp/log" 2>&1 || die "ray/decoder_test.py failed" "$temp/log"
echo "example ray, decoder: $(tail -3 "$temp/log" | head -1)"
PYTHONPATH="$temp/package" "$MOJO_PYTHON" docs/examples/ray/engine_test.py models/llama-kv-dynamo-fp32.onnx \
  >"$temp/log" 2>&1 || die "ray/engine_test.py failed" "$temp/log"
echo "example ray, engine: $(tail -3 "$temp/log" | head -1)"

# C: the linker wants names without a version. onnxruntime's own archives have them.
mkdir -p "$temp/lib"
case $ONNXRUNTIME_LIB in
  *.dylib) ln -sf "$ONNXRUNTIME_LIB" "$temp/lib/libonnxruntime.dylib" ;;
  *) ln -sf "$ONNXRUNTIME_LIB" "$temp/lib/libonnxruntime.so" && ln -sf "$ONNXRUNTIME_LIB" "$temp/lib/libonnxruntime.so.1" ;;
esac
${CC:-cc} -std=c11 -Wall -Wextra -Werror -O1 -I fused/kernels/third_party/onnxruntime docs/examples/c/run.c \
  -L "$temp/lib" -lonnxruntime -lm -Wl,-rpath,"$temp/lib" -o "$temp/run" >"$temp/log" 2>&1 || die "the C example does not compile" "$temp/log"
ok "c, with kernels" "$temp/run" "$temp/bare.onnx" "$MOJO_OPS_LIBRARY" "$temp/golden"
ok "c, without" "$temp/run" "$temp/patched.onnx" "" "$temp/golden"
fails "c, with neither kernels nor bodies" "$temp/run" "$temp/bare.onnx" "" "$temp/golden"
fails "c, with wrong outputs" "$temp/run" "$temp/patched.onnx" "$MOJO_OPS_LIBRARY" "$temp/wrong"

# Node: no kernels there, so the model keeps its bodies.
for tool in node npm; do
  command -v $tool >/dev/null 2>&1 || { echo "example node: skipped: $tool is not installed"; exit 0; }
done
mkdir -p "$temp/node"
if ! cmp -s docs/examples/node/package-lock.json "$temp/node/package-lock.json" || [ ! -f "$temp/node/.installed" ]; then
  rm -rf "$temp/node"
  cp -R docs/examples/node "$temp/node"
  if ! (cd "$temp/node" && npm ci --no-audit --no-fund --loglevel=error) >"$temp/log" 2>&1; then
    npm view onnxruntime-node name >/dev/null 2>&1 && die "npm ci failed" "$temp/log"
    echo "example node: skipped: npm does not reach its registry"
    exit 0
  fi
  touch "$temp/node/.installed"
fi
cp docs/examples/node/run.js "$temp/node/"
ok node node "$temp/node/run.js" "$temp/patched.onnx" "$temp/golden"
fails "node, with wrong outputs" node "$temp/node/run.js" "$temp/patched.onnx" "$temp/wrong"
