"""`sluice land`: puts deliveries into the landing folder, by the function that the pipeline declares for it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sluice.cli.printing import PipelineName, escaping_console
from sluice.declare.assembly import loading
from sluice.locations import Location
from sluice.printable import count_noun
from sluice.settings import Settings


def land(
    pipeline: PipelineName,
    days: Annotated[int | None, typer.Option(help="How many days.", show_default=False)] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of the made-up deliveries.", show_default=False)] = None,
    scale: Annotated[float | None, typer.Option(help="The amount to make up; 1 is usual.", show_default=False)] = None,
    from_path: Annotated[
        Location | None, typer.Option("--from", help="The folder or archive to take real deliveries from.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="The day or instant to stop at.", show_default=False)] = None,
) -> None:
    """Put deliveries into the landing folder, made-up or real ones. The pipeline's maker decides which options it takes."""
    settings = Settings.current()
    maker = loading.load_delivery_maker(loading.load_pipeline_declaration(settings, pipeline))
    options = {"days": days, "seed": seed, "scale": scale, "from_path": from_path, "until": until}
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    landed = loading.make_deliveries(settings, pipeline, maker, given)
    gone = f", {landed.deleted:,} removed" if landed.deleted else ""
    escaping_console().print(
        f"Landed {count_noun(landed.files, 'file')}{gone}, up to {landed.until}: {settings.landing / pipeline}"
    )
