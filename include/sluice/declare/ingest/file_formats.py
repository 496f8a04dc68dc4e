"""How delivered files are written: their formats, one record each, with which module reads them; and the options of CSV's dialect, each once.

`ingest.formats.csv_rows` says what the dialect means for text.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass, fields
from typing import Any, Literal

FormatName = Literal["json", "csv", "parquet", "text", "binary"]


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """One format. A new one is one of these, its name in `FormatName`, and its module.

    module: of `sluice.ingest.formats`, which says there what such a module has. document_module: the same for records over many lines
    (`multi_line`); None: there are none. own_schema: DDL of the columns of its records; None: as delivered or declared. has_fields:
    a record has fields, one of which can be emptied. is_one_record: a file is one record, and goes as a whole. is_divisible: a
    file can be cut without a look at what comes before, at line ends or between row groups, and its module reads spans of it.
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
