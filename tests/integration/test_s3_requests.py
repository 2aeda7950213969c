"""Requests of a small append to S3, counted by a proxy between the worker and the store."""

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
    ("settings", "most"), [(HUDIS_DEFAULTS, 150), ({}, 80)], ids=["Hudi's defaults", "without a metadata table"]
)
def test_a_small_append_asks_no_more_than_so_often(
    fleet: MakeFleet, topic, kafka, s3: Store, proxy: S3Proxy, settings: dict[str, str], most: int
) -> None:
    name = topic(partitions=PARTITIONS)
    produce(kafka.address, name, RECORDS, PARTITIONS)
    it = fleet(
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
    it.start("w1")
    commits, requests = 0, 0
    for number in range(1, ROUNDS + 1):
        it.wait_landed(dict.fromkeys(range(PARTITIONS), number * RECORDS // PARTITIONS))
        seen = proxy.requests()
        proxy.forget()
        # The first ones make the table.
        if number > 2:
            requests += len(seen)
            commits += sum(each.method == "PUT" and _COMMIT.fullmatch(each.path) is not None for each in seen)
        produce(kafka.address, name, RECORDS, PARTITIONS, first=number * RECORDS)
    assert commits >= ROUNDS - 2
    assert requests / commits <= most, f"{requests} of {commits} commits, the last one's:\n{table_of(seen)}"


def table_of(requests: Sequence[Request]) -> str:
    """By library, what was asked and of what."""
    counted = Counter((each.client, each.kind, _abridged(each.path)) for each in requests)
    return "\n".join(f"{count:4} {' '.join(what)}" for what, count in counted.most_common())


def _abridged(path: str) -> str:
    path = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27,}", "ID", path)
    return re.sub(r"\d{15,}", "INSTANT", path)
