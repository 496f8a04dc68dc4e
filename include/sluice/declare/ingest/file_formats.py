"""The formats of delivered files, each with the module that reads it, and the options of a CSV dialect.

`ingest.formats.csv_rows` says what the dialect means for text.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass, fields
from typing import Any, Literal

FormatName = Literal["json", "csv", "parquet", "text", "binary"]


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """One format. To add one, write one of these, add its name to `FormatName`, and write its module.

    module: in `sluice.ingest.formats`, whose docstring says what such a module has. document_module: the module for records that span
    many lines (`multi_line`); None if the format has none. own_schema: DDL of the columns of its records; None if they are as delivered
    or declared. has_fields: a record has fields, and one of them can be emptied. is_one_record: a file is one record, and is removed as
    a whole. is_divisible: a file can be cut at line ends or between row groups without a look at what comes before, and its module
    reads spans of it.
    """

    name: FormatName
    module: str
    document_module: str | None = None
    own_schema: str | None = None
    has_fields: bool = False
    is_one_record: bool = False
    is_divisible: bool = False


FILE_FORMATS: dict[str, FileFormat] = {
    one.name: one
    for one in (
        FileFormat(name="json", module="json_lines", document_module="json_documents", has_fields=True, is_divisible=True),
        FileFormat(name="csv", module="delimited", has_fields=True),
        FileFormat(name="parquet", module="columnar", has_fields=True, is_divisible=True),
        FileFormat(name="text", module="plain", own_schema="value STRING", is_divisible=True),
        FileFormat(name="binary", module="binary", own_schema="content BINARY", is_one_record=True),
    )
}


USUAL_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""The delimiters that most files use, and what each is called."""


@dataclass(frozen=True, kw_only=True)
class CsvDialect:
    """How text is written. An option added here becomes an argument of `Source` and of `autoload_to_table`, and the scan knows it.

    delimiter: what separates the fields of a row. quote: the character around a field; within a field it is doubled. header: whether
    the first row names the columns. encoding: that of any text, including JSON and plain lines.
    """

    delimiter: str = ","
    quote: str = '"'
    header: bool = True
    encoding: str = "utf-8"

    def find_dialect_mistake(self) -> str | None:
        """Returns what is wrong with the dialect, as a sentence, or None."""
        if len(self.delimiter) != 1 or len(self.quote) != 1:
            return "delimiter and quote are one character each."
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            return f"unknown encoding '{self.encoding}'."
        return None

    def copy_dialect(self) -> CsvDialect:
        """Returns the dialect alone, without the other options of the object, as a value to pass on."""
        return CsvDialect(**{one.name: getattr(self, one.name) for one in fields(CsvDialect)})

    def list_changed_options(self) -> dict[str, Any]:
        """The options that differ from their defaults."""
        said = {one.name: getattr(self, one.name) for one in fields(CsvDialect)}
        return {one.name: said[one.name] for one in fields(CsvDialect) if said[one.name] != one.default}
