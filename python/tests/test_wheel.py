"""Installs the wheel of build/wheel into a fresh virtual environment and runs a patched model with the kernels in it.

Run by `make test-wheel`, with the Python of build/venv, whose onnxruntime and numpy the fresh environment borrows.
"""

import hashlib
import importlib.util
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
import unittest
import venv
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "qwen3-dynamo-fp32.onnx"

def load_builder():
    spec = importlib.util.spec_from_file_location("wheel_builder", ROOT / "python" / "build_wheel.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*command):
    done = subprocess.run(
        [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command[:4]))} … gives exit code {done.returncode}:\n{done.stdout}")
    return done.stdout


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        [cls.wheel] = (ROOT / "build" / "wheel").glob("*.whl")

    def test_tag(self):
        name, version, python, abi, platform = self.wheel.name.removesuffix(".whl").split("-")
        self.assertEqual((name, python, abi), ("mojo_patch", "py3", "none"))
        if sys.platform == "linux":
            self.assertRegex(platform, r"^manylinux_2_\d+_|^manylinux2014_|^manylinux_2_17")
            self.assertTrue(platform.endswith(sysconfig.get_platform().removeprefix("linux-")), platform)
            shown = " ".join(run(sys.executable, "-m", "auditwheel", "show", self.wheel).split())
            self.assertIn(f'platform tag: "{platform.split(".")[0]}"', shown)

    def test_contents(self):
        with zipfile.ZipFile(self.wheel) as z:
            names = z.namelist()
            [library] = [n for n in names if n.endswith((".so", ".dylib", ".dll"))]
            self.assertEqual(pathlib.PurePath(library).parent.name, "mojo_patch")
            built = ROOT / "build" / pathlib.PurePath(library).name
            self.assertEqual(hashlib.sha256(z.read(library)).digest(), hashlib.sha256(built.read_bytes()).digest())
            for licence in ("LICENSE", "NOTICE", "LICENSE.onnxruntime"):
                self.assertTrue(any(n.endswith(f".dist-info/licenses/{licence}") for n in names), names)
            [about] = [n for n in names if n.endswith(".dist-info/WHEEL")]
            self.assertIn("Root-Is-Purelib: false", z.read(about).decode())

    def test_runs(self):
        with tempfile.TemporaryDirectory(dir=ROOT / "build") as name:
            temp = pathlib.Path(name)
            environment = temp / "venv"
            venv.create(environment, with_pip=False, symlinks=True)
            python = environment / "bin" / "python"
            run(sys.executable, "-m", "pip", "--python", python, "install", "--disable-pip-version-check", "--no-index",
                "--no-deps", self.wheel)
            packages = pathlib.Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
            (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")

            patched = temp / "patched.onnx"
            run(ROOT / "build" / "mojo-patch", "apply", MODEL, "-o", patched, "--require", "--verify", "off")
            self.assertEqual(
                run(python, ROOT / "python/tests/use_installed.py", environment, patched, MODEL.with_suffix(".npz")),
                "ok\n",
            )


class Version(unittest.TestCase):
    def test_pep440(self):
        pep440 = load_builder().pep440
        for described, want in {
            "v1.2.0-0-gabc1234": "1.2.0",
            "v1.2.0-0-gabc1234-dirty": "1.2.0+gabc1234.dirty",
            "v1.2.0-3-gabc1234": "1.2.0.post3+gabc1234",
            "v1.2.0-3-gabc1234-dirty": "1.2.0.post3+gabc1234.dirty",
            "v2.0.0rc1-0-gabc1234": "2.0.0rc1",
            "abc1234": "0.0.0+gabc1234",
            "abc1234-dirty": "0.0.0+gabc1234.dirty",
        }.items():
            self.assertEqual(pep440(described), want)
        with self.assertRaises(ValueError):
            pep440("nightly-3-gabc1234")


if __name__ == "__main__":
    unittest.main()
