"""Ways to break the repair of rows, and the commit that an operator's command makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordination.planning import relanding
from sink.operations import operator_commit
from sink.operations.operator_commit import Office
from tests.simulation import repairs
from tests.simulation.broken_decisions import Patch
from tests.simulation.repairs import Repairs


def landed_without_deleting(patch: Patch) -> None:
    _with_operation(patch, deletes=False)


def deleted_without_landing(patch: Patch) -> None:
    _with_operation(patch, lands=False)


def _with_operation(patch: Patch, **changes: bool) -> None:
    original = Repairs.operation
    patch(Repairs, "operation", lambda self, plan: replace(original(self, plan), **changes))


def epoch_not_raised(patch: Patch) -> None:
    patch(operator_commit, "next_epoch", lambda view, newest: max(view.epoch, newest.epoch))


def open_transactions_ignored(patch: Patch) -> None:
    original = Office._settled

    def settled(self: Office, view: Any) -> Any:
        return original(self, replace(view, transactions=()))

    patch(Office, "_settled", settled)


def nothing_checked_under_the_lock(patch: Patch) -> None:
    patch(Office, "_guard", lambda *_: lambda _view: None)


def base_not_checked_under_the_lock(patch: Patch) -> None:
    def guard(self: Office, begun: Any) -> Any:
        return lambda _view: self._keeper().write(self._fence(begun.view))

    patch(Office, "_guard", guard)


def zookeeper_left_behind_the_table(patch: Patch) -> None:
    patch(Office, "_reconcile", lambda *_: None)


def refusals_ignored(patch: Patch) -> None:
    original = repairs.plan_relanding

    def plan(*arguments: Any) -> relanding.Relanding:
        return replace(original(*arguments), refusals=())

    patch(repairs, "plan_relanding", plan)
