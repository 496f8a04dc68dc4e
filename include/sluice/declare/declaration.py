"""What the engine asks of any declaration, and the answer of a kind that has nothing of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Self

from sluice.declare.kinds import DatasetKind
from sluice.declare.recorded_declarations import find_loading_module


class Declaration:
    """What the engine asks of any declaration, with the default for kinds that lack it. The class of each kind overrides what it has.

    These are class attributes, not fields, so that the repr and the fingerprint of a declaration hold only what its own kind declares.
    The classes that have them as fields explain them.
    """

    kind: ClassVar[DatasetKind]
    name: str
    reads: tuple[str, ...]
    declared_in: str = ""
    declared_at: str = ""
    """The file and the line that declare it; "" for a copy, and for what is declared outside of a file that is loaded."""
    comment: str = ""
    subject: str | None = None
    subject_at: str | None = None
    expectations: tuple[Any, ...] = ()
    # Attributes of sources.
    into: str | None = None
    domain: str = ""
    subject_in: str | None = None
    also_subjects: tuple[Any, ...] = ()
    free_text: tuple[str, ...] = ()
    may_refresh: bool = True
    # Said of what is made of sources.
    keys: tuple[str, ...] = ()
    zorder_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    layout: Any = None
    asked_by: tuple[str, ...] = ()
    table_expectations: tuple[Any, ...] = ()
    treatments: Mapping[str, Any] = MappingProxyType({})
    record_path: str | None = None
    serves: str | None = None
    restricted: bool = False
    apply_as_deletes: str | None = None
    shape: Callable[..., Any] | None = None
    on_erasure: str = "delete"
    of_some: Callable[..., Any] | None = None
    at_least: int | None = None
    closes_when_idle: str | None = None

    def fill_from_function(self, function: Callable[..., Any]) -> None:
        """Takes what a frozen declaration does not say from the function that it was made of: its comment, and the module that declares it."""
        object.__setattr__(self, "comment", self.comment or inspect.getdoc(function) or "")
        object.__setattr__(self, "declared_in", self.declared_in or find_loading_module() or function.__module__)

    @property
    def module(self) -> str:
        """The module that declares it."""
        return self.declared_in

    @property
    def label(self) -> str:
        """How a message that begins with it names it."""
        return f"{self.kind.label} '{self.name}'"

    @property
    def mention(self) -> str:
        """How a message names it within a sentence. A table that Sluice keeps for another is named by the table it serves."""
        return f"{self.kind.noun} '{self.serves or self.name}'"

    @property
    def table(self) -> str:
        """The name of the table that its rows go into."""
        return self.name

    @property
    def folded_source(self) -> str | None:
        """The source whose rows it holds one to one, so that erasure removes rows from it. None if it just follows the tables it reads."""
        return None

    @property
    def ddl(self) -> str | None:
        """The declared columns of its deliveries, as DDL text."""
        return None

    @property
    def needed_secrets(self) -> tuple[str, ...]:
        """The names of the secrets that reading it needs."""
        return ()

    @property
    def late(self) -> str | None:
        """The name of the table that keeps the rows that came too late."""
        return None

    @property
    def may_be_late(self) -> bool:
        """Whether rows can come too late for it."""
        return False

    def find_layer_module(self, layers: Sequence[str]) -> str:
        """Returns the module of its layer. layers: the layer modules of its pipeline, the sources' first."""
        return self.module

    def name_flow(self, layer: str) -> str:
        """Returns the name of its flow in checkpoints, commits and reports. layer: the name of its layer."""
        return f"{layer}_{self.name}"

    def add_personal_columns(self, inherited: frozenset[str]) -> Self:
        """Returns it with the personal columns it inherits by name from its inputs. Raises DeclarationError as its constructor does."""
        return self

    def over(self, present: Iterable[str]) -> Self | None:
        """Returns it reduced to those of its inputs that exist. None if it has to wait for one."""
        return self
