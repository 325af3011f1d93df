#!/bin/sh
# Prints the licenses of the Go modules that the program links, for every system that it is built for.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
for system in linux darwin windows; do
  GOOS=$system CGO_ENABLED=1 $go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/mojo-patch
done | sort -u | while read -r module version dir; do
  found=$(find "$dir" -maxdepth 1 -type f \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' \) | sort)
  [ -n "$found" ] || { echo "$module $version has no license file" >&2; exit 1; }
  echo "== $module $version"
  for file in $found; do
    echo
    cat "$file"
  done
  echo
done
