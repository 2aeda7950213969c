"""Operators' requests to a sink: one znode, `control`, that commands write and the coordinator answers.

A command replaces the whole content at the version that it read. The coordinator answers under its fence, at the same
version. The multi that opens a transaction checks that version too, so that nothing is planned on an older reading.
Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from coordination.state import codec
from coordination.state.model import Member, WorkerState
from coordination.state.require import require_int, require_seconds, require_str


@dataclass(frozen=True, slots=True)
class RequestAuthor:
    """The author of a request, the second since 1970, and the reason. For people, never for decisions."""

    by: str = ""
    at: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Flush:
    """Counts the requests to commit at once, and those that were answered. One answer covers all requests up to it."""

    asked: int = 0
    done: int = 0
    last: RequestAuthor = RequestAuthor()

    def __post_init__(self) -> None:
        if not 0 <= self.done <= self.asked:
            raise ValueError(f"not a count of flushes: {self.done} done of {self.asked}")

    @property
    def is_pending(self) -> bool:
        return self.asked > self.done


@dataclass(frozen=True, slots=True)
class Switchover:
    """Asks one term of one coordinator to end. `lock_path` is the term's contender znode: no other term has it."""

    lock_path: str
    incarnation: str
    author: RequestAuthor = RequestAuthor()


@dataclass(frozen=True, slots=True)
class Control:
    """All pending requests. `drains` names incarnations, so that a restarted worker is not drained again."""

    paused: RequestAuthor | None = None
    flush: Flush = Flush()
    switchover: Switchover | None = None
    drains: Mapping[str, RequestAuthor] = field(default_factory=dict)

    def pause(self, author: RequestAuthor) -> Control:
        """A pause that stands keeps its first author."""
        return self if self.paused is not None else replace(self, paused=author)

    def resume(self) -> Control:
        return replace(self, paused=None)

    def ask_flush(self, author: RequestAuthor) -> Control:
        return replace(self, flush=replace(self.flush, asked=self.flush.asked + 1, last=author))

    def with_flush_done(self, request: int) -> Control:
        """Answers all flushes up to `request`."""
        return replace(self, flush=replace(self.flush, done=max(self.flush.done, request)))

    def ask_switchover(self, lock_path: str, incarnation: str, author: RequestAuthor) -> Control:
        return replace(self, switchover=Switchover(lock_path, incarnation, author))

    def drain(self, incarnations: Collection[str], alive: Collection[str], author: RequestAuthor) -> Control:
        """Asks these to leave. Drops requests to incarnations that are gone, so that they cannot pile up."""
        standing = {name: request for name, request in self.drains.items() if name in alive}
        return replace(self, drains={**dict.fromkeys(incarnations, author), **standing})

    def with_drain_state(self, member: Member) -> Member:
        """Marks a member that was asked to leave as draining, before it says so itself."""
        return replace(member, state=WorkerState.DRAINING) if member.incarnation in self.drains else member


NOTHING_ASKED = Control()


def encode(control: Control, version: int = 0) -> bytes:
    paused, switchover, flush = control.paused, control.switchover, control.flush
    return codec.to_bytes(
        {
            "paused": None if paused is None else _encode_author(paused),
            "flush": {"asked": flush.asked, "done": flush.done, "last": _encode_author(flush.last)},
            "switchover": None
            if switchover is None
            else {
                "lock": switchover.lock_path,
                "incarnation": switchover.incarnation,
                "asked": _encode_author(switchover.author),
            },
            "drains": {name: _encode_author(author) for name, author in sorted(control.drains.items())},
        },
        version,
    )


def decode(data: bytes, origin: str, version: int | None = None) -> Control:
    return codec.from_bytes(data, origin, _build, version)


def _build(d: Any) -> Control:
    flush, switchover = d["flush"], d["switchover"]
    return Control(
        None if d["paused"] is None else _decode_author(d["paused"]),
        Flush(require_int(flush["asked"]), require_int(flush["done"]), _decode_author(flush["last"])),
        None
        if switchover is None
        else Switchover(
            require_str(switchover["lock"]),
            require_str(switchover["incarnation"]),
            _decode_author(switchover["asked"]),
        ),
        {require_str(name): _decode_author(author) for name, author in d["drains"].items()},
    )


def _encode_author(author: RequestAuthor) -> list[Any]:
    return [author.by, author.at, author.reason]


def _decode_author(row: Any) -> RequestAuthor:
    by, at, reason = row
    return RequestAuthor(require_str(by), require_seconds(at), require_str(reason))
