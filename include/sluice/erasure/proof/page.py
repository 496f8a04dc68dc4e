"""A certificate as a readable page: plain HTML, without scripts or anything from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from string import Template
from typing import Any

from sluice.printable import count_noun

_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Certificate of erasure $request</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1c1c1c; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #ddd; }
td { vertical-align: top; }
th { font-weight: 600; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
.verdict { display: inline-block; padding: .15rem .6rem; border-radius: .3rem; color: #fff; background: #6b6b6b; }
.PASS { background: #1a7f37; } .FAIL { background: #b42318; } .DUE, .INCONCLUSIVE { background: #8a5a00; }
code { font-size: .85em; overflow-wrap: anywhere; }
</style></head><body>
<h1>Certificate of erasure <span class="verdict $verdict">$verdict</span></h1>
$body
</body></html>
""")
_MEANS = {
    "PASS": "No query returns, and no byte below the searched folders holds, one of the identifiers looked for, in the forms listed below.",
    "FAIL": "Something of the person, or of the control, was found. The locations are listed below.",
    "INCONCLUSIVE": "It is not certain that nothing is left: see the stamps and the control below.",
}


def render_certificate_page(record: Mapping[str, Any]) -> str:
    """Renders the page of a record."""
    stamps, control = record["stamps"], record["control"]
    body = [
        f"<p>{_MEANS[record['verdict']]}</p>",
        _render_certificate_table(("", ""), _list_record_facts(record)),
        "<h2>Stamps</h2>",
        _render_certificate_table(
            ("stamp", "verdict", "what was found"),
            [
                (
                    "logical: no query returns the person",
                    stamps["logical"]["verdict"],
                    count_noun(len(stamps["logical"]["hits"]), "location"),
                ),
                (
                    "physical: the scan of every byte is clean",
                    stamps["physical"]["verdict"],
                    _describe_physical_stamp(stamps["physical"]),
                ),
            ],
        ),
        "<h2>Control</h2>",
        f"<p>A made-up person was planted in every kind of store, erased by the same steps, and looked for by the same scan: "
        f"{escape(control['why'])}.</p>",
        _render_certificate_table(("kind of store", "found before", "found now, planted afresh"), _list_control_counts(control)),
        "<h2>Found</h2>" if stamps["physical"]["hits"] or stamps["logical"]["hits"] else "",
        _render_hit_table([*stamps["logical"]["hits"], *stamps["physical"]["hits"]]),
        "<h2>Not read</h2>" if stamps["physical"]["unread"] or stamps["logical"]["unread"] else "",
        _render_unread_table([*stamps["logical"]["unread"], *stamps["physical"]["unread"]]),
        "<h2>Exceptions</h2>",
        _render_certificate_table(
            ("what the scan does not cover", "until"), [(one["what"], one["until"] or "") for one in record["exceptions"]]
        ),
        "<h2>What was looked for</h2>",
        _render_certificate_table(("form of an identifier", "how many"), sorted(record["needles"].items())),
        "<h2>What was read</h2>",
        _render_certificate_table(
            ("root", ""), [(one["name"], "" if one["there"] else "is not there") for one in record["roots"]]
        ),
        _render_certificate_table(
            ("decoder", "files", "bytes"), [(name, one["files"], one["bytes"]) for name, one in record["decoders"].items()]
        ),
        "<h2>Tables</h2>",
        _render_certificate_table(("table", "version"), sorted(record["tables"].items())),
        f"<p>Files and folders that no declaration accounts for: {len(record['undeclared'])}. With any of these the certificate proves nothing, "
        f"since no erasure reaches them; those that the pipeline says are there are among the exceptions.</p>",
    ]
    return _PAGE.substitute(request=escape(record["request"]), verdict=escape(record["verdict"]), body="\n".join(body))


def _list_record_facts(record: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [
        ("request", record["request"]),
        ("pipeline", record["pipeline"]),
        ("received", record["received_at"]),
        ("due", record["due_at"]),
        ("issued", record["issued_at"]),
        ("number in the chain", record["number"]),
        ("hash", record.get("hash", "")),
        ("hash of the one before", record["previous"] or "none: it is the first"),
        ("Sluice, scanner, policy", f"{record['sluice']}, {record['scanner']}, {record['policy']}"),
        ("read", f"{count_noun(record['files'], 'file')}, {count_noun(record['bytes'], 'byte')}, in {record['seconds']} s"),
    ]


def _describe_physical_stamp(stamp: Mapping[str, Any]) -> str:
    due = f"; to be removed from {stamp['due_at']} on" if stamp["verdict"] == "DUE" else ""
    blind = "; nothing could be looked for" if stamp["nothing_sought"] else ""
    return (
        f"{count_noun(stamp['found'], 'time')}, {count_noun(len(stamp['unread']), 'file')} not read, "
        f"{stamp['undeclared']} not declared{blind}{due}"
    )


def _list_control_counts(control: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    before = control["before"] or {}
    return [(store, before.get(store, "not planted"), count) for store, count in control["now"].items()]


def _render_hit_table(hits: Sequence[Mapping[str, Any]]) -> str:
    columns = ("root", "path", "decoder", "column", "kind", "count")
    return _render_certificate_table(columns, [tuple(hit[name] for name in columns) for hit in hits]) if hits else ""


def _render_unread_table(files: Sequence[Mapping[str, Any]]) -> str:
    columns = ("root", "path", "reason")
    return _render_certificate_table(columns, [tuple(file[name] for name in columns) for file in files]) if files else ""


def _render_certificate_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(_render_certificate_cell(value) for value in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>" if any(header) else f"<table>{body}</table>"


def _render_certificate_cell(value: Any) -> str:
    if value in ("PASS", "FAIL", "INCONCLUSIVE", "DUE"):
        return f'<td><span class="verdict {value}">{value}</span></td>'
    number = isinstance(value, int) and not isinstance(value, bool)
    return f"<td{' class=number' if number else ''}>{escape(str(value))}</td>"
