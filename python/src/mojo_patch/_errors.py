"""Exceptions. Their messages are the program's."""

from __future__ import annotations

import os
from typing import Sequence


class MojoPatchError(Exception):
    """The program ended with an error. exit_code is its exit code: 2 for bad arguments and files."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.exit_code)  # so that it comes through from another process


class CheckFailed(MojoPatchError):
    """A comparison or a check failed, or a model could not be run (exit code 1)."""


class NothingFused(MojoPatchError):
    """There was nothing to fuse, and require=True was given (exit code 3)."""


class NotInstalled(MojoPatchError):
    """onnxruntime, a kernel library or the kernels of a device are missing (exit code 4)."""


class ModelNotFound(MojoPatchError, FileNotFoundError):
    """The file does not exist (exit code 2)."""


_BY_EXIT_CODE = {1: CheckFailed, 3: NothingFused, 4: NotInstalled}


def failure(message: str, exit_code: int, models: Sequence[str] = ()) -> MojoPatchError:
    """Returns the exception for an exit code of a command that was given some models."""
    if exit_code == 2 and not all(os.path.exists(path) for path in models):
        return ModelNotFound(message, exit_code)
    return _BY_EXIT_CODE.get(exit_code, MojoPatchError)(message, exit_code)
