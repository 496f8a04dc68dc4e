"""Functions that records name as "module:function": each is loaded when it is called, so that reading the records loads none of their modules."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, ParamSpec, TypeVar, cast

from sluice.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class NamedFunction(Generic[P, R]):
    """A function that is named as text, with the types of its arguments and of its result. It is called like the function itself.

    text: as "module:function". Equal texts are equal functions.
    """

    text: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function, whose module is imported before. Raises what `load` and the function raise."""
        return self.load()(*args, **kwargs)

    def load(self) -> Callable[P, R]:
        """Returns the function. Raises UsageError if there is none of that name, and what its module raises when it is imported."""
        module, _, name = self.text.partition(":")
        if not module or not name:
            raise UsageError(f"'{self.text}' names no function: it is written as 'module:function'.")
        try:
            loaded = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise  # the module is there, and lacks a library
            raise UsageError(f"'{self.text}' names no function: there is no module '{error.name}'.") from None
        if not hasattr(loaded, name):
            raise UsageError(f"'{self.text}' names no function: the module has no '{name}'.")
        return cast("Callable[P, R]", getattr(loaded, name))
