#!/usr/bin/env python3
"""Makes the wheels and the sdist: what pip calls for `pip install .` (PEP 517), and what make calls with what it built.

usage: python/backend.py OUT --program FILE --library FILE --licenses FILE [--platform TAG]    the wheel mojo-patch
       python/backend.py OUT --cuda FILE [--platform TAG]                                      mojo-patch-cuda
       python/backend.py --version                                               the version that both get

A wheel is a zip file with a list of its contents. The same files give the same bytes: names are sorted, and times are
$SOURCE_DATE_EPOCH or the start of 1980. The program lies in the wheel's scripts, as those of ruff and uv do, so that
it starts without Python; the module finds it there. Nothing in a wheel depends on the version of Python.
The version is the first one of CHANGELOG.md, with the commit if that is not the released one, or $MOJO_PATCH_VERSION.
"""

import base64
import functools
import gzip
import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LICENSES = {
    "LICENSE": "LICENSE",
    "NOTICE": "NOTICE",
    "THIRD_PARTY.md": "THIRD_PARTY.md",
    "LICENSE.onnxruntime": "fused/kernels/third_party/onnxruntime/LICENSE",
}
MODULES = "THIRD_PARTY-LICENSES"  # of the Go modules; tools/licenses.sh collects them
SUMMARY = "Fuses blocks of language models in ONNX, with kernels for onnxruntime"
# Tracked files that a build does not need, as git patterns.
NOT_BUILT = [".*", "bench", "docs/*.md", "docs/benchmarks", "docs/examples", "docs/figures", "docs/targets", "models",
             "python/tests", "*/testdata/*", "*_test.go"]
NEEDED = {"go": "Go 1.26 or newer (https://go.dev/dl)", "cmake": "CMake 3.13 or newer, and GCC or Clang"}
METADATA = """\
Metadata-Version: 2.4
Name: {name}
Version: {version}
Summary: {summary}
License-Expression: Apache-2.0
{licenses}Keywords: onnx,onnxruntime,transformer,RMSNorm,rotary embedding,SwiGLU,mixture of experts
Classifier: Programming Language :: Python :: 3
Classifier: Programming Language :: Go
Classifier: Programming Language :: C++
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Classifier: Typing :: Typed
Requires-Python: >=3.8
{more}Description-Content-Type: text/markdown

{readme}"""


def changelog():
    """Returns the first version of CHANGELOG.md, the date of its release or None, and its text."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = list(re.finditer(r"^## (.*)$", text, re.M))
    first = re.fullmatch(r"(\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?) \((unreleased|\d{4}-\d\d-\d\d)\)",
                         headings[0].group(1) if headings else "")
    if not first:
        raise ValueError("CHANGELOG.md: the first heading is not a version and a date, such as"
                         " '## 1.2.0 (2026-12-31)' or '## 1.2.0 (unreleased)'")
    end = headings[1].start() if len(headings) > 1 else len(text)
    date = None if first.group(2) == "unreleased" else first.group(2)
    return first.group(1), date, text[headings[0].end():end].strip() + "\n"


def pep440(number, date, commits, described):
    """Returns the version of a commit in the form of PEP 440.

    number and date are CHANGELOG.md's, commits counts the commits since its last change, and described is the output of
    `git describe --always --dirty` without tags:
    1.2.0 with a date, 0, abc1234 -> 1.2.0 and 3, abc1234-dirty -> 1.2.0.post3+gabc1234.dirty
    1.2.0 without a date, any, abc1234 -> 1.2.0.dev0+gabc1234
    """
    local = "+g" + described.replace("-", ".")
    if not date:
        return number + ".dev0" + local
    if commits == 0 and not described.endswith("-dirty"):
        return number
    return number + (f".post{commits}" if commits else "") + local


def git(*arguments):
    return subprocess.check_output(("git",) + arguments, cwd=str(ROOT), stderr=subprocess.DEVNULL,
                                   universal_newlines=True).strip()


@functools.lru_cache  # functools.cache is newer than Python 3.8
def version():
    given = os.environ.get("MOJO_PATCH_VERSION")
    if given:
        return given
    about = ROOT / "PKG-INFO"  # of an unpacked sdist
    if about.exists():
        return re.search("^Version: (.*)$", about.read_text(encoding="utf-8"), re.M).group(1)
    number, date, _ = changelog()
    try:
        changed = git("log", "-1", "--format=%H", "--", "CHANGELOG.md")
        return pep440(number, date, int(git("rev-list", "--count", changed + "..HEAD")),
                      git("describe", "--always", "--dirty", "--exclude=*"))
    except (OSError, subprocess.CalledProcessError):  # sources of neither a clone nor an sdist
        return number if date else number + ".dev0"


def metadata(name, summary, licenses, more=""):
    """Returns the METADATA of a wheel, or the PKG-INFO of an sdist."""
    readme = (ROOT / "python" / "README.md").read_text(encoding="utf-8")
    return METADATA.format(name=name, version=version(), summary=summary, more=more, readme=readme,
                           licenses="".join(f"License-File: {path}\n" for path in licenses)).encode()


def built_at():
    """Returns the time of the packed files: no earlier than 1980, the first year of zip."""
    return max(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), 315532800)


def zip_file(files, at):
    """Returns the bytes of a zip file of {name: (content, mode)}, which depend only on these and the time."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as z:
        for name, (content, mode) in sorted(files.items()):
            entry = zipfile.ZipInfo(name, time.gmtime(at)[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system, entry.external_attr = 3, (0o100000 | mode) << 16
            z.writestr(entry, content)
    return made.getvalue()


def tar_file(files, at):
    """Returns the bytes of a .tar.gz of {name: (content, mode)}, which depend only on these and the time."""
    made = io.BytesIO()
    with gzip.GzipFile(fileobj=made, mode="wb", filename="", mtime=0) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, (content, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), mode, at
            tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()


class Wheel:
    """A wheel in the making: add its files, then write it."""

    def __init__(self, name, summary, platform, more=""):
        self.module = name.replace("-", "_")
        self.info = f"{self.module}-{version()}.dist-info"
        self.name = f"{self.module}-{version()}-py3-none-{platform}.whl"
        self.files = {}
        names = [*LICENSES, *([MODULES] if name == "mojo-patch" else [])]
        self.add(f"{self.info}/METADATA", metadata(name, summary, names, more))
        tags = "".join(f"Tag: py3-none-{p}\n" for p in platform.split("."))
        self.add(f"{self.info}/WHEEL",
                 f"Wheel-Version: 1.0\nGenerator: mojo-patch\nRoot-Is-Purelib: false\n{tags}".encode())
        for license, source in LICENSES.items():
            self.add(f"{self.info}/licenses/{license}", (ROOT / source).read_bytes())

    def add(self, name, content, mode=0o644):
        self.files[name] = (content, mode)

    def add_module(self):
        source = ROOT / "python" / "src" / self.module
        for path in [*source.glob("*.py"), source / "py.typed"]:
            self.add(f"{self.module}/{path.name}", path.read_bytes())

    def write(self, folder):
        """Writes the wheel, whole or not at all, and returns its path."""
        record = ""
        for name, (content, _) in sorted(self.files.items()):
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(content)}\n"
        self.add(f"{self.info}/RECORD", (record + f"{self.info}/RECORD,,\n").encode())
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        made = zip_file(self.files, built_at())
        with tempfile.NamedTemporaryFile(dir=str(folder), delete=False) as temp:
            try:
                temp.write(made)
            except BaseException:
                os.unlink(temp.name)
                raise
        os.chmod(temp.name, 0o644)
        path = folder / self.name
        os.replace(temp.name, str(path))
        return path


def cuda_extra():
    """Returns the METADATA of `pip install mojo-patch[cuda]`."""
    return f'Provides-Extra: cuda\nRequires-Dist: mojo-patch-cuda=={version()}; extra == "cuda"\n'


def pack(folder, program, library, licenses, platform):
    """Makes the wheel mojo-patch of the program, the CPU kernels, and the licenses of the linked modules."""
    wheel = Wheel("mojo-patch", SUMMARY, platform, cuda_extra())
    wheel.add_module()
    program, library = pathlib.Path(program), pathlib.Path(library)
    wheel.add(f"{wheel.info}/licenses/{MODULES}", pathlib.Path(licenses).read_bytes())
    wheel.add(f"{wheel.module}/{library.name}", library.read_bytes(), 0o755)
    name = "mojo-patch.exe" if program.suffix == ".exe" else "mojo-patch"
    wheel.add(f"{wheel.module}-{version()}.data/scripts/{name}", program.read_bytes(), 0o755)
    return wheel.write(folder)


def pack_cuda(folder, library, platform):
    """Makes the wheel mojo-patch-cuda, which holds the library of CUDA kernels."""
    wheel = Wheel("mojo-patch-cuda", "CUDA kernels of mojo-patch for onnxruntime", platform)
    library = pathlib.Path(library)
    wheel.add(f"{wheel.module}/__init__.py", b'"""The library of CUDA kernels that mojo_patch finds here."""\n')
    wheel.add(f"{wheel.module}/{library.name}", library.read_bytes(), 0o755)
    return wheel.write(folder)


def run(*command):
    if shutil.which(str(command[0])) is None:
        sys.exit(f"{command[0]} is needed to build mojo-patch from its sources: install {NEEDED[command[0]]}. "
                 "A wheel of a release needs no compiler")
    subprocess.check_call([str(c) for c in command], cwd=str(ROOT))


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """PEP 517: writes the metadata. Without this hook pip builds everything to learn it, and calls that step so."""
    wheel = Wheel("mojo-patch", SUMMARY, this_platform(), cuda_extra())
    for name, (content, _) in wheel.files.items():
        path = pathlib.Path(metadata_directory) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return wheel.info


def this_platform():
    return re.sub(r"[-.]", "_", sysconfig.get_platform())


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517: builds the program with Go and the kernels with CMake, for this machine.

    The kernels are built in make's folder, so that either reuses the other's results.
    """
    suffix = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
    library = ("mojo_ops" if sys.platform == "win32" else "libmojo_ops") + suffix
    with tempfile.TemporaryDirectory() as folder:
        temp = pathlib.Path(folder)
        program = temp / ("mojo-patch.exe" if sys.platform == "win32" else "mojo-patch")
        print("compiling the program", flush=True)
        run("go", "build", "-trimpath", "-ldflags", f"-s -w -X main.version={version()}", "-o", program,
            "./cmd/mojo-patch")
        kernels = ROOT / "build" / "kernels"
        kernels.mkdir(parents=True, exist_ok=True)
        print("compiling the kernels, which takes some minutes", flush=True)
        run("cmake", "-S", "fused/kernels", "-B", kernels, *cmake_generator())
        run("cmake", "--build", kernels, "--target", "mojo_ops", "--parallel", str(min(os.cpu_count() or 2, 8)))
        (temp / MODULES).write_bytes(subprocess.check_output(["sh", str(ROOT / "tools" / "licenses.sh")]))
        return pack(wheel_directory, program, kernels / library, temp / MODULES, this_platform()).name


def build_sdist(sdist_directory, config_settings=None):
    """PEP 517: packs the sources that build_wheel needs; git names them."""
    if not (ROOT / ".git").exists():
        sys.exit("an sdist is made in a clone of mojo-patch, where git names the files")
    listed = subprocess.check_output(["git", "ls-files", "-z", "--", ".", *(f":(exclude){p}" for p in NOT_BUILT)],
                                     cwd=str(ROOT))
    base = f"mojo_patch-{version()}"
    files = {f"{base}/PKG-INFO": (metadata("mojo-patch", SUMMARY, LICENSES.values(), cuda_extra()), 0o644)}
    for name in listed.decode().split("\0")[:-1]:
        path = ROOT / name
        files[f"{base}/{name}"] = path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644
    made = pathlib.Path(sdist_directory) / f"{base}.tar.gz"
    made.write_bytes(tar_file(files, built_at()))
    return made.name


def cmake_generator():
    # Visual Studio's own compiler, CMake's default on Windows, does not know vector extensions.
    return ["-G", "MinGW Makefiles"] if sys.platform == "win32" else []


def get_requires_for_build_wheel(config_settings=None):
    return [] if shutil.which("cmake") else ["cmake"]


def main(arguments):
    import argparse

    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\nA wheel")[0])
    parser.add_argument("out", nargs="?")
    for flag in ("--program", "--library", "--licenses", "--cuda", "--platform"):
        parser.add_argument(flag)
    parser.add_argument("--version", action="store_true")
    given = parser.parse_args(arguments)
    platform = given.platform or this_platform()
    if given.version:
        print(version())
    elif given.out and given.cuda:
        print(pack_cuda(given.out, given.cuda, platform))
    elif given.out and given.program and given.library and given.licenses:
        print(pack(given.out, given.program, given.library, given.licenses, platform))
    else:
        parser.error("a folder is needed, and --program, --library and --licenses, or --cuda")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (OSError, ValueError) as e:
        sys.exit(f"wheel: {e}")
