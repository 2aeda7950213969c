"""Keeps releases with other formats out: a fleet runs one protocol version.

Each znode of a sink's tree and each checkpoint in its table names the version that wrote it. Every reader of a record
calls `require_own` before it looks at anything else, so that a worker or a tool touches nothing of another version. The
auditor alone compares the number by itself.
Pure. Raises OtherVersion and Corrupt.
"""

from __future__ import annotations

from typing import Any

from coordination.errors import Corrupt, OtherVersion

PROTOCOL = 1
"""The version of all that workers record: znodes, the write tasks in them, and checkpoints. Until the first release
formats change and the number stays; from then on each change that the release before would misread raises it."""


def require_own(found: Any, origin: str) -> None:
    """Raises OtherVersion for the version of another release, older or newer, and Corrupt for what is not a version."""
    if type(found) is not int:
        raise Corrupt(f"{origin}: not a document of the sink: it has no format")
    if found != PROTOCOL:
        raise other_version(found, origin)


def other_version(found: int, origin: str) -> OtherVersion:
    """Returns the error for a record of another release, older or newer."""
    return OtherVersion(
        f"{origin}: protocol version {found}. This release reads version {PROTOCOL}. Use the"
        f" {'newer' if found > PROTOCOL else 'older'} release, whose `sink version` names protocol {found}. Or, to"
        " go on with this one, stop all workers and run `sink reset --forget --yes`: a tree is rebuilt from the"
        f" table, whose checkpoints have to be of version {PROTOCOL}"
    )
