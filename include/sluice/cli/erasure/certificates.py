"""`sluice erase certificate`, `verify` and `scan`: show certificates, check them, and search again. They print no identifier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluice.cli.printing import AsJson, PipelineName, escaping_console, print_json, print_rows
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.errors import SluiceError, UsageError, nearest_name_hint
from sluice.lake.pipeline_lake import load_pipeline_lake
from sluice.locations import Location
from sluice.pipeline_records import PipelineRecords, list_pipeline_records
from sluice.printable import count_noun, format_size
from sluice.runs.lease import lock
from sluice.settings import Settings

if TYPE_CHECKING:
    from residue import ScanResult
    from sluice.erasure.proof.certificate import Certificate

_PUBLIC = "Check with this public key; the certificates in the same folder are its chain."
_HEAD = "A head of the chain that was printed earlier and kept elsewhere."
_HOLDS = {True: "holds", False: "does not hold", None: "cannot be checked here"}
_SAID = {
    "hash": "hash: the record is unchanged",
    "seal": "signature: it was made with the key",
    "page": "page: it is the page that was issued",
    "chain": "chain: this certificate and all earlier ones exist",
    "head": "head: all later ones exist, and all that requests name",
    "kept": "kept head: the head that was kept elsewhere is in the chain",
}
_REQUEST = "Search only for the people of this request; may be given again."


def show_certificate(
    request: Annotated[str, typer.Argument(metavar="ID", help="A request's id.", show_default=False)],
    new: Annotated[bool, typer.Option("--new", help="Scan now and issue another one.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the latest certificate of a request, unless it was changed. With --new, the exit code is 1 unless the verdict is PASS.

    If a new scan finds the person, a request that was not carried out yet keeps its state.
    """
    from sluice.erasure import request_record
    from sluice.erasure.proof import certificate as certificates
    from sluice.erasure.proof import checking
    from sluice.erasure.proof.sought import hint_at_near_spellings

    settings = Settings.current()
    records = _find_request_records(settings, request)
    if new:
        lake = load_pipeline_lake(settings, records.pipeline)
        # If a flow wrote meanwhile, or another scan ran, the certificate would describe no single instant.
        with lock.hold_lease_without_spark(records, "certificate", "Ask again when it has ended."):
            certificates.issue_certificates(lake, [request_record.read_erasure_request(records, request)])
    found = checking.read_verified_certificate(records, request)
    if found is None:
        state = request_record.read_erasure_request(records, request).state
        raise SluiceError(
            f"Request {request} has no certificate yet; it is {state}. To do what is due: sluice erase run {records.pipeline}"
        )
    if as_json:
        print_json({**found.record, "path": str(found.path)})
    else:
        _print_issued_certificate(found)
    if new and found.verdict != certificates.PASS:
        hint = (
            hint_at_near_spellings(load_pipeline_lake(settings, records.pipeline), request)
            if found.verdict == certificates.FAIL
            else ""
        )
        raise SluiceError(f"The new certificate of request {request} says {found.verdict}.{hint}")


def verify_certificate(
    path: Annotated[Location, typer.Argument(metavar="CERTIFICATE", help="The JSON file of a certificate.", show_default=False)],
    rescan: Annotated[bool, typer.Option("--scan/--no-scan", help="Whether to scan again and compare.")] = True,
    public_key: Annotated[Location | None, typer.Option(metavar="PEM", help=_PUBLIC)] = None,
    head: Annotated[str | None, typer.Option(metavar="NUMBER:HASH", help=_HEAD)] = None,
    as_json: AsJson = False,
) -> None:
    """Check a certificate's hash, signature, page and chain, scan again and compare. Exit code 1 if a check fails.

    With --public-key it scans nothing: for an auditor who has copies of the certificates, but neither the lake nor the secret.
    """
    from sluice.erasure.proof import chain, checking, signatures

    settings = Settings.current()
    public = signatures.read_public_key(public_key) if public_key else None
    kept = chain.parse_chain_head(head) if head else None
    rescan = rescan and public is None
    report = checking.verify_certificate(
        settings, path, None, public, kept
    )  # refuse what is no certificate before anything is loaded
    if rescan and checking.is_as_issued(report):
        report = checking.verify_certificate(
            settings,
            path,
            load_declaration_graph(settings, chain.read_certificate_record(path)["pipeline"]),
            None,
            kept,
        )
    if as_json:
        print_json(report)
    else:
        rows = [
            {"what": what, "": _HOLDS[report[part]]} for part, what in _SAID.items() if report[part] is not None or part != "kept"
        ]
        rows += [
            {"what": "verdict then", "": report["issued"] or "not shown: it may have been changed"},
            {"what": "verdict of the scan now", "": report["verdict"] or "not scanned"},
        ]
        print_rows([*rows, *({"what": "otherwise now", "": one} for one in report["differs"])], ("what", ""))
    if not checking.is_as_issued(report) or (rescan and report["verdict"] != report["issued"]):
        raise SluiceError(f"The certificate {path.name} does not hold.")
    if not as_json:
        _print_chain_head(chain.read_certificate_record(path))


def public_key() -> None:
    """Print the public half of certificate.key, as PEM. It checks certificates and cannot make them."""
    from sluice.erasure.proof import signatures

    print(signatures.export_public_key(Settings.current()), end="")


def scan_for_people(
    pipeline: PipelineName,
    request: Annotated[list[str] | None, typer.Option("--request", metavar="ID", help=_REQUEST)] = None,
    as_json: AsJson = False,
) -> None:
    """Search every byte of a pipeline for the people of its requests, by their identifiers in the vault. Writes nothing."""
    from residue import result as scan_report
    from sluice.erasure import request_record, vault
    from sluice.erasure.proof import search_scope, sought

    settings = Settings.current()
    records = PipelineRecords.of_known(settings, pipeline)
    lake = load_pipeline_lake(settings, pipeline)
    known = request_record.list_erasure_requests(records)
    asked = [request_record.read_erasure_request(records, one) for one in request] if request else known
    there = [one for one in asked if vault.has_vault_entry(records, one.request)]
    if not there:
        raise SluiceError("There is nobody to search for: the vault has no identifiers of these requests, or they were removed.")
    result = sought.scan_all_roots(lake, sought.collect_sought_needles(lake, there))
    others = [
        f"{one.root}/{scan_report.hide_path_of_hit(result, one.root, one.path)}"
        for one in search_scope.find_undeclared_paths(lake)
    ]
    if as_json:
        print_json(_scan_as_json(result, len(there), others))
    else:
        _print_scan(result, len(there), others)


def _print_issued_certificate(found: Certificate) -> None:
    record, printed = found.record, escaping_console()
    printed.print(f"Certificate {found.path.stem}: {found.verdict}")
    rows = [
        {"": "logical: no query returns the person", "verdict": found.logical},
        {"": "physical: the scan of every byte is clean", "verdict": found.physical},
        {"": f"control: {record['control']['why']}", "verdict": record["control"]["verdict"]},
    ]
    print_rows(rows, ("", "verdict"))
    printed.print(
        f"\n{count_noun(record['files'], 'file')}, {format_size(record['bytes'])}, "
        f"{count_noun(sum(record['needles'].values()), 'needle')}; issued {record['issued_at']}"
    )
    for one in record["exceptions"]:
        printed.print(f"Not covered: {one['what']}" + (f", until {one['until']}" if one["until"] else ""))
    printed.print(f"{found.path}\n{found.path.with_suffix('.html')}")
    _print_chain_head(record)


def _print_chain_head(record: dict[str, Any]) -> None:
    """Print the head of the chain. Keep it where nobody who writes into the lake can change it."""
    from sluice.erasure.proof import chain

    escaping_console().print(
        f"Head of the chain; keep it elsewhere: {chain.format_chain_head(record)}", soft_wrap=True, highlight=False
    )


def _scan_as_json(result: ScanResult, people: int, undeclared: list[str]) -> dict[str, Any]:
    from residue import result as scan_report

    return {
        "requests": people,
        "found": scan_report.count_hits_by_location(result),
        "unread": scan_report.list_unread_files(result),
        "undeclared": undeclared,
        "files": result.files,
        "bytes": result.bytes,
        "seconds": round(result.seconds, 2),
    }


def _print_scan(result: ScanResult, people: int, undeclared: list[str]) -> None:
    from residue import result as scan_report

    printed, rows = escaping_console(), scan_report.count_hits_by_location(result)
    printed.print(
        f"{count_noun(result.files, 'file')}, {format_size(result.bytes)}, "
        f"in {result.seconds:.1f} s, for the people of {count_noun(people, 'request')}."
    )
    if rows:
        print_rows(rows, scan_report.FOUND_COLUMNS, "Found")
    else:
        printed.print("The scan found nothing of them.")
    if result.unread:
        print_rows(scan_report.list_unread_files(result), scan_report.UNREAD_COLUMNS, "No decoder opens")
    if undeclared:
        print_rows([{"file or folder": one} for one in undeclared], ("file or folder",), "Nobody has declared")


def _find_request_records(settings: Settings, request: str) -> PipelineRecords:
    """The records of a request's pipeline. Raises UsageError with the nearest id."""
    from sluice.erasure import request_record

    every = list_pipeline_records(settings)
    by_id = {one.request: records for records in every for one in request_record.list_erasure_requests(records)}
    if request not in by_id:
        raise UsageError(f"There is no erasure request '{request}'.{nearest_name_hint(request, by_id)}")
    return by_id[request]
