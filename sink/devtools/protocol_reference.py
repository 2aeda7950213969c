"""The parts of `docs/how-it-works.md` that the code has, for `sink.devtools.page_parts`.

The phases come from `coordination.state.phases.TRANSITIONS`, the rules and their order from
`coordination.machines.coordinator.RULES`, the znodes from the docstring of `coordination.state.tree`, a sink's life
from `sink.runtime.sinks.life.TRANSITIONS`. Raises KeyError for a rule without a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from textwrap import dedent

from coordination.machines.coordinator import RULES
from coordination.state import tree
from coordination.state.model import Phase
from coordination.state.phases import TRANSITIONS
from sink.runtime.sinks import life as life_of_a_sink

_ENDINGS = {
    Phase.COMMITTED: "partitions are AFTER, header deleted (ACK_COMMIT)",
    Phase.ABORTED: "rolled back, header deleted",
}

_SENTENCES: Mapping[str, str] = {
    "read_keeper": "Read the sink's znodes, if anything may have changed since they were last read.",
    "resign_if_superseded": "Resign, if the epoch is no longer the one that this term raised, or a znode is missing.",
    "halt": "Record why the sink has to stop, if a request showed that it must.",
    "yield_leadership": "Resign, if requests of one kind have failed eight times in a row, nothing is halted and"
    " another worker is a candidate.",
    "read_table": "Read the timeline, if nothing is known of it, if an open transaction names an instant that"
    " was not asked about, or if nothing was open and the last look is a minute old.",
    "raise_epoch": "A new term, or the table's newest checkpoint is of a higher epoch than this term's: raise the"
    " epoch above both ZooKeeper's and the table's, then read everything again.",
    "record_config": "Put the fleet's configuration on record.",
    "delete_incomplete_plans": "Delete what plans left behind that never counted.",
    "abort_superseded": "What an older epoch left undecided is aborted, and so is what was to follow an aborted"
    " transaction.",
    "start": "Let the next transaction be written once the one before it is PREPARED: one is written while one commits,"
    " never two at once.",
    "plan_ahead": "Plan the next transaction before the one that is written commits, where more than one may be open.",
    "begin_ahead": "Begin its instant, too, once: one that cannot be begun keeps no other from being completed.",
    "advance": "Take each open transaction, oldest first, to its next phase: begin the instant, collect write"
    " statuses, decide, complete, settle; or abort and roll back.",
    "abort_orphans": "A pending instant that carries the sink's name but that no transaction names gets an"
    " ABORTED record; with that it is rolled back like any other.",
    "sync_with_table": "Bring the recorded states into step with the table's checkpoint, or halt; what is open is"
    " aborted first.",
    "answer_requests": "Answer operators: a flush is done once all that was there is AFTER, a switchover once another"
    " worker leads, or where there is none that could.",
    "plan": "Look at the log and open the next transaction: a recorded batch again, or a new one; at once for a flush,"
    " nothing while the sink is paused. Draining, or asked to yield: resign once nothing is open.",
    "read_keeper_again": "Nothing else to do: read the znodes again, if a change was reported while they were being"
    " read.",
}


def phases() -> str:
    """Returns the state diagram in Mermaid."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {next(iter(TRANSITIONS)).value}"]
    for phase, next_phases in TRANSITIONS.items():
        lines += [f"    {phase.value} --> {next_phase.value}: {why}" for next_phase, why in next_phases.items()]
        if not next_phases:
            lines.append(f"    {phase.value} --> [*]: {_ENDINGS[phase]}")
    return "\n".join([*lines, "```"])


def life() -> str:
    """Returns the states of a sink in a process, as a diagram in Mermaid."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {next(iter(life_of_a_sink.TRANSITIONS)).name}"]
    for state, events in life_of_a_sink.TRANSITIONS.items():
        lines += [f"    {state.name} --> {after.name}: {event.value}" for event, after in events.items()]
        if not events:
            lines.append(f"    {state.name} --> [*]")
    return "\n".join([*lines, "```"])


def rules() -> str:
    """Returns the coordinator's rules, in order."""
    names = [rule.__name__ for rule in RULES]
    lines = (f"**{name.replace('_', ' ')}**: {_SENTENCES[name]}" for name in names)
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))


def znodes() -> str:
    """Returns the tree of znodes from the docstring of its module."""
    match = re.search(r"\n\n((?:    .+\n)+)", tree.__doc__ or "")
    if match is None:
        raise ValueError("the docstring of coordination.state.tree shows no tree")
    return f"```\n{dedent(match[1]).rstrip()}\n```"
