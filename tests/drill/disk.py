"""A file system of its own for the miniature, which can be full or read-only for a while."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SIZE_BYTES = 2 * 2**30


class Disk:
    """A tmpfs that is mounted on a folder. Needs root.

    Attributes:
        mounted: false where mounting is refused; then the disk can't be full or read-only.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.mounted = os.path.ismount(folder) or self._mount("-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "none")

    @contextmanager
    def full(self, free_bytes: int) -> Iterator[None]:
        """Let the file system have `free_bytes` bytes left."""
        state = os.statvfs(self.folder)
        used = (state.f_blocks - state.f_bfree) * state.f_frsize
        self._remount(f"size={used + free_bytes}")
        try:
            yield
        finally:
            self._remount(f"size={SIZE_BYTES}")

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Let nothing be written."""
        self._remount("ro")
        try:
            yield
        finally:
            self._remount("rw")

    def close(self) -> None:
        """Unmount it, and lose what it holds."""
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=True)
            self.mounted = False

    def _remount(self, option: str) -> None:
        if not self._mount("-o", f"remount,{option}"):
            raise RuntimeError(f"{self.folder}: remount with {option} is refused")

    def _mount(self, *words: str) -> bool:
        return subprocess.run(["mount", *words, str(self.folder)], capture_output=True, check=False).returncode == 0
