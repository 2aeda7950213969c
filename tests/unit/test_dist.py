"""The archive for hosts without a network takes a wheel of the user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordination.errors import SinkError
from sink.devtools.dist import replace_wheel


def test_a_wheel_of_the_users_stands_in_for_that_of_the_registry_and_for_no_other(tmp_path: Path) -> None:
    archive, built = tmp_path / "wheels", tmp_path / "confluent_kafka-2.15.1-cp311-cp311-linux_x86_64.whl"
    archive.mkdir()
    for name in ("confluent_kafka-2.16.1-cp311-cp311-manylinux_2_28_x86_64.whl", "pyspark-3.5.7-py2.py3-none-any.whl"):
        (archive / name).touch()
    built.touch()
    replace_wheel(archive, built)
    assert {path.name for path in archive.iterdir()} == {built.name, "pyspark-3.5.7-py2.py3-none-any.whl"}
    for wrong in (tmp_path / "gone-1-py3-none-any.whl", tmp_path / "confluent_kafka-9-py3-none-any.whl"):
        with pytest.raises(SinkError, match="no wheel of a package that the archive has"):
            replace_wheel(archive, wrong)
