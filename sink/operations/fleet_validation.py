"""Checks all sinks of a configuration side by side, and tells what they have in common once.

Guarantee: as `sink.operations.validation`, for each sink that can be used; what cannot be asked is a finding. Raises
ConfigError for a name that no sink has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from coordination.errors import Unavailable
from sink.clients.storage_probe import SharedJvms
from sink.config import Fleet, Settings
from sink.hudi.lock import LOCK_KEY, lock_path
from sink.operations.chosen import KnownSinks, choose, shown, side_by_side
from sink.operations.validation import CheckResult, validate


@dataclass(frozen=True, slots=True)
class FleetChecks:
    """`shared`: findings of the whole configuration, and those that all sinks have in common."""

    shared: tuple[CheckResult, ...]
    sinks: Mapping[str, tuple[CheckResult, ...]]

    @property
    def everything(self) -> Iterator[CheckResult]:
        yield from self.shared
        for findings in self.sinks.values():
            yield from findings


def validate_fleet(fleet: Fleet, names: Sequence[str] = ()) -> FleetChecks:
    """Checks those that one of `names` names, or all; of a pattern those that its topics would become now."""
    try:
        known = replace(choose(fleet, names), misconfigured={})
    except Unavailable as error:
        known = KnownSinks(fleet.sinks)
        topics: list[CheckResult] = [CheckResult("topics", str(error), wrong=True)]
    else:
        topics = list(_topics(fleet, known)) if not names else []
    with SharedJvms() as jvms:
        answers = side_by_side(known, partial(validate, jvm=jvms.of))
    found = {answer.name: tuple(answer.result or ()) for answer in answers}
    counted = Counter(finding for findings in found.values() for finding in findings)
    common = [finding for finding in counted if counted[finding] == len(found) > 1]
    own = {name: tuple(f for f in findings if f not in common) for name, findings in found.items()}
    return FleetChecks((*topics, *_locks(known.sinks), *common), own)


def _topics(fleet: Fleet, known: KnownSinks) -> Iterator[CheckResult]:
    """Yields the sinks that each pattern would have now, and the topics that cannot become one."""
    fixed = {settings.name for settings in fleet.sinks}
    for pattern in fleet.patterns:
        own = [s for s in known.sinks if s.name not in fixed and any(map(pattern.matches, s.topics))]
        sinks = f"would be {len(own)} sinks now: {shown(own)}" if own else "would be no sink now"
        yield CheckResult("topics", f"{pattern.name}: topics that match {pattern.regex} {sinks}")
    for problem in known.problems:
        yield CheckResult("topics", f"no table: {problem}", note=True)


def _locks(sinks: Sequence[Settings]) -> Iterator[CheckResult]:
    """Tables of one name commit one after the other."""
    by_lock: dict[str, list[Settings]] = {}
    for settings in sinks:
        by_lock.setdefault(lock_path(settings), []).append(settings)
    for path, those in by_lock.items():
        if len(those) > 1:
            sentence = (
                f"{shown(those)} share the table lock {path}, and so wait for one another. Give their tables different"
                f" names, or each another {LOCK_KEY}"
            )
            yield CheckResult("table lock", sentence, note=True)
