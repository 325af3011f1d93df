#!/usr/bin/env python3
"""Writes what the linker needs of macOS's own libraries, beside what Zig has, to make a program of Go with cgo.

usage: tools/macos-stubs.py OUT GOROOT

Apple's SDK has a list of each library's symbols (.tbd). Go's sources name those that Go calls, and lists of these will
do.
"""

import pathlib
import re
import sys

LIST = """\
--- !tapi-tbd
tbd-version: 4
targets: [ arm64-macos ]
install-name: '{path}'
exports:
  - targets: [ arm64-macos ]
    symbols: [ {symbols} ]
...
"""


def main(out, goroot):
    libraries = {}
    for package in ("crypto/x509", "internal/syscall/unix", "net"):
        for source in (pathlib.Path(goroot) / "src" / package).rglob("*.go"):
            for symbol, path in re.findall(r'^//go:cgo_import_dynamic \w+ (\w+) "(/\S+)"',
                                           source.read_text(encoding="utf-8"), re.M):
                libraries.setdefault(pathlib.PurePosixPath(path), set()).add("_" + symbol)
    libraries.pop(pathlib.PurePosixPath("/usr/lib/libSystem.B.dylib"), None)  # Zig has it
    for path, symbols in libraries.items():
        # -framework NAME finds NAME.framework/NAME.tbd, and -lNAME libNAME.tbd.
        framework = [p for p in path.parts if p.endswith(".framework")]
        listed = pathlib.Path(out, *framework, path.name.split(".")[0] + ".tbd")
        listed.parent.mkdir(parents=True, exist_ok=True)
        listed.write_text(LIST.format(path=path, symbols=", ".join(sorted(symbols))))


if __name__ == "__main__":
    main(*sys.argv[1:])
