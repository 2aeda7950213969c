"""Carries requests by signals to the main loop of a worker's process."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event


@dataclass(frozen=True, slots=True)
class Signals:
    """Requests that come to the process from outside."""

    stop: Event = field(default_factory=Event)
    """Drain and end."""
    reload: Event = field(default_factory=Event)
    """Read the configuration again."""
