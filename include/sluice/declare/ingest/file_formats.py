"""The formats of delivered files, one record each: what a declaration may say of them, and which module reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FormatName = Literal["json", "csv", "parquet", "text", "binary"]


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """One format. A new one is one of these, its name in `FormatName`, and its module.

    module: of `sluice.ingest.formats`, which says there what such a module has. document_module: the same for records over many lines
    (`multi_line`); None: there are none. own_schema: DDL of the columns of its records; None: as delivered or declared. has_fields:
    a record has fields, one of which can be emptied. is_one_record: a file is one record, and goes as a whole.
    """

    name: FormatName
    module: str
    document_module: str | None = None
    own_schema: str | None = None
    has_fields: bool = False
    is_one_record: bool = False


FILE_FORMATS: dict[str, FileFormat] = {
    one.name: one
    for one in (
        FileFormat(name="json", module="json_lines", document_module="json_documents", has_fields=True),
        FileFormat(name="csv", module="delimited", has_fields=True),
        FileFormat(name="parquet", module="columnar", has_fields=True),
        FileFormat(name="text", module="plain", own_schema="value STRING"),
        FileFormat(name="binary", module="binary", own_schema="content BINARY", is_one_record=True),
    )
}
