#!/bin/sh
# Fetches the onnxruntime shared library that mojo-patch is tested with, out of the Python package of that name.
#
# usage: scripts/fetch-onnxruntime.sh [CACHE_DIR]
#
# The library goes to CACHE_DIR/onnxruntime-VERSION/, where mojo-patch looks for it by itself when CACHE_DIR is the
# default, ${XDG_CACHE_HOME:-~/.cache}/mojo-patch. Nothing is fetched when it is there with the right checksum. The path of
# the library is printed to stdout, everything else to stderr.
#
# exit codes: 0 the library is there, 2 usage, 4 it cannot be fetched here
set -eu

version=1.31.1

say() { printf '%s\n' "$*" >&2; }
fail() { say "fetch-onnxruntime: $*"; exit 4; }

case "${1-}" in
  -h|--help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0"; exit 0 ;;
  -*) say "fetch-onnxruntime: unknown option $1"; exit 2 ;;
esac
[ $# -le 1 ] || { say "usage: $0 [CACHE_DIR]"; exit 2; }

[ "$(uname -s)" = Linux ] ||
  fail "only Linux libraries are known here; install onnxruntime $version yourself and set ONNXRUNTIME_LIB to its library"
case "$(uname -m)" in
  x86_64|amd64)
    arch=x86_64
    wheel=1f3dea47f2f0e5117c2404cea7d21fd253ae7836a3bf167a501cdfbb2600d536
    library=fc44112fbe06d7d689c57e11d3862031f64711007e4ee020f8eed5185fd2c1d3 ;;
  aarch64|arm64)
    arch=aarch64
    wheel=0b9a492176886992e0e875f06bc0367e333f5fff11711a2d642e18b02f3009cc
    library=8aa3b76b28c778a2b1dd660d34161adb1d508c9ccd04ff9dc80e26eca5df8467 ;;
  *) fail "there is no library for $(uname -m); build onnxruntime $version and set ONNXRUNTIME_LIB to its library" ;;
esac

if [ $# -eq 1 ]; then
  cache=$1
else
  [ -n "${XDG_CACHE_HOME:-${HOME:-}}" ] || fail "neither XDG_CACHE_HOME nor HOME is set: name a folder, $0 CACHE_DIR"
  cache=${XDG_CACHE_HOME:-$HOME/.cache}/mojo-patch
fi
name=libonnxruntime.so.$version
folder=$cache/onnxruntime-$version
target=$folder/$name

right() { [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$library" ]; }

if right "$target"; then
  say "$target is there already"
  printf '%s\n' "$target"
  exit 0
fi

python=$(command -v python3 || command -v python) || fail "python3 with pip is needed to fetch the package"
"$python" -m pip --version >/dev/null 2>&1 || fail "$python has no pip, which is needed to fetch the package"

mkdir -p "$folder" 2>/dev/null || fail "cannot make the folder $folder"
# In the target's folder, so that the last step is a rename within one file system.
temp=$(mktemp -d "$folder/.fetch.XXXXXX") || fail "cannot write to $folder"
trap 'rm -rf "$temp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say "fetching onnxruntime $version for $arch …"
printf 'onnxruntime==%s --hash=sha256:%s\n' "$version" "$wheel" >"$temp/requirements.txt"
"$python" -m pip download --require-hashes --no-deps --only-binary=:all: --disable-pip-version-check \
  --python-version 3.12 --implementation cp --abi cp312 --platform "manylinux_2_28_$arch" \
  --dest "$temp" --requirement "$temp/requirements.txt" >&2 ||
  fail "the package onnxruntime $version could not be fetched (see above); on a machine without a network copy $name from another to $folder"

"$python" -c '
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, wheel.open("onnxruntime/capi/" + sys.argv[2]) as src, open(sys.argv[3], "wb") as dst:
    shutil.copyfileobj(src, dst, 1 << 20)
' "$temp"/*.whl "$name" "$temp/$name" || fail "cannot unpack $name"
right "$temp/$name" || fail "$name has another checksum than expected"
chmod 755 "$temp/$name"
mv -f "$temp/$name" "$target"
say "wrote $target"
printf '%s\n' "$target"
