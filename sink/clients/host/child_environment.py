"""The environment of child processes: this package is found there, and nothing overrides a setting.

From Python 3.11 on a child imports nothing from the directory where its parent is, which another user may write.

Raises nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import sink

FAMILY = "SINK_FAMILY"
"""The tag of a group of processes that end together, for the demo and for tests."""
OWN_VARIABLES = "SINK_"
SAFE_PATH: Mapping[str, str] = {"PYTHONSAFEPATH": "1"}
PASSED_ON = frozenset({"SINK_HOME", FAMILY})
"""Variables that children inherit: the directory of downloads, and the tag of the process group."""


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Returns this process's environment and `extra`, with this package in PYTHONPATH.

    It omits `SINK_*` variables that override settings: exported for a real sink, they would connect the children to its
    servers.
    """
    package_root = str(Path(sink.__path__[0]).resolve().parent)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != package_root]
    inherited = {name: value for name, value in os.environ.items() if not overrides_a_setting(name)}
    return {**inherited, **SAFE_PATH, "PYTHONPATH": os.pathsep.join([package_root, *paths]), **extra}


def overrides_a_setting(name: str) -> bool:
    """Returns whether a worker might read the environment variable as a setting."""
    return name.startswith(OWN_VARIABLES) and name not in PASSED_ON
