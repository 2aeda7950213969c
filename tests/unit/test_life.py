"""A sink's life goes by its table, and an event that the table does not have changes nothing."""

from __future__ import annotations

import itertools

import pytest

from sink.runtime.sinks.life import TRANSITIONS, IllegalEvent, Life, SinkEvent, SinkState

PAIRS = list(itertools.product(SinkState, SinkEvent))


def test_every_state_has_its_line_and_every_event_happens_somewhere() -> None:
    assert set(TRANSITIONS) == set(SinkState)
    assert {event for events in TRANSITIONS.values() for event in events} == set(SinkEvent)
    reached = {state for events in TRANSITIONS.values() for state in events.values()}
    assert reached == set(SinkState)


@pytest.mark.parametrize(("state", "event"), [pair for pair in PAIRS if pair[1] in TRANSITIONS[pair[0]]])
def test_what_the_table_has_leads_there_with_its_reason(state: SinkState, event: SinkEvent) -> None:
    life = Life(state)
    life.happens(event, "why")
    assert (life.state, life.reason) == (TRANSITIONS[state][event], "why")


@pytest.mark.parametrize(("state", "event"), [pair for pair in PAIRS if pair[1] not in TRANSITIONS[pair[0]]])
def test_what_the_table_does_not_have_raises_and_changes_nothing(state: SinkState, event: SinkEvent) -> None:
    life = Life(state)
    life.reason = "before"
    with pytest.raises(IllegalEvent, match=state.value):
        life.happens(event, "why")
    assert (life.state, life.reason) == (state, "before")


@pytest.mark.parametrize("state", [SinkState.REFUSED, SinkState.ENDED])
def test_refused_and_ended_are_the_end(state: SinkState) -> None:
    assert TRANSITIONS[state] == {}
