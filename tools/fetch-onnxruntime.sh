#!/bin/sh
# Fetches the onnxruntime shared library that mojo-patch is tested with.
#
# usage: [MOJO_ORT_SOURCE=pip|npm] tools/fetch-onnxruntime.sh [CACHE_DIR]
#
# It is taken out of the Python package onnxruntime, or, where that cannot be had, out of the npm package
# onnxruntime-node, whose newest version is older. MOJO_ORT_SOURCE names the one to use and rules out the other. The
# library goes to CACHE_DIR/onnxruntime-VERSION/, where mojo-patch looks for it by itself when CACHE_DIR is the default:
# mojo-patch in ${XDG_CACHE_HOME:-~/.cache}, on macOS in ~/Library/Caches. Nothing is fetched when it is there with the
# right checksum. The path of the library is printed to stdout, everything else to stderr.
#
# exit codes: 0 the library is there, 2 usage, 4 it cannot be fetched here
set -eu

pip_version=1.32.0
npm_version=1.30.0
npm_package=6e3390d6b783e7be946fad629292799da28d0b42f84856e50d2c1b0383291e75

say() { printf '%s\n' "$*" >&2; }
fail() { say "fetch-onnxruntime: $*"; exit 4; }

case "${1-}" in
  -h|--help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0"; exit 0 ;;
  -*) say "fetch-onnxruntime: unknown option $1"; exit 2 ;;
esac
[ $# -le 1 ] || { say "usage: $0 [CACHE_DIR]"; exit 2; }
case "${MOJO_ORT_SOURCE-}" in
  '') sources='pip npm' ;;
  pip|npm) sources=$MOJO_ORT_SOURCE ;;
  *) say "fetch-onnxruntime: MOJO_ORT_SOURCE is \"$MOJO_ORT_SOURCE\": it is pip or npm"; exit 2 ;;
esac

# Of every system: its tag in wheels, its folder in the npm package, and the SHA-256 of the wheel and of both libraries.
caches=.cache
case "$(uname -s)-$(uname -m)" in
  Linux-x86_64|Linux-amd64)
    tag=manylinux_2_28_x86_64 folder=linux/x64 file=libonnxruntime.so.1
    wheel=99e1074c4b2197accd5073052a465361be17b89c093b8ffb6e6bd8f986c52df8
    pip_library=6c1585d1bbf45b0712ea4a21b705c5fcb4ba04ff2e30f1fbf81a49faf658638f
    npm_library=ffb75a925ba05e47b235bb66e3e3911714a80b328a9c9425539feb204aa32a23 ;;
  Linux-aarch64|Linux-arm64)
    tag=manylinux_2_28_aarch64 folder=linux/arm64 file=libonnxruntime.so.1
    wheel=e36c187006e7a7c8b8d6d57f1a209dd63f52430dca6c282b177718ad6b841054
    pip_library=49852228a93995158b2a813d4df487d47a1b76b0eaa894507ef49e91b6d7954a
    npm_library=1f549d46250b005580b597f4164984aaf75b3bcb9f3aeb07c7f8a8fe60b23c76 ;;
  Darwin-arm64)
    tag=macosx_14_0_arm64 folder=darwin/arm64 file=libonnxruntime.$npm_version.dylib caches=Library/Caches
    wheel=d52510bbbcc880c13b826f7d75cdf33ac5cf0bb864d960000fc29ce73f0cb83e
    pip_library=fa585fabbea65b823b9a8f7e27d46aee3989d1be7e36b528203d3a1fd613aae7
    npm_library=685d2be5dba1309c89d3a5324b7fd06a5c42f1a61bfea32d14c4cc28d072121d ;;
  *) fail "no library is known for $(uname -s) on $(uname -m); install onnxruntime $pip_version yourself and set" \
    "ONNXRUNTIME_LIB to its library" ;;
esac
case $file in
  *.dylib) pip_name=libonnxruntime.$pip_version.dylib npm_name=libonnxruntime.$npm_version.dylib ;;
  *) pip_name=libonnxruntime.so.$pip_version npm_name=libonnxruntime.so.$npm_version ;;
esac

if [ $# -eq 1 ]; then
  cache=$1
elif [ "$caches" = .cache ] && [ -n "${XDG_CACHE_HOME-}" ]; then
  cache=$XDG_CACHE_HOME/mojo-patch
else
  [ -n "${HOME-}" ] || fail "HOME is not set: name a folder, $0 CACHE_DIR"
  cache=$HOME/$caches/mojo-patch
fi
pip_target=$cache/onnxruntime-$pip_version/$pip_name
npm_target=$cache/onnxruntime-$npm_version/$npm_name

sha256() {
  if command -v sha256sum >/dev/null 2>&1; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d' ' -f1
}
# right FILE SUM
right() { [ -f "$1" ] && [ "$(sha256 "$1")" = "$2" ]; }

for source in $sources; do
  eval "target=\$${source}_target library=\$${source}_library"
  if right "$target" "$library"; then
    say "$target is there already"
    printf '%s\n' "$target"
    exit 0
  fi
done

mkdir -p "$cache" 2>/dev/null || fail "cannot make the folder $cache"
# In the cache folder, so that the last step is a rename within one file system.
temp=$(mktemp -d "$cache/.fetch.XXXXXX") || fail "cannot write to $cache"
trap 'rm -rf "$temp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# from_pip and from_npm write the library to $temp/library; what they print to stdout goes to stderr.
from_pip() {
  python=$(command -v python3 || command -v python) || { say "there is no python3"; return 1; }
  "$python" -m pip --version >/dev/null 2>&1 || { say "$python has no pip"; return 1; }
  printf 'onnxruntime==%s --hash=sha256:%s\n' "$pip_version" "$wheel" >"$temp/requirements.txt"
  "$python" -m pip download --require-hashes --no-deps --only-binary=:all: --disable-pip-version-check \
    --python-version 3.12 --implementation cp --abi cp312 --platform "$tag" \
    --dest "$temp" --requirement "$temp/requirements.txt" || return 1
  "$python" -c '
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, wheel.open("onnxruntime/capi/" + sys.argv[2]) as src:
    with open(sys.argv[3], "wb") as dst:
        shutil.copyfileobj(src, dst, 1 << 20)
' "$temp"/*.whl "$pip_name" "$temp/library"
}

from_npm() {
  command -v npm >/dev/null 2>&1 || { say "there is no npm"; return 1; }
  npm pack --silent --pack-destination "$temp" "onnxruntime-node@$npm_version" || return 1
  archive=$temp/onnxruntime-node-$npm_version.tgz
  right "$archive" "$npm_package" || { say "the package has another checksum than expected"; return 1; }
  tar -xzf "$archive" -C "$temp" "package/bin/napi-v6/$folder/$file" || return 1
  mv "$temp/package/bin/napi-v6/$folder/$file" "$temp/library"
}

for source in $sources; do
  eval "version=\$${source}_version target=\$${source}_target library=\$${source}_library"
  say "fetching onnxruntime $version with $source …"
  if "from_$source" >&2 && right "$temp/library" "$library"; then
    chmod 755 "$temp/library"
    mkdir -p "${target%/*}" && mv -f "$temp/library" "$target" || fail "cannot write $target"
    say "wrote $target"
    printf '%s\n' "$target"
    exit 0
  fi
  [ ! -f "$temp/library" ] || say "the library has another checksum than expected"
  rm -f "$temp/library"
  say "onnxruntime $version could not be fetched with $source (see above)"
done
fail "no onnxruntime could be fetched; on a machine without a network copy the library from another to $pip_target"
