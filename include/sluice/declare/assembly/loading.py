"""Loads a pipeline's layer modules by name, and collects what they declare: held by a variable or not.

Also loads the maker of its deliveries and lets it land some. No other module does, and a DAG file never calls this one.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.declare.assembly.loading_errors import describe_databricks_name, describe_loading_error
from sluice.declare.declaration import Declaration
from sluice.declare.erasure.identifiers import ErasureRequests, Link
from sluice.declare.expansion import Declared
from sluice.declare.pipeline import Landed, Pipeline
from sluice.declare.quality.expectations import ExpectingTransform
from sluice.declare.recorded_declarations import list_lost_decorators, list_recorded_declarations, was_copied
from sluice.errors import DeclarationError, SluiceError, UsageError, nearest_name_hint
from sluice.settings import Settings, require_known_pipeline


def load_pipeline_declaration(settings: Settings, name: str) -> Pipeline:
    """Returns the PIPELINE that pipelines/<name>/pipeline.py declares. Raises UsageError for an unknown name."""
    module = _import_pipeline_module(f"pipelines.{require_known_pipeline(settings, name)}.pipeline", name)
    declared = getattr(module, "PIPELINE", None)
    if not isinstance(declared, Pipeline):
        raise DeclarationError(f"Pipeline '{name}': {module.__name__} has no PIPELINE = Pipeline(...).")
    if declared.name != name:
        raise DeclarationError(
            f"Pipeline '{name}': its PIPELINE is named '{declared.name}'; the folder and the name must be the same."
        )
    return replace(declared, retain=settings.retain) if settings.retain else declared


def load_declaration_graph(settings: Settings, name: str) -> Graph:
    """Returns a pipeline's checked declarations. Raises UsageError or DeclarationError."""
    declared = load_pipeline_declaration(settings, name)
    modules = [_import_pipeline_module(layer, name) for layer in (f"pipelines.{name}.pipeline", *declared.layers)]
    found = collect_declarations(modules, Declaration)
    refuse_lost_decorators(modules)
    refuse_unfinished_transforms(modules, found)
    return build_declaration_graph(
        declared,
        found,
        links=collect_declarations(modules, Link),
        asking=collect_declarations(modules, ErasureRequests),
    )


def find_sibling_declarations(module: str) -> list[Declared]:
    """Returns the declarations of a loaded module and, if it belongs to a pipeline, of the pipeline's other layers."""
    parts = module.split(".")
    names = [module]
    if parts[0] == "pipelines" and len(parts) > 2:
        names += _import_pipeline_module(f"pipelines.{parts[1]}.pipeline", parts[1]).PIPELINE.layers
    modules = [_import_pipeline_module(name, parts[-1]) for name in dict.fromkeys(names)]
    return prefer_held_declarations(modules, collect_declarations(modules, Declaration))


def load_delivery_maker(declared: Pipeline) -> ModuleType:
    """Returns the module behind `sluice land`. Raises UsageError if the pipeline names none."""
    if declared.maker is None:
        raise UsageError(f"Pipeline '{declared.name}' names no maker of deliveries; put files into its landing folder yourself.")
    return _import_pipeline_module(declared.maker, declared.name)


def check_delivery_maker(declared: Pipeline) -> None:
    """Raises DeclarationError if the module behind `sluice land` does not exist. It is not loaded: only `sluice land` needs what it imports."""
    name = declared.maker
    if name is not None and not _is_module(name):
        raise DeclarationError(f"Pipeline '{declared.name}'{_describe_missing_module(name, name)}")


def make_deliveries(settings: Settings, pipeline: str, maker: ModuleType, given: Mapping[str, Any]) -> Landed:
    """Lets a maker land. given: its options. Raises UsageError for one that it does not take, SluiceError if it does not say what it landed."""
    taken = [name for name, p in inspect.signature(maker.land).parameters.items() if p.kind is p.KEYWORD_ONLY]
    for name in given:
        if name not in taken:
            known = ", ".join(map(_option_flag, taken))
            raise UsageError(f"The maker of '{pipeline}' takes no {_option_flag(name)}. It takes: {known}.")
    landed = maker.land(settings.landing / pipeline, settings.truth / pipeline, **given)
    if not isinstance(landed, Landed):
        raise SluiceError(f"The maker of '{pipeline}' gave back no Landed(files, deleted, until).")
    return landed


def _option_flag(name: str) -> str:
    return f"--{name.removesuffix('_path')}"


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _import_pipeline_module(name: str, pipeline_name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise DeclarationError(f"Pipeline '{pipeline_name}'{_describe_missing_module(name, error.name or '')}") from None
    except SyntaxError as error:
        raise DeclarationError(f"Pipeline '{pipeline_name}': {error.filename}, line {error.lineno}: {error.msg}.") from None
    except Exception as error:
        raise DeclarationError(describe_loading_error(error, pipeline_name)) from error


def _describe_missing_module(name: str, missing: str) -> str:
    """The end of the message about a module that does not exist. name: the module to load; missing: that one, or one that it imports."""
    if f"{name}.".startswith(f"{missing}."):
        return f" names the module '{name}', which does not exist.{nearest_name_hint(name, _list_neighbours(name))}"
    elsewhere = describe_databricks_name(missing)
    return f": '{name}' imports '{missing}', which is not installed.{f' {elsewhere}' if elsewhere else ''}"


def _list_neighbours(name: str) -> list[str]:
    """The modules of the folder in which a module was sought."""
    folder = name.rpartition(".")[0]
    try:
        found = importlib.util.find_spec(folder) if folder else None
    except ModuleNotFoundError:
        return []
    return [f"{folder}.{one.name}" for one in pkgutil.iter_modules(found.submodule_search_locations or ())] if found else []


def collect_declarations(modules: Sequence[ModuleType], kind: type[Any]) -> list[Any]:
    """Returns the declarations of a kind that the modules made or hold, each once.

    What one of the modules declares and another imports is the first one's. What is imported from another package, for its function, is
    none of theirs, except a source, which says of no module that it declares it. A copy (`dataclasses.replace`) counts if a variable holds
    it; it takes the place of its original, and of the declaration of its name, that no variable holds.
    """
    recorded = {id(one): one for module in modules for one in list_recorded_declarations(module) if isinstance(one, kind)}
    names = {module.__name__ for module in modules}
    held = {
        id(one): one
        for module in modules
        for one in _list_held_values(module)
        if isinstance(one, kind) and _belongs_to(one, module.__name__, names)
    }
    copied = {(type(one), one.name) for key, one in held.items() if key not in recorded}
    original = {key for key, one in recorded.items() if was_copied(one) or (type(one), one.name) in copied}
    return [one for key, one in {**recorded, **held}.items() if key in held or key not in original]


def _belongs_to(declared: Any, holder: str, names: set[str]) -> bool:
    """Whether what a variable of a module holds is to be collected with it. holder: that module; names: all modules that are collected."""
    if declared.module in ("", holder):
        return True
    return declared.module not in names and _package_name(declared.module) in map(_package_name, names)


def _package_name(module: str) -> str:
    return module.rpartition(".")[0]


def prefer_held_declarations(modules: Sequence[ModuleType], declared: Sequence[Any]) -> list[Any]:
    """Leaves out what shares its name with a declaration that a variable holds.

    In a pipeline such names are a mistake. A test's file may declare others in passing, as in the parameters of a test.
    """
    held = {id(one) for module in modules for one in _list_held_values(module)}
    names = {one.name for one in declared if id(one) in held}
    return [one for one in declared if id(one) in held or one.name not in names]


def refuse_lost_decorators(modules: Sequence[ModuleType]) -> None:
    """Raises DeclarationError for a decorator that stands above no function: it declares nothing."""
    for called, called_at in (lost for module in modules for lost in list_lost_decorators(module)):
        by_sql = "" if called == "windowed" else ", or say sql='SELECT ...'"
        raise DeclarationError(
            f"{called_at}: {called}(...) declares nothing without a function: write @{called}(...) above one{by_sql}."
        )


def refuse_unfinished_transforms(modules: Sequence[ModuleType], declared: Iterable[Declaration]) -> None:
    """Raises DeclarationError for a function with expectations of which no table was made."""
    used = {id(getattr(one, "function", None)) for one in declared}
    for module in modules:
        for one in _list_held_values(module):
            if (
                isinstance(one, ExpectingTransform)
                and one.function.__module__ == module.__name__
                and id(one.function) not in used
            ):
                code = inspect.unwrap(one.function).__code__
                raise DeclarationError(
                    f"{code.co_filename}, line {code.co_firstlineno}: '{one.function.__name__}' has expectations, and no @table or "
                    "@materialized_view above them."
                )


def _list_held_values(module: ModuleType) -> Iterator[object]:
    """The values of a module's variables, and those in its lists, tuples and dicts."""
    for value in vars(module).values():
        yield from _contained_values(value)


def _contained_values(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else (value,)
