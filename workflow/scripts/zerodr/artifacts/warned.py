"""Collect the warnings that a stage logs, for its lineage record."""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("zerodr")


class Warnings(logging.Handler):
    """A context that collects messages of level WARNING and above.

    Attributes:
        messages: different messages, in the order of their first appearance.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message once."""
        message = record.getMessage()
        if message not in self.messages:
            self.messages.append(message)

    def __enter__(self) -> Warnings:
        LOGGER.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        LOGGER.removeHandler(self)
