"""`residue`: a search by hand, whose exit code never says clean if something was not searched."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from residue.command import CLEAN, FOUND, INCONCLUSIVE, MISUSED, main, parse_identifiers

INCLUDE = Path(__file__).resolve().parents[3] / "include"
WHO = "anna-schmidt-4711"


@pytest.fixture
def wanted(tmp_path: Path) -> Path:
    path = tmp_path / "who.json"
    path.write_text(json.dumps([{"who": WHO}, {"user_id": 7_000_000_001}]))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "searched"
    path.mkdir()
    (path / "a.txt").write_text("nobody of them\n")
    return path


def report(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, object]]:
    code = main([*map(str, arguments), "--json", "--processes", "1"])
    return code, json.loads(capsys.readouterr().out)


def test_who_is_found_is_told_by_place_and_never_by_name(wanted: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(capsys, folder, "--identifiers", wanted)[0] == CLEAN
    (folder / "b.txt").write_text(f"{WHO} and 7000000001\n")
    (folder / WHO).write_text("x")
    code, told = report(capsys, folder, "--identifiers", wanted)
    assert code == FOUND and WHO not in json.dumps(told)
    assert told["found"] == [
        {"root": str(folder), "file": "(its name is a hit)", "decoder": "names", "column": "", "times": 1},
        {"root": str(folder), "file": "b.txt", "decoder": "text", "column": "", "times": 2},
    ]


def test_what_could_not_be_read_is_never_clean(wanted: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.gz").write_bytes(b"\x1f\x8b\x08" + bytes(40))
    code, told = report(capsys, folder, "--identifiers", wanted)
    assert (code, told["found"]) == (INCONCLUSIVE, [])
    assert told["unread"] == [{"root": str(folder), "file": "a.gz", "reason": "the stream is damaged"}]


def test_a_short_identifier_is_not_said_to_be_nowhere(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*options: str) -> tuple[int, dict[str, object]]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"12140\n")))
        return report(capsys, folder, "--domain", "user_id", *options)

    (folder / "b.csv").write_text("member,x\n12140,1\n")
    code, told = ask()
    assert (code, told["only_in_columns"]) == (INCONCLUSIVE, ["user_id"])
    code, told = ask("--column", "user_id=member")
    assert (code, told["only_in_columns"]) == (FOUND, ["member", "user_id"])


def test_names_of_files_cannot_steer_a_terminal(wanted: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "b\x1b[2J\nc.txt").write_text(WHO)
    assert main([str(folder), "--identifiers", str(wanted), "--processes", "1"]) == FOUND
    shown = capsys.readouterr().out
    assert "b\\x1b[2J\\nc.txt" in shown and "\x1b" not in shown and WHO not in shown


def test_a_root_that_is_not_there_is_wrong_use(wanted: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder), str(folder / "b"), "--identifiers", str(wanted)]) == MISUSED
    assert capsys.readouterr().err == f"residue: there is no file or folder {folder / 'b'}\n"


@pytest.mark.parametrize(
    ("text", "domain", "why"),
    [
        ("", "who", "there are no identifiers to look for"),
        ("[]", None, "there are no identifiers to look for"),
        (WHO, None, "need --domain"),
        (f'[{{"who": "{WHO}"', None, "not valid JSON: line 1, column"),
        (f'["{WHO}"]', None, "entry 1: expected an object"),
        (f'[{{"who": "x"}}, {{"who": ["{WHO}"]}}]', None, "entry 2: expected a text or a whole number"),
        ('{"user_id": true}', None, "entry 1: expected a text or a whole number"),
        ('{"user_id": 1.5}', None, "entry 1: expected a text or a whole number"),
        ('{"who": " "}', None, "entry 1: expected a text or a whole number"),
        (f'{{"who": "{WHO}", "at": "2026-11-20"}}', None, "`sluice erase scan` alone"),
    ],
)
def test_what_is_wrong_with_identifiers_is_told_without_them(text: str, domain: str | None, why: str) -> None:
    with pytest.raises(ValueError, match=why) as told:
        parse_identifiers(text, domain)
    assert WHO not in str(told.value)


def test_identifiers_come_one_a_line_or_as_json() -> None:
    assert parse_identifiers("\ufeffanna\n\n  bert \n", "who") == [("who", "anna"), ("who", "bert")]
    assert parse_identifiers('{"who": "anna", "user_id": 12140}', None) == [("who", "anna"), ("user_id", "12140")]


def test_it_runs_as_a_module_and_loads_nothing_of_sluice(folder: Path) -> None:
    (folder / "b.txt").write_text(WHO)
    environment = {**os.environ, "PYTHONPATH": str(INCLUDE)}
    line = [sys.executable, "-m", "residue", "--domain", "who", "--json", str(folder)]
    done = subprocess.run(line, input=WHO, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (FOUND, "") and json.loads(done.stdout)["found"]
    code = (
        "import sys, residue.command; sys.exit(any(name.split('.')[0] in "
        "('sluice', 'pyspark', 'delta', 'deltalake', 'airflow') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0
