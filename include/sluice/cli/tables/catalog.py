"""`sluice catalog`: registers tables in the catalog now, and lists those with a name and why others have none."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sluice.cli.name_lookup import select_pipelines
from sluice.cli.printing import AsJson, escaping_console, print_json, print_rows
from sluice.errors import SluiceError, UsageError
from sluice.lake.pipeline_lake import load_pipeline_lake
from sluice.settings import Settings


def catalog(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="PIPELINE", help="A folder of include/pipelines; all of them unless given.")
    ] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Also take over names of this pipeline's tables in another lake.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Register a pipeline's tables by name in the catalog of SLUICE_CATALOG. Every run does that too.

    This command also lists the names, and why other tables have none.
    """
    from sluice.catalogs.catalog import CatalogFailed
    from sluice.catalogs.registration import plan_catalog_names, register_pipeline
    from sluice.runs.execution import clones

    settings, rows = Settings.current(), []
    if settings.catalog is None:
        raise UsageError("No catalog is set, so that tables have no names in one. Set SLUICE_CATALOG=thrift://HOST:9083")
    for name in select_pipelines(settings, pipeline):
        lake = load_pipeline_lake(settings, name)
        clones.refuse_in_clone(lake.records, "The names are those of that lake.")
        plan = plan_catalog_names(lake)
        try:
            outcomes = register_pipeline(lake, _start_session_for_views(settings, bool(plan.views)), take_over, plan)
        except CatalogFailed as error:
            raise SluiceError(f"The catalog {settings.catalog} does not take names: {error}") from None
        rows += [{"name": f"{name}.{one.name}", "state": one.state, "why": one.why} for one in outcomes]
        rows += [{"name": f"{name}.{one}", "state": "no name", "why": why} for one, why in plan.left_out.items()]
    if as_json:
        print_json({"catalog": str(settings.catalog), "names": rows})
    else:
        escaping_console().print(f"{settings.catalog.kind.title} {settings.catalog}")
        print_rows(rows, ("name", "state", "why"))
    if any(row["state"] == "refused" for row in rows):
        raise typer.Exit(1)


def _start_session_for_views(settings: Settings, has_views: bool) -> Any:
    """The Spark session that finds the columns of views; None for a pipeline without views, which needs no Spark."""
    if not has_views:
        return None
    from sluice import session

    return session.start_spark_session(settings, "sluice catalog")
