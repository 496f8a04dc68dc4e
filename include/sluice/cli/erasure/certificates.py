"""`sluice erase certificate`, `verify`, `scan`: what was proved, whether it still holds, and what a search finds now. No identifier is printed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluice.cli.printing import AsJson, PipelineName, console, print_json, print_rows, size
from sluice.cli.repair import own_lease
from sluice.declare.assembly.loading import load
from sluice.errors import SluiceError, UsageError, nearest
from sluice.settings import Settings, known_pipeline, pipeline_names

if TYPE_CHECKING:
    from sluice.erasure.proof.certificate import Certificate
    from sluice.erasure.scan import ScanResult

_REQUEST = "Look for the people of this request alone; may be given again."


def certificate(
    request: Annotated[str, typer.Argument(metavar="ID", help="A request's id.", show_default=False)],
    new: Annotated[bool, typer.Option("--new", help="Scan now and issue another one.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the latest certificate of a request. With --new a scan that finds the person changes no request that is not carried out yet."""
    from sluice.erasure import requests
    from sluice.erasure.proof import certificate as certificates

    settings = Settings.current()
    pipeline = _pipeline_of(settings, request)
    if new:
        graph = load(settings, pipeline)
        # A flow that writes meanwhile, or another scan, would make it a statement about no instant.
        with own_lease.held(settings, pipeline, "certificate", "Ask again when it has ended."):
            certificates.issue(settings, graph, [requests.one(settings, pipeline, request)])
    found = certificates.all_of(settings, pipeline, request)
    if not found:
        state = requests.one(settings, pipeline, request).state
        raise SluiceError(
            f"Request {request} has no certificate yet; it is {state}. What is due is done by: sluice erase run {pipeline}"
        )
    if as_json:
        print_json({**found[-1].record, "path": str(found[-1].path)})
        return
    _show(found[-1])


def verify(
    path: Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="The JSON file of a certificate.", show_default=False)],
    rescan: Annotated[bool, typer.Option("--scan/--no-scan", help="Whether to scan again and compare.")] = True,
    as_json: AsJson = False,
) -> None:
    """Check a certificate's hash, seal, page and chain, scan again and compare. Exit code 1 where something does not hold."""
    from sluice.erasure.proof import checking

    settings = Settings.current()
    report = checking.verify(settings, path)  # what is no certificate is said before anything is loaded
    if rescan:
        report = checking.verify(settings, path, load(settings, known_pipeline(settings, _pipeline_in(path))))
    if as_json:
        print_json(report)
    else:
        told = {True: "holds", False: "does not hold", None: "there is none: it was issued before certificates were sealed"}
        rows = [
            {"what": "hash: the record agrees with itself", "": told[report["hash"]]},
            {"what": "seal: it was issued here, with the key", "": told[report["seal"]]},
            {"what": "page: it is the one that was issued", "": told[report["page"]]},
            {"what": "chain: it and the ones before it are all there", "": told[report["chain"]]},
            {"what": "head: so are the later ones that requests tell of", "": told[report["head"]]},
            {"what": "verdict then", "": report["issued"]},
            {"what": "verdict of the scan now", "": report["verdict"] or "not scanned"},
        ]
        print_rows([*rows, *({"what": "otherwise now", "": one} for one in report["differs"])], ("what", ""))
    if any(report[name] is False for name in ("hash", "seal", "page", "chain", "head")) or (
        rescan and report["verdict"] != report["issued"]
    ):
        raise SluiceError(f"The certificate {path.name} does not hold any more.")


def scan(
    pipeline: PipelineName,
    request: Annotated[list[str] | None, typer.Option("--request", metavar="ID", help=_REQUEST)] = None,
    as_json: AsJson = False,
) -> None:
    """Search every byte of a pipeline for the people of its requests, by their identifiers in the vault. Writes nothing."""
    from sluice.erasure import requests, vault
    from sluice.erasure.proof import sought, undeclared

    settings = Settings.current()
    graph = load(settings, known_pipeline(settings, pipeline))
    known = requests.all_of(settings, pipeline)
    asked = [requests.one(settings, pipeline, one) for one in request] if request else known
    there = [one for one in asked if vault.holds(settings, pipeline, one.request)]
    if not there:
        raise SluiceError("There is nobody to look for: the vault has no identifiers of these requests (any more).")
    result = sought.looked(settings, graph, sought.of(settings, graph, there))
    others = [f"{one.root}/{_shown(result, one.root, one.path)}" for one in undeclared.found(settings, graph)]
    if as_json:
        print_json(_as_json(result, len(there), others))
    else:
        _show_scan(result, len(there), others)


def _show(found: Certificate) -> None:
    record, printed = found.record, console()
    printed.print(f"Certificate {found.path.stem}: {found.verdict}")
    rows = [
        {"": "logical: no query returns the person", "verdict": found.logical},
        {"": "physical: the scan of every byte is clean", "verdict": found.physical},
        {"": f"control: {record['control']['why']}", "verdict": record["control"]["verdict"]},
    ]
    print_rows(rows, ("", "verdict"))
    printed.print(
        f"\n{record['files']} files, {size(record['bytes'])}, {sum(record['needles'].values())} needles; issued {record['issued_at']}"
    )
    for one in record["exceptions"]:
        printed.print(f"Not covered: {one['what']}" + (f", until {one['until']}" if one["until"] else ""))
    printed.print(f"{found.path}\n{found.path.with_suffix('.html')}")


def _rows(result: ScanResult) -> list[dict[str, Any]]:
    """Hits by place."""
    counted: Counter[tuple[str, str, str, str]] = Counter()
    for hit in result.of_person():
        counted[hit.root, _shown(result, hit.root, hit.path), hit.decoder, hit.column] += hit.times
    return [
        dict(zip(("root", "file", "decoder", "column", "times"), (*key, times), strict=True))
        for key, times in sorted(counted.items())
    ]


def _unread(result: ScanResult) -> list[dict[str, Any]]:
    """What no decoder opens."""
    return [
        {"root": one.root, "file": _shown(result, one.root, one.path), "reason": one.reason}
        for one in sorted(result.unread, key=lambda one: (one.root, one.reason))
    ]


def _shown(result: ScanResult, root: str, path: str) -> str:
    """A path, to be printed. A name that is itself a hit is not."""
    named = (hit.path for hit in result.hits if hit.decoder == "names" and hit.root == root)
    return "(its name is a hit)" if any(path == one or path.startswith(f"{one}/") for one in named) else path


def _as_json(result: ScanResult, people: int, undeclared: list[str]) -> dict[str, Any]:
    return {
        "requests": people,
        "found": _rows(result),
        "unread": _unread(result),
        "undeclared": undeclared,
        "files": result.files,
        "bytes": result.bytes,
        "seconds": round(result.seconds, 2),
    }


def _show_scan(result: ScanResult, people: int, undeclared: list[str]) -> None:
    printed, rows = console(), _rows(result)
    printed.print(f"{result.files} files, {size(result.bytes)}, in {result.seconds:.1f} s, for the people of {people} requests.")
    if rows:
        print_rows(rows, ("root", "file", "decoder", "column", "times"), "Found")
    else:
        printed.print("Nothing of them was found.")
    if result.unread:
        print_rows(_unread(result), ("root", "file", "reason"), "No decoder opens")
    if undeclared:
        print_rows([{"file or folder": one} for one in undeclared], ("file or folder",), "Nobody has declared")


def _pipeline_of(settings: Settings, request: str) -> str:
    """The pipeline that a request is of. Raises UsageError with the nearest id."""
    from sluice.erasure import requests

    by_id = {one.request: pipeline for pipeline in pipeline_names(settings) for one in requests.all_of(settings, pipeline)}
    if request not in by_id:
        raise UsageError(f"There is no erasure request '{request}'.{nearest(request, by_id)}")
    return by_id[request]


def _pipeline_in(path: Path) -> str:
    import json

    return str(json.loads(path.read_text(encoding="utf-8"))["pipeline"])
