"""Finds personal data where no erasure could remove it, in every log of the lake from its first file on. Needs no JVM.

A value that got into statistics, a folder's name, the file layout or the text of a condition stays in the log for weeks, whatever
happens to its row. It must therefore never get there: `sluice check` refuses declarations that would let it, and this module inspects
what is there.

For conditions in a table's log, the question is whether they hold values that a personal column was compared with. Delta writes a
condition as Spark prints it: a column as `email#17` or `id#18L`, a text without quotes; for replaceWhere, the SQL that was given. So
whatever remains of a comparison after columns and operators are removed is a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sluice.lake import log_files
from sluice.lake.commit_marks import MARK_FIELDS
from sluice.lake.log_files import LogAction
from sluice.lake.pipeline_lake import PipelineLake, list_own_tables
from sluice.own_records import CANARY, SUPPRESSION, name_own_record
from sluice.pipeline_records import PERSONAL_IN_QUARANTINE
from sluice.table_properties import LOG_RETENTION, RETENTION, STATISTICS, parse_statistics_columns

RETENTIONS = (RETENTION, LOG_RETENTION)
_CANARY = name_own_record(CANARY)
_CONDITIONS = ("predicate", "matchedPredicates", "notMatchedPredicates", "notMatchedBySourcePredicates")


@dataclass(frozen=True)
class LogFinding:
    """Something in a table's log that no erasure reaches. file: the first log file that has it; files: how many have it."""

    table: str
    what: str
    file: str = ""
    files: int = 1

    def __str__(self) -> str:
        more = f" and {self.files - 1} more" if self.files > 1 else ""
        return f"Table '{self.table}': {self.what}{f' ({self.file}{more})' if self.file else ''}"


def inspect_lake_logs(lake: PipelineLake) -> list[LogFinding]:
    """Inspects the logs of all tables of a pipeline, including undeclared ones."""
    known, pipeline = personal_columns_by_path(lake), lake.graph.pipeline.name
    everything = frozenset().union(*known.values()) | PERSONAL_IN_QUARANTINE
    found: list[LogFinding] = []
    for root in lake.settings.table_roots.values():
        for table in log_files.find_delta_tables(root / pipeline):
            if table.is_relative_to(root / pipeline / _CANARY):
                continue  # made up for the scan to find
            # In an undeclared table, every column that is personal anywhere counts as personal.
            found += inspect_table_log(str(table), str(table.relative_to(root)), known.get(str(table), everything))
    return found


def personal_columns_by_path(lake: PipelineLake) -> dict[str, frozenset[str]]:
    """By path, the personal columns of each declared table, and of those that Sluice keeps for itself."""
    found: dict[str, frozenset[str]] = {}
    for one in lake.graph:
        path = lake.path(one.name)
        found[path] = found.get(path, frozenset()).union(*(each.private for each in lake.graph.sharing(one)))
        if one.kind.sets_rows_aside:
            found[lake.quarantine(one.name)] = PERSONAL_IN_QUARANTINE
    for stream in lake.graph.streams.values():
        late = frozenset().union(stream.private, *(lake.graph[name].private for name in stream.reads))
        found[lake.late(stream.name)] = late
    found |= dict.fromkeys(list_own_tables(lake).values(), frozenset[str]())  # ids and counts
    found[lake.bookkeeping(SUPPRESSION.name)] = frozenset({"pseudonym"})
    return found


def inspect_table_log(path: str, name: str, personal: frozenset[str]) -> list[LogFinding]:
    """Inspects one table's log. personal: its columns with personal data; as in Spark, case does not matter."""
    hidden = {column.lower() for column in personal}
    found: dict[str, LogFinding] = {}
    try:
        for action in log_files.read_log_actions(path):
            for what in _find_action_problems(action, hidden):
                known = found.get(what)
                again = known is not None and known.file == action.file
                found[what] = replace(known, files=known.files + (not again)) if known else LogFinding(name, what, action.file)
    except ValueError as error:
        return [*found.values(), LogFinding(name, f"{error}; so nothing can be said of it")]
    return list(found.values())


def _find_action_problems(action: LogAction, hidden: set[str]) -> Iterator[str]:
    """What is wrong with an action, as sentences without values."""
    for column in sorted(name for name in action.ends if _is_personal_column(name, hidden)):
        yield f"its log has the lowest and highest values of the personal column '{column}'. {_ANEW}"
    for column in sorted(name for name in action.said.get("partitionValues") or {} if _is_personal_column(name, hidden)):
        yield f"its files lie in folders named by the personal column '{column}'. {_ANEW}"
    if action.kind == "metaData":
        yield from _find_metadata_problems(action, hidden)
    elif action.kind == "domainMetadata" and action.said.get("domain") == "delta.clustering":
        for column in _clustering_columns(action.said):
            if _is_personal_column(column, hidden):
                yield f"it is clustered by the personal column '{column}'. {_ANEW}"
    elif action.kind == "commitInfo":
        yield from _find_commit_problems(action.said, hidden)


_ANEW = "Remove the table's folder and run again: it is made anew, with a log that never had them"


def _is_personal_column(column: str, hidden: set[str]) -> bool:
    return column.lower() in hidden or column.lower().partition(".")[0] in hidden


def _find_metadata_problems(action: LogAction, hidden: set[str]) -> Iterator[str]:
    properties = dict(action.said.get("configuration") or {})
    for name in RETENTIONS:
        if hidden and name not in properties:
            yield f"its first version did not set how long removed files and its log are kept: {name} is missing"
    said = properties.get(STATISTICS)
    columns = parse_statistics_columns(said or "")
    for column in sorted(column for column in columns if _is_personal_column(column, hidden)):
        yield f"{STATISTICS} names the personal column '{column}'. The next run takes it out; what was written stays in the log"
    if said is None:
        unsaid = sorted(column for column in _schema_column_names(action.said) if _is_personal_column(column, hidden))
        if unsaid:
            yield f"{STATISTICS} is not set, so that its personal column '{unsaid[0]}' gets into statistics. {_ANEW}"
    for column in sorted(name for name in action.said.get("partitionColumns") or () if _is_personal_column(name, hidden)):
        yield f"it is partitioned by the personal column '{column}'. {_ANEW}"


def _schema_column_names(said: Mapping[str, object]) -> list[str]:
    schema = json.loads(str(said.get("schemaString") or "{}"))
    return [str(field["name"]) for field in schema.get("fields", [])]


def _clustering_columns(said: Mapping[str, object]) -> list[str]:
    columns = json.loads(str(said.get("configuration") or "{}")).get("clusteringColumns", [])
    return [".".join(column) if isinstance(column, list) else str(column) for column in columns]


def _find_commit_problems(said: Mapping[str, object], hidden: set[str]) -> Iterator[str]:
    parameters = said.get("operationParameters")
    given: dict[str, object] = parameters if isinstance(parameters, dict) else {}
    for field in _CONDITIONS:
        for text in extract_condition_texts(given.get(field)):
            for column in find_compared_columns(text, hidden):
                yield (
                    f"the condition of a {said.get('operation')} names values of the personal column '{column}'. "
                    "Delete by a MERGE with a table of keys"
                )
    for field in ("zOrderBy", "clusterBy", "partitionBy"):
        for column in extract_condition_texts(given.get(field)):
            if _is_personal_column(column.strip("` "), hidden):
                yield f"its files were laid out by the personal column '{column}' ({field}). {_ANEW}"
    if said.get("userMetadata") and not _is_sluice_note(said["userMetadata"]):
        yield f"a {said.get('operation')} has a note that Sluice did not write; nobody knows what is in it"


def _is_sluice_note(note: object) -> bool:
    try:
        read = json.loads(str(note))
    except ValueError:
        return False
    return isinstance(read, dict) and "sluice" in read and set(read) <= MARK_FIELDS


_COLUMN = re.compile(r"`?([A-Za-z_][\w.]*)`?#\d+L?")
_PATH = re.compile(r"\$\.(\w+)")
_RESCUED_FIELD = re.compile(
    r"get_json_object\(((?:\w+\.)?_rescued_data#\d+L?), concat\(\$\[', static_invoke\(JsonExpressionUtils\.jsonObjectKeys\(\1\)\)"
    r"\[cast\(\(array_position\(static_invoke\(JsonExpressionUtils\.jsonObjectKeys\(lower\(\1\)\)\), (\w+)\) - 1\) as int\)\], '\]\)\)"
)
"""As Spark prints what `sluice.declare.ingest.field_names` makes: a field's name and no value."""
_FUNCTION = re.compile(r"\b[A-Za-z_]\w*(?=\()")
_PARTS = re.compile(r"\s+(?:AND|OR)\s+", re.IGNORECASE)
_OPERATORS = re.compile(
    r"<=>|[<>!=]=?|[(),]|\b(?:NOT|IS|NULL|isnull|isnotnull|true|false|cast|as|string|int|bigint|coalesce)\b", re.IGNORECASE
)
_WORD = re.compile(r"[A-Za-z_]\w*")


def extract_condition_texts(said: object) -> Iterator[str]:
    """The conditions or columns in a commit's parameter: a text, or a list of texts or of objects with one, plain or as JSON."""
    if isinstance(said, str):
        try:
            read = json.loads(said)
        except ValueError:
            read = None
        if isinstance(read, list | dict):
            yield from extract_condition_texts(read)
        elif said.strip():
            yield said
    elif isinstance(said, dict):
        yield from extract_condition_texts(said.get("predicate"))
    elif isinstance(said, list):
        for one in said:
            yield from extract_condition_texts(one)


def find_compared_columns(text: str, hidden: set[str]) -> list[str]:
    """The personal columns that a condition compares with values. hidden: the personal columns, in lower case."""
    found = []
    for part in _PARTS.split(_RESCUED_FIELD.sub(r"get_json_object(\1, $.\2)", text)):
        named = (*_COLUMN.findall(part), *_PATH.findall(part))
        printed = [name for name in named if name.rpartition(".")[2].lower() in hidden]
        # In JSON, the path of a personal column is its name, not a value; the same holds for a function's name.
        rest = _FUNCTION.sub(" ", _COLUMN.sub(" ", _PATH.sub(lambda path: " " if path[1].lower() in hidden else path[0], part)))
        written = [word for word in _WORD.findall(rest) if word.lower() in hidden]
        for word in written:
            rest = re.sub(rf"(?:\w+\.)?`?\b{re.escape(word)}\b`?", " ", rest)
        if (printed or written) and _OPERATORS.sub(" ", rest).strip():
            found.append((printed or written)[0])
    return sorted(set(found))
