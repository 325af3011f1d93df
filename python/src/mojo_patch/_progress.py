"""Shows how far the program is, in the habit of tqdm."""

from __future__ import annotations

import logging
import sys
import warnings
from types import TracebackType
from typing import Any, Optional, Type

log = logging.getLogger("mojo_patch")


class Progress:
    """A tqdm bar if tqdm is installed and stderr is a terminal, else debug logs.

    wanted=True shows the bar without a terminal, too, and wanted=False never.
    """

    def __init__(self, wanted: Optional[bool]) -> None:
        self._wanted = wanted
        self._bar: Any = None

    def __enter__(self) -> Progress:
        return self

    def step(self, done: int, total: int, what: str) -> None:
        """Takes a progress report of the program: for example, so many of all the sites are done."""
        log.debug("%s %d of %d", what, done, total)
        if self._bar is None:
            self._bar = self._open(total, what)
        if self._bar is not False:
            self._bar.update(done - self._bar.n)

    def _open(self, total: int, what: str) -> Any:
        if self._wanted is False or (self._wanted is None and not (sys.stderr and sys.stderr.isatty())):
            return False
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # in notebooks without ipywidgets, where tqdm then prints text
                from tqdm.auto import tqdm
        except ImportError:
            return False
        return tqdm(total=total, desc=what, leave=False)

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._bar:
            self._bar.close()
