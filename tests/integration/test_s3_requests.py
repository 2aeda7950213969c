"""A proxy between the worker and the store counts the requests of a small append to S3."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.fleet import produce
from tests.integration.conftest import MakeFleet
from tests.integration.s3_kit import HUDIS_DEFAULTS
from tests.storage.s3_proxy import Request, S3Proxy
from tests.storage.s3_server import Store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

PARTITIONS = 6
RECORDS = 504
ROUNDS = 7
_COMMIT = re.compile(r"orders/\.hoodie/timeline/\d+_\d+\.commit")


@pytest.fixture
def proxy(s3: Store, tmp_path: Path) -> Iterator[S3Proxy]:
    with S3Proxy(tmp_path / "proxy", s3.url) as proxy:
        yield proxy


@pytest.mark.parametrize(
    ("settings", "most_requests"),
    [(HUDIS_DEFAULTS, 149), ({}, 55)],
    ids=["Hudi's defaults", "without a metadata table"],
)
def test_a_small_append_asks_no_more_than_so_often(
    make_fleet: MakeFleet, topic, kafka, s3: Store, proxy: S3Proxy, settings: dict[str, str], most_requests: int
) -> None:
    name = topic(partitions=PARTITIONS)
    produce(kafka.address, name, RECORDS, PARTITIONS)
    fleet = make_fleet(
        name=name,
        **{
            **s3.settings,
            "storage.s3.endpoint": proxy.url,
            "target.base.path": f"s3a://{s3.make_bucket()}/orders",
            "write.task.bytes": None,
            "spark.master": "local[2]",
            **settings,
        },
    )
    fleet.start("w1")
    commits, requests = 0, 0
    for round_number in range(1, ROUNDS + 1):
        fleet.wait_landed(dict.fromkeys(range(PARTITIONS), round_number * RECORDS // PARTITIONS))
        round_requests = proxy.requests()
        proxy.forget()
        # The first rounds create the table.
        if round_number > 2:
            requests += len(round_requests)
            commits += sum(
                request.method == "PUT" and _COMMIT.fullmatch(request.path) is not None for request in round_requests
            )
        produce(kafka.address, name, RECORDS, PARTITIONS, first=round_number * RECORDS)
    assert commits >= ROUNDS - 2
    assert requests / commits <= most_requests, (
        f"{requests} of {commits} commits, the last one's:\n{table_of(round_requests)}"
    )


def table_of(requests: Sequence[Request]) -> str:
    """Returns the count of requests by library, kind and path, one a line."""
    counts = Counter((request.client, request.kind, _abridged(request.path)) for request in requests)
    return "\n".join(f"{count:4} {' '.join(labels)}" for labels, count in counts.most_common())


def _abridged(path: str) -> str:
    path = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27,}", "ID", path)
    return re.sub(r"\d{15,}", "INSTANT", path)
