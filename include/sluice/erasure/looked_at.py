"""Up to where rows of bronze that ask for somebody's erasure were looked at, by declaration (`erasure_requests`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sluice.durable_files import KeptFileDamaged, load_kept_object, write_json_durably
from sluice.pipeline_records import PipelineRecords

_FILE = ".asked"
"""Beside the requests, whose files have no dot. `sluice.runs.due` reads it, too."""
State = dict[str, str]
"""path: where a bronze table lies, so that it can be asked without the declarations (`sluice.runs.due`); mark: see `log.table_change_mark`."""


def read_request_table_states(records: PipelineRecords) -> dict[str, Any]:
    """What each declaration had looked at, by its name."""
    path = _request_table_states_path(records)
    try:
        return load_kept_object(path, "where requests were looked for", "")
    except (FileNotFoundError, KeptFileDamaged):
        return {}  # everywhere is looked again


def write_request_table_states(records: PipelineRecords, states: Mapping[str, Any]) -> None:
    """Keep what was looked at, whole or not at all."""
    path = _request_table_states_path(records)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_durably(path, states)


def reset_request_table_states(records: PipelineRecords) -> None:
    """Let all rows be looked at anew: one of them may have been passed over for a request that is no more."""
    before = read_request_table_states(records)
    if before:
        write_request_table_states(records, {name: one | {"mark": ""} for name, one in before.items()})


def _request_table_states_path(records: PipelineRecords) -> Path:
    return Path(records.bookkeeping("erasure_requests")) / _FILE
