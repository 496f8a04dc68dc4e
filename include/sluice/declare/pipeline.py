"""What Airflow needs to know of a pipeline, and what its deliveries' maker gives back."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sluice.declare.names import own_name
from sluice.errors import DeclarationError

_INTERVAL = re.compile(r"\d+ (second|minute|hour|day|week)s?\Z")


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A pipeline by name. It names its layer modules; they are loaded on the Spark side only.

    schedule: a cron expression. publishes: tables that other DAGs may wait for. layers: importable modules, lowest first; the last
    part of a module's name is its layer. maker: the module behind `sluice land`. retain: how long removed data files are kept
    (an interval such as "7 days"): time travel reaches so far back, and an erased person's bytes are gone after it.
    """

    name: str
    description: str
    owner: str
    layers: tuple[str, ...]
    schedule: str = "0 2 * * *"
    publishes: tuple[str, ...] = ()
    maker: str | None = None
    retain: str = "7 days"

    def __post_init__(self) -> None:
        own_name(self.name, "Pipeline")
        if isinstance(self.layers, str) or not self.layers:
            raise DeclarationError(f"Pipeline '{self.name}': layers is a tuple of module names, lowest layer first.")
        if not _INTERVAL.match(self.retain):
            raise DeclarationError(f"Pipeline '{self.name}': retain is an interval such as '7 days', not '{self.retain}'.")
        if not self.description or not self.owner:
            raise DeclarationError(f"Pipeline '{self.name}': description and owner are shown in Airflow and may not be empty.")


@dataclass(frozen=True, kw_only=True)
class Landed:
    """What `sluice land` put into the landing folder. until: the label of the last day or instant that is landed now."""

    files: int
    deleted: int
    until: str
