"""`schema=`: DDL of a table's columns, with NOT NULL, COMMENT and CHECK, split into what Spark reads and what is checked.

device_id BIGINT NOT NULL COMMENT 'which device', heartrate DOUBLE CHECK (heartrate > 0), CONSTRAINT in_order CHECK (start < stop)
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from sluice.declare.quality.expectations import Action, Expectation
from sluice.declare.sql.tokens import Part, Token, first, inside, joined, outer, stripped, tokens
from sluice.errors import DeclarationError, nearest
from sluice.settings import is_name

_TYPES = frozenset((
    *(
        "BOOLEAN",
        "BYTE",
        "TINYINT",
        "SHORT",
        "SMALLINT",
        "INT",
        "INTEGER",
        "LONG",
        "BIGINT",
        "FLOAT",
        "REAL",
        "DOUBLE",
        "DEC",
        "DECIMAL",
        "NUMERIC",
    ),
    *(
        "STRING",
        "CHAR",
        "CHARACTER",
        "VARCHAR",
        "BINARY",
        "DATE",
        "TIME",
        "TIMESTAMP",
        "TIMESTAMP_LTZ",
        "TIMESTAMP_NTZ",
        "INTERVAL",
    ),
    *("ARRAY", "MAP", "STRUCT", "VARIANT", "GEOGRAPHY", "GEOMETRY"),
))
_ELSEWHERE = {
    "PRIMARY": "keys= says what identifies a row",
    "UNIQUE": "say it with @expect_unique",
    "FOREIGN": "say it with @expect_references",
    "REFERENCES": "say it with @expect_references",
    "DEFAULT": "the transform gives every value",
    "GENERATED": "the transform gives every value",
}


@dataclass(frozen=True)
class Check:
    """A condition on each row. columns: the words and names in it that are columns of the schema."""

    name: str
    condition: str
    columns: frozenset[str]


@dataclass(frozen=True)
class SchemaText:
    """What a `schema=` says. ddl: of the columns, with NOT NULL and COMMENT, as Spark reads it."""

    ddl: str
    columns: tuple[str, ...]
    not_null: tuple[str, ...]
    checks: tuple[Check, ...]

    def expectations(self, action: Action) -> tuple[Expectation, ...]:
        """Its NOT NULLs, as `not_null_<column>`, and its CHECKs, by their names, as rules for single rows."""
        nulls = [Check(null_check(name), f"{quoted(name)} IS NOT NULL", frozenset({name})) for name in self.not_null]
        return tuple(Expectation(name=rule.name, condition=rule.condition, action=action) for rule in (*nulls, *self.checks))


def quoted(name: str) -> str:
    """A column's name in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def null_check(column: str) -> str:
    """The name of the rule that a column is not NULL."""
    return f"not_null_{_plain(column)}"


@cache
def parsed(text: str, owner: str) -> SchemaText:
    """Split a schema's DDL. owner: as in "Table 'heart_rate'". Raises DeclarationError, naming the column, for what is not understood."""
    columns: dict[str, str] = {}
    not_null: list[str] = []
    raw: list[tuple[str | None, str, str]] = []
    for part in _parts(tuple(tokens(text)), owner):
        if not part:
            raise DeclarationError(f"{owner}: schema= has an empty part between two commas, or at its end.")
        if part[0].says("CHECK", "CONSTRAINT", *_ELSEWHERE) and not _is_column(part):
            raw += [(name, condition, "") for name, condition in _checks(part, owner)]
            continue
        column, ddl, null, checks = _column(part, owner)
        if column.lower() in {name.lower() for name in columns}:
            raise DeclarationError(f"{owner}: schema= names the column '{column}' twice.")
        columns[column] = ddl
        not_null += [column] if null else []
        raw += [(name, condition, column) for name, condition in checks]
    if not columns:
        raise DeclarationError(f"{owner}: schema= names no column, as in schema='device_id BIGINT NOT NULL, time DOUBLE'.")
    return SchemaText(", ".join(columns.values()), tuple(columns), tuple(not_null), _named(raw, tuple(columns), owner))


def _parts(found: Part, owner: str) -> list[Part]:
    """The parts between commas that stand in no brackets; `<` is a bracket in a type only, not in a condition."""
    parts: list[list[Token]] = [[]]
    opened: list[str] = []
    for token in found:
        if token.says("(") or (token.says("<") and "(" not in opened):
            opened.append(token.text)
        elif token.says(")") or (token.says(">") and "(" not in opened):
            _close(opened, token.text, owner)
        if token.says(",") and not opened:
            parts.append([])
        else:
            parts[-1].append(token)
    if opened:
        raise DeclarationError(f"{owner}: schema= has a '{opened[-1]}' that is not closed.")
    return [stripped(tuple(part)) for part in parts]


def _close(opened: list[str], bracket: str, owner: str) -> None:
    if not opened or opened.pop() != {")": "(", ">": "<"}[bracket]:
        raise DeclarationError(f"{owner}: schema= has a '{bracket}' too many.")


def _is_column(part: Part) -> bool:
    """Whether a part that starts with a word of constraints is a column of that name, as in "check BOOLEAN"."""
    words = [token for token in part if token.kind != "space"]
    return len(words) > 1 and words[1].text.upper() in _TYPES and not (len(words) > 2 and words[2].says("CHECK"))


def _column(part: Part, owner: str) -> tuple[str, str, bool, list[tuple[str | None, str]]]:
    """A column's name, its DDL without checks, whether it is NOT NULL, and its checks."""
    if part[0].kind not in ("word", "name"):
        raise DeclarationError(
            f"{owner}: schema= has '{joined(part)}' where a column and its type are expected, as in 'time DOUBLE'."
        )
    name, rest = part[0].identifier, stripped(part[1:])
    rest = stripped(rest[1:]) if rest and rest[0].says(":") else rest
    kind = rest[0].text.upper() if rest else ""
    if kind not in _TYPES:
        hint = f" has the unknown type '{rest[0].text}'.{nearest(kind, _TYPES)}" if rest else " has no type."
        raise DeclarationError(f"{owner}: schema=: column '{name}'{hint}")
    end = first(rest, "CHECK", "CONSTRAINT")
    own, checks = rest[:end], _checks(rest[end:], f"{owner}: schema=: column '{name}'") if end < len(rest) else []
    for token in outer(own):
        if token.text.upper() in _ELSEWHERE and token.kind == "word":
            raise DeclarationError(
                f"{owner}: schema=: column '{name}': {token.text} is not said here: {_ELSEWHERE[token.text.upper()]}."
            )
    if _nulls(own) > _nulls(outer(own)):
        raise DeclarationError(
            f"{owner}: schema=: column '{name}': NOT NULL inside a type is not enforced; "
            f"write CHECK ({quoted(name)}.field IS NOT NULL) after the column."
        )
    return name, f"{quoted(name)} {joined(own)}", _nulls(outer(own)) > 0, checks


def _checks(part: Part, owner: str) -> list[tuple[str | None, str]]:
    """The names and conditions of CHECK (...) and CONSTRAINT name CHECK (...), one or several after each other."""
    words, found, name = [*part], [], None
    while words := [*stripped(tuple(words))]:
        if words[0].says("CONSTRAINT"):
            words = [*stripped(tuple(words[1:]))]
            name = words.pop(0).identifier if words else ""
            words = [*stripped(tuple(words))]
        if words and words[0].text.upper() in _ELSEWHERE:
            raise DeclarationError(f"{owner}: {words[0].text} is not said in schema=: {_ELSEWHERE[words[0].text.upper()]}.")
        after = [*stripped(tuple(words[1:]))] if words and words[0].says("CHECK") else []
        if not after or not after[0].says("("):
            raise DeclarationError(
                f"{owner}: '{joined(part)}' is no check; write CHECK (condition) or CONSTRAINT name CHECK (condition)."
            )
        end = inside(after)
        found.append((name, joined(stripped(tuple(after[1 : end - 1])))))
        words, name = after[end:], None
    return found


def _named(raw: Sequence[tuple[str | None, str, str]], columns: tuple[str, ...], owner: str) -> tuple[Check, ...]:
    """Checks with names: their own, or `check_<column>`, or `check`, with a number where that is taken."""
    checks: dict[str, Check] = {}
    for given, condition, column in raw:
        if given is not None and not is_name(given):
            raise DeclarationError(f"{owner}: schema=: the check '{given}': a name is lower-case snake case, as in 'in_order'.")
        if (given is not None and given in checks) or not condition:
            raise DeclarationError(
                f"{owner}: schema= has " + (f"two checks named '{given}'." if condition else "a CHECK that says nothing.")
            )
        wanted = given or (f"check_{_plain(column)}" if column else "check")
        taken = (wanted if number == 1 else f"{wanted}_{number}" for number in range(1, len(raw) + 2))
        name = next(one for one in taken if one not in checks)
        words = {token.identifier.lower() for token in tokens(condition) if token.kind in ("word", "name")}
        checks[name] = Check(name, condition, frozenset(one for one in columns if one.lower() in words))
    return tuple(checks.values())


def _nulls(found: Part) -> int:
    words = [token for token in found if token.kind != "space"]
    return sum(one.says("NOT") and two.says("NULL") for one, two in itertools.pairwise(words))


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name).lower()
