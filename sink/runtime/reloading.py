"""Compares the configuration that a process runs with the one that it was told to read. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sink.clients.spark_storage import schemes
from sink.config import Fleet, ProcessSettings, Settings


@dataclass(frozen=True)
class Changes:
    """`fleet` is the configuration that the process has from now on: the new one, without the refused changes."""

    fleet: Fleet
    added: tuple[str, ...]
    removed: tuple[str, ...]
    refused: Mapping[str, str]
    """By sink, why its change is not taken up."""
    process: tuple[str, ...]
    """Names of the process's settings that have changed, and need a restart."""


_MISSING = "it is missing, but a part of the configuration cannot be used. Mend that part, and reload again."


def changes_of(old: Fleet, new: Fleet, running: Mapping[str, Settings], discovered: Sequence[Settings] = ()) -> Changes:
    """Compares two configurations. `running`: the sinks of the process; `discovered`: those of topics that match a
    pattern, hosted or not.

    A sink that is hosted before and after keeps the settings it has: another configuration of the same sink would be
    refused by its fleet, and one that only this worker has would hold for half of its threads. While a part of the new
    configuration cannot be used, no sink is removed: that part may be it.
    """
    process = tuple(
        field.alias or name
        for name, field in ProcessSettings.model_fields.items()
        if name != "hosted" and getattr(old.process, name) != getattr(new.process, name)
    )
    configured_before = {settings.name for settings in old.sinks}
    of_patterns = {settings.name: settings for settings in discovered if settings.name not in configured_before}
    hosted_after = {name: settings for name, settings in of_patterns.items() if new.hosts(name)}
    hosted_after |= {settings.name: settings for settings in new.hosted}
    removed = running.keys() - hosted_after.keys()
    kept_names = set(filter(new.hosts, removed)) if new.misconfigured else set()
    refused = {name: new.misconfigured[name].reason if name in new.misconfigured else _MISSING for name in kept_names}
    for name in running.keys() & hosted_after.keys():
        changed = _changed(running[name], hosted_after[name])
        if changed:
            refused[name] = (
                f"{', '.join(changed)} may not change while the sink runs. Undo it, or stop all workers of the sink and"
                " start them again."
            )
    if [pattern.definition for pattern in new.patterns] != [pattern.definition for pattern in old.patterns]:
        refused["patterns"] = "patterns of topics may not change while the worker runs. Restart it for them."
    reachable = schemes(*old.all_settings)
    added = [name for name in hosted_after if name not in running]
    unreachable = {name: unknown for name in added if (unknown := schemes(hosted_after[name]) - reachable)}
    for name, unknown in unreachable.items():
        refused[name] = (
            f"this process was started without the jars of {', '.join(sorted(unknown))}://. Restart the worker."
        )
    # An unreachable sink is new to the next reload, too. The running sink of a pattern stays that.
    left_out = {*unreachable, *(running.keys() & of_patterns.keys())}
    sinks = tuple(running.get(settings.name, settings) for settings in new.sinks if settings.name not in left_out)
    sinks += tuple(running[name] for name in sorted(kept_names))
    hosted = old.process.model_copy(update={"hosted": new.process.hosted})
    return Changes(
        replace(new, process=hosted, sinks=sinks, patterns=old.patterns),
        tuple(name for name in added if name not in unreachable),
        tuple(sorted(removed - kept_names)),
        dict(sorted(refused.items())),
        process,
    )


def _changed(before: Settings, after: Settings) -> tuple[str, ...]:
    """Returns the names of the sink's own settings that differ."""
    return tuple(
        field.alias or name
        for name, field in Settings.model_fields.items()
        if name not in ProcessSettings.model_fields and getattr(before, name) != getattr(after, name)
    )
