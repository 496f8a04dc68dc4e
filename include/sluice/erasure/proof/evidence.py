"""What one look at a lake shows of the people of several requests: the scan of every byte, the tables as they are, and what else is there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sluice.declare.assembly.graph import Graph
from sluice.erasure.control import canary
from sluice.erasure.proof import scope, sought, stamps, undeclared
from sluice.erasure.proof.undeclared import Undeclared
from sluice.erasure.requests import ErasureRequest
from sluice.erasure.scan import ScanResult
from sluice.erasure.subjects import domain_columns
from sluice.lake import log
from sluice.settings import Settings


@dataclass(frozen=True)
class Evidence:
    """What was found of the people of requests, and of their canaries.

    rows: what queries return. result: of the scan. shared: see `Sought`. witnessed: by kind of store, how often another canary was found that
    was planted for this. tables: their versions. policy: tells whether the declarations that matter are the same. hidden: what stands for a
    path in a record.
    """

    rows: ScanResult
    result: ScanResult
    shared: Mapping[str, int]
    witnessed: dict[str, int]
    undeclared: Sequence[Undeclared]
    acknowledged: Sequence[str]
    tables: dict[str, int | None]
    policy: str
    hidden: Callable[[str], str]

    def of(self, request: ErasureRequest) -> Evidence:
        """What of it is about one request, and its canary."""
        rows, result = (found.about(request.request, request.control) for found in (self.rows, self.result))
        return replace(self, rows=rows, result=result)


def gathered(settings: Settings, graph: Graph, asked: Sequence[ErasureRequest]) -> Evidence:
    """Scan, and ask the tables, for the people of these requests at once.

    Raises UsageError where the vault does not have the identifiers of one any more, and SluiceError where the lake is not on this machine.
    """
    pipeline, wanted = graph.pipeline.name, sought.of(settings, graph, asked)
    return Evidence(
        rows=sought.rows(settings, graph, wanted),
        result=sought.looked(settings, graph, wanted),
        shared=wanted.shared,
        witnessed=canary.witnessed(settings, pipeline),
        undeclared=undeclared.found(settings, graph),
        acknowledged=undeclared.said_to_be_there(settings, graph),
        tables={name: log.version(path) for name, path in sorted(scope.tables(settings, graph).items())},
        policy=_policy(settings, graph),
        hidden=stamps.hashing(settings, pipeline),
    )


def _policy(settings: Settings, graph: Graph) -> str:
    """What tells whether the declarations that matter here are the same: whose rows are where, and how long files are kept."""
    told = {
        "columns": {domain: sorted(names) for domain, names in domain_columns.by_domain(settings, graph).items()},
        "subjects": {one.name: one.subject for one in graph if one.subject},
        "retain": graph.pipeline.retain,
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
