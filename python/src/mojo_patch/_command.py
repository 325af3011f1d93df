"""Runs the program mojo-patch, and turns its messages into exceptions and logs."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import sysconfig
import threading
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from ._errors import MojoPatchError, failure
from ._libraries import package_folders
from ._progress import Progress

log = logging.getLogger("mojo_patch")

# The oldest onnxruntime that the program runs models with. It looks for another one if this Python's is older.
_OLDEST_ONNXRUNTIME = (1, 29)

_PREFIX = "mojo-patch: "  # of the program's errors
# How the lines begin that report something that was not done. Indented lines belong to the line before them.
_WARNING = re.compile(r"(refused|open|missed|left out|nothing fused|variants|warning|kernels not tried)\b")


class Output(NamedTuple):
    """The output of a command: its JSON, and the report for people."""

    data: Any
    text: str


def find_program() -> str:
    """Returns the path of the program mojo-patch that was installed with this package."""
    name = "mojo-patch.exe" if os.name == "nt" else "mojo-patch"
    packages = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    prefix = os.path.join("..", "Scripts") if os.name == "nt" else os.path.join("..", "..", "bin")
    folders = [
        os.path.join(packages, "bin"),  # pip install --target
        os.path.normpath(os.path.join(packages, "..", prefix)),  # of the environment, whose Python this need not be
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", "nt_user" if os.name == "nt" else "posix_user"),
    ]
    for folder in folders:
        if os.path.isfile(os.path.join(folder, name)):
            return os.path.join(folder, name)
    looked = " or in ".join(folders)
    raise MojoPatchError(f"{name} is not in {looked}: install the wheel of mojo-patch again", 4)


def _onnxruntime() -> Optional[str]:
    """Returns the folder of this Python's onnxruntime if the program can use it, without importing it."""
    for folder in package_folders("onnxruntime"):
        capi = os.path.join(folder, "capi")
        try:
            with open(os.path.join(capi, "build_and_package_info.py"), encoding="utf-8") as f:
                version = re.search(r"__version__ = ['\"](\d+)\.(\d+)", f.read())
        except OSError:
            continue
        if version and (int(version[1]), int(version[2])) >= _OLDEST_ONNXRUNTIME:
            return capi
    return None


def _environment() -> Dict[str, str]:
    """The environment of the program, which looks for kernels by itself, with this Python's onnxruntime."""
    environment = dict(os.environ)
    if not environment.get("ONNXRUNTIME_LIB"):
        environment["ONNXRUNTIME_LIB"] = _onnxruntime() or ""
    return environment


def run(name: str, flags: List[str], models: List[str], progress: Optional[bool] = None) -> Output:
    """Runs a command of the program with --json and returns its output.

    The report for people is logged as well, at level WARNING if something was not done. run returns a result that the
    program prints although it fails, such as a comparison that does not pass. It raises any other failure.
    """
    command = [find_program(), name, *flags, "--json", "--progress-lines", "--", *models]
    log.debug("running %s", command)
    errors: List[str] = []
    lines: List[str] = []
    with Progress(progress) as shown, _started(command) as process:
        listener = threading.Thread(target=_listen, args=(process.stderr, shown, errors, lines), daemon=True)
        listener.start()
        assert process.stdout
        printed = process.stdout.read()
        process.wait()
        listener.join()
    if printed and (process.returncode == 0 or not errors):
        return Output(json.loads(printed), "\n".join(lines))
    if not errors:
        errors = [f"the program ended without a word, with exit code {process.returncode}"]
    raise failure("\n".join(errors), process.returncode, models)


@contextlib.contextmanager
def _started(command: List[str]) -> Iterator[subprocess.Popen[str]]:
    """Starts the program, and ends it if an exception leaves the block, such as Ctrl-C's."""
    held = _HeldInterrupt()
    try:
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment(),
            encoding="utf-8", errors="backslashreplace"
        ) as process:
            try:
                held.release()
                yield process
            except BaseException:
                _interrupt(process)
                raise
    finally:
        held.release()


class _HeldInterrupt:
    """Holds Ctrl-C back until release: an exception while the program starts would leave it running, with no owner."""

    def __init__(self) -> None:
        self._caught = False
        self._handler = signal.getsignal(signal.SIGINT)
        # Other threads are not interrupted, and SIGINT that is ignored stays so in the program.
        self._holds = threading.current_thread() is threading.main_thread() and callable(self._handler)
        if self._holds:
            signal.signal(signal.SIGINT, self._catch)

    def _catch(self, *_: Any) -> None:
        self._caught = True

    def release(self) -> None:
        if self._holds:
            self._holds = False
            signal.signal(signal.SIGINT, self._handler)
            if self._caught:
                signal.raise_signal(signal.SIGINT)


def _listen(stderr: Any, shown: Progress, errors: List[str], lines: List[str]) -> None:
    """Sorts the lines of the program's stderr into progress, the error that ends it, and the report."""
    level = logging.INFO
    for line in stderr:
        line = line.rstrip("\r\n")
        step = re.match(r"progress (\d+) (\d+) (.*)", line)
        if step:
            shown.step(int(step[1]), int(step[2]), step[3])
        elif errors or line.startswith(_PREFIX):
            errors.append(line[len(_PREFIX) :] if not errors else line)
        else:
            lines.append(line)
            if not line.startswith(" "):
                level = logging.WARNING if _WARNING.match(line) else logging.INFO
            log.log(level, "%s", line)


def _interrupt(process: subprocess.Popen[str]) -> None:
    """Ends the program like Ctrl-C: it removes incomplete files. A second Ctrl-C kills it."""
    try:
        if sys.platform == "win32":
            # The console's only signal interrupts both.
            try:
                process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                process.terminate()
        else:
            process.send_signal(signal.SIGINT)  # once more, from a terminal, does no harm
        process.wait()
    except BaseException:
        process.kill()
        raise
