#!/usr/bin/env python3
"""Packs what `make release` built: archives, wheels, the sdist, checksums, and the SBOM in CycloneDX's form.

usage: tools/release.py OUT BUILT PLATFORM...

The release notes are the first section of CHANGELOG.md, which also has the version (docs/versions.md).

BUILT/PLATFORM holds mojo-patch and the kernel library, or for linux-x86_64-cuda the library of CUDA kernels alone.
The same inputs give the same bytes: files are sorted, owners and times are fixed ($SOURCE_DATE_EPOCH, or the time of
the last commit).
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
sys.dont_write_bytecode = True
import backend  # noqa: E402

WHEELS = {
    "linux-x86_64": "manylinux_2_28_x86_64",
    "linux-x86_64-cuda": "manylinux_2_34_x86_64",  # CUDA's runtime needs it if linked on a newer system
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
    inside = {f"{name}/{inner}": (source.read_bytes(), mode) for inner, (source, mode) in files.items()}
    if "windows" in name:
        (out / f"{name}.zip").write_bytes(backend.zip_file(inside, at))
    else:
        (out / f"{name}.tar.gz").write_bytes(backend.tar_file(inside, at))


def license(module):
    """The license of a module as THIRD_PARTY.md has it."""
    for line in (ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8").splitlines():
        cells = [c.strip() for c in line.split("|")]
        if len(cells) > 3 and module in re.split(r"[ ,()]+", cells[1]):
            return cells[3]
    sys.exit(f"release: THIRD_PARTY.md has no line for {module}")


def pinned(requirements, package):
    """The version of a package in tools/requirements."""
    lines = (ROOT / "tools" / "requirements" / requirements).read_text(encoding="utf-8").splitlines()
    return next(line.split("==")[1] for line in lines if line.startswith(package + "=="))


def sbom(version, programs, with_cuda):
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
                    "licenses": [{"license": {"name": license(module)}}],
                    "properties": [{"name": "go:sum", "value": digest}],
                }
    others = [
        ("go", go.pop(), "BSD-3-Clause"),
        ("onnxruntime", "C API headers", "MIT"),
        ("zig", pinned("zig.txt", "ziglang"), "MIT; its libc++ Apache-2.0 with LLVM exceptions"),
    ]
    if with_cuda:
        others.append(("nvidia-cuda-runtime", pinned("cuda.txt", "nvidia-cuda-runtime"), "NVIDIA's CUDA Toolkit EULA"))
    for name, about, what in others:
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
    number, date, notes = backend.changelog()
    (out / "RELEASE-NOTES.md").write_text(f"# mojo-patch {version}\n\n{notes}", encoding="utf-8")
    cuda = [p for p in platforms if p.endswith("-cuda")]
    whole = [p for p in platforms if p not in cuda]
    bom = out / f"mojo-patch-{version}.cdx.json"
    bom.write_text(json.dumps(sbom(version, [program_of(built / p) for p in whole], bool(cuda)), indent=2) + "\n")
    shutil.copy(str(built / "THIRD_PARTY-LICENSES"), str(out / "THIRD_PARTY-LICENSES"))
    for platform in whole:
        program, library = program_of(built / platform), library_of(built / platform)
        files = {name: (ROOT / name, 0o644) for name in TEXTS}
        files["LICENSE.onnxruntime"] = (ROOT / backend.LICENSES["LICENSE.onnxruntime"], 0o644)
        files["THIRD_PARTY-LICENSES"] = (built / "THIRD_PARTY-LICENSES", 0o644)
        files[bom.name] = (bom, 0o644)
        files[program.name], files[library.name] = (program, 0o755), (library, 0o755)
        # With the version first, pip would take it for an sdist.
        archive(out, f"mojo-patch-{platform}-{version}", files, at)
        backend.pack(out, program, library, built / "THIRD_PARTY-LICENSES", WHEELS[platform])
    for platform in cuda:
        backend.pack_cuda(out, library_of(built / platform), WHEELS[platform])
    backend.build_sdist(out)
    sums = "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in sorted(out.iterdir()))
    (out / "SHA256SUMS").write_text(sums)
    print(sums, end="")
    print(f"{out}: mojo-patch {version}" + ("" if version == number and date else
          f", not a release: a clean checkout of the commit that dates {number} in CHANGELOG.md is one"))


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
