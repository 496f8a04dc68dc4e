"""Requests to erase people. A request holds pseudonyms only; identifiers come by standard input or a file and are not kept."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sluice.declare.graph import Graph
from sluice.errors import UsageError, nearest
from sluice.privacy import secrets
from sluice.privacy.pseudonyms import pseudonym
from sluice.settings import Settings


@dataclass(frozen=True)
class ErasureRequest:
    """An erasure request. domain: which kind of identifier; done_at: when its rows had left every table, None while they had not."""

    request: str
    domain: str
    pseudonyms: tuple[str, ...]
    received_at: str
    done_at: str | None = None


def receive(settings: Settings, graph: Graph, identifiers: Iterable[str], domain: str | None = None) -> ErasureRequest:
    """Keep a request to erase the subjects with these identifiers. domain: the subject's column in the source, if there are several.

    Raises UsageError where there is no identifier, or the domain is unknown.
    """
    chosen = _domain(graph, domain)
    wanted = sorted({identifier.strip() for identifier in identifiers if identifier.strip()})
    if not wanted:
        raise UsageError("No identifier was given. Write one a line to standard input, or to a file named by --subject-file.")
    key = secrets.key(settings)
    pseudonyms = tuple(hashed for identifier in wanted if (hashed := pseudonym(key, chosen, identifier)))
    request = ErasureRequest(uuid.uuid4().hex[:12], chosen, pseudonyms, datetime.now(UTC).isoformat(timespec="seconds"))
    _write(settings, graph.pipeline.name, request)
    return request


def all_of(settings: Settings, pipeline: str) -> list[ErasureRequest]:
    """The pipeline's requests, oldest first."""
    found = [ErasureRequest(**json.loads(path.read_text())) for path in _folder(settings, pipeline).glob("*.json")]
    return sorted(found, key=lambda request: (request.received_at, request.request))


def done(settings: Settings, pipeline: str, request: ErasureRequest) -> None:
    """Note that the request's rows have left every table."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    _write(settings, pipeline, ErasureRequest(request.request, request.domain, request.pseudonyms, request.received_at, at))


def _domain(graph: Graph, domain: str | None) -> str:
    domains = sorted({source.subject for source in graph.sources.values() if source.subject})
    if not domains:
        raise UsageError(f"No source of pipeline '{graph.pipeline.name}' declares a subject; there is nobody to erase.")
    if domain is None and len(domains) == 1:
        return domains[0]
    if domain not in domains:
        raise UsageError(f"Say with --identifier which kind of identifier is meant.{nearest(domain or '', domains)}")
    return domain


def _folder(settings: Settings, pipeline: str) -> Path:
    return Path(settings.bookkeeping(pipeline, "erasure_requests"))


def _write(settings: Settings, pipeline: str, request: ErasureRequest) -> None:
    folder = _folder(settings, pipeline)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{request.request}.tmp"
    temporary.write_text(json.dumps({**vars(request), "pseudonyms": list(request.pseudonyms)}))
    temporary.replace(folder / f"{request.request}.json")
