"""The certificates of a pipeline, as they are kept: records that each have the hash of the one before, with a page of each to read."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sluice.declare.assembly.needed_secrets import CERTIFICATE_KEY
from sluice.erasure.proof import page
from sluice.erasure.proof.stamps import Verdict
from sluice.errors import SluiceError, UsageError
from sluice.privacy import secrets
from sluice.settings import Settings

_NUMBERED = re.compile(r"-(\d+)\Z")
_TOLD = 16
"""Digits of a hash that the history of a request tells."""


@dataclass(frozen=True)
class Certificate:
    """A certificate as it is kept: the JSON record, and where it is. The HTML page lies beside it (.html)."""

    path: Path
    record: dict[str, Any]

    @property
    def verdict(self) -> Verdict:
        """What it says."""
        verdict: Verdict = self.record["verdict"]
        return verdict

    @property
    def logical(self) -> str:
        """Whether no query returns the person: PASS, FAIL, INCONCLUSIVE."""
        return str(self.record["stamps"]["logical"]["verdict"])

    @property
    def physical(self) -> str:
        """Whether the scan is clean: PASS, FAIL, INCONCLUSIVE; DUE where the person is there and the retention time is not over."""
        return str(self.record["stamps"]["physical"]["verdict"])


def all_of(settings: Settings, pipeline: str, request: str | None = None) -> list[Certificate]:
    """The certificates of a pipeline, or of one request, in the order of the chain."""
    paths = sorted(_folder(settings, pipeline).glob(f"{request or '*'}-*.json"), key=_number)
    return [_certificate(path) for path in paths if request in (None, _NUMBERED.sub("", path.stem))]


def latest(settings: Settings, pipeline: str) -> Certificate | None:
    """The last of the chain."""
    paths = list(_folder(settings, pipeline).glob("*.json"))
    return _certificate(max(paths, key=_number)) if paths else None


def write(settings: Settings, pipeline: str, request: str, record: dict[str, Any], last: Certificate | None) -> Certificate:
    """Keep a record, sealed, and a page of it to read; whole or not at all. last: the end of the chain.

    Raises UsageError where the key of the seals is lost.
    """
    folder = _folder(settings, pipeline)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{request}-{record['number']}.json"
    if path.exists():
        raise SluiceError(f"There is a certificate {path.name} already; it is not overwritten. Is another scan going on?")
    record["hash"] = hash_of(record)
    shown = page.of(record)
    record["page"] = hashlib.sha256(shown.encode()).hexdigest()
    record["seal"] = _seal(settings, pipeline, record, last)
    for target, text in ((path.with_suffix(".html"), shown), (path, json.dumps(record, indent=1) + "\n")):
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, prefix=".", suffix=".tmp", delete=False) as partial:
            partial.write(text)
        Path(partial.name).replace(target)
    return Certificate(path, record)


def hash_of(record: dict[str, Any]) -> str:
    """The hash of a record, of all that it holds but what is made of the hash, and the hash."""
    told = {name: value for name, value in record.items() if name not in ("hash", "page", "seal")}
    return hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def is_sealed(settings: Settings, record: dict[str, Any]) -> bool:
    """Whether a record, and the hash of its page, were sealed with the key. Raises UsageError where the key is lost."""
    return "seal" in record and hmac.compare_digest(
        str(record["seal"]), _seal(settings, record["pipeline"], record, latest(settings, record["pipeline"]))
    )


def is_its_page(record: dict[str, Any], path: Path) -> bool:
    """Whether a page is the one that was made of a record. path: of the page."""
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == record.get("page")


def told(record: dict[str, Any]) -> str:
    """What the history of a request says of its certificate, so that none at the end of the chain can be left out."""
    return f"number {record['number']}, hash {record['hash'][:_TOLD]}"


def told_of(note: str) -> tuple[int, str] | None:
    """Number and beginning of the hash that a note in a history tells; None where it tells of no certificate."""
    found = re.search(rf"number (\d+), hash ([0-9a-f]{{{_TOLD}}})\Z", note)
    return (int(found.group(1)), found.group(2)) if found else None


def _seal(settings: Settings, pipeline: str, record: dict[str, Any], last: Certificate | None) -> str:
    """Made by chance, the key is, only as long as nothing was sealed with it."""
    sealed = last is not None and ("seal" in last.record or any("seal" in one.record for one in all_of(settings, pipeline)))
    key = secrets.key(settings, CERTIFICATE_KEY, make=not sealed)
    return hmac.new(key, f"{record['hash']}\n{record.get('page')}".encode(), hashlib.sha256).hexdigest()


def is_chained(record: dict[str, Any], known: dict[str, dict[str, Any]]) -> bool:
    """Whether the records before it are all there, unchanged, down to the first."""
    while record["previous"] is not None:
        before = known.get(record["previous"])
        if before is None or hash_of(before) != record["previous"] or before["number"] != record["number"] - 1:
            return False
        record = before
    return bool(record["number"] == 1)


def read(path: Path) -> dict[str, Any]:
    """The record of a certificate. Raises UsageError where it is none."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no JSON"
        raise UsageError(
            f"{path} cannot be read as a certificate: {why}. They lie in <lake>/<pipeline>/_sluice/certificates."
        ) from None
    if not isinstance(record, dict) or not {"hash", "request", "pipeline", "stamps"} <= set(record):
        raise UsageError(f"{path} is no certificate. They lie in <lake>/<pipeline>/_sluice/certificates.")
    return record


def _certificate(path: Path) -> Certificate:
    return Certificate(path, json.loads(path.read_text(encoding="utf-8")))


def _number(path: Path) -> int:
    """Where in the chain a certificate is, by the name of its file."""
    found = _NUMBERED.search(path.stem)
    return int(found.group(1)) if found else 0


def _folder(settings: Settings, pipeline: str) -> Path:
    return Path(settings.bookkeeping(pipeline, "certificates"))
