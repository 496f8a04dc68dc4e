"""Records which columns of bronze a silver table reads, and of which types they are.

Which columns these are is worked out from the plan only after the transform or bronze's columns have changed: it takes longer than a run that
has nothing to fold.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint
from sluice.declare.datasets.tables import AnyTable
from sluice.declare.ingest.source import Source
from sluice.flows import plans
from sluice.flows.placeholders import identify_placeholder, make_empty_placeholder
from sluice.flows.progress.checkpoints import record_read_types
from sluice.flows.progress.flow_memory import ReadTypes, read_flow_memory
from sluice.flows.silver.judged_rows import transform_source_rows
from sluice.lake import log, table_frames
from sluice.lake.workspace import Workspace
from sluice.privacy import anonymised
from sluice.quality import verdicts

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def record_read_columns(workspace: Workspace, table: AnyTable, source: Source) -> None:
    """Records the types of today. Call it after the flow's checkpoint was opened: a flow that starts anew forgets what was recorded."""
    flow, path = workspace.graph.flow_name(table), workspace.path(source.name)
    folder, types = workspace.checkpoints(flow), log.read_column_types(path)
    known = json.dumps([compute_declaration_fingerprint(table), types], sort_keys=True)
    mark = hashlib.sha256(known.encode()).hexdigest()
    memory = read_flow_memory(folder, flow)
    if memory is None or memory.read_types.mark != mark:
        bronze = anonymised.bronze_rows_for_table(table, table_frames.read_table(workspace.session, path))
        read = _find_read_columns(workspace, table, bronze.schema)
        record_read_types(folder, flow, ReadTypes(mark, {name: types[name] for name in sorted(read) if name in types}))


def _find_read_columns(workspace: Workspace, table: AnyTable, bronze: StructType) -> set[str]:
    """Returns the columns of bronze that the table's rows and their verdicts are made from."""
    leaf = make_empty_placeholder(workspace.session, bronze)
    judged = verdicts.add_verdict_column(transform_source_rows(table, leaf), table.expectations)
    shaped = table.shape(judged) if table.shape else judged
    names = {identify_placeholder(leaf): table.name}
    return {*plans.find_used_types(plans.optimized_plan(shaped), names).get(table.name, {})}
