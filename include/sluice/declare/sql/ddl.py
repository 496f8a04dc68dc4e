"""The columns of DDL text, with their types in one spelling: to compare two schemas, or to ask for a name, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

from sluice.declare.sql.tokens import Part, Token, tokens

_SAME_TYPE = {
    "integer": "int",
    "long": "bigint",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
}


def column_types(ddl: str) -> dict[str, str]:
    """By name, as written, the type of each column: in lower case, without comments, NOT NULL and layout."""
    found = {}
    for part in _split(tuple(token for token in tokens(ddl) if token.kind != "space")):
        if part:
            found[part[0].identifier] = " ".join(_spelt(part[1:]))
    return found


def _split(found: Part) -> list[Part]:
    """The parts between commas that stand in no brackets. What stands in quotes is one token."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in found:
        depth += token.says("<", "(") - token.says(">", ")")
        if token.says(",") and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [tuple(part) for part in parts]


def _spelt(kind: Part) -> Iterator[str]:
    """The words and signs of a type, in one spelling. A colon before the type of a field may be left out."""
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
