"""Tables and views as OpenLineage describes them: name, version, columns with their lineage, counts, and what rules found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sluice import delta_log
from sluice.column_origins import Origin, TableOrigins
from sluice.declare.assembly.graph import Graph
from sluice.lake import commit_history, log
from sluice.lake.pipeline_lake import PipelineLake

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset

NAMESPACE = "sluice"
"""The namespace of all jobs and tables. A table is named <pipeline>.<table>, wherever its files lie."""
PRODUCER = "urn:sluice"


def describe_inputs(lake: PipelineLake, table: str) -> list[InputDataset]:
    """Describes a table's inputs, each in the version that its last commit notes, or in its present version."""
    from openlineage.client.event_v2 import InputDataset

    path = lake.path(table)
    commits = commit_history.read_commit_history(path, 1) if delta_log.is_delta_table(path) else []
    pinned: Mapping[str, int] = ((commits[0]["note"] or {}).get("inputs") or {}) if commits else {}
    found = []
    for name in lake.graph[table].reads:
        version = pinned.get(name, log.latest_table_version(lake.path(name)))
        found.append(InputDataset(NAMESPACE, name_dataset(lake.graph, name), facets=_describe_version(version)))
    return found


def describe_output(graph: Graph, flow: Mapping[str, Any], known: TableOrigins | None) -> OutputDataset:
    """Describes a table that a flow changed: its new version, its columns if they are known, and what was written."""
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset

    facets = _describe_version(flow["version_after"]) | (describe_columns(graph, known) if known is not None else {})
    files = flow["table_files"] or {}
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=flow["rows_out"], size=files.get("bytes"), fileCount=files.get("added"), producer=PRODUCER
    )
    name = name_dataset(graph, str(flow["flow"]))
    return OutputDataset(NAMESPACE, name, facets=facets, outputFacets={"outputStatistics": statistics})


def describe_columns(graph: Graph, known: TableOrigins) -> dict[str, Any]:
    """Describes the columns of a table or view, and what they come from."""
    from openlineage.client.facet_v2 import column_lineage_dataset, schema_dataset

    columns = [schema_dataset.SchemaDatasetFacetFields(name=one.name, type=one.type) for one in known.columns]
    origins = {
        one.name: column_lineage_dataset.Fields(
            inputFields=[_describe_origin(graph, origin, "DIRECT", one.treated is not None) for origin in one.origins]
        )
        for one in known.columns
        if one.origins
    }
    rows_by = [_describe_origin(graph, origin, "INDIRECT", False) for origin in known.rows_by]
    lineage = column_lineage_dataset.ColumnLineageDatasetFacet(fields=origins, dataset=rows_by, producer=PRODUCER)
    return {"schema": schema_dataset.SchemaDatasetFacet(fields=columns, producer=PRODUCER), "columnLineage": lineage}


def _describe_origin(graph: Graph, origin: Origin, kind: str, masked: bool) -> Any:
    from openlineage.client.facet_v2 import column_lineage_dataset

    way = column_lineage_dataset.Transformation(type=kind, subtype=origin.way.replace(" ", "_").upper(), masking=masked)
    name = name_dataset(graph, origin.table)
    return column_lineage_dataset.InputField(namespace=NAMESPACE, name=name, field=origin.column, transformations=[way])


def _describe_version(version: int | None) -> dict[str, Any]:
    from openlineage.client.facet_v2 import dataset_version_dataset

    if version is None:
        return {}
    return {"version": dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(version), producer=PRODUCER)}


def describe_rules(graph: Graph, flow: Mapping[str, Any]) -> InputDataset | None:
    """Describes what a table's rules found: by name, whether all rows met them and how many did not. None if it has no rules."""
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import data_quality_assertions_dataset

    declared = graph[str(flow["flow"])]
    counts: dict[str, int] = {rule.name: int(flow["rules"].get(rule.name, 0)) for rule in declared.expectations}
    counts |= {name: int(told["count"] or 0) if told["met"] is False else 0 for name, told in flow["table_rules"].items()}
    if not counts:
        return None
    assertions = [
        data_quality_assertions_dataset.Assertion(assertion=name, name=name, success=not count, actual=str(count))
        for name, count in counts.items()
    ]
    facet = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(assertions=assertions, producer=PRODUCER)
    name = name_dataset(graph, declared.name)
    facets = _describe_version(flow["version_after"])
    return InputDataset(NAMESPACE, name, facets=facets, inputFacets={"dataQualityAssertions": facet})


def name_dataset(graph: Graph, table: str) -> str:
    """Returns what events call a table, the table that a source goes into, or a view."""
    return f"{graph.pipeline.name}.{table if table in graph.computed else graph.table_of(table)}"
