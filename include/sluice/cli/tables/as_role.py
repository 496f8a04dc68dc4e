"""`sluice sql --role`: a query of what a role may see, its views alone."""

from __future__ import annotations

from typing import Any

from sluice.cli.places import readable
from sluice.declare.assembly.graph import Graph
from sluice.errors import UsageError, nearest
from sluice.settings import Settings, pipeline_names


def asked(settings: Settings, role: str, text: str, as_of: str | None, limit: int) -> tuple[list[str], list[dict[str, Any]]]:
    """Columns and rows of a query, one row more than the limit where there are more.

    Raises UsageError for a role that no pipeline names, a query of anything but its views, and for earlier versions: an erased person is in them.
    """
    graphs = {name: graph for name in pipeline_names(settings) if (graph := readable(settings, name)) is not None}
    views = seen(graphs, role)
    if as_of is not None:
        raise UsageError("A role reads what is there now: --as-of and --role exclude each other.")
    from sluice.cli import spark
    from sluice.lake import computed
    from sluice.lake.sql_judgement import check_relations, frame_of_query, parse_query

    session = spark.session(settings, "sluice sql")
    query = parse_query(session, text)
    reads = check_relations(query, views, role)
    for graph in graphs.values():
        computed.register_views(session, settings, graph, reads)
    frame = frame_of_query(session, query, reads)
    return frame.columns, [dict(zip(frame.columns, row, strict=True)) for row in frame.limit(limit + 1).collect()]


def seen(graphs: dict[str, Graph], role: str) -> list[str]:
    """The views of a role, as <pipeline>.<view>. Raises UsageError for one that no pipeline names."""
    known = {name for graph in graphs.values() for name in graph.pipeline.roles}
    if role not in known:
        raise UsageError(f"No pipeline names a role '{role}'.{nearest(role, known)} Roles are named in Pipeline(roles=...).")
    return [
        f"{name}.{view}" for name, graph in graphs.items() for view, declared in graph.computed.items() if declared.role == role
    ]
