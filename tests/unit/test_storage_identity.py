"""Keys for S3 come from the files of profiles as they are at the moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from sink.storage.identity import Keys, process_keys


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place on this host where keys may be."""
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path / "credentials"


def write(credentials: Path, number: int) -> None:
    names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
    lines = [f"{name} = {name}-{number}" for name in names]
    new = credentials.with_name("new")
    new.write_text("\n".join(["[default]", *lines, ""]))
    new.replace(credentials)


def keys_of(number: int) -> Keys:
    return Keys(*(f"aws_{name}-{number}" for name in ("access_key_id", "secret_access_key", "session_token")))


def test_keys_that_another_program_writes_anew_are_taken_at_the_next_call(credentials: Path) -> None:
    assert process_keys() is None
    for number in (1, 2, 3):
        write(credentials, number)
        assert process_keys() == keys_of(number)


def test_files_that_stay_as_they_are_are_read_once(credentials: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(credentials, 1)
    process_keys()
    monkeypatch.setattr("botocore.session.Session", lambda: pytest.fail("asked again"))
    assert process_keys() == keys_of(1)
