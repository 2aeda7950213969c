"""Notes the topics whose rows have a value in some column, and those whose rows have none: fields and columns do not
match there.

The first column of an ordinary topic's first batch decides. Rows that delete others need no values, and a table of
undecoded values has no fields. Imports only what every executor has. Raises nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from sink.decode.formats import RAW
from sink.schema.table_schema import IS_DELETED
from sink.write.rows.record_columns import RowSpec

LOG = structlog.get_logger("sink.worker")
_NAMED = 10
"""Columns that a warning names."""


@dataclass(frozen=True, slots=True)
class TopicsSeen:
    """The topics of one task."""

    filled: frozenset[str] = frozenset()
    """Topics of which a row has a value in some column."""
    unfilled: Mapping[str, int] = field(default_factory=dict)
    """The numbers of rows without a value, of topics that were not filled before them."""


NONE_SEEN = TopicsSeen()


class FilledTopics:
    """Notes the topics of one task."""

    def __init__(self, spec: RowSpec) -> None:
        self._columns = 0 if spec.format.name in RAW else len(spec.schema.value_struct.fields)
        self._filled: set[str] = set()
        self._rows: Counter[str] = Counter()

    def add(self, topic: str, rows: pa.RecordBatch) -> None:
        """Adds rows of a topic, in which the columns of the value come first."""
        if topic in self._filled or not self._columns:
            return
        if any(rows.column(number).null_count < rows.num_rows for number in range(self._columns)):
            self._filled.add(topic)
        elif live := _live(rows):
            self._rows[topic] += live

    def seen(self) -> TopicsSeen:
        return TopicsSeen(frozenset(self._filled), dict(self._rows))


class UnfilledWarnings:
    """Warns once of each topic whose records fill no column."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = ", ".join(columns[:_NAMED])
        self._told_of: set[str] = set()

    def warn(self, tasks: Iterable[TopicsSeen]) -> None:
        """Looks at the tasks of one write."""
        for topic, records in unfilled_topics(tasks).items():
            if topic not in self._told_of:
                self._told_of.add(topic)
                LOG.warning("records.without_columns", topic=topic, records=records, columns=self._columns)


def unfilled_topics(tasks: Iterable[TopicsSeen]) -> dict[str, int]:
    """Returns the topics that no task has seen filled, with the numbers of their rows."""
    rows: Counter[str] = Counter()
    filled: set[str] = set()
    for seen in tasks:
        rows.update(seen.unfilled)
        filled |= seen.filled
    return {topic: rows[topic] for topic in sorted(rows.keys() - filled)}


def _live(rows: pa.RecordBatch) -> int:
    """Returns the number of rows that delete nothing."""
    if IS_DELETED not in rows.schema.names:
        return int(rows.num_rows)
    return int(rows.num_rows - (pc.sum(rows.column(IS_DELETED)).as_py() or 0))
