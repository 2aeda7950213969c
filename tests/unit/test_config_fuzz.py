"""A configuration of any bytes gives `Settings` or `ConfigError`, and no error shows a secret."""

from __future__ import annotations

import string
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coordination.errors import ConfigError
from sink.config import Settings
from sink.config.model import aliases
from tests.one_sink import load

SECRET = "hunter2-Tr0ub4dor"
NAMES = sorted([*aliases(), "kafka.sasl.password", "spark.x", "hoodie.y", "kafka.ssl.key.password", "", "a.b", "<<"])
LINES = st.one_of(
    st.sampled_from(NAMES).flatmap(lambda name: st.text(max_size=30).map(lambda value: f"{name}: {value}")),
    st.sampled_from(["&a", "*a", "!x y", "? a", "- b", "{", "]", "'", "|", "\t", "%YAML 9", "---", "...", "\\u", "a:"]),
    st.text(max_size=20),
)
LAUGHS = b"a0: &a0 {x: 1}\n" + b"".join(
    b"a%d: &a%d {%s}\n" % (n, n, b", ".join(b"k%d: *a%d" % (k, n - 1) for k in range(9))) for n in range(1, 15)
)
TREES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=20),
        st.dates(),
        st.binary(max_size=9),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=9), st.integers()), inner, max_size=5),
    ),
    max_leaves=20,
)


@pytest.fixture(autouse=True, scope="module")
def few_entries() -> Iterator[None]:
    """Each unknown name is compared with all known ones: at the limit of a real file that takes ten seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sink.config.files.MOST_ENTRIES", 500)
        yield


def check(directory: Path, data: bytes, suffix: str, environ: dict[str, str] | None = None) -> Settings | ConfigError:
    path = directory / f"sink.{suffix}"
    path.write_bytes(data)
    try:
        outcome: Settings | ConfigError = load(path, environ or {})
    except ConfigError as error:
        outcome = error
    if isinstance(outcome, ConfigError):
        assert str(outcome).strip().encode()
        assert "pydantic" not in str(outcome)
        assert all(line.strip() for line in str(outcome).splitlines())
        return outcome
    assert isinstance(outcome, Settings)
    assert repr(outcome)
    assert len(outcome.config_digest) == 64
    return outcome


@given(data=st.binary(max_size=300), suffix=st.sampled_from(["yaml", "properties"]))
@example(data=b"[" * 5000, suffix="yaml")
@example(data=b"{a: " * 5000, suffix="yaml")
@example(data=b"a: &a [*a]", suffix="yaml")
@example(data=b"&a {b: *a}", suffix="yaml")
@example(data=b'a: "\\UFFFFFFFF"', suffix="yaml")
@example(data=b'"\\uD800": "\\uD800"', suffix="yaml")
@example(data=b"\\ud800=\\ud800", suffix="properties")
@example(data=LAUGHS, suffix="yaml")
@example(data=LAUGHS.replace(b"{x: 1}", b"{}"), suffix="yaml")
@example(data=b"\xff\xfe", suffix="yaml")
@example(data=b"schema.ddl: :\x1e", suffix="properties")
@example(data=b"a=\\u12", suffix="properties")
@example(data=b"flush.size=" + b"9" * 4_400, suffix="properties")
@example(data=b"transaction.interval.ms: " + b"9" * 400 + b".5s", suffix="yaml")
def test_arbitrary_bytes(tmp_path_factory, data: bytes, suffix: str):
    check(tmp_path_factory.getbasetemp(), data, suffix)


@given(lines=st.lists(LINES, max_size=12), suffix=st.sampled_from(["yaml", "properties"]))
def test_arbitrary_lines(tmp_path_factory, lines: list[str], suffix: str):
    check(tmp_path_factory.getbasetemp(), "\n".join(lines).encode("utf-8", "replace"), suffix)


@given(tree=TREES)
def test_arbitrary_yaml_documents(tmp_path_factory, tree: object):
    check(tmp_path_factory.getbasetemp(), yaml.safe_dump(tree, allow_unicode=True).encode(), "yaml")


@given(values=st.dictionaries(st.sampled_from([n for n in NAMES if "." in n]), st.text(max_size=40), max_size=8))
def test_arbitrary_values_of_known_settings(tmp_path_factory, values: dict[str, str]):
    document = {
        "zookeeper.connect": "zk",
        "topics": "a",
        "schema.ddl": "id INT",
        "kafka.bootstrap.servers": "b:1",
    }
    document |= {"target.table.name": "t", "target.base.path": "/t"} | values
    check(tmp_path_factory.getbasetemp(), yaml.safe_dump(document).encode(), "yaml")


@given(
    environ=st.dictionaries(
        st.text(string.ascii_uppercase + "_", max_size=20).map(lambda name: f"SINK_{name}"),
        st.text(max_size=20),
    )
)
def test_arbitrary_environments(tmp_path_factory, environ: dict[str, str]):
    check(tmp_path_factory.getbasetemp(), b"flush.size: 1", "yaml", environ)


@settings(max_examples=2 * settings.default.max_examples)
@given(
    before=st.lists(LINES, max_size=4),
    after=st.lists(LINES, max_size=4),
    key=st.sampled_from(
        ["kafka.sasl.password", "kafka.ssl.keystore.key", "spark.hadoop.fs.s3a.secret.key", "my.token"]
    ),
    suffix=st.sampled_from(["yaml", "properties"]),
)
def test_a_secret_is_never_told_whatever_surrounds_it(tmp_path_factory, before, after, key, suffix):
    document = "\n".join([*before, f"{key}: {SECRET}", *after]).encode("utf-8", "replace")
    answer = check(tmp_path_factory.getbasetemp(), document, suffix)
    assert SECRET not in str(answer)
    assert SECRET not in repr(answer)
