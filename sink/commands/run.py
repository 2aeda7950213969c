"""`sink run --until-end`, `--until TIME`: a worker that ends by itself, for a scheduler.

Exit status 0 when all is committed, 1 when it is not (a halt, a pause, the time-out, a signal), 2 when the worker
cannot run. Logs as a worker does. Errors as `sink.runtime.process.bounded_run`.
"""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from coordination.errors import ConfigError
from sink.clients.kafka.log import Log
from sink.commands.common import ConfigOption, SinksOption
from sink.commands.control import WAIT_SECONDS, TimeoutOption, act_on
from sink.commands.times import parse_log_time
from sink.config import load_configuration
from sink.operations.catching_up import TOPIC_GONE, target_of, wait_for
from sink.operations.control import SinkControl
from sink.telemetry.logs import configure, identify
from sink.telemetry.redaction import Redactor

DAY_SECONDS = 86_400.0
UNFINISHED = 1


def run(
    config: ConfigOption,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Until all is committed that is in Kafka now.", show_default=False)
    ] = False,
    until: Annotated[
        str | None,
        typer.Option(
            help="Until all records before this time are committed, as 2026-11-25T14:30:00Z.", show_default=False
        ),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds that it may take.", min=0.0)] = DAY_SECONDS,
) -> None:
    """Run a worker until it has caught up. Other workers of the sink may run beside it."""
    if until_end == (until is not None):
        raise ConfigError("sink run: give one of --until-end and --until TIME. A worker without end is sink.worker.")
    at = None if until is None else parse_log_time("--until", until).timestamp()
    fleet = load_configuration(config)
    if not fleet.hosted:
        raise ConfigError(f"{config}: sink run takes configurations whose sinks are named. This one has patterns only.")
    process = fleet.process
    configure(process.log_level, process.log_format, Redactor(fleet.secrets))
    identify(process.worker_id, fleet.sinks[0].name if fleet.is_one_sink else None)
    # Imported here: no other command needs Spark.
    from sink.runtime.process.bounded_run import BoundedRun, Unfinished
    from sink.runtime.process.launch import handled_signals

    try:
        for sentence in BoundedRun(fleet, handled_signals(UNFINISHED), at, timeout).run():
            typer.echo(sentence)
    except Unfinished as error:
        typer.echo(f"sink: {error}", err=True)
        raise typer.Exit(UNFINISHED) from error


def wait(
    config: ConfigOption,
    sink: SinksOption = None,
    caught_up: Annotated[
        bool, typer.Option("--caught-up", help="Until all is committed that is in Kafka now.", show_default=False)
    ] = False,
    timeout: TimeoutOption = WAIT_SECONDS,
) -> None:
    """Wait for the sink. Nothing is asked of it: it commits at its own interval."""
    if not caught_up:
        raise ConfigError(
            "sink wait: say what to wait for. --caught-up is until all is committed that is in Kafka now."
        )

    def wait_caught_up(control: SinkControl) -> str:
        # Closed before the wait: with a hundred sinks, each would keep a client's threads until its last offset.
        with closing(Log(control.sink.kafka)) as log:
            target = target_of(log, control.sink, control.read())
        return wait_for(control, target, timeout)

    act_on(config, sink, wait_caught_up, without_topic=TOPIC_GONE)
