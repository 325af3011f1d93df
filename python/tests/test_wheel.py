"""Tests the wheel of build/wheel: what it holds, and what it does in a fresh environment.

Run by `make test-wheel` with the Python of build/venv, whose onnx and onnxruntime the fresh environment borrows.
"""

import email
import hashlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import unittest
import venv
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "qwen3-dynamo-fp32.onnx"
OLDEST = "manylinux_2_28"


def load_backend():
    spec = importlib.util.spec_from_file_location("backend", ROOT / "python" / "backend.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*command, **how):
    done = subprocess.run(
        [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **how
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command[:4]))} … gives exit code {done.returncode}:\n{done.stdout}")
    return done.stdout


def borrow(python):
    """Lets another environment import what this one has, onnxruntime above all."""
    packages = pathlib.Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        [cls.wheel] = (ROOT / "build" / "wheel").glob("mojo_patch-*.whl")

    def test_tag(self):
        name, version, python, abi, platform = self.wheel.name.removesuffix(".whl").split("-")
        self.assertEqual((name, python, abi), ("mojo_patch", "py3", "none"))
        if sys.platform == "linux":
            self.assertEqual(platform, f"{OLDEST}_{sysconfig.get_platform().removeprefix('linux-')}")
            # auditwheel names the oldest system that has all symbols that the library and the program need.
            shown = " ".join(run(sys.executable, "-m", "auditwheel", "show", self.wheel).split())
            needed = shown.split('platform tag: "manylinux_')[1].split("_")[:2]
            self.assertLessEqual([*map(int, needed)], [*map(int, OLDEST.split("_")[1:])], shown)

    def test_contents(self):
        with zipfile.ZipFile(self.wheel) as z:
            names = z.namelist()
            self.assertEqual(names, sorted(names))
            [library] = [n for n in names if n.endswith((".so", ".dylib", ".dll"))]
            self.assertEqual(pathlib.PurePath(library).parent.name, "mojo_patch")
            built = ROOT / "build" / pathlib.PurePath(library).name
            self.assertEqual(hashlib.sha256(z.read(library)).digest(), hashlib.sha256(built.read_bytes()).digest())
            for license in ("LICENSE", "NOTICE", "THIRD_PARTY.md", "LICENSE.onnxruntime", "THIRD_PARTY-LICENSES"):
                self.assertTrue(any(n.endswith(f".dist-info/licenses/{license}") for n in names), names)
            [program] = [n for n in names if ".data/scripts/mojo-patch" in n]
            # Only --crosscheck needs gorgonia. Its license does not suit a distributed program.
            self.assertFalse(b"dep\tgorgonia.org" in z.read(program))
            [about] = [n for n in names if n.endswith(".dist-info/WHEEL")]
            self.assertIn("Root-Is-Purelib: false", z.read(about).decode())
            [metadata] = [email.message_from_bytes(z.read(n)) for n in names if n.endswith(".dist-info/METADATA")]
        self.assertEqual(metadata["Requires-Python"], ">=3.8")
        version = metadata["Version"]
        self.assertEqual(metadata.get_all("Requires-Dist"), [f'mojo-patch-cuda=={version}; extra == "cuda"'])

    def test_reproducible(self):
        backend = load_backend()
        with tempfile.TemporaryDirectory() as temp, zipfile.ZipFile(self.wheel) as z:
            [library] = [n for n in z.namelist() if n.endswith((".so", ".dylib", ".dll"))]
            [program] = [n for n in z.namelist() if ".data/scripts/" in n]
            [licenses] = [n for n in z.namelist() if n.endswith("THIRD_PARTY-LICENSES")]
            version, platform = self.wheel.stem.split("-")[1], self.wheel.stem.split("-")[-1]
            os.environ["MOJO_PATCH_VERSION"] = version
            try:
                parts = [z.extract(part, temp) for part in (program, library, licenses)]
                again = backend.pack(temp, *parts, platform)
            finally:
                del os.environ["MOJO_PATCH_VERSION"]
            self.assertEqual(again.read_bytes(), self.wheel.read_bytes())

    def test_cuda(self):
        # The library of CUDA kernels takes long to build: the CPU library replaces it under its name.
        with tempfile.TemporaryDirectory(dir=ROOT / "build") as name:
            temp = pathlib.Path(name)
            library = temp / "libmojo_ops_cuda.so"
            with zipfile.ZipFile(self.wheel) as z:
                library.write_bytes(z.read("mojo_patch/libmojo_ops.so"))
            version, platform = self.wheel.stem.split("-")[1], self.wheel.stem.split("-")[-1]
            run(sys.executable, ROOT / "python" / "backend.py", temp, "--cuda", library, "--platform", platform,
                env={**os.environ, "MOJO_PATCH_VERSION": version})
            environment = temp / "venv"
            venv.create(environment, with_pip=False, symlinks=True)
            python = environment / "bin" / "python"
            run(sys.executable, "-m", "pip", "--python", python, "install", "--disable-pip-version-check", "--no-index",
                "--find-links", self.wheel.parent, "--find-links", temp, "mojo-patch[cuda]")
            path = run(python, "-c", "import mojo_patch; print(mojo_patch.get_library_path('cuda'))").strip()
            self.assertTrue(path.startswith(str(environment)) and path.endswith(library.name), path)
            without = {k: v for k, v in os.environ.items() if k != "MOJO_OPS_LIBRARY"}
            said = subprocess.run([environment / "bin" / "mojo-patch", "kernels", "--json"], env=without, cwd=temp,
                                  stdout=subprocess.PIPE, text=True, check=False).stdout
            self.assertNotIn("libmojo_ops_cuda.so is not in", said)
            # A session on CUDA registers this library, whose CPU kernels run without a GPU.
            borrow(python)
            on_cuda = f"""
import mojo_patch
mojo_patch.apply({str(MODEL)!r}, "patched.onnx")
mojo_patch.session("patched.onnx", providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
maps = open("/proc/self/maps").read()
assert {str(environment)!r} in maps and "libmojo_ops_cuda.so" in maps and "libmojo_ops.so" not in maps, maps
"""
            run(python, "-c", on_cuda, cwd=temp)

    def test_installed(self):
        with tempfile.TemporaryDirectory(dir=ROOT / "build", prefix="wheel – test ") as name:
            temp = pathlib.Path(name)
            environment = temp / "venv"
            venv.create(environment, with_pip=False, symlinks=True)
            python = environment / "bin" / "python"
            run(sys.executable, "-m", "pip", "--python", python, "install", "--disable-pip-version-check", "--no-index",
                "--no-deps", self.wheel)
            # Without other packages: patching works, and calls that need more say so.
            alone = f"""
import mojo_patch
assert mojo_patch.apply({str(MODEL)!r}, "patched.onnx").fused == 13
try:
    mojo_patch.session("patched.onnx")
except mojo_patch.NotInstalled as e:
    assert "pip install onnxruntime" in str(e), e
else:
    raise SystemExit("there is an onnxruntime")
"""
            run(python, "-c", alone, cwd=temp)
            borrow(python)
            for tests in ("test_module.py", "test_docs.py"):
                run(python, ROOT / "python" / "tests" / tests)


class Sdist(unittest.TestCase):
    def test_sources(self):
        with tempfile.TemporaryDirectory() as name:
            temp = pathlib.Path(name)
            packed = temp / load_backend().build_sdist(temp)
            content = packed.read_bytes()
            load_backend().build_sdist(temp)
            self.assertEqual(packed.read_bytes(), content)
            self.assertLess(len(content), 4_000_000)
            with tarfile.open(packed) as tar:
                filters = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.4 and later
                tar.extractall(temp, **filters)
            root = temp / packed.name.removesuffix(".tar.gz")
            self.assertEqual(root.name, f"mojo_patch-{load_backend().version()}")
            about = email.message_from_bytes((root / "PKG-INFO").read_bytes())
            for path in about.get_all("License-File"):
                self.assertTrue((root / path).is_file(), path)
            # A build from it has its version, and no Go file is missing.
            self.assertEqual(run(sys.executable, root / "python" / "backend.py", "--version").strip(), about["Version"])
            run("go", "list", "-deps", "./cmd/mojo-patch", cwd=root)


class Version(unittest.TestCase):
    def test_pep440(self):
        pep440 = load_backend().pep440
        for given, want in {
            ("1.2.0", "2026-12-31", 0, "abc1234"): "1.2.0",
            ("1.2.0", "2026-12-31", 0, "abc1234-dirty"): "1.2.0+gabc1234.dirty",
            ("1.2.0", "2026-12-31", 3, "abc1234"): "1.2.0.post3+gabc1234",
            ("1.2.0", "2026-12-31", 3, "abc1234-dirty"): "1.2.0.post3+gabc1234.dirty",
            ("2.0.0rc1", "2026-12-31", 0, "abc1234"): "2.0.0rc1",
            ("1.2.0", None, 0, "abc1234"): "1.2.0.dev0+gabc1234",
            ("1.2.0", None, 3, "abc1234-dirty"): "1.2.0.dev0+gabc1234.dirty",
        }.items():
            self.assertEqual(pep440(*given), want)

    def test_of_commits(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            shutil.copytree(ROOT / "python", root / "python", ignore=shutil.ignore_patterns("tests", "__pycache__"))
            environment = {k: v for k, v in os.environ.items() if k != "MOJO_PATCH_VERSION"}

            def version():
                command = (sys.executable, root / "python" / "backend.py", "--version")
                return run(*command, env={**environment, "PYTHONDONTWRITEBYTECODE": "1"}).strip()

            def commit(file, text):
                (root / file).write_text(text, encoding="utf-8")
                run("git", "add", "-A", cwd=root)
                run("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", file, cwd=root)
                return run("git", "rev-parse", "--short", "HEAD", cwd=root).strip()

            old = "\n\n## 0.9.0 (2026-01-01)\nOld.\n"
            (root / "CHANGELOG.md").write_text("# Changelog\n\n## 1.0.0 (unreleased)\n\nNew." + old, encoding="utf-8")
            self.assertEqual(version(), "1.0.0.dev0")  # sources without git
            run("git", "init", "-q", cwd=root)
            at = commit("code", "1")
            self.assertEqual(version(), f"1.0.0.dev0+g{at}")
            commit("CHANGELOG.md", "# Changelog\n\n## 1.0.0 (2026-12-31)\n\nNew." + old)
            self.assertEqual(version(), "1.0.0")
            (root / "code").write_text("2", encoding="utf-8")
            self.assertRegex(version(), r"^1\.0\.0\+g[0-9a-f]+\.dirty$")
            at = commit("code", "2")
            self.assertEqual(version(), f"1.0.0.post1+g{at}")
            commit("CHANGELOG.md", "# Changelog\n\n## Unreleased\n")
            with self.assertRaisesRegex(AssertionError, "the first heading is not a version and a date"):
                version()

    def test_changelog(self):
        number, _, notes = load_backend().changelog()
        self.assertRegex(number, r"^\d+\.\d+\.\d+")
        self.assertNotIn("\n## ", notes)
        self.assertGreater(len(notes), 100)


if __name__ == "__main__":
    unittest.main()
