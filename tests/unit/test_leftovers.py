"""A sweep of a table whose notes are old: without Hudi, because only what is deleted, and in which order, matters."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from sink.hudi.instants import ActiveTimeline
from sink.hudi.leftovers import NOTES, sweep

OLD = "20200101000000000"


def test_the_note_of_an_old_rollback_goes_after_what_only_the_note_leads_to() -> None:
    hudi: Any = Mock()
    hudi.names = lambda directory: [OLD, f"{OLD}.listed"] if directory == NOTES else []
    hudi.path = lambda path: path
    timeline: Any = Mock()
    timeline.snapshot.return_value = ActiveTimeline((), None, None, frozenset(), frozenset())
    timeline.gone.return_value = set()
    timeline.removed_files.return_value = []
    sweep(hudi, timeline, Mock(), Mock())
    deleted = [call.args[0] for call in hudi.storage().deleteFile.call_args_list]
    assert deleted == [f"{NOTES}/{OLD}.listed", f"{NOTES}/{OLD}"]
