"""The options of CSV's dialect, each once: its name, its default and its check. `ingest.formats.csv_rows` says what they mean for text."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, fields
from typing import Any

USUAL_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""What parts fields in most files, and what it is called."""


@dataclass(frozen=True, kw_only=True)
class CsvDialect:
    """How text is written. An option that is added here is an argument of `Source`, an option of `autoload_to_table` and known to the scan.

    delimiter: what parts the fields of a row. quote: what stands around a field, doubled within. header: whether the first row names the
    columns. encoding: of any text, JSON and plain lines too.
    """

    delimiter: str = ","
    quote: str = '"'
    header: bool = True
    encoding: str = "utf-8"

    def find_dialect_mistake(self) -> str | None:
        """What of it is wrong, as a sentence."""
        if len(self.delimiter) != 1 or len(self.quote) != 1:
            return "delimiter and quote are one character each."
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            return f"unknown encoding '{self.encoding}'."
        return None

    def copy_dialect(self) -> CsvDialect:
        """The dialect alone, of whatever else has its options too: as a value that is passed on whole."""
        return CsvDialect(**{one.name: getattr(self, one.name) for one in fields(CsvDialect)})

    def list_changed_options(self) -> dict[str, Any]:
        """The options that are not as they are by themselves."""
        said = {one.name: getattr(self, one.name) for one in fields(CsvDialect)}
        return {one.name: said[one.name] for one in fields(CsvDialect) if said[one.name] != one.default}
