"""Keeps workers of two versions of the protocol apart: a fleet runs one.

A worker of this version refuses to join beside a live one of an older version. It writes a format that an older worker
does not read, so that an older worker refuses by itself: at the member znode of a live worker of this version, or at
the `keeper` znode of a tree that a coordinator of this version has led. This version reads, finishes or re-forms the
records of an older one. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordination.state.model import PROTOCOL, Member


def refusal(members: Iterable[Member]) -> str | None:
    """Tells why no worker of this version may join these; None when it may."""
    older = sorted(member for member in members if member.protocol < PROTOCOL)
    if not older:
        return None
    older_workers = ", ".join(f"{member.worker} on {member.host} (version {member.version})" for member in older)
    return (
        f"workers of an older version are alive: {older_workers}; they cannot write one transaction together with this"
        " version. Stop all of them first, wait until their sessions have ended, then start this one again"
    )
