"""`sink pause`, `resume`, `flush`, `switchover`, `drain`: send requests to running sinks, and wait for the outcome.

Exit status 0 when the request is done, 1 when it was made and is not done within the time-out, 2 when it could not be
made. Errors as `sink.operations.control`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from coordination.errors import ConfigError
from sink.clients.zookeeper.session import connected
from sink.commands.common import ConfigOption, SinksOption, several_sinks
from sink.operations.catching_up import TOPIC_GONE
from sink.operations.chosen import SinkResult, side_by_side
from sink.operations.control import Overdue, SinkControl, decisive_errors
from sink.operations.observed_sink import observed_sink

WAIT_SECONDS = 300.0
_Request = TypeVar("_Request")

WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done.")]
TimeoutOption = Annotated[float, typer.Option("--timeout", help="Seconds to wait at most.", min=0.0)]


def pause(
    config: ConfigOption,
    sink: SinksOption = None,
    reason: Annotated[str, typer.Option(help="Why, shown by `sink status`.")] = "",
    wait: WaitOption = True,
    timeout: TimeoutOption = WAIT_SECONDS,
) -> None:
    """Plan nothing new until `sink resume`. What is open is finished; with --wait, first."""

    def act(control: SinkControl) -> str:
        answer = control.pause(reason)
        return f"{answer}; {control.wait_at_rest(timeout)}" if wait else answer

    act_on(config, sink, act)


def resume(config: ConfigOption, sink: SinksOption = None) -> None:
    """Let a paused sink go on."""
    act_on(config, sink, lambda control: control.resume())


def flush(
    config: ConfigOption,
    sink: SinksOption = None,
    wait: WaitOption = True,
    timeout: TimeoutOption = WAIT_SECONDS,
) -> None:
    """Commit at once what is in Kafka, whatever the interval."""

    _ask(config, sink, SinkControl.flush, SinkControl.wait_flushed if wait else None, timeout, TOPIC_GONE)


def switchover(
    config: ConfigOption,
    sink: SinksOption = None,
    wait: WaitOption = True,
    timeout: TimeoutOption = WAIT_SECONDS,
) -> None:
    """Have another worker coordinate. What is open is finished first."""

    _ask(config, sink, SinkControl.switchover, SinkControl.wait_switched if wait else None, timeout)


def drain(
    config: ConfigOption,
    worker: Annotated[str, typer.Argument(help="The worker's id, as `sink status` shows it.", show_default=False)],
    sink: SinksOption = None,
    wait: WaitOption = True,
    timeout: TimeoutOption = WAIT_SECONDS,
) -> None:
    """Have a worker finish its part, leave the sink and end. It takes part again when it is started again."""

    _ask(config, sink, lambda control: control.drain(worker), SinkControl.wait_left if wait else None, timeout)


def _ask(
    config: Path,
    names: Sequence[str] | None,
    ask: Callable[[SinkControl], _Request],
    wait: Callable[[SinkControl, _Request, float], str] | None,
    seconds: float,
    without_topic: str = "",
) -> None:
    """Makes a request with `ask`, and waits for it with `wait` unless that is None. `without_topic`: as `act_on`."""

    def act(control: SinkControl) -> str:
        request = ask(control)
        return "asked for" if wait is None else wait(control, request, seconds)

    act_on(config, names, act, without_topic)


def act_on(
    config: Path, names: Sequence[str] | None, act: Callable[[SinkControl], str], without_topic: str = ""
) -> None:
    """Calls `act` for each of the named sinks in parallel, and prints the outcomes. Exits with 1 if a request is not
    done in time. `without_topic`: the outcome of a sink of a pattern whose topic is gone, if it was not named.
    """
    chosen_sinks = several_sinks(config, names)
    if without_topic:
        for name in sorted(chosen_sinks.gone):
            typer.echo(f"{name}: {without_topic}")
        present = tuple(settings for settings in chosen_sinks.sinks if settings.name not in chosen_sinks.gone)
        if chosen_sinks.gone and not present:
            return
        chosen_sinks = replace(chosen_sinks, sinks=present)
    sinks = chosen_sinks.sinks
    if len(sinks) == 1 and not chosen_sinks.misconfigured:
        try:
            with connected(sinks[0].ensemble) as client:
                typer.echo(act(SinkControl(observed_sink(sinks[0]), client)))
        except Overdue as error:
            typer.echo(f"sink: {error}", err=True)
            raise typer.Exit(1) from error
    elif not sinks:
        raise ConfigError(f"{config}: no topic matches yet, so there is no sink. Create a matching topic.")
    else:
        with connected(sinks[0].ensemble) as client:
            answers = side_by_side(
                chosen_sinks, lambda settings: act(SinkControl(observed_sink(settings), client)), len(sinks)
            )
        _print_answers(answers)


def _print_answers(answers: Sequence[SinkResult[str]]) -> None:
    """Prints a line for each sink. Exits with 1 if a request was not done in time, with 2 if one could not be made."""
    for answer in answers:
        text = answer.result if answer.error is None else f"sink: {answer.error}"
        typer.echo(f"{answer.name}: {text}", err=answer.error is not None)
    if errors := decisive_errors([answer.error for answer in answers]):
        raise typer.Exit(1 if all(isinstance(error, Overdue) for error in errors) else 2)
