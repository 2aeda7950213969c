"""The compose file's fleet, its services run as processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordination.state.tree import KeeperView
from coordination.zookeeper.keeper import Keeper
from tests.compose import Compose
from tests.http_kit import Client
from tests.integration.table_kit import connected
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.thorough, pytest.mark.timeout(1200)]

WORKERS = ("worker-1", "worker-2", "worker-3")
SOME = 20_000


@pytest.fixture
def compose(tmp_path: Path) -> Iterator[Compose]:
    services = Compose(tmp_path)
    yield services
    services.close()


def test_the_compose_files_services_come_up_healthy_survive_a_kill_and_stop_within_their_grace(
    compose: Compose,
) -> None:
    compose.up()
    for name in WORKERS:
        compose.wait_healthy(name)
        client = Client("127.0.0.1", compose.port(name))
        assert client.status_of("/liveness") == 200
        assert client.status_of("/") == 200
        # A client of the published port can look, but change nothing.
        assert client.ask("/pause", method="POST").status in (401, 403)

    with connected(f"127.0.0.1:{compose.port('zookeeper')}") as zookeeper:
        keeper = Keeper(zookeeper, "/sink/orders", lambda: None)
        assert {member.incarnation.rpartition(":")[0] for member in keeper.read().members} == set(WORKERS)
        compose.child("worker-2").kill()
        assert not compose.healthy("worker-2")
        before = _landed(keeper.read())
        eventually("the others go on", lambda: _landed(keeper.read()) > max(before, SOME), 240)
        assert compose.healthy("worker-1")
        assert compose.healthy("worker-3")

        compose.child("producer").kill()
        settled = _Settled()
        eventually("all has landed", lambda: settled.is_reached(_landed(keeper.read())), 240)

    audited = compose.execute("worker-1", "sink", "audit", "--config", "/etc/sink/sink.yaml")
    assert audited.returncode == 0, audited.stdout + audited.stderr
    shown = compose.execute("worker-1", "sink", "status", "--config", "/etc/sink/sink.yaml")
    assert "worker-3" in shown.stdout
    assert compose.stop("worker-1") == 0
    assert compose.stop("worker-3") == 0


def _landed(view: KeeperView) -> int:
    return sum(state.end for state in view.states.values() if not state.open)


class _Settled:
    """Whether a figure has been the same for a while."""

    def __init__(self) -> None:
        self._last, self._same = -1, 0

    def is_reached(self, figure: int) -> bool:
        self._same = self._same + 1 if figure == self._last else 0
        self._last = figure
        return self._same > 200
