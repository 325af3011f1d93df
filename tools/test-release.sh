#!/bin/sh
# Makes the release in two clones of the last commit, in folders of other names, and compares the bytes.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
export CCACHE_DISABLE=1 # both builds compile everything
temp=$root/build/test-release
rm -rf "$temp"
git clone -q "$root" "$temp/one"
git clone -q "$temp/one" "$temp/another-place" # of the same commit, whatever happens in between
for name in one another-place; do
  make -C "$temp/$name" release "PLATFORMS=${PLATFORMS:-linux-x86_64}"
done
diff "$temp/one/build/dist/SHA256SUMS" "$temp/another-place/build/dist/SHA256SUMS"
(cd "$temp/one/build/dist" && sha256sum -c --quiet SHA256SUMS)
echo "two builds gave the same bytes"
rm -rf "$temp"
