"""The certificates of a pipeline, as they are kept: records that each have the hash of the one before, with a page of each to read."""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sluice.erasure import page
from sluice.erasure.stamps import Verdict
from sluice.errors import UsageError
from sluice.settings import Settings


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
    found = [
        Certificate(path, json.loads(path.read_text(encoding="utf-8"))) for path in _folder(settings, pipeline).glob("*.json")
    ]
    found.sort(key=lambda one: int(one.record["number"]))
    return [one for one in found if request in (None, one.record["request"])]


def write(settings: Settings, pipeline: str, request: str, record: dict[str, Any]) -> Certificate:
    """Keep a record, and a page of it to read; whole or not at all."""
    folder = _folder(settings, pipeline)
    folder.mkdir(parents=True, exist_ok=True)
    record["hash"] = hash_of(record)
    path = folder / f"{request}-{len(all_of(settings, pipeline, request)) + 1}.json"
    for target, text in ((path.with_suffix(".html"), page.of(record)), (path, json.dumps(record, indent=1) + "\n")):
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, prefix=".", suffix=".tmp", delete=False) as partial:
            partial.write(text)
        Path(partial.name).replace(target)
    return Certificate(path, record)


def hash_of(record: dict[str, Any]) -> str:
    """The hash of a record, of all that it holds but its hash."""
    told = {name: value for name, value in record.items() if name != "hash"}
    return hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


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


def _folder(settings: Settings, pipeline: str) -> Path:
    return Path(settings.bookkeeping(pipeline, "certificates"))
