"""The report of an audit: findings with coordinates and a row for each partition, as text and as JSON.

Guarantee: `held` is true only if no finding contradicts exactly-once. A note reports a fact that is legal but unusual,
or that the audit could not check. The limit on findings does not affect the counts of duplicates and missing rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

SHOWN_OF_A_KIND = 20
"""Findings of one kind that are listed; further ones are counted."""


SHOWN_REPAIRS = 50
"""Ranges of offsets in the command that would repair them."""
COUNTED_REPAIRS = 1_000
"""Ranges of offsets that a check notes for a repair."""


class FindingKind(Enum):
    """The kind of a finding, and whether it contradicts exactly-once."""

    UNREADABLE_INSTANT = ("unreadable instant", True)
    UNREADABLE_CHECKPOINT = ("unreadable checkpoint", True)
    NO_CHECKPOINT = ("no checkpoint", True)
    BROKEN_CHAIN = ("broken chain", True)
    REPEATED_NUMBER = ("repeated number", True)
    COMPLETED_OUT_OF_ORDER = ("completed out of order", True)
    EPOCH_FELL = ("epoch fell", True)
    RANGE_HOLE = ("hole between ranges", True)
    RANGE_OVERLAP = ("overlap of ranges", True)
    END_MISMATCH = ("end does not follow from ranges", True)
    END_FELL = ("end fell", True)
    GENERATION = ("generation", True)
    PARTITION_DROPPED = ("partition dropped", True)
    GAP_DROPPED = ("gap dropped", True)
    TOPIC_ID = ("topic id", True)
    CLUSTER = ("cluster", True)
    COMMIT_COUNT = ("commit count", True)
    DUPLICATE = ("duplicate", True)
    OUTSIDE = ("row outside every range", True)
    MISSING = ("missing", True)
    SURPLUS = ("surplus", True)
    ERRORS_COUNT = ("errors table", True)
    NOT_IN_LOG = ("not in the log", True)
    DIGEST = ("digest", True)
    SKIPPED = ("skipped at the beginning", True)
    NO_COMMIT = ("files but no commit", True)
    FILE_MISSING = ("file missing", True)
    FILE_UNREADABLE = ("file unreadable", True)
    FILE_SIZE = ("file size", True)
    FILE_ROWS = ("file rows", True)
    FILE_UNSEEN = ("file unseen by readers", True)
    FILE_UNNAMED = ("visible file that no commit names", True)
    PARTITION_METAFILE = ("partition metafile missing", True)
    METADATA_TABLE = ("metadata table", True)
    COLUMNS = ("columns", True)
    FOOTER = ("footer", True)
    STATISTICS = ("statistics", True)
    CELL = ("cell", True)
    LANDED_BAD = ("bad record in the table", True)
    ABSENT = ("row absent", True)
    READERS = ("readers differ", True)
    STALE = ("row of another record", True)
    ERRORS_ROW = ("row of the errors table", True)
    EMPTY = ("empty table", False)
    STRAY = ("stray file", False)
    OTHERS = ("changed by others", False)
    REPLAYED = ("replayed", False)
    RESET = ("reset", False)
    GAP = ("gap", False)
    COMPACTED = ("compacted away", False)
    HOLE = ("hole in the log", False)
    BEFORE = ("before the first range", False)
    UNREAD = ("not landed yet", False)
    EXPIRED = ("expired from the log", False)
    UNPUBLISHED = ("bad records of no commit", False)
    UNPROVEN = ("not proven", False)
    BY_SPARK = ("read by Spark", False)
    READ = ("readers agree", False)

    def __init__(self, label: str, fails: bool) -> None:
        self.label = label
        self.fails = fails


@dataclass(frozen=True, slots=True)
class AuditFinding:
    kind: FindingKind
    sentence: str


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition. `first` and `last` are offsets in the table, `end` is the end offset in the newest checkpoint.

    `gaps` counts offsets in committed ranges without a record: compacted away, transaction markers, aborted records.
    `missing` counts records that checkpoints or log have and the table does not.
    """

    topic: str
    partition: int
    rows: int
    first: int | None
    last: int | None
    end: int
    duplicates: int
    missing: int
    outside: int
    gaps: int
    errors: int = 0
    """Bad records of committed ranges that are in the errors table."""


@dataclass(frozen=True, slots=True)
class DigestCount:
    """How many slices have the digest of their commit in the log, or another one, and how many could not be compared,
    by reason."""

    same: int = 0
    different: int = 0
    not_compared: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        left_out = sum(self.not_compared.values())
        text = f"The digests of {self.same + self.different:,} slices were compared with the log"
        if not left_out:
            return f"{text}."
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.not_compared.items()))
        return f"{text}, those of {left_out:,} could not be ({reasons})."


LEFT_OUT = "left out"
"""The reason of rows that nobody asked to compare."""
EDITED = "edited in a replay"
"""The reason of rows whose values `sink errors replay --sql` has made."""
ALLOWED = frozenset(
    {
        LEFT_OUT,
        "expired from the log",
        "compacted away",
        "no longer in Kafka",
        "another topic id",
        "rows of other writers",
        EDITED,
    }
)
"""Reasons for which a row may stay without a comparison: the log, other writers or an operator left nothing to compare
with, or the coverage leaves it out."""


@dataclass(frozen=True, slots=True)
class ContentCount:
    """How many rows of the table were compared cell by cell, and with what result. `counts`: differing cells by column,
    and what else was counted."""

    rows: int
    compared: int
    different: int
    absent: int
    bad: int
    counts: Mapping[str, int] = field(default_factory=dict)
    not_compared: Mapping[str, int] = field(default_factory=dict)
    errors_not_compared: Mapping[str, int] = field(default_factory=dict)
    """How many rows of the errors table were not compared, by reason."""

    @property
    def complete(self) -> bool:
        """Whether nothing stayed without a comparison but what may."""
        return ALLOWED.issuperset((*self.not_compared, *self.errors_not_compared))

    def __str__(self) -> str:
        text = f"The cells of {self.compared:,} of {self.rows:,} rows were compared with the log"
        text += f", {self.different:,} rows differ" if self.different else ""
        for rows, reasons in (("", self.not_compared), (" of the errors table", self.errors_not_compared)):
            if reasons:
                counted = ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons.items()))
                text += f"; not compared{rows}: {counted}"
        return f"{text}."


@dataclass(frozen=True, slots=True)
class Report:
    base_path: str
    sink: str | None
    findings: tuple[AuditFinding, ...] = ()
    partitions: tuple[PartitionRow, ...] = ()
    rows: int = 0
    commits: int = 0
    others: int = 0
    files: int = 0
    provenance: bool = True
    log_checked: bool = False
    seconds: float = 0.0
    errors: int = 0
    """Bad records that are in the errors table and not in the table."""
    replayed: int = 0
    """Bad records that were replayed: in the table, and marked in the errors table."""
    changed: bool = False
    """Whether rows are changed by key, so that their number is not the number of records."""
    digests: DigestCount | None = None
    """The comparison of the slices' digests with the log; None if the log was not read."""
    content: ContentCount | None = None
    """The comparison of the cells with the log; None if it was not asked for."""
    through: str = ""
    """The instant of the newest commit of the sink."""
    repair: tuple[str, ...] = ()
    """The offsets that `sink reland` would have to land again, as it takes them."""
    coverage: str = ""
    """The part of the log that was compared; empty if that is all of it."""

    @property
    def failures(self) -> tuple[AuditFinding, ...]:
        return tuple(finding for finding in self.findings if finding.kind.fails)

    @property
    def notes(self) -> tuple[AuditFinding, ...]:
        return tuple(finding for finding in self.findings if not finding.kind.fails)

    @property
    def held(self) -> bool:
        """Whether nothing contradicts exactly-once, and all was compared that was asked for."""
        return not self.failures and self.complete

    @property
    def complete(self) -> bool:
        """Whether all contents that were asked for were compared."""
        return self.content is None or self.content.complete

    @property
    def empty(self) -> bool:
        """Whether nothing was committed: then nothing is wrong, but nothing was proven either."""
        return self.held and any(finding.kind is FindingKind.EMPTY for finding in self.findings)

    @property
    def duplicates(self) -> int:
        return sum(row.duplicates for row in self.partitions)

    @property
    def missing(self) -> int:
        return sum(row.missing for row in self.partitions)

    def to_json(self) -> str:
        document = asdict(self)
        document["findings"] = [
            {"kind": f.kind.name, "fails": f.kind.fails, "sentence": f.sentence} for f in self.findings
        ]
        document |= {"held": self.held, "complete": self.complete, "empty": self.empty}
        document |= {"duplicates": self.duplicates, "missing": self.missing}
        return json.dumps(document, indent=2)

    def render(self, console: Console) -> None:
        console.print(self.partition_table())
        for finding in self.findings:
            colour = "red" if finding.kind.fails else "yellow"
            console.print(Text.assemble((f"{finding.kind.label}: ", colour), finding.sentence), soft_wrap=True)
        if self.repair:
            console.print(Text(self.repair_command()), soft_wrap=True)
        if self.digests is not None:
            console.print(Text(f"{self.digests}"), soft_wrap=True)
        if self.content is not None:
            console.print(Text(f"{self.content}"), soft_wrap=True)
        colour = "red" if self.failures else "green" if self.held and not self.empty else "yellow"
        console.print(Text(self.verdict(), style=f"bold {colour}"), soft_wrap=True)

    def repair_command(self) -> str:
        """Returns the command that would repair the first of the offsets that can be."""
        more = len(self.repair) - SHOWN_REPAIRS
        command = f"Repair: sink reland --config FILE {' '.join(self.repair[:SHOWN_REPAIRS])}"
        return f"{command}; and {more:,} ranges more after that: audit again" if more > 0 else command

    def partition_table(self) -> RichTable:
        """Returns a table with rows, first and last offset, duplicates and missing of each partition, and totals."""
        table = RichTable(title=f"{self.sink or 'table'} at {self.base_path}", title_justify="left")
        table.add_column("topic")
        for name in ("partition", "rows", "errors", "first", "last", "end", "duplicates", "missing", "gaps"):
            table.add_column(name, justify="right")
        for row in self.partitions:
            numbers = (row.rows, row.errors, row.first, row.last, row.end, row.duplicates, row.missing, row.gaps)
            table.add_row(row.topic, str(row.partition), *(_number(value) for value in numbers))
        table.add_section()
        gaps = sum(row.gaps for row in self.partitions)
        total = (
            _number(self.rows),
            _number(self.errors),
            "",
            "",
            "",
            _number(self.duplicates),
            _number(self.missing),
            _number(gaps),
        )
        table.add_row("total", str(len(self.partitions)), *total)
        return table

    def verdict(self) -> str:
        if self.empty:
            return "Empty: no transaction has been committed, so nothing was proven."
        against = "the log" if self.log_checked else "the checkpoints only"
        errors = f" and {self.errors:,} bad records" if self.errors else ""
        scale = f"{self.rows:,} rows{errors} of {self.commits:,} commits against {against} in {self.seconds:.1f} s"
        scale += f", with the log of {self.coverage}" if self.coverage else ""
        if not self.failures and not self.complete:
            return f"Not all compared: nothing contradicts the log, and some rows had nothing to compare with; {scale}."
        if self.held and self.changed:
            proven = "every range committed once, in one chain"
            if self.content is not None:
                return f"Held: {proven}, and each row is what the log says, {scale}."
            return f"Held: {proven}, {scale}. That each record took effect is not proven."
        if self.held:
            values = ", with its values" if self.content is not None else ""
            return f"Held: every record exactly once{values}, {scale}."
        kinds = sorted({finding.kind.label for finding in self.failures})
        return f"Not held: {', '.join(kinds)}; {scale}."


class AuditFindings:
    """Collects findings, keeping the first of each kind in full."""

    def __init__(self) -> None:
        self._listed: list[AuditFinding] = []
        self._counts: dict[FindingKind, int] = {}
        self._repairs: list[tuple[str, int, int, int]] = []

    def add(self, kind: FindingKind, sentence: str) -> None:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._counts[kind] <= SHOWN_OF_A_KIND:
            self._listed.append(AuditFinding(kind, sentence))

    def extend(self, findings: Iterable[AuditFinding]) -> None:
        for finding in findings:
            self.add(finding.kind, finding.sentence)

    def repair(self, topic: str, partition: int, low: int, high: int) -> None:
        """Notes offsets `[low, high)` whose rows are wrong, and would be right if they were landed again."""
        self._repairs.append((topic, partition, low, high))

    def repairs(self) -> tuple[str, ...]:
        """Returns the offsets to land again, those that touch joined, as `sink reland` takes them."""
        merged: list[tuple[str, int, int, int]] = []
        for topic, partition, low, high in sorted(self._repairs):
            if merged and merged[-1][:2] == (topic, partition) and low <= merged[-1][3]:
                merged[-1] = (topic, partition, merged[-1][2], max(high, merged[-1][3]))
            else:
                merged.append((topic, partition, low, high))
        return tuple(f"{t}:{p}={low}" + (f"..{high - 1}" if high - low > 1 else "") for t, p, low, high in merged)

    def all(self) -> tuple[AuditFinding, ...]:
        """Returns the findings in the order of `FindingKind`, failures first, and a line for those not listed."""
        order = {kind: position for position, kind in enumerate(FindingKind)}
        further = [
            AuditFinding(kind, f"and {count - SHOWN_OF_A_KIND:,} more of this kind")
            for kind, count in self._counts.items()
            if count > SHOWN_OF_A_KIND
        ]
        return tuple(sorted([*self._listed, *further], key=lambda finding: order[finding.kind]))


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
