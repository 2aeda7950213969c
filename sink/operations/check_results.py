"""The findings of checks on a configuration."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One fact about one part; `wrong` if the sink cannot work with it, `note` if an operator has to decide."""

    part: str
    sentence: str
    wrong: bool = False
    note: bool = False
