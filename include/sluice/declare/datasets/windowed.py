"""`@windowed`: a stateful Spark stream, for those who want Spark's windows. The rows it leaves out are counted and kept.

A `@materialized_view` gives the same result and loses nothing; docs/streaming.md says when a stream is still the better choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from sluice.declare import kinds
from sluice.declare.datasets.dataset import Dataset, Names, Personal, split_personal_treatments
from sluice.declare.field_values import check_field_types, check_names
from sluice.declare.kinds import FlowKind
from sluice.declare.pipeline import is_interval
from sluice.declare.quality.expectations import P
from sluice.declare.recorded_declarations import watch_decorator
from sluice.declare.table_layout import Layout
from sluice.errors import DeclarationError, nearest_name_hint
from sluice.own_records import IDLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Output = Literal["append", "update", "complete"]
OUTPUTS = get_args(Output)


HEARTBEATS = "_idle"
"""The name under which a stream's heartbeats stand among its inputs."""


@dataclass(frozen=True)
class Watermark:
    """How late a row of an input may be: at most `delay` behind the latest instant seen so far in its column `time`."""

    time: str
    delay: str

    def __post_init__(self) -> None:
        check_field_types(self, f"Watermark('{self.time}')", {"delay": "'10 minutes'"})
        if not is_interval(self.delay):
            raise DeclarationError(f"Watermark('{self.time}'): delay is an interval such as '10 minutes', not '{self.delay}'.")


@dataclass(frozen=True, kw_only=True)
class Windowed(Dataset[P]):
    """A table that a stateful stream writes: the result of its transform over the new rows of its inputs, given as streams.

    The streams passed to the transform already have their watermarks. output: append writes a row once it is final, update writes a row
    whenever it changes, complete writes everything at each batch. watermarks: by input; they may be left out only for output complete,
    or for update if the state may grow with the keys. closes_when_idle: how long all inputs must have been quiet before open windows
    are closed.
    """

    kind: ClassVar[FlowKind] = kinds.WINDOWED_STREAM
    output: Output = "append"
    watermarks: Mapping[str, Watermark] = field(default_factory=dict, hash=False)
    closes_when_idle: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = f"Stream '{self.name}'"
        if self.output not in OUTPUTS:
            raise DeclarationError(f"{owner}: unknown output '{self.output}'.{nearest_name_hint(str(self.output), OUTPUTS)}")
        unknown = [name for name in self.watermarks if name not in self.reads]
        if unknown:
            raise DeclarationError(f"{owner}: watermark names '{unknown[0]}', which it does not read: {', '.join(self.reads)}.")
        lacking = [name for name in self.reads if name not in self.watermarks]
        if lacking and (self.output == "append" or len(self.reads) > 1):
            raise DeclarationError(
                f"{owner}: input '{lacking[0]}' has no watermark; without one nothing is ever final and the state grows for ever. "
                f"Say watermark={{'{lacking[0]}': Watermark('time', '10 minutes')}}."
            )
        if len(self.reads) > 1 and self.output != "append":
            raise DeclarationError(f"{owner}: a join of streams has output 'append'; a row that was joined never changes.")
        if self.closes_when_idle is not None and not (is_interval(self.closes_when_idle) and self.watermarks):
            raise DeclarationError(f"{owner}: closes_when_idle is an interval such as '1 hour', and needs a watermark.")

    @property
    def streamed_records(self) -> Mapping[str, str]:
        """The instants up to which it was closed while its inputs were idle."""
        return {HEARTBEATS: f"{IDLE.name}/{self.name}"} if self.closes_when_idle else {}

    def list_fingerprint_fields(self) -> tuple[object, ...]:
        """Returns what Spark's state depends on."""
        return (self.output, sorted((name, repr(one)) for name, one in self.watermarks.items()))

    @property
    def late(self) -> str:
        """The name of the table that keeps the rows that came too late."""
        return f"{self.name}_late"

    @property
    def may_be_late(self) -> bool:
        """Whether rows can come too late, or fall into no window.

        This includes output complete: the aggregation takes every row, but an operator before it may not.
        """
        return bool(self.watermarks)


AnyStream = Windowed[Any]


def windowed(
    *,
    reads: Names,
    keys: Names,
    output: Output = "append",
    watermark: Watermark | Mapping[str, Watermark] | None = None,
    closes_when_idle: str | None = None,
    zorder_by: Names = (),
    cluster_by: Names = (),
    asked_by: Names = (),
    partition_by: Names = (),
    layout: Layout | None = None,
    subject: str | None = None,
    personal: Personal = (),
    restricted: bool = False,
    name: str | None = None,
    comment: str = "",
) -> Callable[[Callable[P, DataFrame]], Windowed[P]]:
    """Declares the decorated transform as a stateful stream. See `Windowed` and `Dataset`.

    watermark: for the only input, or a mapping by input.
    """
    options: dict[str, Any] = {name: said for name, said in locals().items() if name not in ("watermark", "name", "personal")}
    read = check_names(reads, "reads", "A @windowed")
    given = watermark or {}
    options["watermarks"] = dict.fromkeys(read, given) if isinstance(given, Watermark) else dict(given)
    options |= {"reads": read, **split_personal_treatments(personal)}
    return watch_decorator(lambda function: Windowed(name=name or function.__name__, function=function, **options), "windowed")
