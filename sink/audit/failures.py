"""Why an audit could not be done. What the store raises on the way passes through."""

from __future__ import annotations


class AuditFailure(Exception):
    """Root of the tree."""


class CannotAudit(AuditFailure):
    """The table or the log cannot be read, or the table has no checkpoint of the sink."""


class TryAgain(AuditFailure):
    """A server does not answer, or the table is not yet in a state that can be audited."""


class ReaderFailed(AuditFailure):
    """A reader of tables that the caller gave could not read this one."""


class OtherFormat(AuditFailure):
    """A checkpoint of another release, at `origin`, of the version `found`."""

    def __init__(self, origin: str, found: int) -> None:
        super().__init__(f"{origin}: protocol version {found}")
        self.origin, self.found = origin, found
