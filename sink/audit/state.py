"""Reads a consistent snapshot of a table, although writers may commit meanwhile.

Raises `CannotAudit` for a table that hudi-rs cannot read, `TryAgain` for one that changes during every look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hudi import HudiFileSlice, HudiReadOptions, HudiTable

from sink.audit.failures import CannotAudit, TryAgain
from sink.audit.timeline import (
    AuditedTimeline,
    active_names,
    any_commit,
    completed_names,
    read_timeline,
)
from sink.storage.faults import fault_in
from sink.storage.hudi_rs import MirroredTable, raised_by_hudi, rust_table
from sink.storage.table_files import TableFiles

LOOKS = 20
_ORDERING = "hoodie.table.ordering.fields"


@dataclass(frozen=True, slots=True)
class TableState:
    """A consistent snapshot of the table: its timeline, and the file slices that hudi-rs shows."""

    files: TableFiles
    timeline: AuditedTimeline
    table: HudiTable | MirroredTable
    slices: Sequence[HudiFileSlice]
    refusal: str = ""
    """Why hudi-rs merges no log files of this table; empty if it does."""


def read_table_state(files: TableFiles) -> TableState:
    """Reads timeline and file slices of one state, although writers may commit meanwhile."""
    for _ in range(LOOKS):
        names = active_names(files)
        completed_before = completed_names(names)
        try:
            table, refusal = _opened(files)
            slices = table.get_file_slices(HudiReadOptions()) if any_commit(completed_before) else []
        except Exception as error:
            if not raised_by_hudi(error):
                raise
            if completed_names(active_names(files)) == completed_before:
                reason = str(error)[:300]
                fault = fault_in(str(error), files.base_path, files.access)
                sentence = fault.sentence if fault else reason
                raise CannotAudit(f"{files.base_path}: hudi-rs cannot read the table: {sentence}") from error
            continue
        if completed_names(active_names(files)) == completed_before:
            return TableState(files, read_timeline(files, names), table, slices, refusal)
    raise TryAgain(f"{files.base_path} changed during each of {LOOKS} reads. Try again.")


def _opened(files: TableFiles) -> tuple[HudiTable | MirroredTable, str]:
    """Returns the table, and why hudi-rs merges no log files of it. A table of several ordering columns it does not
    even open; with one of them it knows the files, and reads those that nothing has to be merged with."""
    fields = files.properties.get(_ORDERING, "").split(",")
    if len(fields) == 1:
        return rust_table(files), ""
    return rust_table(files, {_ORDERING: fields[0]}), f"it knows one ordering column, not {', '.join(fields)}"
