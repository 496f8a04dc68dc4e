"""Rule sets kept as data: a file with one rule per row, shared by many tables and edited by people who write no Python."""

from __future__ import annotations

import csv
import inspect
import io
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import FrameType
from typing import Any

from sluice.declare.quality.expectations import Action, Expectation, ExpectationDecorator
from sluice.errors import DeclarationError, nearest_name_hint

FIELDS = ("name", "condition", "action", "tags", "null_ok", "at_most")
_NEEDED = ("name", "condition", "action")
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False, "": False}


@dataclass(frozen=True)
class Rules:
    """A set of expectations read from a file. Its methods give decorators for a transform: `@RULES.tagged("validity")`.

    place: the file, as messages name it.
    """

    expectations: tuple[Expectation, ...]
    place: str = "rules"

    @classmethod
    def read(cls, path: str | Path) -> Rules:
        """Reads the rules of a .csv, .toml or .json file; a relative path is relative to the calling file.

        Each rule has a name, a condition and an action (warn, drop, quarantine or fail), and may have tags, null_ok and at_most. CSV: a
        header with these names; tags are separated by blanks. TOML: [[rules]]. JSON: a list of objects, or {"rules": [...]}.

        Raises DeclarationError that names the file and the rule.
        """
        caller = _find_calling_frame()
        found = Path(path) if caller is None or Path(path).is_absolute() else _folder_of_frame(caller) / path
        form = _FORMS.get(found.suffix)
        if form is None:
            raise DeclarationError(f"Rules '{path}': rules are kept as {', '.join(_FORMS)}, not as '{found.suffix}'.")
        content = _read_file_of_code(found, path, caller)
        if content is None:
            beside = [one.name for one in found.parent.glob("*") if one.suffix in _FORMS] if found.parent.is_dir() else []
            raise DeclarationError(f"Rules '{path}': there is no file {found}.{nearest_name_hint(found.name, beside)}")
        try:
            rules = tuple(_parse_rule(row, f"{found.name}, {where}") for where, row in form(found.name, content))
        except (csv.Error, UnicodeDecodeError, tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
            raise DeclarationError(f"Rules '{path}': the file cannot be read as {found.suffix[1:].upper()}: {error}.") from None
        return cls(rules, found.name)

    def __post_init__(self) -> None:
        names = [one.name for one in self.expectations]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise DeclarationError(f"Rules '{self.place}': two rules are named '{twice}'.")
        if not names:
            raise DeclarationError(f"Rules '{self.place}': there is no rule in it.")

    def all(self) -> ExpectationDecorator:
        """All rules."""
        return ExpectationDecorator(self.expectations)

    def tagged(self, *tags: str) -> ExpectationDecorator:
        """The rules with any of the tags, in the file's order. Raises DeclarationError for a tag that no rule has."""
        known = {tag for one in self.expectations for tag in one.tags}
        return ExpectationDecorator(self._chosen(tags, known, "tag", lambda one: bool(one.tags & set(tags))))

    def named(self, *names: str) -> ExpectationDecorator:
        """The rules with these names, in the file's order. Raises DeclarationError for a name that no rule has."""
        known = {one.name for one in self.expectations}
        return ExpectationDecorator(self._chosen(names, known, "name", lambda one: one.name in names))

    def _chosen(
        self, wanted: tuple[str, ...], known: set[str], what: str, fits: Callable[[Expectation], bool]
    ) -> tuple[Expectation, ...]:
        unknown = next((one for one in wanted if one not in known), None)
        if unknown is not None or not wanted:
            raise DeclarationError(
                f"Rules '{self.place}': no rule has the {what} '{unknown or ''}'.{nearest_name_hint(unknown or '', known)}"
            )
        return tuple(one for one in self.expectations if fits(one))


def _parse_rule(row: Mapping[str, Any], where: str) -> Expectation:
    """Returns one rule. Raises DeclarationError with where it is in the file: a line, or the rule's number."""
    unknown = [name for name in row if name not in FIELDS]
    if unknown:
        raise DeclarationError(f"Rules '{where}': a rule has no '{unknown[0]}'.{nearest_name_hint(str(unknown[0]), FIELDS)}")
    missing = [name for name in _NEEDED if not isinstance(row.get(name), str) or not row[name].strip()]
    if missing:
        raise DeclarationError(f"Rules '{where}': the rule has no {missing[0]}; it needs {', '.join(_NEEDED)}, as texts.")
    action, actions = row["action"].strip().lower(), {one.value: one for one in Action}
    if action not in actions:
        raise DeclarationError(f"Rules '{where}': there is no action '{action}'.{nearest_name_hint(action, actions)}")
    try:
        return Expectation(
            name=row["name"].strip(),
            condition=row["condition"].strip(),
            action=actions[action],
            null_ok=_parse_truth_value(row.get("null_ok", False)),
            at_most=_parse_allowed_share(row.get("at_most")),
            tags=_parse_tags(row.get("tags", ())),
        )
    except DeclarationError as error:
        raise DeclarationError(f"Rules '{where}': {error}") from None


def _parse_truth_value(value: Any) -> bool:
    found = value if isinstance(value, bool) else _TRUTH.get(str(value).strip().lower())
    if found is None:
        raise DeclarationError(f"null_ok is true or false, not '{value}'.")
    return found


def _parse_allowed_share(value: Any) -> float | None:
    if value is None or value == "":
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise DeclarationError(f"at_most is a share of the rows, as in 0.02, not '{value}'.") from None


def _parse_tags(value: Any) -> frozenset[str]:
    found = value.split() if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not all(isinstance(tag, str) for tag in found):
        raise DeclarationError("tags are names: separated by blanks in CSV, a list of texts elsewhere.")
    return frozenset(found)


def _read_csv_rules(name: str, content: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    text = io.StringIO(content.decode("utf-8-sig"), newline="")
    reader = csv.DictReader(text, strict=True, skipinitialspace=True)
    for row in reader:
        where = f"line {reader.line_num}"
        if None in row or None in row.values():
            raise DeclarationError(
                f"Rules '{name}, {where}': the line has another number of cells than the header. "
                'A condition with a comma stands in double quotes, as in "heartrate BETWEEN 1 AND coalesce(most, 230)".'
            )
        yield where, row


def _read_toml_rules(name: str, content: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from _number_rules(name, tomllib.loads(content.decode("utf-8").replace("\r\n", "\n")))


def _read_json_rules(name: str, content: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from _number_rules(name, json.loads(content.decode("utf-8-sig")))


def _number_rules(name: str, document: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    rules = document.get("rules") if isinstance(document, dict) and set(document) == {"rules"} else document
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise DeclarationError(f"Rules '{name}': the file holds one list of rules, in TOML as [[rules]].")
    yield from ((f"rule {number}", rule) for number, rule in enumerate(rules, start=1))


_FORMS: dict[str, Callable[[str, bytes], Iterator[tuple[str, Mapping[str, Any]]]]] = {
    ".csv": _read_csv_rules,
    ".toml": _read_toml_rules,
    ".json": _read_json_rules,
}


def _find_calling_frame() -> FrameType | None:
    """The code that called `Rules.read`."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame


def _folder_of_frame(frame: FrameType) -> Path:
    file = Path(frame.f_code.co_filename)
    return (file.resolve() if file.is_file() else file.absolute()).parent


def _read_file_of_code(path: Path, asked: str | Path, caller: FrameType | None) -> bytes | None:
    """The bytes of a file, or None if there is none. asked: the caller's name for it, which may be relative to a module in a zip, as on a cluster."""
    try:
        package = caller.f_globals.get("__package__") if caller else None
        if path.exists() or not package or Path(asked).is_absolute():
            return path.read_bytes()
        return files(package).joinpath(str(asked)).read_bytes()
    except (OSError, KeyError):  # the latter is of a zip
        return None
