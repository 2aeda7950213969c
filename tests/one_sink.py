"""The settings of a configuration with one sink."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sink.config import Settings, load_configuration


def load(path: Path, environ: Mapping[str, str] = os.environ, columns: bool = True) -> Settings:
    """Returns the settings of the one sink of `path`. Raises as `load_configuration`."""
    (settings,) = load_configuration(path, environ, columns).sinks
    return settings
