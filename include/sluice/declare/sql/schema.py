"""`schema=`: DDL of a table's columns with NOT NULL, COMMENT and CHECK, split into what Spark reads and what is checked.

    device_id BIGINT NOT NULL COMMENT 'which device', heartrate DOUBLE CHECK (heartrate > 0), CONSTRAINT in_order CHECK (start < stop)

Also gives the columns of DDL text with their types in one spelling, to compare two schemas or look up a name without Spark.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from sluice.declare.quality.expectations import Action, Expectation
from sluice.declare.quoting import quote_identifier
from sluice.declare.sql.texts import (
    Part,
    Token,
    find_bracket_end,
    find_first_word,
    join_tokens,
    split_into_tokens,
    strip_blank_tokens,
    tokens_outside_brackets,
)
from sluice.errors import DeclarationError, nearest_name_hint
from sluice.settings import is_valid_name

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
class SchemaCheck:
    """A condition on each row. columns: the columns of the schema that it mentions."""

    name: str
    condition: str
    columns: frozenset[str]


@dataclass(frozen=True)
class SchemaText:
    """The parts of a `schema=`. ddl: the columns with NOT NULL and COMMENT, as Spark reads them."""

    ddl: str
    columns: tuple[str, ...]
    not_null: tuple[str, ...]
    checks: tuple[SchemaCheck, ...]

    def expectations(self, action: Action) -> tuple[Expectation, ...]:
        """Its NOT NULLs, named `not_null_<column>`, and its CHECKs, under their names, as expectations on single rows."""
        nulls = [
            SchemaCheck(not_null_rule_name(name), f"{quote_identifier(name)} IS NOT NULL", frozenset({name}))
            for name in self.not_null
        ]
        return tuple(Expectation(name=rule.name, condition=rule.condition, action=action) for rule in (*nulls, *self.checks))


def sql_literal(text: str) -> str:
    """A text as a SQL literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def not_null_rule_name(column: str) -> str:
    """The name of the rule that forbids NULL in a column."""
    return f"not_null_{_plain_identifier(column)}"


@cache
def split_schema_declaration(text: str, owner: str) -> SchemaText:
    """Splits a schema's DDL. owner: as in "Table 'heart_rate'". Raises DeclarationError that names the column that cannot be parsed."""
    columns: dict[str, str] = {}
    not_null: list[str] = []
    raw: list[tuple[str | None, str, str]] = []
    for part in _split_schema_parts(tuple(split_into_tokens(text)), owner):
        if not part:
            raise DeclarationError(f"{owner}: schema= has an empty part between two commas, or at its end.")
        if part[0].says("CHECK", "CONSTRAINT", *_ELSEWHERE) and not _is_column(part):
            raw += [(name, condition, "") for name, condition in _parse_checks(part, owner)]
            continue
        column, ddl, null, checks = _parse_column(part, owner)
        if column.lower() in {name.lower() for name in columns}:
            raise DeclarationError(f"{owner}: schema= names the column '{column}' twice.")
        columns[column] = ddl
        not_null += [column] if null else []
        raw += [(name, condition, column) for name, condition in checks]
    if not columns:
        raise DeclarationError(f"{owner}: schema= names no column, as in schema='device_id BIGINT NOT NULL, time DOUBLE'.")
    return SchemaText(", ".join(columns.values()), tuple(columns), tuple(not_null), _name_checks(raw, tuple(columns), owner))


def _split_schema_parts(found: Part, owner: str) -> list[Part]:
    """The parts between commas outside brackets. `<` is a bracket only within a type, not within a condition."""
    parts: list[list[Token]] = [[]]
    opened: list[str] = []
    for token in found:
        if token.says("(") or (token.says("<") and "(" not in opened):
            opened.append(token.text)
        elif token.says(")") or (token.says(">") and "(" not in opened):
            _close_bracket(opened, token.text, owner)
        if token.says(",") and not opened:
            parts.append([])
        else:
            parts[-1].append(token)
    if opened:
        raise DeclarationError(f"{owner}: schema= has a '{opened[-1]}' that is not closed.")
    return [strip_blank_tokens(tuple(part)) for part in parts]


def _close_bracket(opened: list[str], bracket: str, owner: str) -> None:
    if not opened or opened.pop() != {")": "(", ">": "<"}[bracket]:
        raise DeclarationError(f"{owner}: schema= has a '{bracket}' too many.")


def _is_column(part: Part) -> bool:
    """Whether a part that starts with a constraint keyword is a column of that name, as in "check BOOLEAN"."""
    words = [token for token in part if token.kind != "space"]
    return len(words) > 1 and words[1].text.upper() in _TYPES and not (len(words) > 2 and words[2].says("CHECK"))


def _parse_column(part: Part, owner: str) -> tuple[str, str, bool, list[tuple[str | None, str]]]:
    """A column's name, its DDL without checks, whether it is NOT NULL, and its checks."""
    if part[0].kind not in ("word", "name"):
        raise DeclarationError(
            f"{owner}: schema= has '{join_tokens(part)}' where a column and its type are expected, as in 'time DOUBLE'."
        )
    name, rest = part[0].identifier, strip_blank_tokens(part[1:])
    rest = strip_blank_tokens(rest[1:]) if rest and rest[0].says(":") else rest
    kind = rest[0].text.upper() if rest else ""
    if kind not in _TYPES:
        hint = f" has the unknown type '{rest[0].text}'.{nearest_name_hint(kind, _TYPES)}" if rest else " has no type."
        raise DeclarationError(f"{owner}: schema=: column '{name}'{hint}")
    end = find_first_word(rest, "CHECK", "CONSTRAINT")
    own, checks = rest[:end], _parse_checks(rest[end:], f"{owner}: schema=: column '{name}'") if end < len(rest) else []
    for token in tokens_outside_brackets(own):
        if token.text.upper() in _ELSEWHERE and token.kind == "word":
            raise DeclarationError(
                f"{owner}: schema=: column '{name}': {token.text} does not belong here: {_ELSEWHERE[token.text.upper()]}."
            )
    if _count_not_nulls(own) > _count_not_nulls(tokens_outside_brackets(own)):
        raise DeclarationError(
            f"{owner}: schema=: column '{name}': NOT NULL inside a type is not enforced; "
            f"write CHECK ({quote_identifier(name)}.field IS NOT NULL) after the column."
        )
    return name, f"{quote_identifier(name)} {join_tokens(own)}", _count_not_nulls(tokens_outside_brackets(own)) > 0, checks


def _parse_checks(part: Part, owner: str) -> list[tuple[str | None, str]]:
    """The names and conditions of one or several CHECK (...) or CONSTRAINT name CHECK (...)."""
    words, found, name = [*part], [], None
    while words := [*strip_blank_tokens(tuple(words))]:
        if words[0].says("CONSTRAINT"):
            words = [*strip_blank_tokens(tuple(words[1:]))]
            name = words.pop(0).identifier if words else ""
            words = [*strip_blank_tokens(tuple(words))]
        if words and words[0].text.upper() in _ELSEWHERE:
            raise DeclarationError(f"{owner}: {words[0].text} does not belong in schema=: {_ELSEWHERE[words[0].text.upper()]}.")
        after = [*strip_blank_tokens(tuple(words[1:]))] if words and words[0].says("CHECK") else []
        if not after or not after[0].says("("):
            raise DeclarationError(
                f"{owner}: '{join_tokens(part)}' is no check; write CHECK (condition) or CONSTRAINT name CHECK (condition)."
            )
        end = find_bracket_end(after)
        found.append((name, join_tokens(strip_blank_tokens(tuple(after[1 : end - 1])))))
        words, name = after[end:], None
    return found


def _name_checks(raw: Sequence[tuple[str | None, str, str]], columns: tuple[str, ...], owner: str) -> tuple[SchemaCheck, ...]:
    """The checks with names: their own, or `check_<column>`, or `check`, with a number if that is taken."""
    checks: dict[str, SchemaCheck] = {}
    for given, condition, column in raw:
        if given is not None and not is_valid_name(given):
            raise DeclarationError(f"{owner}: schema=: the check '{given}': a name is lower-case snake case, as in 'in_order'.")
        if (given is not None and given in checks) or not condition:
            raise DeclarationError(
                f"{owner}: schema= has " + (f"two checks named '{given}'." if condition else "a CHECK that says nothing.")
            )
        wanted = given or (f"check_{_plain_identifier(column)}" if column else "check")
        taken = (wanted if number == 1 else f"{wanted}_{number}" for number in range(1, len(raw) + 2))
        name = next(one for one in taken if one not in checks)
        words = {token.identifier.lower() for token in split_into_tokens(condition) if token.kind in ("word", "name")}
        checks[name] = SchemaCheck(name, condition, frozenset(one for one in columns if one.lower() in words))
    return tuple(checks.values())


def _count_not_nulls(found: Part) -> int:
    words = [token for token in found if token.kind != "space"]
    return sum(one.says("NOT") and two.says("NULL") for one, two in itertools.pairwise(words))


def _plain_identifier(name: str) -> str:
    return re.sub(r"\W", "_", name).lower()


_SAME_TYPE = {
    "integer": "int",
    "long": "bigint",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
}


def parse_column_types(ddl: str) -> dict[str, str]:
    """The type of each column by its name as written: in lower case, without comments, NOT NULL and layout."""
    found = {}
    for part in _split_columns(tuple(token for token in split_into_tokens(ddl) if token.kind != "space")):
        if part:
            found[part[0].identifier] = " ".join(_canonical_type_words(part[1:]))
    return found


def _split_columns(found: Part) -> list[Part]:
    """The parts between commas outside brackets. A quoted text is one token."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in found:
        depth += token.says("<", "(") - token.says(">", ")")
        if token.says(",") and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [tuple(part) for part in parts]


def _canonical_type_words(kind: Part) -> Iterator[str]:
    """The words and signs of a type in one spelling. The colon before a field's type is optional."""
    at = 0
    while at < len(kind):
        token, following = kind[at], kind[at + 1] if at + 1 < len(kind) else None
        if following and ((token.says("COMMENT") and following.kind == "text") or (token.says("NOT") and following.says("NULL"))):
            at += 2
            continue
        if not token.says(":"):
            word = token.identifier.lower()
            yield _SAME_TYPE.get(word, word) if token.kind == "word" else word
        at += 1
