"""SIGTERM (preemption, time limit): finish the step, write a checkpoint, and ask the scheduler for another try."""

from __future__ import annotations

import logging
import signal
import subprocess
import threading
from types import FrameType
from typing import Any

log = logging.getLogger("zerodr")
RETRY = 75  # EX_TEMPFAIL of <sysexits.h>: try again later


class Preempted(SystemExit):
    """The stage was asked to stop and wrote a checkpoint. Exit status 75."""

    def __init__(self, name: str) -> None:
        super().__init__(RETRY)
        log.warning("%s: asked to stop; a checkpoint is kept, the same command continues from it", name)


class Termination:
    """While entered, SIGTERM only sets `requested`. Outside the main thread, where Python takes no handler, never."""

    def __init__(self) -> None:
        self.requested = False
        self._children: list[subprocess.Popen] = []
        self._before: Any = None

    def __enter__(self) -> Termination:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def forward(self, child: subprocess.Popen) -> None:
        """Send the signal on to `child`, too."""
        self._children.append(child)
        if self.requested:
            child.terminate()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not self.requested:
            self.requested = True
            for child in self._children:
                child.terminate()
