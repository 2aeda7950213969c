"""A fleet on S3 lands every record exactly once, although its coordinator is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import METADATA, PARTITIONS, RECORDS, MakeFleet
from tests.storage.s3_server import Store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ENDS = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)


def test_a_killed_coordinator_costs_nothing_on_s3(make_fleet: MakeFleet, s3: Store) -> None:
    base_path = f"s3a://{s3.make_bucket()}/orders"
    fleet = make_fleet(**METADATA, **s3.settings, **{"target.base.path": base_path})
    fleet.lose_coordinator()
    fleet.wait_landed(ENDS)
    fleet.assert_exactly_once(RECORDS)
    assert s3.secret_key not in "".join(path.read_text() for path in fleet.directory.glob("*.log"))
    assert read_by_the_docs(s3, base_path).count("3000") == 3


def _python_block(page: str, text: str) -> str:
    blocks = (block.partition("```")[0] for block in page.split("```python\n")[1:])
    return next(block for block in blocks if text in block)


def read_by_the_docs(store: Store, base_path: str) -> str:
    """Returns the output of the Python code in the docs for this table: how a table on S3 is opened, and the rest."""
    docs = Path(__file__).parents[2] / "docs"
    opening = _python_block((docs / "how-to" / "table-on-s3.md").read_text(), "with_storage_options")
    query = _python_block((docs / "getting-started.md").read_text(), "import duckdb")
    imports, _, rest = query.partition("\n\n")
    local = 'HudiTableBuilder.from_base_uri("/data/tables/orders").build()'
    assert local in rest
    code = "\n".join((imports, opening, rest.replace(local, "table")))
    code = code.replace("http://minio:9000", store.url).replace("s3a://lake/orders", base_path)
    code = code.replace("country", "kind")
    environment = {**os.environ, "S3_KEY": store.access_key, "S3_SECRET": store.secret_key}
    return subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
