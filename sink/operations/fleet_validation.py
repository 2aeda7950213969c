"""Checks all sinks of a configuration in parallel, and reports their common findings once.

Guarantee: as `sink.operations.validation`, for each usable sink; a failed question is a finding. Raises ConfigError for
a name that no sink has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from coordination.errors import ConfigError, Unavailable
from sink.clients.spark.storage_probe import SharedJvms
from sink.config import Configuration, Settings
from sink.hudi.specification import LOCK_KEY
from sink.operations.check_results import CheckResult
from sink.operations.chosen import KnownSinks, choose, listed_names, side_by_side
from sink.operations.heap_room import heap_room
from sink.operations.validation import validate


@dataclass(frozen=True, slots=True)
class FleetChecks:
    """`shared`: findings of the whole configuration, and findings common to all sinks."""

    shared: tuple[CheckResult, ...]
    sinks: Mapping[str, tuple[CheckResult, ...]]

    @property
    def all_results(self) -> Iterator[CheckResult]:
        yield from self.shared
        for findings in self.sinks.values():
            yield from findings


def validate_fleet(fleet: Configuration, names: Sequence[str] = (), sample: bool = False) -> FleetChecks:
    """Checks the sinks that match `names`, or all, including those that a pattern's topics would become now. With
    `sample` it reads the last records of their topics."""
    try:
        chosen_sinks = replace(choose(fleet, names), misconfigured={})
    except Unavailable as error:
        chosen_sinks = KnownSinks(fleet.sinks)
        topics: list[CheckResult] = [CheckResult("topics", str(error), wrong=True)]
    else:
        topics = list(_topics(fleet, chosen_sinks)) if not names else []
    with SharedJvms() as jvms:
        answers = side_by_side(chosen_sinks, partial(validate, jvm=jvms.running, sample=sample))
    results_by_sink = {answer.name: tuple(answer.result or ()) for answer in answers}
    counts = Counter(finding for findings in results_by_sink.values() for finding in findings)
    common_findings = [finding for finding in counts if counts[finding] == len(results_by_sink) > 1]
    own_results = {
        name: tuple(check for check in findings if check not in common_findings)
        for name, findings in results_by_sink.items()
    }
    shared = (*topics, *_heap(fleet, chosen_sinks.sinks), *_locks(chosen_sinks.sinks))
    return FleetChecks((*shared, *common_findings), own_results)


def _heap(fleet: Configuration, chosen_sinks: Sequence[Settings]) -> Iterator[CheckResult]:
    """Yields whether the heap of one process has room for all sinks."""
    try:
        if sentence := heap_room(fleet, len(chosen_sinks)):
            yield CheckResult("memory", sentence)
    except ConfigError as error:
        yield CheckResult("memory", str(error), wrong=True)


def _topics(fleet: Configuration, chosen_sinks: KnownSinks) -> Iterator[CheckResult]:
    """Yields the sinks that each pattern would have now, and the topics that cannot become one."""
    configured_names = {settings.name for settings in fleet.sinks}
    for pattern in fleet.patterns:
        pattern_sinks = [
            sink
            for sink in chosen_sinks.sinks
            if sink.name not in configured_names and any(map(pattern.matches, sink.topics))
        ]
        sinks = (
            f"would be {len(pattern_sinks)} sinks now: {listed_names(pattern_sinks)}"
            if pattern_sinks
            else "would be no sink now"
        )
        yield CheckResult("topics", f"{pattern.name}: topics that match {pattern.regex} {sinks}")
    for problem in chosen_sinks.problems:
        yield CheckResult("topics", f"no table: {problem}", note=True)


def _locks(sinks: Sequence[Settings]) -> Iterator[CheckResult]:
    """Yields a note for each table lock that several sinks share: their tables commit one after the other."""
    by_lock: dict[str, list[Settings]] = {}
    for settings in sinks:
        by_lock.setdefault(settings.table.lock.path, []).append(settings)
    for path, sharing in by_lock.items():
        if len(sharing) > 1:
            sentence = (
                f"{listed_names(sharing)} share the table lock {path}, and so wait for one another. Give their tables"
                f" different names, or each another {LOCK_KEY}"
            )
            yield CheckResult("table lock", sentence, note=True)
