"""Refuses files that another user could replace before this process runs them.

Guarantee: a directory that passes, and each directory above it, belongs to root or to this process's user, and not
everybody may write it. Above it the sticky bit is enough: others can add files there, but not replace them. A group
that may write is trusted. Raises ConfigError.
"""

from __future__ import annotations

import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

from coordination.errors import ConfigError

ROOT = 0
_UNMAPPED = Path("/proc/sys/kernel/overflowuid")
"""How a user without a number in this container shows, root of the host among them."""


def require_trusted(directory: Path, setting: str) -> None:
    """Raises ConfigError, with the place and its owner, if a stranger could replace the directory or its files.
    `setting` names what the user can set to another directory.
    """
    resolved = directory.resolve()
    for place in (resolved, *resolved.parents):
        status = place.stat()
        if status.st_uid not in _trusted_users():
            raise ConfigError(
                f"{setting}: {place} belongs to {_name(status.st_uid)}, who could replace what runs from {directory}."
                f" Set {setting} to a directory of root's or of this user's."
            )
        is_sticky = place != resolved and status.st_mode & stat.S_ISVTX
        if status.st_mode & stat.S_IWOTH and not is_sticky:
            raise ConfigError(
                f"{setting}: every user may write {place}, and replace what runs from {directory}. Take that right away"
                f" (chmod o-w {place}), or set {setting} to another directory."
            )


def _trusted_users() -> set[int]:
    users = {ROOT, os.getuid()}
    with suppress(OSError, ValueError):
        users.add(int(_UNMAPPED.read_text()))
    return users


def _name(user: int) -> str:
    with suppress(KeyError):
        return f"the user {pwd.getpwuid(user).pw_name}"
    return f"user {user}"
