"""What Airflow needs to know about a pipeline (`Pipeline`), what the maker of its deliveries returns (`Landed`), and how it delivers a file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, get_args

from sluice.declare.field_values import check_declared_name, check_field_types, check_names
from sluice.errors import DeclarationError
from sluice.locations import Location, is_on_disk
from sluice.pipeline_stages import names_no_layer_may_have

Stages = Literal["apart", "together"]

_INTERVAL = re.compile(r"\d+ (second|minute|hour|day|week)s?\Z")
_INTERVALS = {
    "retain": "7 days",
    "vacuum_waits": "30 days",
    "keep_quarantine": "90 days",
    "keep_late": "90 days",
    "erase_within": "30 days",
    "deadline": "6 hours",
    "freshness": "6 hours",
}
"""Options that are intervals, each with one as it is written."""
_BELOW_A_ROOT = re.compile(r"(lake|restricted|landing|released)(/[^/]+)+\Z")
_TABLE_AND_RULE = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*\Z")


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A pipeline and its options. It names its layer modules without importing them; only the Spark side loads them.

    schedule: a cron expression. publishes: tables that other DAGs may wait for. layers: importable modules, lowest first; the last
    part of a module's name is its layer. stages: "apart": each layer is a task of the DAG, with a Spark of its own. "together": one task
    brings all layers up to date in one Spark, which is cheaper; the run ledger has them apart all the same. maker: the module behind
    `sluice land`. retain: how long removed data files are kept (an interval such as "7 days"): time travel reaches this far back, and an
    erased person's bytes are gone after it. vacuum_waits: how long VACUUM keeps files that a flow has yet to read, or that a shallow
    clone reads; after that the flow starts over from its inputs as they are then, and the clone is broken. None: for ever.
    keep_quarantine, keep_late: how long rows stay that were quarantined, or that came too late for a stream; None: for ever.
    erase_within: how long after its receipt an erasure must be proved. also_here: what lies below the pipeline's folders without a
    declaration, such as "lake/by_hand", "restricted/old_keys", "landing/notes.txt" or "released/readme": certificates name it as an
    exception, and anything else without a declaration makes them INCONCLUSIVE.

    Three options send an alert when they are exceeded. deadline: how long a run may take from the moment it is queued. freshness: how
    old the latest data of a published table may be. alert_when: how many rows may fail a rule in one run, by "table.rule", as in
    {"heart_rate.plausible_heart_rate": 100}; instead of a rule, quarantined, dropped, rescued or suppressed may be named.

    roles: the readers who have `role_view`s, each with its purpose, as in {"analyst": "counts and averages, nobody's data"}.

    canonical: for each domain of identifiers, the form in which they are compared: "text" (unchanged), "lower" (for e-mail addresses),
    "digits" or "hex"; see `treat.Hmac`. Erasures, the suppression list, links and requests all use it. Where `treat.hmac(canonical=)`
    already makes pseudonyms of a domain, its form holds and need not be repeated here.
    """

    name: str
    description: str
    owner: str
    layers: tuple[str, ...]
    stages: Stages = "apart"
    schedule: str = "0 2 * * *"
    publishes: tuple[str, ...] = ()
    maker: str | None = None
    retain: str = "7 days"
    vacuum_waits: str | None = None
    keep_quarantine: str | None = None
    keep_late: str | None = None
    erase_within: str = "30 days"
    also_here: tuple[str, ...] = ()
    deadline: str | None = None
    freshness: str | None = None
    alert_when: Mapping[str, float] = field(default_factory=dict, hash=False)
    roles: Mapping[str, str] = field(default_factory=dict, hash=False)
    canonical: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_declared_name(self.name, "Pipeline")
        check_field_types(self, f"Pipeline '{self.name}'", {name: repr(example) for name, example in _INTERVALS.items()})
        object.__setattr__(self, "publishes", check_names(self.publishes, "publishes", f"Pipeline '{self.name}'"))
        for role in self.roles:
            check_declared_name(role, "Role")
        if isinstance(self.layers, str) or not self.layers:
            raise DeclarationError(f"Pipeline '{self.name}': layers is a tuple of module names, lowest layer first.")
        self._check_layer_names()
        self._check_schedule()
        if self.stages not in get_args(Stages):
            raise DeclarationError(f"Pipeline '{self.name}': stages is 'apart' or 'together', not {self.stages!r}.")
        for name, example in _INTERVALS.items():
            if (value := getattr(self, name)) is not None and not is_interval(value):
                raise DeclarationError(f"Pipeline '{self.name}': {name} is an interval such as '{example}', not '{value}'.")
        object.__setattr__(self, "also_here", check_names(self.also_here, "also_here", f"Pipeline '{self.name}'"))
        self._check_further_roots()
        self._check_alert_limits()
        if not self.description or not self.owner:
            raise DeclarationError(f"Pipeline '{self.name}': description and owner are shown in Airflow and may not be empty.")

    def _check_layer_names(self) -> None:
        for position, name in enumerate(self.layer_names):
            if name in names_no_layer_may_have():
                raise DeclarationError(
                    f"Pipeline '{self.name}': a layer may not be called '{name}', because that name is taken. Rename its module: the last part "
                    f"of a module's name is its layer's. Names that no layer may have: {', '.join(sorted(names_no_layer_may_have()))}."
                )
            if name in self.layer_names[:position]:
                raise DeclarationError(f"Pipeline '{self.name}': two layers are called '{name}'. Rename one of the modules.")

    def _check_schedule(self) -> None:
        # Loaded here: executors load declarations of tables, and may lack it.
        from croniter import croniter  # type: ignore[import-untyped]  # it ships no types

        if self.schedule == "@quarterly":  # Airflow knows it, and croniter does not
            object.__setattr__(self, "schedule", "0 0 1 */3 *")
        if not isinstance(self.schedule, str) or not croniter.is_valid(self.schedule):
            raise DeclarationError(
                f"Pipeline '{self.name}': schedule '{self.schedule}' is no cron expression such as '0 2 * * *' or '@daily'."
            )

    def _check_further_roots(self) -> None:
        for path in self.also_here:
            if not _BELOW_A_ROOT.match(path) or ".." in path.split("/"):
                raise DeclarationError(
                    f"Pipeline '{self.name}': also_here takes paths below its folders, as in 'lake/by_hand' or 'restricted/old_keys', not '{path}'."
                )

    def _check_alert_limits(self) -> None:
        for rule, most in self.alert_when.items():
            if not _TABLE_AND_RULE.match(rule) or most < 0:
                raise DeclarationError(
                    f"Pipeline '{self.name}': alert_when says how many rows may fail a rule, as in "
                    f"{{'heart_rate.plausible_heart_rate': 100}}, not {{'{rule}': {most}}}."
                )

    @property
    def layer_names(self) -> tuple[str, ...]:
        """The names of its layers, lowest first. Each layer is a stage of a run."""
        return tuple(layer.rsplit(".", 1)[-1] for layer in self.layers)


def is_interval(text: str) -> bool:
    """Returns whether the text is an interval such as "6 hours"."""
    return _INTERVAL.match(text) is not None


def parse_duration(interval: str) -> timedelta:
    """The duration that an interval such as "6 hours" stands for."""
    number, unit = interval.split()
    return timedelta(**{unit.rstrip("s") + "s": int(number)})


@dataclass(frozen=True, kw_only=True)
class Landed:
    """What `sluice land` put into the landing folder. until: the label of the last day or instant that has been landed."""

    files: int
    deleted: int
    until: str


def deliver_file(target: Location, content: bytes, at: datetime | None = None) -> None:
    """Writes a file so that nobody sees half of it, and replaces an existing one.

    at: its modification time. A store sets the time of an object itself.
    """
    if not is_on_disk(target):
        target.write_bytes(content)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.part")  # a name that no source takes
    partial.write_bytes(content)
    if at is not None:
        os.utime(partial, (at.timestamp(), at.timestamp()))
    partial.replace(target)
