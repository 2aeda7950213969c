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
from sink.operations.status import ended_status
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
        ledger = Keeper(client, settings.root_znode, lambda: None).read().ledger
    newest_first = (ended_status(summary) for summary in reversed(ledger.history))
    transactions = [ended for ended in newest_first if not aborted or ended.outcome == "ABORTED"][:limit]
    if as_json:
        typer.echo(json.dumps([asdict(transaction) for transaction in transactions], indent=2))
    elif transactions:
        console().print(history_table(transactions))
    else:
        typer.echo(f"sink {settings.name}: no transaction has {'been aborted' if aborted else 'ended'} yet")
