#!/bin/sh
# Tests tools/fetch-onnxruntime.sh: the npm package where pip fails, the choice of one source, damaged packages.
#
# usage: tools/test-fetch.sh        (build/mojo-patch and build/libmojo_ops.so are there: make)
set -eu
cd "$(dirname "$0")/.."
root=$PWD
temp=$root/build/test-fetch
rm -rf "$temp"
mkdir -p "$temp/bin" "$temp/fake"
trap 'rm -rf "$temp"' EXIT
unset MOJO_ORT_SOURCE

die() { echo "test-fetch: $*" >&2; cat "$temp/log" >&2; exit 1; }
# fetch CODE SOURCE PATH ARGUMENT…: runs the script and wants this exit code; stdout is kept in $out, stderr in
# $temp/log.
fetch() {
  want=$1 source=$2 path=$3
  shift 3
  code=0
  out=$(PATH="$path" MOJO_ORT_SOURCE="$source" "$root/tools/fetch-onnxruntime.sh" "$@" 2>"$temp/log") || code=$?
  [ "$code" = "$want" ] || die "exit code $code of MOJO_ORT_SOURCE=$source fetch-onnxruntime.sh $*, want $want"
}
# empty FOLDER: nothing was left behind there.
empty() { [ -z "$(find "$1" -type f)" ] || die "files were left in $1: $(find "$1" -type f)"; }

for name in python3 python; do
  printf '#!/bin/sh\necho "no packages here" >&2\nexit 1\n' >"$temp/bin/$name"
done
# An npm that writes a package of its own making.
cat >"$temp/fake/npm" <<'NPM'
#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in --pack-destination) echo damaged >"$2/onnxruntime-node-1.30.0.tgz" ;; esac
  shift
done
NPM
chmod +x "$temp/bin/python3" "$temp/bin/python" "$temp/fake/npm"

fetch 2 conda "$PATH" "$temp/cache"
fetch 2 '' "$PATH" "$temp/cache" more
fetch 4 pip "$temp/bin:$PATH" "$temp/cache"
! grep -q npm "$temp/log" || die "npm was tried under MOJO_ORT_SOURCE=pip"
empty "$temp/cache"
fetch 4 '' "$temp/fake:$temp/bin:$PATH" "$temp/cache"
grep -q 'another checksum' "$temp/log" || die "a damaged package is not called so"
empty "$temp/cache"

if ! command -v npm >/dev/null 2>&1; then
  echo "fetching from npm: skipped: npm is not installed"
  exit 0
fi
if ! npm view onnxruntime-node name >/dev/null 2>&1; then
  echo "fetching from npm: skipped: npm does not reach its registry"
  exit 0
fi
fetch 0 '' "$temp/bin:$PATH" "$temp/cache"
library=$out
[ "$library" = "$(ls "$temp"/cache/onnxruntime-*/libonnxruntime.*)" ] || die "it printed $out"
fetch 0 '' "$temp/bin:$PATH" "$temp/cache"
[ "$out" = "$library" ] && grep -q 'there already' "$temp/log" || die "it was fetched twice"

model=models/llama-ts-fp32
{
  build/mojo-patch apply $model.onnx -o "$temp/patched.onnx" --require --onnxruntime "$library" &&
    build/mojo-patch diff $model.onnx "$temp/patched.onnx" --golden $model.npz --onnxruntime "$library"
} >"$temp/log" 2>&1 || die "the program does not run with the library of the npm package"
grep -q "in onnxruntime 1.30.0 with kernels" "$temp/log" || die "it was not the fetched library that ran"
echo "fetching from npm: the program and the kernels run in the library of onnxruntime-node"
