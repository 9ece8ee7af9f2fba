"""Publish folder artifacts, as a stage does."""

from __future__ import annotations

from pathlib import Path

from zerodr.artifacts.manifest import move_folder, seal_folder


def publish_folder(folder: Path, manifest: Path, volatile: tuple[str, ...] = ()) -> None:
    seal_folder(folder, volatile)
    move_folder(folder, manifest)
