"""The mistakes in a source's declaration that can be found without any data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from sluice.declare.ingest.file_formats import FILE_FORMATS
from sluice.declare.ingest.new_objects import find_new_objects_mistake
from sluice.errors import DeclarationError, nearest_name_hint
from sluice.stores.opening import find_url_scheme

if TYPE_CHECKING:
    from sluice.declare.ingest.source import Source

DATE_PARTS = {"%Y": r"\d{4}", "%m": r"\d{2}", "%d": r"\d{2}", "%H": r"\d{2}", "%j": r"\d{3}"}
"""The parts that a date in a path may have, as `strptime` names them, each with the pattern it matches."""

Evolution = Literal["add_new_columns", "rescue", "fail_on_new_columns", "none"]
Redelivery = Literal["append", "replace"]
CleanSource = Literal["keep", "archive", "delete"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "format": tuple(FILE_FORMATS),
    "redelivery": get_args(Redelivery),
    "schema_evolution": get_args(Evolution),
    "clean_source": get_args(CleanSource),
}
_OF_AUTO_LOADER = {"MOVE": "archive", "DELETE": "delete", "OFF": "keep"}
"""What Auto Loader calls the choices of clean_source."""
_AT_LEAST_ONE = ("max_files_per_trigger", "max_bytes_per_trigger", "most_bytes", "most_growth", "most_columns")


def check_source_options(source: Source) -> None:
    """Raises DeclarationError for the first mistake."""
    mistake = _find_source_mistake(source)
    if mistake:
        raise DeclarationError(f"Source '{source.name}': {mistake}")
    if source.date_in_path is not None:
        _check_date_format(source.name, source.date_in_path)


def _find_source_mistake(source: Source) -> str | None:
    return (
        _find_value_mistake(source)
        or _find_location_mistake(source)
        or find_new_objects_mistake(source)
        or _find_subject_option_mistake(source)
        or source.find_dialect_mistake()
        or _find_multi_line_mistake(source)
        or _find_schema_option_mistake(source)
    )


def _find_value_mistake(source: Source) -> str | None:
    """Checks the options that take one of a few words, or a number."""
    for field, known in _CHOICES.items():
        said = getattr(source, field)
        if said not in known:
            return f"unknown {field} '{said}'.{_hint_at_choice(str(said), known)}"
    for field in _AT_LEAST_ONE:
        if getattr(source, field) is not None and getattr(source, field) < 1:
            return f"{field} is at least 1."
    if source.clean_after_days < 0:
        return "clean_after_days is 0 or more."
    return None


def _hint_at_choice(said: str, known: tuple[str, ...]) -> str:
    here = _OF_AUTO_LOADER.get(said.upper())
    return f" (Auto Loader's {said} is '{here}' here.)" if here in known else nearest_name_hint(said, known)


def _find_location_mistake(source: Source) -> str | None:
    """Checks where its files lie, how they are named, which date they have and where their records go."""
    if find_url_scheme(source.path):
        return "path is a folder below <landing>/<pipeline>/, no URL. The landing folder may be one: set SLUICE_LANDING to s3://BUCKET/FOLDER."
    if source.path.startswith("/") or ".." in source.path.split("/"):
        return f"path is a folder below <landing>/<pipeline>/, not '{source.path}'."
    if sign := next((sign for sign in "/{" if sign in source.pattern), None):
        return (
            f"pattern '{source.pattern}' has a '{sign}': it is of file names, not paths, with *, ? and [ab]. Sub-folders of path are "
            "searched anyway; for {a,b} declare a source for each (into= one table), or one pattern that fits both."
        )
    if source.date_in_path and source.dated_by:
        return "date_in_path or dated_by says the date, not both."
    if source.into == source.name:
        return "into names the source itself."
    return None


def _find_subject_option_mistake(source: Source) -> str | None:
    """Checks the options that say whom its records are about."""
    said = next((name for name in ("domain", "subject_in", "subject_at") if getattr(source, name)), None)
    if source.subject is None and said:
        return f"{said} needs a subject; declare its column (subject=)."
    if source.subject_in and not source.domain:
        return "subject_in needs the kind of identifier that it gives (domain=), as in domain='user_id'."
    for one in source.also_subjects:
        if len(one) != 2 or not all(isinstance(part, str) for part in one) or not one[0]:
            return "also_subjects takes columns, or pairs of a column and a domain, as in ('committer', ('reviewer', 'login'))."
    return None


def _find_multi_line_mistake(source: Source) -> str | None:
    if source.multi_line and FILE_FORMATS[source.format].document_module is None:
        return "multi_line is for format 'json'; a CSV field may hold line ends anyway."
    return None


def _find_schema_option_mistake(source: Source) -> str | None:
    if source.schema and source.schema_hints:
        return "schema_hints are for a schema that is inferred; with schema=, write the types there."
    if FILE_FORMATS[source.format].own_schema and (source.schema or source.schema_hints):
        return f"format '{source.format}' has a schema of its own."
    if source.widen_types and not source.infer_types:
        return "widen_types does nothing where every column is a STRING (infer_types=False)."
    return None


def _check_date_format(source: str, text: str) -> None:
    parts = [part for part in DATE_PARTS if part in text]
    unknown = [text[at : at + 2] for at, sign in enumerate(text) if sign == "%" and text[at : at + 2] not in DATE_PARTS]
    if (
        unknown
        or len(set(parts)) != text.count("%")
        or not {"%Y"} <= set(parts)
        or not ({"%m", "%d"} <= set(parts) or "%j" in parts)
    ):
        raise DeclarationError(
            f"Source '{source}': date_in_path '{text}' is no date format. Write it with %Y, %m and %d (or %j), and %H; each once."
        )
