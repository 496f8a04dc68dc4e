"""`sluice secrets`: values come by standard input, are in files of their owner only, and are never printed."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from secrets import token_bytes, token_hex, token_urlsafe
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.commands import Call

from sluice.cli import main
from sluice.errors import UsageError
from sluice.pipeline_records import PipelineRecords
from sluice.privacy import secrets
from sluice.settings import Settings
from sluice.spark_process import build_spark_environment
from sluice.table_properties import PSEUDONYM_KEYS

VALUE = hashlib.sha256(b"a key").hexdigest()
OTHER = hashlib.sha256(b"another key").hexdigest()

pytestmark = pytest.mark.usefixtures("root_folders")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run `sluice secrets` with this standard input: exit code, standard output, standard error."""

    def run(*arguments: str, value: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: False, buffer=io.BytesIO(value.encode())))
        with pytest.raises(SystemExit) as ended:
            main(("secrets", *arguments))
        printed = capsys.readouterr()
        assert value.strip() not in printed.out + printed.err or not value.strip()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


def test_a_secret_is_kept_as_it_came_for_its_owner_only(call: Call, settings: Settings) -> None:
    before = os.umask(0)  # the least careful one
    try:
        code, out, _ = call("set", "research.key", value=VALUE + "\n")
    finally:
        os.umask(before)
    path = settings.secrets / "research.key"
    assert (code, out) == (0, f"Kept: {path}\n")
    assert path.read_text() == VALUE
    assert path.stat().st_mode & 0o777 == 0o600
    assert settings.secrets.stat().st_mode & 0o777 == 0o700
    assert [one.name for one in settings.secrets.iterdir()] == ["research.key"], "nothing half-written is left"
    assert secrets.read_secret_key(settings, "research.key") == VALUE.encode()


def test_a_value_of_several_lines_is_kept_as_it_is(call: Call, settings: Settings) -> None:
    text = "sasl.username=a\nsasl.password=b\n"
    call("set", "kafka.properties", value=text)
    assert (settings.secrets / "kafka.properties").read_text() == text


def test_a_secret_is_replaced_only_when_that_is_said(call: Call, settings: Settings) -> None:
    call("set", "pseudonym.key", value=VALUE)
    code, _, err = call("set", "pseudonym.key", value=OTHER)
    assert code == 2 and "--replace" in err and "new rows cannot get the pseudonyms" in err
    assert secrets.read_secret_key(settings, "pseudonym.key") == VALUE.encode()
    assert call("set", "pseudonym.key", "--replace", value=OTHER)[0] == 0
    assert secrets.read_secret_key(settings, "pseudonym.key") == OTHER.encode()


def test_a_write_that_breaks_off_leaves_the_old_value(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets.store_secret(settings, "research.key", VALUE.encode())

    def full(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        secrets.store_secret(settings, "research.key", OTHER.encode(), replace=True)
    assert [(one.name, one.read_text()) for one in settings.secrets.iterdir()] == [("research.key", VALUE)]


@pytest.mark.parametrize("name", ["../intruder", "a/b", ".hidden", "A.key", "a..b", "a b", "x" * 65, "-n"])
def test_a_name_that_is_no_file_s_is_refused(call: Call, settings: Settings, name: str) -> None:
    code, _, err = call("set", "--", name, value=VALUE)
    assert code == 2 and "a name has lower-case letters" in err
    assert not settings.secrets.exists()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("", "No value"),
        (" \n", "No value"),
        ("s3cr3t-pass", "a key has 32"),
        ("a" * 64, "can be guessed"),
        ("c0ffee" * 8, "can be guessed"),
        ("correct-horse-battery" * 3, "can be guessed"),
        ("abcdefghijklmnopqrstuvwxyz0123456789", "can be guessed"),
        ("0123456789abcdef" * 4, "can be guessed"),
    ],
)
def test_no_value_and_a_key_that_can_be_guessed_are_refused(call: Call, value: str, why: str) -> None:
    code, _, err = call("set", "research.key", value=value)
    assert code == 2 and why in err


def test_the_list_shows_names_and_who_uses_them_and_no_value(call: Call, settings: Settings) -> None:
    call("set", "research.key", value=VALUE)
    (settings.secrets / "open").write_text(VALUE)
    (settings.secrets / "open").chmod(0o644)
    code, out, _ = call("list")
    assert code == 0 and VALUE not in out
    assert re.search(r"research\.key +kept", out) and "REFUSED" in out and f"chmod 600 {settings.secrets}/open" in out
    assert re.search(r"suppression\.key +made when first needed +gym", out)
    found = json.loads(call("list", "--json")[1])
    assert found["folder"] == str(settings.secrets)
    rows = {row["name"]: row for row in found["secrets"]}
    assert rows["open"]["private"] is False and rows["research.key"]["private"] is True
    assert rows["suppression.key"]["used_by"] == ["gym"] and not rows["suppression.key"]["there"]
    assert VALUE not in json.dumps(found)


def test_a_secret_is_deleted_only_by_who_says_yes_after_reading_what_is_lost(call: Call, settings: Settings) -> None:
    call("init")
    code, _, err = call("delete", "suppression.key")
    assert code == 2 and "come back with the next delivery" in err and "It is used by gym." in err
    assert (settings.secrets / "suppression.key").exists()
    assert call("delete", "suppression.key", "--yes")[0] == 0
    assert not (settings.secrets / "suppression.key").exists()
    code, _, err = call("delete", "pseudonym.keys", "--yes")
    assert code == 2 and "'pseudonym.key'" in err


def test_init_makes_all_keys_and_never_another_one(call: Call, settings: Settings) -> None:
    assert call("init")[1].count("Made: ") == 3
    kept = {path.name: path.read_bytes() for path in settings.secrets.iterdir()}
    assert set(kept) == set(secrets.MADE) and len(set(kept.values())) == 3
    assert call("init")[1].count("Is there already: ") == 3
    assert {path.name: path.read_bytes() for path in settings.secrets.iterdir()} == kept


def test_a_value_is_asked_for_without_being_shown_where_a_person_types(settings: Settings) -> None:
    """A real terminal: what is typed is not echoed."""
    import pty

    ours, theirs = pty.openpty()
    code = "from sluice.cli import main; main(['secrets', 'set', 'research.key'])"
    running = subprocess.Popen([sys.executable, "-c", code], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    shown = b""
    while b"not shown" not in shown:
        shown += os.read(ours, 1000)
    os.write(ours, (VALUE + "\n").encode())
    running.wait(30)
    with pytest.raises(OSError):  # the end of a terminal that nobody holds
        while True:
            shown += os.read(ours, 1000)
    os.close(ours)
    assert VALUE.encode() not in shown and b"Kept: " in shown
    assert (settings.secrets / "research.key").read_text() == VALUE


def test_a_key_that_others_may_read_or_that_is_lost_is_refused(settings: Settings) -> None:
    path = secrets.store_secret(settings, "research.key", VALUE.encode())
    path.chmod(0o640)
    with pytest.raises(UsageError, match="can be read by others"):
        secrets.read_secret_key(settings, "research.key")
    path.chmod(0o600)
    path.write_text("")
    with pytest.raises(UsageError, match="is empty"):
        secrets.read_secret_key(settings, "research.key")
    path.write_text("short")
    with pytest.raises(UsageError, match="has 5 characters") as caught:
        secrets.read_secret_key(settings, "research.key")
    assert "short" not in str(caught.value)


def test_keys_that_are_made_by_chance_are_taken(settings: Settings) -> None:
    made = [token_hex(16), token_hex(32), base64.b64encode(token_bytes(24)).decode(), token_urlsafe(24), str(uuid.uuid4())]
    for value in made * 200:
        secrets.check_key_strength("research.key", value.encode())


def test_a_key_that_others_may_replace_is_refused_with_the_remedy(settings: Settings) -> None:
    path = secrets.store_secret(settings, "research.key", VALUE.encode())
    folder = settings.secrets
    for mode in (0o777, 0o770, 0o702):
        folder.chmod(mode)
        with pytest.raises(UsageError, match=f"Others may put files into .* Run: chmod 700 {folder}$"):
            secrets.read_secret_key(settings, "research.key")
    folder.chmod(0o700)
    elsewhere = settings.truth / "planted"
    elsewhere.parent.mkdir()
    elsewhere.write_text(OTHER)
    elsewhere.chmod(0o600)
    path.unlink()
    path.symlink_to(elsewhere)
    with pytest.raises(UsageError, match="is a link to a file outside of its folder"):
        secrets.read_secret_key(settings, "research.key")
    assert [row["private"] for row in secrets.inspect_secret_files(settings)] == [False]
    path.unlink()
    os.mkfifo(path, 0o600)
    assert secrets.find_secret(settings, "research.key") is None, "nobody waits for it"
    path.unlink()
    path.write_text(VALUE)
    path.chmod(0o600)
    assert secrets.read_secret_key(settings, "research.key") == VALUE.encode()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_key_of_another_user_is_refused_with_the_remedy(settings: Settings, what: str) -> None:
    path = secrets.store_secret(settings, "research.key", VALUE.encode())
    given = path if what == "file" else settings.secrets
    os.chown(given, 12345, -1)
    with pytest.raises(UsageError, match=f"belongs to user 12345, .* Run: chown 0 {given}"):
        secrets.read_secret_key(settings, "research.key")


def test_secrets_as_kubernetes_mounts_them_are_taken(settings: Settings) -> None:
    """Links within their folder, which is writable for all and sticky."""
    data = settings.secrets / "..2026_11_22"
    data.mkdir(parents=True)
    (data / "research.key").write_text(VALUE)
    (data / "research.key").chmod(0o400)
    (settings.secrets / "..data").symlink_to(data.name)
    (settings.secrets / "research.key").symlink_to("..data/research.key")
    settings.secrets.chmod(0o1777)
    assert secrets.read_secret_key(settings, "research.key") == VALUE.encode()


def test_what_was_given_to_this_job_comes_first_and_is_not_made_anew(settings: Settings, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir(mode=0o700)
    (given / "pseudonym.key").write_text(VALUE)
    (given / "pseudonym.key").chmod(0o600)
    told = replace(settings, secrets_given=given)
    assert secrets.read_secret_key(told, "pseudonym.key") == VALUE.encode()
    assert not settings.secrets.exists()
    secrets.store_secret(settings, "research.key", OTHER.encode())
    assert secrets.read_secret_key(told, "research.key") == OTHER.encode()


def test_a_key_that_was_given_and_is_gone_is_not_made_anew(settings: Settings, tmp_path: Path) -> None:
    told = replace(settings, secrets_given=tmp_path / "removed")
    with pytest.raises(UsageError, match=r"The secret 'pseudonym\.key' is not in .* any more"):
        secrets.read_secret_key(told, "pseudonym.key")
    assert not settings.secrets.exists()


def test_a_table_that_is_just_being_made_says_nothing_of_keys(settings: Settings) -> None:
    """Flows of one stage run side by side: the log of one has no commit yet when the other asks whether its key is new."""
    for restricted in (False, True):
        made = Path(PipelineRecords(settings, "gym").table_path("silver", "device", restricted=restricted))
        (made / "_delta_log").mkdir(parents=True)
    assert secrets.read_secret_key(settings, "pseudonym.key")


@pytest.mark.parametrize("restricted", [False, True])
def test_a_key_that_a_table_was_made_with_is_not_made_anew(settings: Settings, restricted: bool) -> None:
    """Airflow's secret back end may fail for a while: a job without the key must not go on with one made by chance."""
    table = PipelineRecords(settings, "gym").table_path("silver", "device", restricted=restricted)
    write_deltalake(table, pa.table({"id": [1]}))
    DeltaTable(table).alter.set_table_properties(
        {PSEUDONYM_KEYS: "other.key=0a1b2c3d,pseudonym.key=0a1b2c3e"}, raise_if_not_exists=False
    )
    with pytest.raises(
        UsageError, match=r"'pseudonym.key' is not in .* Put it back: .* Without it new rows cannot get the pseudonyms"
    ):
        secrets.read_secret_key(settings, "pseudonym.key")
    assert not settings.secrets.exists()
    assert len(secrets.read_secret_key(settings, "research.key")) == 64, "nothing was made with this one"


def test_what_was_given_is_said_by_a_variable_and_told_to_no_other_process(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_SECRETS_GIVEN", "/run/given")
    current = Settings.current()
    assert current.secrets_given == Path("/run/given")
    assert "SLUICE_SECRETS_GIVEN" not in build_spark_environment(current)
