#!/usr/bin/env python3
"""Packs what `make release` built: archives, wheels, checksums, and the SBOM in CycloneDX's form.

usage: tools/release.py OUT BUILT PLATFORM...        (with BUILT/PLATFORM/mojo-patch and the kernel library in it)

The same inputs give the same bytes: files are sorted, owners and times are fixed ($SOURCE_DATE_EPOCH, or the time of
the last commit).
"""

import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
sys.dont_write_bytecode = True
import backend  # noqa: E402

WHEELS = {
    "linux-x86_64": "manylinux_2_28_x86_64",
    "linux-aarch64": "manylinux_2_28_aarch64",
    "windows-x86_64": "win_amd64",
    "macos-arm64": "macosx_12_0_arm64",
}
TEXTS = ["LICENSE", "NOTICE", "THIRD_PARTY.md", "README.md", "CHANGELOG.md"]


def program_of(folder):
    return next(p for p in (folder / "mojo-patch", folder / "mojo-patch.exe") if p.exists())


def library_of(folder):
    return next(p for p in sorted(folder.iterdir()) if p.suffix in (".so", ".dll", ".dylib"))


def archive(out, name, files, at):
    """Writes the files, by their names in the archive, as .tar.gz, or as .zip for Windows."""
    if "windows" in name:
        path = out / f"{name}.zip"
        inside = {f"{name}/{inner}": (source.read_bytes(), mode) for inner, (source, mode) in files.items()}
        path.write_bytes(backend.zip_file(inside, at))
    else:
        path = out / f"{name}.tar.gz"
        content = io.BytesIO()
        with gzip.GzipFile(fileobj=content, mode="wb", filename="", mtime=0) as packed, \
                tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for inner, (source, mode) in sorted(files.items()):
                entry = tarfile.TarInfo(f"{name}/{inner}")
                entry.size, entry.mode, entry.mtime = source.stat().st_size, mode, at
                with source.open("rb") as f:
                    tar.addfile(entry, f)
        path.write_bytes(content.getvalue())


def licence(module):
    """The licence of a module as THIRD_PARTY.md has it."""
    for line in (ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8").splitlines():
        cells = [c.strip() for c in line.split("|")]
        if len(cells) > 3 and module in re.split(r"[ ,()]+", cells[1]):
            return cells[3]
    sys.exit(f"release: THIRD_PARTY.md has no line for {module}")


def sbom(version, programs):
    """The components of the programs, as Go wrote them into each, and of the kernels."""
    components = {}
    go = set()
    for program in programs:
        lines = subprocess.run(["go", "version", "-m", program], check=True, stdout=subprocess.PIPE, text=True).stdout
        go.add(lines.splitlines()[0].split(": ")[1])
        for line in lines.splitlines()[1:]:
            kind, *rest = line.split()
            if kind == "dep":
                module, at, digest = rest
                purl = f"pkg:golang/{module}@{at}"
                components[purl] = {
                    "type": "library", "bom-ref": purl, "name": module, "version": at, "purl": purl,
                    "licenses": [{"license": {"name": licence(module)}}],
                    "properties": [{"name": "go:sum", "value": digest}],
                }
    for name, about, what in [
        ("go", f"{go.pop()}", "the standard library and runtime of Go, BSD-3-Clause"),
        ("onnxruntime", "C API headers", "MIT"),
    ]:
        components[name] = {"type": "library", "bom-ref": name, "name": name, "version": about,
                            "licenses": [{"license": {"name": what}}]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, 'mojo-patch ' + version)}",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": "mojo-patch", "name": "mojo-patch",
                                   "version": version, "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": [components[k] for k in sorted(components)],
        "dependencies": [{"ref": "mojo-patch", "dependsOn": sorted(components)}],
    }


def main(out, built, *platforms):
    out, built = pathlib.Path(out), pathlib.Path(built)
    shutil.rmtree(str(out), ignore_errors=True)
    out.mkdir(parents=True)
    at = int(os.environ.get("SOURCE_DATE_EPOCH") or subprocess.check_output(
        ["git", "log", "-1", "--format=%ct"], cwd=str(ROOT)))
    os.environ["SOURCE_DATE_EPOCH"] = str(at)
    version = backend.version()
    bom = out / f"mojo-patch-{version}.cdx.json"
    bom.write_text(json.dumps(sbom(version, [program_of(built / p) for p in platforms]), indent=2) + "\n")
    shutil.copy(str(built / "THIRD_PARTY-LICENSES"), str(out / "THIRD_PARTY-LICENSES"))
    for platform in platforms:
        program, library = program_of(built / platform), library_of(built / platform)
        files = {name: (ROOT / name, 0o644) for name in TEXTS}
        files["LICENSE.onnxruntime"] = (ROOT / backend.LICENCES["LICENSE.onnxruntime"], 0o644)
        files["THIRD_PARTY-LICENSES"] = (built / "THIRD_PARTY-LICENSES", 0o644)
        files[bom.name] = (bom, 0o644)
        files[program.name], files[library.name] = (program, 0o755), (library, 0o755)
        archive(out, f"mojo-patch-{version}-{platform}", files, at)
        backend.pack(out, program, library, built / "THIRD_PARTY-LICENSES", WHEELS[platform])
    cuda = built / "cuda" / "libmojo_ops_cuda.so"
    if cuda.exists():
        backend.pack_cuda(out, cuda, WHEELS["linux-x86_64"])
    sums = "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in sorted(out.iterdir()))
    (out / "SHA256SUMS").write_text(sums)
    print(sums, end="")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
