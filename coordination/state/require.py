"""Checks the types of values from JSON: each function returns the value, or raises TypeError or ValueError."""

from __future__ import annotations

import math
import re
from typing import Any

_DIGEST = re.compile("[0-9a-f]{1,16}")


def require_int(value: Any) -> int:
    """Raises TypeError for anything but a whole number."""
    if type(value) is not int:
        raise TypeError(f"expected an integer, found {value!r}")
    return value


def require_flag(value: Any) -> bool:
    """Raises ValueError for anything but 0 or 1."""
    if type(value) is not int or value not in (0, 1):
        raise ValueError(f"expected 0 or 1, found {value!r}")
    return bool(value)


def require_str(value: Any) -> str:
    """Raises TypeError for anything but text."""
    if type(value) is not str:
        raise TypeError(f"expected text, found {value!r}")
    return value


def require_digest(value: Any) -> int:
    """Returns the number that up to 16 hexadecimal digits are. Raises TypeError and ValueError for anything else."""
    if not _DIGEST.fullmatch(require_str(value)):
        raise ValueError(f"expected a digest, found {value!r}")
    return int(value, 16)


def require_seconds(value: Any) -> float:
    """Raises TypeError for anything but a number, ValueError for one that is not finite."""
    if type(value) not in (int, float):
        raise TypeError(f"expected seconds, found {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"expected seconds, found {value!r}")
    return float(value)


def require_times(value: Any) -> dict[str, float]:
    """Returns seconds by name. Raises as `require_seconds`; AttributeError for what is not an object."""
    return {name: require_seconds(seconds) for name, seconds in value.items()}
