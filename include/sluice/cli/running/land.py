"""`sluice land`: puts deliveries into the landing folder, by the function that the pipeline declares for it."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from sluice.cli.printing import PipelineName, escaping_console
from sluice.declare import Landed
from sluice.declare.assembly import loading
from sluice.errors import SluiceError, UsageError
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
    taken = [name for name, p in inspect.signature(maker.land).parameters.items() if p.kind is p.KEYWORD_ONLY]
    for name in given:
        if name not in taken:
            raise UsageError(
                f"The maker of '{pipeline}' takes no {_option_flag(name)}. It takes: {', '.join(map(_option_flag, taken))}."
            )
    landed = maker.land(settings.landing / pipeline, settings.truth / pipeline, **given)
    if not isinstance(landed, Landed):
        raise SluiceError(f"The maker of '{pipeline}' gave back no Landed(files, deleted, until).")
    gone = f", {landed.deleted:,} removed" if landed.deleted else ""
    escaping_console().print(
        f"Landed {count_noun(landed.files, 'file')}{gone}, up to {landed.until}: {settings.landing / pipeline}"
    )


def _option_flag(name: str) -> str:
    return f"--{name.removesuffix('_path')}"
