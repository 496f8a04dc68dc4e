"""The stored certificates of a pipeline: records that each have the hash of the one before, and a readable page for each."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sluice.durable_files import PRIVATE, write_text_durably
from sluice.erasure.proof import page, signatures
from sluice.erasure.proof.stamps import Verdict
from sluice.errors import SluiceError, UsageError
from sluice.locations import Location, locate
from sluice.own_records import CERTIFICATES
from sluice.pipeline_records import PipelineRecords
from sluice.settings import is_valid_name

_NUMBERED = re.compile(r"-(\d+)\Z")
_TOLD = 16
"""How many digits of a hash a request's history records."""
_FIELDS = {"hash", "number", "previous", "request", "pipeline", "stamps", "control", "verdict"}
_MADE_OF_IT = ("hash", "page", "seal", "signature")
"""The fields of a record that are made from its hash, and the hash itself."""


@dataclass(frozen=True)
class Certificate:
    """A stored certificate: the JSON record and its path. The HTML page lies beside it (.html)."""

    path: Location
    record: dict[str, Any]

    @property
    def verdict(self) -> Verdict:
        """Its verdict."""
        verdict: Verdict = self.record["verdict"]
        return verdict

    @property
    def logical(self) -> str:
        """Whether no query returns the person: PASS, FAIL or INCONCLUSIVE."""
        return str(self.record["stamps"]["logical"]["verdict"])

    @property
    def physical(self) -> str:
        """Whether the scan is clean: PASS, FAIL or INCONCLUSIVE; DUE while the person is found but the retention is not over."""
        return str(self.record["stamps"]["physical"]["verdict"])


def read_certificates(records: PipelineRecords, request: str | None = None) -> list[Certificate]:
    """The certificates of a pipeline, or of one request, in the order of the chain."""
    return read_certificate_folder(_certificates_folder(records), request)


def read_certificate_folder(folder: Location, request: str | None = None) -> list[Certificate]:
    """The certificates in a folder, or those of one request, in the order of the chain. Raises UsageError for a file that is none."""
    paths = sorted(folder.glob(f"{request or '*'}-*.json"), key=_parse_chain_number)
    return [Certificate(path, read_certificate_record(path)) for path in paths if request in (None, _NUMBERED.sub("", path.stem))]


def read_latest_certificate(records: PipelineRecords) -> Certificate | None:
    """The last certificate of the chain."""
    paths = list(_certificates_folder(records).glob("*.json"))
    found = max(paths, key=_parse_chain_number, default=None)
    return Certificate(found, read_certificate_record(found)) if found else None


def write_certificate(records: PipelineRecords, request: str, record: dict[str, Any], last: Certificate | None) -> Certificate:
    """Stores a signed record and a page of it, atomically. last: the end of the chain.

    Raises UsageError if the key of the signatures is lost.
    """
    folder = _certificates_folder(records)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{request}-{record['number']}.json"
    if path.exists():
        raise SluiceError(f"There is a certificate {path.name} already; it is not overwritten. Is another scan going on?")
    record["hash"] = compute_record_hash(record)
    shown = page.render_certificate_page(record)
    record["page"] = hashlib.sha256(shown.encode()).hexdigest()
    # The key is generated only while nothing was sealed with it.
    record["signature"] = signatures.sign_certificate_record(records.settings, record, make=last is None)
    for target, text in ((path.with_suffix(".html"), shown), (path, json.dumps(record, indent=1) + "\n")):
        write_text_durably(target, text, PRIVATE)
    return Certificate(path, record)


def compute_record_hash(record: dict[str, Any]) -> str:
    """The hash of a record without the hash itself and the fields made from it."""
    told = {name: value for name, value in record.items() if name not in _MADE_OF_IT}
    return hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def has_matching_hash(record: dict[str, Any]) -> bool:
    """Whether a record has the hash that it states."""
    return bool(compute_record_hash(record) == record["hash"])


def is_page_of_record(record: dict[str, Any], path: Location) -> bool:
    """Whether a page was made from a record. path: that of the page."""
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == record.get("page")


def format_certificate_note(record: dict[str, Any]) -> str:
    """The note about a certificate in its request's history, so that none at the end of the chain can be left out unnoticed."""
    return f"number {record['number']}, hash {record['hash'][:_TOLD]}"


def parse_certificate_note(note: str) -> tuple[int, str] | None:
    """The number and the beginning of the hash in a note; None if it is not about a certificate."""
    found = re.search(rf"number (\d+), hash ([0-9a-f]{{{_TOLD}}})\Z", note)
    return (int(found.group(1)), found.group(2)) if found else None


def format_chain_head(record: dict[str, Any]) -> str:
    """The head of the chain, to be kept elsewhere: it distinguishes the chain up to there from any other."""
    return f"{record['number']}:{record['hash']}"


def parse_chain_head(text: str) -> tuple[int, str]:
    """The number and hash of a head that was kept elsewhere. Raises UsageError if it is none."""
    found = re.fullmatch(rf"(\d+):([0-9a-f]{{{_TOLD},64}})", text.strip())
    if found is None:
        raise UsageError(
            f"--head takes what was printed as the head of the chain: a number, a colon and {_TOLD} to 64 hex digits, as in 7:0123456789abcdef."
        )
    return int(found.group(1)), found.group(2)


def index_records_by_hash(every: Iterable[Certificate]) -> dict[str, dict[str, Any]]:
    """The records whose hash is correct, by hash."""
    return {one.record["hash"]: one.record for one in every if has_matching_hash(one.record)}


def is_chained_to_first(record: dict[str, Any], known: dict[str, dict[str, Any]]) -> bool:
    """Whether a record and all before it exist, unchanged, down to the first. known: see `index_records_by_hash`."""
    if record["hash"] not in known:
        return False
    while record["previous"] is not None:
        before = known.get(record["previous"])
        if before is None or before["number"] != record["number"] - 1:
            return False
        record = before
    return bool(record["number"] == 1)


def read_certificate_record(path: Location) -> dict[str, Any]:
    """Reads the record of a certificate. Raises UsageError if it is none."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no JSON"
        raise UsageError(
            f"{path} cannot be read as a certificate: {why}. They lie in <lake>/<pipeline>/_sluice/certificates."
        ) from None
    if not isinstance(record, dict) or not _is_certificate_record(record):
        raise UsageError(f"{path} is no certificate. They lie in <lake>/<pipeline>/_sluice/certificates.")
    return record


def _is_certificate_record(record: dict[str, Any]) -> bool:
    """Whether it has the fields that the chain uses, with their types."""
    return (
        set(record) >= _FIELDS
        and isinstance(record["number"], int)
        and isinstance(record["hash"], str)
        and isinstance(record["previous"], str | None)
        and is_valid_name(str(record["pipeline"]))
    )


def _parse_chain_number(path: Location) -> int:
    """The position of a certificate in the chain, from its file name."""
    found = _NUMBERED.search(path.stem)
    return int(found.group(1)) if found else 0


def _certificates_folder(records: PipelineRecords) -> Location:
    return locate(records.bookkeeping(CERTIFICATES.name))
