"""Says what is wrong with the arguments of a call of a declaration, from its signature.

A hint about a wrong name looks among the arguments of Databricks before it looks for a similar one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, get_overloads

from sluice.errors import nearest_name_hint

_ARGUMENTS: Mapping[str, str] = MappingProxyType({"target": "name", "source": "reads", "partition_cols": "partition_by"})
"""By an argument of Databricks, the argument of Sluice's declarations."""
_UNKNOWN = re.compile(r"got an unexpected keyword argument '(\w+)'")


def hint_at_argument(name: str, valid: Iterable[str]) -> str:
    """A hint to append to a message about a wrong argument: what it is called here, the most similar one, or all."""
    names = set(valid)
    here = _ARGUMENTS.get(name)
    return f" Did you mean '{here}'?" if here in names else nearest_name_hint(name, names)


def list_needed_arguments(declaration: Callable[..., Any]) -> list[str]:
    """The arguments that every call must give. A declaration with overloads needs what its first overload does."""
    overloads = get_overloads(declaration) if inspect.isfunction(declaration) else []
    taken = inspect.signature(overloads[0] if overloads else declaration).parameters.values()
    return [one.name for one in taken if one.default is one.empty and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]


def describe_unknown_argument(called: str, name: str, known: Iterable[str]) -> str:
    """The sentence about an argument that a declaration does not have."""
    return f"{called} has no argument '{name}'.{hint_at_argument(name, known)}"


def describe_missing_arguments(called: str, missing: Iterable[str]) -> str:
    """The sentence about arguments that a declaration needs and a call does not give."""
    *others, last = missing
    return f"{called} needs {', '.join(others)}{' and ' if others else ''}{last}."


def describe_wrong_call(called: str, declaration: Callable[..., Any], said: str, decorates: bool) -> str:
    """The sentences about a call that Python refused. said: what Python says of its arguments; decorates: whether it is a decorator.

    A declaration whose attribute `usage` says how it is called is explained by that.
    """
    usage = getattr(declaration, "usage", None)
    if found := _UNKNOWN.match(said):
        wrong = describe_unknown_argument(called, found[1], inspect.signature(declaration).parameters)
    elif said.startswith("missing"):
        wrong = describe_missing_arguments(called, re.findall(r"'(\w+)'", said))
    elif usage is None:
        whole = f"{'@' if decorates else ''}{called}"
        needed = ", ".join(f'{name}="…"' for name in list_needed_arguments(declaration))
        return f"{whole} takes its arguments by name: {whole}({needed})."
    else:
        wrong = f"{called} {said}."
    return f"{wrong} {called} takes {usage.format(called)}" if usage else wrong
