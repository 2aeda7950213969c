"""`sink wait --caught-up`: waits until the sink has committed all records that Kafka had when the command began.

Exit status 0 when it has, 1 when it has not within the time-out, 2 when it cannot: the sink is halted or paused, a
topic was deleted, or a server refuses. Errors as `sink.operations.catching_up`.
"""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from coordination.errors import ConfigError
from sink.clients.kafka import Log
from sink.commands.common import ConfigOption, SinksOption
from sink.commands.control import WAIT_SECONDS, TimeoutOption, act_on
from sink.operations.catching_up import TOPIC_GONE, target_of, wait_for
from sink.operations.control import SinkControl


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
        raise ConfigError("sink wait: say what to wait for; --caught-up is until all is committed that is in Kafka now")

    def wait_caught_up(control: SinkControl) -> str:
        # Closed before the wait: with a hundred sinks, each would keep a client's threads until its last offset.
        with closing(Log(control.settings.kafka_native)) as log:
            target = target_of(log, control.settings, control.read())
        return wait_for(control, target, timeout)

    act_on(config, sink, wait_caught_up, without_topic=TOPIC_GONE)
