"""The text of a new pipeline. It is the first thing that a user sees of Sluice, so it is written to be read and edited."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.declare.ingest.file_formats import CsvDialect

SCHEDULE = "0 2 * * *"
MORE_ON_KEYS = """\
# Of rows with the same key one stays: that with the highest value of the column that sequence_by names, and
# without a sequence_by, one that depends on the rows' content only: not on which was delivered last."""


@dataclass(frozen=True, kw_only=True)
class DraftColumn:
    """A silver column. bronze: its name in the bronze table."""

    bronze: str
    name: str
    type: str


@dataclass(frozen=True, kw_only=True)
class PipelineDraft:
    """The findings about a folder of files, and the names that were chosen for it.

    unique: the keys are unique in the `sampled` rows. group: the column by which the view counts.
    """

    pipeline: str
    source: str
    table: str
    view: str
    format: str
    pattern: str
    dialect: CsvDialect
    columns: tuple[DraftColumn, ...]
    keys: tuple[str, ...]
    unique: bool
    sampled: int
    group: DraftColumn


def render_pipeline_package(draft: PipelineDraft) -> dict[str, str]:
    """The files of include/pipelines/<pipeline>, by name."""
    return {
        "__init__.py": f'"""Say here what the pipeline {draft.pipeline} is about, and whose data these are."""\n',
        "pipeline.py": _render_pipeline_file(draft),
        "bronze.py": _render_bronze_file(draft),
        "silver.py": _render_silver_file(draft),
        "gold.py": _render_gold_file(draft),
    }


def render_dag_file(draft: PipelineDraft) -> str:
    """The file dags/<pipeline>.py."""
    name = draft.pipeline
    return f'''"""The pipeline {name} as a DAG. It is declared in include/pipelines/{name}."""

from orchestration.medallion import medallion_dag
from pipelines.{name}.pipeline import PIPELINE

dag = medallion_dag(PIPELINE)
'''


def _render_pipeline_file(draft: PipelineDraft) -> str:
    name = draft.pipeline
    return f'''"""What Airflow needs to know of the pipeline `{name}`."""

from __future__ import annotations

from sluice.declare import Pipeline

PIPELINE = Pipeline(
    name="{name}",
    description="{_describe_source_files(draft)}",
    owner="sluice",
    schedule="{SCHEDULE}",
    publishes=("{draft.view}",),
    layers=("pipelines.{name}.bronze", "pipelines.{name}.silver", "pipelines.{name}.gold"),
)
'''


def _render_bronze_file(draft: PipelineDraft) -> str:
    options = {"name": draft.source, "format": draft.format, "path": draft.source, "pattern": draft.pattern}
    options |= draft.dialect.list_changed_options()
    # Such a field becomes a column only where it is named.
    hints = ", ".join(f"{column.bronze} STRING" for column in draft.columns if column.bronze.startswith("_"))
    if hints:
        options["schema_hints"] = hints
    lines = "\n".join(f"    {option}={_quote_literal(value)}," for option, value in options.items())
    return f'''"""What is delivered: files put into <landing>/{draft.pipeline}/{draft.source}."""

from __future__ import annotations

from sluice.declare import Source

# A file that comes again adds records. If the newer one is to stand for the older, say redelivery="replace".
# If the records are about persons, say whose each one is: subject="<column>", and personal=("<column>", ...).
{draft.source} = Source(
{lines}
    infer_types=False,  # text, as delivered: silver gives the types
    comment="{_describe_source_files(draft)}",
)
'''


def _render_silver_file(draft: PipelineDraft) -> str:
    known = "\n".join(f'@expect_or_quarantine("known_{key}", "{key} IS NOT NULL")' for key in draft.keys)
    columns = "\n".join(f"        {_render_column(column)}," for column in draft.columns)
    return f'''"""The delivered records, one row per key, with types. It was guessed from a sample: edit it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.declare import F, expect_or_quarantine, table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


{_render_key_comment(draft)}
@table(reads="{draft.source}", keys={_render_name_tuple(draft.keys)})
{known}
def {draft.table}(files: DataFrame) -> DataFrame:
    """Say here what a row is, and the units of its columns."""
    return files.select(
{columns}
    )


def _text(files: DataFrame, name: str) -> Column:
    """A delivered column, trimmed; NULL where it is empty, or where no file has had it yet."""
    if name not in files.columns:
        return F.lit(None).cast("string")
    return F.nullif(F.trim(F.col(f"`{{name}}`")), F.lit(""))
'''


def _render_key_comment(draft: PipelineDraft) -> str:
    if draft.unique:
        guess = f"# The keys are a guess: never empty, and never the same, in {draft.sampled:,} sampled rows."
    else:
        guess = "# EDIT THE KEYS: the sample does not tell which columns make a row."
    return f"{guess}\n{MORE_ON_KEYS}"


def _render_column(column: DraftColumn) -> str:
    text = f"_text(files, {_quote_literal(column.bronze)})"
    cast = "" if column.type == "STRING" else f'.try_cast("{column.type.lower()}")'
    return f'{text}{cast}.alias("{column.name}")'


def _render_gold_file(draft: PipelineDraft) -> str:
    by = "day" if draft.group.type == "TIMESTAMP" else draft.group.name
    column = f'F.to_date("{draft.group.name}").alias("day")' if draft.group.type == "TIMESTAMP" else f'"{by}"'
    count = "row_count" if by == "rows" else "rows"
    return f'''"""What is asked of the records. Late and corrected rows change a view as new ones do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.declare import F, materialized_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@materialized_view(reads="{draft.table}", keys="{by}")
def {draft.view}({draft.table}: DataFrame) -> DataFrame:
    """How many rows there are by {by}."""
    return {draft.table}.groupBy({column}).agg(F.count(F.lit(1)).alias("{count}"))
'''


def _describe_source_files(draft: PipelineDraft) -> str:
    return f"{'CSV' if draft.format == 'csv' else 'JSON'} files, first taken from a folder of {draft.table}."


def _render_name_tuple(names: tuple[str, ...]) -> str:
    return f'"{names[0]}"' if len(names) == 1 else "(" + ", ".join(f'"{name}"' for name in names) + ")"


def _quote_literal(value: object) -> str:
    """A Python literal, in double quotes where it is a text."""
    if not isinstance(value, str):
        return repr(value)
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t") + '"'
