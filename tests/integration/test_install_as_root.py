"""Root runs and follows nothing that the service user may write, when it installs and when it upgrades."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.install_host import ARCHIVE, EVIL, HOME, MARK, PREFIX, InstallHost, make_wheel

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

UNIT = "/etc/systemd/system/sink-worker@.service"
SETTINGS = "/etc/hudi-keeper-sink"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[InstallHost]:
    with InstallHost(tmp_path) as made:
        made.unpack()
        yield made


def not_roots(host: InstallHost, place: str) -> list[str]:
    """Returns the files of a place, without links, that root alone may not write."""
    return host.run("find", place, "!", "-type", "l", "(", "!", "-uid", "0", "-o", "-perm", "/022", ")").stdout.split()


def test_an_upgrade_over_what_the_service_user_planted_runs_none_of_it(host: InstallHost) -> None:
    # An earlier version left jars, and a whole prefix, to the service user.
    host.run("install", "-d", "-o", "sink", PREFIX)
    host.plant(f"{HOME}/jars/spark-1/hudi.jar", "evil", "644")
    for name in ("bin/python", "bin/pip", "bin/sink"):
        host.plant(f"{PREFIX}/{name}", f"#!/bin/sh\ntouch {MARK}\n")
    host.plant(f"{PREFIX}/lib/python3.11/site-packages/evil.pth", f"import os; os.mknod('{MARK}')\n")
    # The directory where root happens to be, and a way of looking for programs and modules.
    for name in ("pip", "venv", "ensurepip", "sitecustomize", "site", "encodings"):
        host.plant(f"{HOME}/{name}.py")
    for name in ("sha256sum", "find", "stat", "id", "sed", "readlink"):
        host.plant(f"{HOME}/{name}", f"#!/bin/sh\ntouch {MARK}\n")
    host.run("ln", "-s", "/etc", f"{HOME}/classes", user="sink")
    before = host.run("stat", "--format=%U:%a %Y", "/etc", "/etc/passwd").stdout
    environment = {"PYTHONPATH": HOME, "PYTHONSTARTUP": f"{HOME}/site.py", "TMPDIR": HOME}
    # Python takes the bytecode of its own modules from below there.
    library = host.run(sys.executable, "-I", "-c", "import ensurepip; print(ensurepip.__file__)").stdout.strip()
    compiled = f"{HOME}/cache{Path(library).with_suffix('')}.cpython-311.pyc"
    host.run("install", "-d", "-o", "sink", str(Path(compiled).parent), f"{HOME}/source")
    host.plant(f"{HOME}/source/evil.py", EVIL)
    unchecked = "py_compile.PycInvalidationMode.UNCHECKED_HASH"
    arguments = f"'{HOME}/source/evil.py', '{compiled}', invalidation_mode={unchecked}"
    host.run(sys.executable, "-I", "-c", f"import py_compile; py_compile.compile({arguments})")
    assert host.exists(compiled)
    environment["PYTHONPYCACHEPREFIX"] = f"{HOME}/cache"
    environment["PATH"] = f"{HOME}:/usr/sbin:/usr/bin:/sbin:/bin"
    status, sentence = host.install(cwd=HOME, **environment)
    assert status == 0, sentence
    assert not host.exists(MARK), host.read(MARK)
    release = host.run("readlink", PREFIX).stdout.strip()
    assert release.startswith(f"{PREFIX}.releases/")
    assert host.read(f"{release}/home/classes/hudi.jar") == "good"
    assert not_roots(host, release) == []
    unit = host.read(UNIT)
    assert f"ExecStart={release}/bin/python -I -m sink.worker" in unit
    assert f"SINK_HOME={release}/home" in unit
    assert host.run("stat", "--format=%U:%a %Y", "/etc", "/etc/passwd").stdout.split()[::2] == before.split()[::2]


def test_settings_are_for_root_and_the_worker_unless_root_has_chosen_others(host: InstallHost) -> None:
    assert host.install()[0] == 0
    assert host.run("stat", "--format=%U:%G:%a", SETTINGS).stdout == "root:sink:750\n"
    host.run("sh", "-c", f"echo x >{SETTINGS}/orders.yaml && chmod 640 {SETTINGS}/* && chgrp sink {SETTINGS}/*")
    assert host.run("cat", f"{SETTINGS}/orders.yaml", user="sink").stdout == "x\n"
    assert host.run("ls", SETTINGS, user="nobody", ok=None).returncode != 0
    host.run("chmod", "700", SETTINGS)
    assert host.install()[0] == 0
    assert host.run("stat", "--format=%U:%G:%a", SETTINGS).stdout == "root:sink:700\n"


@pytest.mark.thorough
def test_an_upgrade_leaves_the_release_of_running_workers_and_removes_older_ones(host: InstallHost) -> None:
    releases = []
    for _ in range(3):
        assert host.install()[0] == 0
        releases.append(host.run("readlink", PREFIX).stdout.strip())
    assert [host.exists(f"{release}/bin/python") for release in releases] == [False, True, True]
    assert host.read(UNIT).count(releases[-1]) == 2


def test_an_archive_that_another_user_may_change_is_refused(host: InstallHost, tmp_path: Path) -> None:
    host.run("install", "-d", "-o", "sink", "/srv/own")
    host.unpack("/srv/own/archive")
    assert host.install(place="/srv/own/archive") == (
        1,
        "install: the archive: /srv/own belongs to sink, who could change what root runs. Unpack it as root, in a"
        " directory of root's.",
    )
    host.run("chmod", "o+w", f"{ARCHIVE}/wheels")
    assert host.install()[1].startswith(f"install: the archive: {ARCHIVE}/wheels is not root's alone.")
    host.run("chmod", "o-w", f"{ARCHIVE}/wheels")
    # A wheel that was added before root took the directory, of a version that pip would prefer.
    make_wheel(tmp_path, "99.0", {"sink/__init__.py": EVIL, "sitecustomize.py": EVIL})
    host.run("cp", str(tmp_path / "hudi_keeper_sink-99.0-py3-none-any.whl"), f"{ARCHIVE}/wheels/")
    assert host.install()[1].startswith("install: the archive: it holds files that SHA256SUMS does not name.")
    host.run("rm", f"{ARCHIVE}/wheels/hudi_keeper_sink-99.0-py3-none-any.whl")
    host.run("ln", "-s", "/etc/shadow", f"{ARCHIVE}/jars/shadow")
    assert host.install()[1].startswith(f"install: the archive: {ARCHIVE}/jars/shadow is not root's alone.")
    assert not host.exists(f"{PREFIX}.releases")


@pytest.mark.parametrize(
    ("prefix", "sentence"),
    [
        ("/srv/own/sink", "PREFIX: /srv/own belongs to sink, who could change what root runs."),
        ("/srv/link/sink", "PREFIX: /srv/own belongs to sink, who could change what root runs."),
        ("/srv/open/sink", "PREFIX: other users may write /srv/open, and change what root runs."),
        ("/srv/linked", "PREFIX: /srv/linked.releases is not a directory."),
        ("/srv/taken", "PREFIX: /srv/taken.releases belongs to sink, who could change what root runs."),
        ("sink", "sink: not an absolute path"),
        ("/srv/a;reboot", "/srv/a;reboot: not an absolute path"),
    ],
)
def test_a_prefix_that_another_user_may_change_is_refused(host: InstallHost, prefix: str, sentence: str) -> None:
    host.run("install", "-d", "-o", "sink", "/srv/own", "/srv/taken.releases")
    host.run("install", "-d", "-m", "777", "/srv/open")
    host.run("ln", "-s", "/srv/own", "/srv/link")
    host.run("ln", "-s", "/srv/own", "/srv/linked.releases")
    status, line = host.install(prefix)
    assert (status, line[: len(f"install: {sentence}")]) == (1, f"install: {sentence}")
    assert not host.exists(UNIT)


def test_a_release_keeps_no_link_to_python_that_the_service_user_may_replace(host: InstallHost) -> None:
    real = os.path.realpath(sys.executable)
    host.run("install", "-d", "-o", "sink", "/srv/own")
    host.run("ln", "-s", real, "/srv/own/python", user="sink")
    status, sentence = host.install(PYTHON="/srv/own/python")
    assert status == 0, sentence
    assert host.run("readlink", "-f", f"{PREFIX}/bin/python").stdout.strip() == real
    links = host.run("find", f"{PREFIX}/bin/", "-type", "l", "-printf", "%l\\n").stdout
    assert "/srv/own" not in links


def test_settings_and_a_python_of_the_service_users_are_refused(host: InstallHost) -> None:
    host.run("install", "-d", "-o", "sink", "/etc/hudi-keeper-sink", "/srv/own")
    assert host.install()[1].startswith("install: settings: /etc/hudi-keeper-sink belongs to sink")
    host.plant("/srv/own/python", "#!/bin/sh\necho 3.11\n")
    assert host.install(PYTHON="/srv/own/python")[1].startswith("install: PYTHON: /srv/own/python belongs to sink")
    host.run("install", "-d", "/srv/java/bin")
    host.run("chown", "sink", "/srv/java/bin")
    assert host.install(JAVA_HOME="/srv/java")[1].startswith("install: JAVA_HOME: other users may write /srv/java/bin")
    host.run("rmdir", "/etc/hudi-keeper-sink")
    host.run("usermod", "-a", "-G", "root", "sink")
    assert host.install()[1].startswith("install: the user sink is in root's group")
    assert not host.exists(UNIT)
