"""What pyproject.toml cannot say: the wheel holds machine code, yet fits every version of Python 3."""

import os
import pathlib

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel

LIBRARIES = [p for p in pathlib.Path(__file__).parent.joinpath("src", "mojo_patch").iterdir()
             if p.suffix in (".so", ".dylib", ".dll")]
if len(LIBRARIES) != 1:
    raise SystemExit(
        "src/mojo_patch holds no kernel library: build the wheel with `make wheel` in the root of the repository"
    )


class MachineCode(Distribution):
    """A distribution that is not pure Python, though setuptools compiles nothing."""

    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    """The library is loaded by onnxruntime and knows nothing of Python, so only the platform stays in the tag."""

    def get_tag(self):
        return "py3", "none", os.environ.get("MOJO_PATCH_PLATFORM") or super().get_tag()[2]


setup(version=os.environ.get("MOJO_PATCH_VERSION", "0"), distclass=MachineCode, cmdclass={"bdist_wheel": AnyPython})
