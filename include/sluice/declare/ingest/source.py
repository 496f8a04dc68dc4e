"""A source: a folder that others deliver files into. Its bronze table has the same name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from sluice.declare import kinds
from sluice.declare.declaration import Declaration
from sluice.declare.field_values import add_parent_columns, check_declared_name, check_field_types, check_names, parse_byte_amount
from sluice.declare.ingest.file_formats import FILE_FORMATS, CsvDialect, FormatName
from sluice.declare.ingest.source_mistakes import CleanSource, Evolution, Redelivery, check_source_options
from sluice.declare.kinds import SourceKind
from sluice.declare.lazy_spark import write_schema_text
from sluice.declare.recorded_declarations import record_declaration
from sluice.declare.table_layout import Layout
from sluice.errors import DeclarationError
from sluice.own_records import DELIVERIES

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True, kw_only=True)
class _NamedFiles:
    """The first fields of a source. They must precede its dialect: fingerprints of transforms that name a source include its repr."""

    name: str
    format: FormatName = "json"
    path: str = ""
    comment: str = ""
    pattern: str = "*"
    multi_line: bool = False


@dataclass(frozen=True, kw_only=True)
class Source(CsvDialect, _NamedFiles, Declaration):
    """Deliveries of one kind of file. A name suffices: it reads JSON lines in <landing>/<pipeline>/<name>/, every field a column.

    What is read
        format: "json" (one object a line), "csv", "parquet", "text" (one row per line, column `value`) or "binary" (one row per file,
        column `content`). Files that end in .gz, .zst or .bz2 are decompressed. multi_line: JSON documents; each file is one object, an
        array of objects, or objects one after the other. delimiter, quote, header, encoding: see `CsvDialect`. A CSV file without a
        header has the columns that the schema names, else _c0, _c1, ...
        path: the folder below <landing>/<pipeline>/, by default the source's name; it is searched with its sub-folders. path_columns:
        `date=2026-11-20` in a path becomes a column `date` of its records.
        most_bytes: a file with more bytes than this after decompression is quarantined whole, as is one that decompression makes more
        than `most_growth` times larger. For Parquet, the limit applies to the memory its rows take, and a small file counts as 256 KB.

    What happens to it
        schema: DDL text or a StructType of the records' columns. None: it is inferred from the first deliveries and grows with later
        ones. schema_hints: DDL of columns whose type is not inferred. infer_types=False: every column is a STRING, as delivered.
        schema_evolution: what happens to a field that has no column yet. "add_new_columns" (default without a schema): it becomes a
        column in the same run, nested fields too. "rescue" (default with a schema): it goes to _rescued_data. "fail_on_new_columns":
        the run fails before it writes. "none": it is left out.
        widen_types: a column's type may grow (INT to BIGINT to DOUBLE, DATE to TIMESTAMP). Without it, and for every other change of
        type, a value that does not fit goes to _rescued_data. So does a field that begins with an underscore, unless schema or
        schema_hints name it. most_columns: how many columns a table may grow to, counting nested fields; further fields are rescued.
        into: the source whose bronze table the records go into, instead of one of their own.
        subject: the column that says whose record it is. personal: further columns with personal data. Both stay out of statistics.
        domain: the kind of identifier that the subject is, by default the subject's name; sources of one domain know a person by the
        same values. subject_in: if the subject is inside its column, as in a payload, the SQL expression over the columns that extracts
        the identifier, as in subject="value", subject_in="get_json_object(CAST(value AS STRING), '$.user_id')", domain="user_id"; use
        CASE topic WHEN to distinguish topics. subject_at: the time that a record is about, as an SQL expression over its columns that
        gives a TIMESTAMP; needed where identifiers change hands (`Link`).
        also_subjects: columns that identify people other than the subject, in the subject's domain or as (column, domain): "committer",
        ("reviewer", "login"). When such a person is erased, the cell becomes NULL in files and tables, and the record stays. free_text:
        text columns that may name anybody; a cell that names a person becomes NULL when that person is erased.
        dated_by, date_in_path: the date of a record as an SQL expression over its columns, or the date of a delivery as its file's path
        has it ("%Y%m%d" finds 20200420, "date=%Y-%m-%d" a folder). A backfill selects its interval by it; without either, by the time
        of delivery.
        keep_for: how long a record is kept, as an interval such as "400 days". Then its rows leave bronze, the quarantine and every
        table made from it, and do not come back. A record's age counts from subject_at, else from dated_by, one of which must be
        declared; if a record has no value there, from its arrival.
        may_refresh: `--mode refresh` may make bronze anew from the landing folder.

    Which files, and when
        pattern: the file names that count. ready_marker: files are read only once this marker stands beside them: "_SUCCESS" for a
        folder, "{name}.done" for each file. include_existing_files: whether files count that were there before the source's first run.
        allow_overwrites: whether a file that comes again is a new delivery. redelivery: what that means: "append" adds its records;
        "replace" makes the latest version of the file, by modification time, then content, replace all earlier ones.
        max_files_per_trigger, max_bytes_per_trigger: the most that a micro-batch takes, but always at least one file. Bytes are given
        as 500000000 or "500m"; the default is 1 GiB.
        clean_source: what happens to a file `clean_after_days` after its ingestion was committed: "keep", "archive" (moved below
        <landing>/<pipeline>/_archive/) or "delete".
        On a store, listing a million objects takes a thousand requests, so a run need not list all of them. names_grow=True: each new
        object's name follows all earlier names, so that only later names are listed. events: the address to which the store sends events of
        its objects, an SQS queue ("sqs://visits-events") or a folder ("folder://visits-events"); only objects that they name are
        examined. A full listing, which alone finds what was missed, happens at least every full_listing_every ("1 day" by default), and
        in each replay, refresh and erasure. A landing folder on a disk is always listed in full.

    layout: how the files of its bronze table are kept, if not by the defaults.
    """

    kind: ClassVar[SourceKind] = kinds.FILE_SOURCE
    reads = ()
    streamed_reads: ClassVar[tuple[str, ...]] = ()
    streamed_records: ClassVar[Mapping[str, str]] = MappingProxyType({DELIVERIES.name: DELIVERIES.name})
    path_columns: bool = True
    most_bytes: int | str = "10g"
    most_growth: int = 1000
    schema: str | StructType | None = None
    schema_hints: str | None = None
    infer_types: bool = True
    schema_evolution: Evolution | None = None
    widen_types: bool = False
    most_columns: int = 2000
    into: str | None = None
    subject: str | None = None
    domain: str = ""
    subject_in: str | None = None
    subject_at: str | None = None
    also_subjects: tuple[Any, ...] = ()
    free_text: tuple[str, ...] = ()
    personal: tuple[str, ...] = ()
    date_in_path: str | None = None
    dated_by: str | None = None
    keep_for: str | None = None
    may_refresh: bool = False
    ready_marker: str | None = None
    include_existing_files: bool = True
    allow_overwrites: bool = True
    redelivery: Redelivery = "append"
    max_files_per_trigger: int = 1000
    max_bytes_per_trigger: int | str | None = None
    clean_source: CleanSource = "keep"
    clean_after_days: float = 30.0
    # No part of its repr, which counts in fingerprints: how objects are found and how files are kept changes no row.
    names_grow: bool = field(default=False, repr=False)
    events: str | None = field(default=None, repr=False)
    full_listing_every: str | None = field(default=None, repr=False)
    layout: Layout | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_declared_name(self.name, "Source")
        owner = f"Source '{self.name}'"
        object.__setattr__(self, "schema", write_schema_text(self.schema))
        check_field_types(self, owner)
        object.__setattr__(self, "path", self.path or self.name)
        if not self.subject_in:  # check_source_options reports what is missing
            object.__setattr__(self, "domain", self.domain or self.subject or "")
        said = (self.also_subjects,) if isinstance(self.also_subjects, str) else self.also_subjects
        pairs = tuple((one, self.domain) if isinstance(one, str) else tuple(one) for one in said)
        object.__setattr__(self, "also_subjects", pairs)
        object.__setattr__(self, "free_text", check_names(self.free_text, "free_text", owner))
        object.__setattr__(self, "personal", check_names(self.personal, "personal", owner))
        object.__setattr__(self, "most_bytes", parse_byte_amount(owner, "most_bytes", self.most_bytes))
        if self.max_bytes_per_trigger is not None:
            most = parse_byte_amount(owner, "max_bytes_per_trigger", self.max_bytes_per_trigger)
            object.__setattr__(self, "max_bytes_per_trigger", most)
        if self.schema_evolution is None:
            object.__setattr__(self, "schema_evolution", "rescue" if self.ddl else "add_new_columns")
        check_source_options(self)
        for mistake in self.layout.find_mistakes(self.private) if self.layout else ():
            raise DeclarationError(f"{owner}: {mistake}")
        record_declaration(self)

    @property
    def private(self) -> frozenset[str]:
        """The columns that must stay out of statistics, partitions and clustering. A private field makes its whole column private."""
        others = (column for column, _ in self.also_subjects)
        return add_parent_columns((*self.personal, *others, *self.free_text, *((self.subject,) if self.subject else ())))

    @property
    def replaces_files(self) -> bool:
        """Whether the latest version of a file supersedes the earlier ones."""
        return self.redelivery == "replace"

    @property
    def dialect(self) -> CsvDialect:
        """How its text is written."""
        return self.copy_dialect()

    @property
    def row_dialect(self) -> CsvDialect | None:
        """The dialect if a record is a row of fields, else None."""
        return self.dialect if self.format == "csv" else None

    @property
    def table(self) -> str:
        """The name of the bronze table that its records go into."""
        return self.into or self.name

    @property
    def folded_source(self) -> str:
        """Itself."""
        return self.name

    @property
    def ddl(self) -> str | None:
        """The declared schema as DDL text, or the format's own schema if it has one."""
        if isinstance(self.schema, str):
            return self.schema
        known = FILE_FORMATS.get(self.format)  # check_source_options refuses an unknown format, after the schema is looked at
        return known.own_schema if known else None

    @property
    def has_fixed_schema(self) -> bool:
        """Whether its columns and their types are what it reads has, whatever is declared."""
        known = FILE_FORMATS.get(self.format)
        return known is not None and known.own_schema is not None

    def find_layer_module(self, layers: Sequence[str]) -> str:
        """Returns the lowest layer."""
        return layers[0]

    def name_flow(self, layer: str) -> str:
        """Returns the same name, whatever its layer is called."""
        return f"bronze_{self.name}"
