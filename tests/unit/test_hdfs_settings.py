"""Hadoop's client settings reach Python's client as they reach the JVM, and one line tells each error of Hadoop."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordination.errors import ConfigError
from sink.clients.spark.storage import session_options
from sink.config import Settings
from sink.storage.access import NO_ACCESS, HdfsAccess, client_settings, failover_options, hdfs_access, locate
from sink.storage.faults import fault_in
from sink.storage.hdfs_files import _as_os_error
from tests.unit.settings_kit import minimal_settings

LAKE = {
    "dfs.nameservices": "lake",
    "dfs.ha.namenodes.lake": "nn1,nn2",
    "dfs.namenode.rpc-address.lake.nn1": "one:8020",
    "dfs.namenode.rpc-address.lake.nn2": "two:8020",
}


def conf_dir(directory: Path, **files: dict[str, str]) -> str:
    for name, settings in files.items():
        lines = "".join(f"<property><name>{k}</name><value> {v}\n</value></property>" for k, v in settings.items())
        text = f'<?xml version="1.0"?><!-- ours --><configuration>{lines}</configuration>'
        (directory / f"{name.replace('_', '-')}.xml").write_text(text)
    return str(directory)


def settings(directory: Path, **more: str) -> Settings:
    return minimal_settings(directory, **{"target.base.path": "hdfs://lake/orders", **more})


def test_the_files_of_hadoop_are_read_and_the_sessions_own_settings_win(tmp_path: Path) -> None:
    core = {"fs.defaultFS": "hdfs://other", "fs.s3a.secret.key": "hunter2"}
    environment = {"HADOOP_CONF_DIR": conf_dir(tmp_path, core_site=core, hdfs_site=LAKE), "HADOOP_USER_NAME": "etl"}
    access = hdfs_access({"spark.hadoop.fs.defaultFS": "hdfs://lake", "spark.executor.cores": "2"}, environment)
    assert access.settings == {**LAKE, "fs.defaultFS": "hdfs://lake"}
    assert access.user == "etl"


def test_a_file_that_is_no_xml_is_named(tmp_path: Path) -> None:
    (tmp_path / "hdfs-site.xml").write_text("<configuration><property>")
    with pytest.raises(ConfigError, match=r"HADOOP_CONF_DIR: .*hdfs-site\.xml cannot be read"):
        hdfs_access({}, {"HADOOP_CONF_DIR": str(tmp_path)})


@pytest.mark.parametrize(
    ("base_path", "expected"),
    [
        ("hdfs://lake/a/b", ("hdfs://lake", "/a/b")),
        ("hdfs://namenode/a b%20c/", ("hdfs://namenode:8020", "/a b%20c")),
        ("hdfs://namenode:9000/a", ("hdfs://namenode:9000", "/a")),
        ("HDFS://lake/a", ("hdfs://lake", "/a")),
        ("hdfs:///a", ("hdfs://lake", "/a")),
        ("viewfs://cluster/a", ("viewfs://cluster", "/a")),
    ],
)
def test_a_base_path_is_a_cluster_and_a_path(base_path: str, expected: tuple[str, str]) -> None:
    assert locate(base_path, HdfsAccess({**LAKE, "fs.defaultFS": "hdfs://lake/"})) == expected


def test_a_path_without_a_cluster_needs_a_default(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no name service, and fs\.defaultFS is not set"):
        locate("hdfs:///a", HdfsAccess(LAKE))


def test_the_jvm_is_told_how_to_fail_over_where_nobody_has(tmp_path: Path) -> None:
    lake = {f"spark.hadoop.{name}": value for name, value in LAKE.items()}
    provider = "spark.hadoop.dfs.client.failover.proxy.provider.lake"
    longest = "spark.hadoop.dfs.client.failover.sleep.max.millis"
    options = session_options(settings(tmp_path, **lake).session)
    assert options[provider].endswith(".ConfiguredFailoverProxyProvider")
    assert options[longest] == "3000"
    own_settings = {
        "dfs.client.failover.proxy.provider.lake": "my.Provider",
        longest.removeprefix("spark.hadoop."): "15000",
    }
    assert failover_options(HdfsAccess({**LAKE, **own_settings})) == {}


def test_a_local_path_that_hadoop_takes_for_the_clusters_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = conf_dir(tmp_path, core_site={"fs.defaultFS": "hdfs://lake"})
    monkeypatch.setenv("HADOOP_CONF_DIR", files)
    with pytest.raises(ConfigError, match=r"Write hdfs://lake/data/orders or file:///data/orders"):
        session_options(settings(tmp_path, **{"target.base.path": "/data/orders"}).session)
    session_options(settings(tmp_path, **{"target.base.path": "file:///data/orders"}).session)


def test_a_client_asks_shorter_than_hadoops_own_unless_the_user_says_otherwise() -> None:
    attempts, longest = "dfs.client.failover.max.attempts", "dfs.client.failover.sleep.max.millis"
    assert client_settings("hdfs://lake", HdfsAccess(LAKE)) == {**LAKE, attempts: "30", longest: "3000"}
    assert client_settings("hdfs://namenode:8020", HdfsAccess(LAKE))[attempts] == "5"
    assert client_settings("hdfs://lake", HdfsAccess({**LAKE, attempts: "2"}))[attempts] == "2"


DENIED = (
    'RPCError("org.apache.hadoop.security.AccessControlException", "Permission denied: user=me, access=WRITE,'
    ' inode=\\"/\\":hdfs:supergroup:drwxr-xr-x\\n\\tat org.apache.hadoop.hdfs.Check(Check.java:1)\\n")'
)
STANDBY = (
    'RPCError("org.apache.hadoop.ipc.StandbyException", "Operation category READ is not supported in state standby")'
)


@pytest.mark.parametrize(
    ("raised", "kind", "expected"),
    [
        (RuntimeError(DENIED), PermissionError, "hdfs://lake: Permission denied: user=me, access=WRITE, inode="),
        (RuntimeError(STANDBY), OSError, "hdfs://lake: no namenode is active (StandbyException: Operation"),
        (OSError("Connection refused (os error 111)"), ConnectionError, "hdfs://lake: Connection refused"),
        (RuntimeError('InvalidArgument("No NameNode hosts found")'), OSError, "lake is neither a host nor a name"),
    ],
)
def test_what_hadoop_refuses_is_told_in_a_line(raised: Exception, kind: type[OSError], expected: str) -> None:
    error = _as_os_error(raised, "hdfs://lake")
    assert type(error) is kind
    assert expected in str(error)
    assert "\tat " not in str(error)
    assert "\\n" not in str(error)


JAVAS_DENIAL = (
    "org.apache.hadoop.security.AccessControlException: Permission denied: user=me, access=WRITE,"
    ' inode="/":hdfs:supergroup:drwxr-xr-x'
)


@pytest.mark.parametrize(
    ("error_text", "sentence", "lasts"),
    [
        (
            str(_as_os_error(RuntimeError(DENIED), "hdfs://lake")),
            'user=me, access=WRITE, inode="/":hdfs:supergroup',
            True,
        ),
        (JAVAS_DENIAL, 'access=WRITE, inode="/":hdfs:supergroup:drwxr-xr-x. Create the directory', True),
        (
            str(_as_os_error(RuntimeError(STANDBY), "hdfs://lake")),
            "no namenode of lake answers as the active one",
            False,
        ),
        ("java.net.ConnectException: Connection refused", "no namenode of lake answers as the active one", False),
        ("java.net.UnknownHostException: lake", "lake is neither a known host nor a known name service", False),
    ],
)
def test_a_fault_gives_the_same_sentence_whichever_client_met_it(error_text: str, sentence: str, lasts: bool) -> None:
    fault = fault_in(error_text, "hdfs://lake/orders", NO_ACCESS)
    assert fault is not None
    assert sentence in fault.sentence
    assert fault.lasts is lasts
    assert "s3" not in fault.sentence
