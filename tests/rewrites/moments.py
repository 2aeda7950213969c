"""Moments of what a process does to a table, known by the files that it has written or deleted by then."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TIMELINE = ".hoodie/timeline"
METADATA = ".hoodie/metadata/.hoodie/timeline"
METADATA_BEGUN = "metadata begun"
_INSTANT = r"\d{17}"


@dataclass(frozen=True, slots=True)
class _Sign:
    """A file whose name matches appears below a directory, or one that matched is gone."""

    directory: str
    pattern: str
    gone: bool = False
    deep: bool = False
    """Also in the directories below."""
    filled: bool = False
    """It is not empty."""


def _signs(action: str, completed: str) -> dict[str, _Sign]:
    """Returns the moments of an action on the timeline, in their order."""
    return {
        "planned": _Sign(TIMELINE, rf"{_INSTANT}\.{action}\.requested"),
        "begun": _Sign(TIMELINE, rf"{_INSTANT}\.({action}\.inflight|inflight)"),
        METADATA_BEGUN: _Sign(METADATA, rf"{_INSTANT}\.deltacommit\.inflight"),
        "in the metadata table": _Sign(METADATA, rf"{_INSTANT}_\d+\.deltacommit"),
        "on the timeline": _Sign(TIMELINE, rf"{_INSTANT}_\d+\.{completed}"),
    }


_FILES = {
    "marked": _Sign(".hoodie/.temp", r".*\.marker\..*", deep=True),
    "files": _Sign("", r".*\.parquet|\..*\.log\.\d+_.*", deep=True),
}
_DELETED = {"deleting": _Sign("", r".*\.parquet|\..*\.log\.\d+_.*", gone=True, deep=True)}
_WRITES = "commit|deltacommit"
_REWRITE = {
    "compaction": _signs("compaction", "commit") | _FILES,
    "clustering": _signs("clustering", "replacecommit") | _FILES,
}
SIGNS: Mapping[str, Mapping[str, _Sign]] = {
    **_REWRITE,
    "clean": _signs("clean", "clean") | _DELETED,
    "archive": {
        "number taken": _Sign(f"{TIMELINE}/history", r"manifest_\d+"),
        "written": _Sign(f"{TIMELINE}/history", r".*_.*\.parquet", deep=True),
        "files": _Sign(f"{TIMELINE}/history", r".*\.parquet"),
        "deleting": _Sign(TIMELINE, rf"{_INSTANT}_\d+\..*", gone=True),
    },
    "rollback": _signs("rollback", "rollback") | _DELETED,
    "restore": _signs("restore", "restore") | _DELETED,
    "begin": {
        "planned": _Sign(TIMELINE, rf"{_INSTANT}\.({_WRITES})\.requested"),
        "begun": _Sign(TIMELINE, rf"{_INSTANT}\.(deltacommit\.inflight|inflight)"),
    },
    "write": _FILES,
    "complete": {
        METADATA_BEGUN: _Sign(METADATA, rf"{_INSTANT}\.deltacommit\.inflight"),
        "in the metadata table": _Sign(METADATA, rf"{_INSTANT}_\d+\.deltacommit"),
        "on the timeline": _Sign(TIMELINE, rf"{_INSTANT}_\d+\.({_WRITES})"),
    },
    "metadata services": {
        "planned": _Sign(METADATA, rf"{_INSTANT}\.(compaction|clean)\.requested"),
        "begun": _Sign(METADATA, rf"{_INSTANT}\.(compaction|clean)\.inflight"),
        "files": _Sign(".hoodie/metadata/files", r".*\.hfile"),
        "on the timeline": _Sign(METADATA, rf"{_INSTANT}_\d+\.(commit|clean)"),
    },
}
"""By what a process does, its moments. The signs of a metadata table come only where there is one."""

_LATE: Mapping[str, Mapping[str, _Sign]] = {
    "metadata commit": {"files": _Sign(".hoodie/metadata/files", r"\..*\.log\..*", filled=True)},
}
"""Moments of a process that has woken late. No seed chooses them."""


def sign_of(action: str, moment: str) -> _Sign:
    return {**SIGNS, **_LATE}[action][moment]


def moments(action: str, metadata: bool) -> list[str]:
    return [name for name, sign in SIGNS[action].items() if metadata or "metadata" not in sign.directory]


class Watch:
    """Whether a moment has come since this object was made."""

    def __init__(self, base: Path, action: str, moment: str) -> None:
        self._base = base
        self._sign = sign_of(action, moment)
        self._pattern = re.compile(self._sign.pattern)
        self._before = set(self._names())

    def __call__(self) -> bool:
        now = set(self._names())
        if self._sign.gone:
            is_gone = bool(self._before - now)
            self._before |= now
            return is_gone
        return bool(now - self._before)

    def _names(self) -> Iterator[str]:
        directories = [str(self._base / self._sign.directory)]
        while directories:
            try:
                entries = os.scandir(directories.pop())
            except (FileNotFoundError, NotADirectoryError):
                continue
            with entries:
                for entry in entries:
                    if self._pattern.fullmatch(entry.name) and (entry.stat().st_size or not self._sign.filled):
                        yield entry.path
                    elif self._sign.deep and entry.name != ".hoodie" and entry.is_dir():
                        directories.append(entry.path)
