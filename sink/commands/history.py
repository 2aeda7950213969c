"""`sink history`: the transactions that have ended, with the seconds of their phases, attempts and reasons of aborts.

Errors: Unavailable, Corrupt.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from coordination.state.tree import HISTORY
from coordination.zookeeper.keeper import Keeper
from sink.clients.zookeeper import connected
from sink.commands.common import ConfigOption, JsonOption, SinkOption, one_sink
from sink.commands.status import history_table
from sink.operations.status import ended_transactions
from sink.telemetry.terminal import console


def history(
    config: ConfigOption,
    sink: SinkOption = None,
    limit: Annotated[int, typer.Option(help="How many, newest first.", min=1, max=HISTORY)] = HISTORY,
    aborted: Annotated[bool, typer.Option("--aborted", help="Only those that were aborted.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the last transactions: how they ended, how long each phase took, why they were aborted."""
    settings = one_sink(config, sink)
    with connected(settings) as client:
        transactions = ended_transactions(Keeper(client, settings.root_znode, lambda: None))
    shown_transactions = [
        transaction for transaction in transactions if not aborted or transaction.outcome == "ABORTED"
    ][:limit]
    if as_json:
        typer.echo(json.dumps([asdict(transaction) for transaction in shown_transactions], indent=2))
    elif shown_transactions:
        console().print(history_table(shown_transactions))
    else:
        typer.echo(f"sink {settings.name}: no transaction has {'been aborted' if aborted else 'ended'} yet")
