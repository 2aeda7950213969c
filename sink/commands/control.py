"""`sink pause`, `resume`, `flush`, `switchover`, `drain`: ask something of a running sink, and wait until it is done.

Exit status 0 when it is done, 1 when it was asked for and is not done within the time-out, 2 when it could not be asked
for. Errors as `sink.operations.control`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from sink.clients.zookeeper import connected
from sink.commands.common import ConfigOption
from sink.config import load
from sink.operations.control import Overdue, SinkControl
from sink.telemetry.terminal import quiet

WAIT_SECONDS = 300.0

WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done.")]
TimeoutOption = Annotated[float, typer.Option("--timeout", help="Seconds to wait at most.", min=0.0)]


def pause(
    config: ConfigOption,
    reason: Annotated[str, typer.Option(help="Why, for whoever looks at `sink status`.")] = "",
    wait: WaitOption = True,
    timeout: TimeoutOption = WAIT_SECONDS,
) -> None:
    """Plan nothing new until `sink resume`. What is open is finished; with --wait, first."""

    def act(sink: SinkControl) -> str:
        asked = sink.pause(reason)
        return f"{asked}; {sink.wait_at_rest(timeout)}" if wait else asked

    _act(config, act)


def resume(config: ConfigOption) -> None:
    """Let a paused sink go on."""
    _act(config, lambda sink: sink.resume())


def flush(config: ConfigOption, wait: WaitOption = True, timeout: TimeoutOption = WAIT_SECONDS) -> None:
    """Commit at once what is in Kafka, whatever the interval."""

    def act(sink: SinkControl) -> str:
        request = sink.flush()
        return sink.wait_flushed(request, timeout) if wait else "asked for"

    _act(config, act)


def switchover(config: ConfigOption, wait: WaitOption = True, timeout: TimeoutOption = WAIT_SECONDS) -> None:
    """Have another worker coordinate. What is open is finished first."""

    def act(sink: SinkControl) -> str:
        incarnation = sink.switchover()
        return sink.wait_switched(incarnation, timeout) if wait else "asked for"

    _act(config, act)


def drain(
    config: ConfigOption,
    worker: Annotated[str, typer.Argument(help="The worker's id, as `sink status` shows it.", show_default=False)],
    wait: WaitOption = True,
    timeout: TimeoutOption = WAIT_SECONDS,
) -> None:
    """Have a worker finish its part, leave the sink and end. It takes part again when it is started again."""

    def act(sink: SinkControl) -> str:
        incarnations = sink.drain(worker)
        return sink.wait_left(incarnations, timeout) if wait else "asked for"

    _act(config, act)


def _act(config: ConfigOption, act: Callable[[SinkControl], str]) -> None:
    settings = load(config)
    quiet(settings.secrets)
    with connected(settings) as client, acting():
        typer.echo(act(SinkControl(settings, client)))


@contextmanager
def acting() -> Iterator[None]:
    """Exit status 1 for what was asked for and is not done in time."""
    try:
        yield
    except Overdue as error:
        typer.echo(f"sink: {error}", err=True)
        raise typer.Exit(1) from error
