"""`sluice new pipeline NAME --from FOLDER`: writes a first bronze, silver and gold for existing files."""

from __future__ import annotations

import importlib.util
import itertools
import keyword
import re
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

from sluice.cli.setup import templates
from sluice.cli.setup.sample import FolderSample, sample_folder
from sluice.durable_files import move_file_durably
from sluice.errors import SluiceError, UsageError
from sluice.settings import Settings, is_valid_name

KEY_COLUMNS = 8
"""How many of the first columns are tried as keys."""
MOST_GROUPS = 50
LONGEST_NAME = 50
_TAKEN = {"table", "expect_or_quarantine", "materialized_view", "files"}


def write_new_pipeline(settings: Settings, name: str, from_folder: Path) -> list[Path]:
    """Write a pipeline and its DAG for the files of a folder, and copy the files into its landing folder.

    Returns the files written and, last, the landing folder. Raises UsageError, and writes nothing, if the name is
    taken or invalid, or if the files cannot be read or are not of one kind.
    """
    package, dag = settings.root / "include" / "pipelines" / name, settings.root / "dags" / f"{name}.py"
    _check_pipeline_name(name, package, dag)
    folder = from_folder.expanduser()
    sample = sample_folder(folder)
    draft = _draft_pipeline(name, folder, sample)
    texts = {package / file: text for file, text in templates.render_pipeline_package(draft).items()} | {
        dag: templates.render_dag_file(draft)
    }
    landing = settings.landing / name / draft.source
    try:
        _copy_sample_files(sample.files, folder, landing)
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        _format_python_files(list(texts))
    except OSError as error:
        shutil.rmtree(package, ignore_errors=True)
        dag.unlink(missing_ok=True)
        raise SluiceError(f"Pipeline '{name}' could not be written: {error.filename}: {error.strerror}.") from None
    return [*texts, landing]


def _check_pipeline_name(name: str, package: Path, dag: Path) -> None:
    if not is_valid_name(name) or keyword.iskeyword(name):
        hint = _to_snake_case(name)
        instead = f" How about '{hint}'?" if is_valid_name(hint) and hint != name else ""
        raise UsageError(f"A pipeline cannot be called '{name}': a name is lower-case snake case.{instead}")
    for path in (package, dag):
        if path.exists():
            raise UsageError(f"There is a pipeline '{name}' already: {path} exists. Choose another name, or remove it.")


def _draft_pipeline(name: str, folder: Path, sample: FolderSample) -> templates.PipelineDraft:
    stem = _to_snake_case(folder.resolve().name)
    if not is_valid_name(stem) or keyword.iskeyword(stem) or stem in _TAKEN:
        stem = f"{name}_rows" if name in _TAKEN else name
    columns = _name_silver_columns(sample)
    keys, unique = _guess_keys(sample, [column for column in columns if column.type != "DOUBLE"] or columns)
    group = _choose_group_column(sample, columns, keys)
    by = "day" if group.type == "TIMESTAMP" else group.name
    return templates.PipelineDraft(
        pipeline=name,
        source=f"{stem}_files",
        table=stem,
        view=f"{stem}_by_{by}",
        format=sample.format,
        pattern=_choose_file_pattern(sample.files),
        dialect=sample.dialect,
        columns=tuple(columns),
        keys=tuple(key.name for key in keys),
        unique=unique,
        sampled=len(sample.rows),
        group=group,
    )


def _name_silver_columns(sample: FolderSample) -> list[templates.DraftColumn]:
    """The silver columns: the name in bronze, and a name that never needs quotes."""
    types, taken, columns = sample.types(), set[str](), []
    for position, bronze in enumerate(sample.columns, start=1):
        name = _to_snake_case(bronze) or f"column_{position}"
        name = f"column_{name}" if name[0].isdigit() else name
        fresh = next(n for n in itertools.chain([name], (f"{name}_{i}" for i in itertools.count(2))) if n not in taken)
        taken.add(fresh)
        columns.append(templates.DraftColumn(bronze=bronze, name=fresh, type=types[bronze]))
    if not columns:
        raise UsageError("The files' columns have no names: the first line of each must hold them.")
    return columns


def _to_snake_case(text: str) -> str:
    """Lower snake case in ASCII, not too long: "Größe (cm)" becomes grosse_cm, "OrderID" order_id."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)
    plain = unicodedata.normalize("NFKD", words.casefold()).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "_", plain).strip("_")[:LONGEST_NAME].strip("_")


def _guess_keys(sample: FolderSample, columns: list[templates.DraftColumn]) -> tuple[list[templates.DraftColumn], bool]:
    """The leftmost columns, three at most, that are never empty and together unique, and True.

    If there are none: all columns that are never empty, and False.
    """
    full = [column for column in columns[:KEY_COLUMNS] if all(column.bronze in row for row in sample.rows)]
    choices = [choice for size in (1, 2, 3) for choice in itertools.combinations(range(len(full)), size)]
    for choice in sorted(choices, key=lambda choice: (choice[-1], len(choice), choice)):
        keys = [full[position] for position in choice]
        if len({tuple(row[key.bronze] for key in keys) for row in sample.rows}) == len(sample.rows):
            return keys, bool(sample.rows)
    return full or columns[:1], False


def _choose_group_column(
    sample: FolderSample, columns: list[templates.DraftColumn], keys: list[templates.DraftColumn]
) -> templates.DraftColumn:
    """The column to count by: a day if there is one, else the column with the fewest values; keys first, since they are never NULL."""
    ordered = [*keys, *(column for column in columns if column not in keys)]
    for column in ordered:
        if column.type in ("DATE", "TIMESTAMP"):
            return column
    values = {column: len({row.get(column.bronze) for row in sample.rows}) for column in ordered}
    few = [column for column in ordered if 1 < values[column] <= min(MOST_GROUPS, len(sample.rows) // 2)]
    return min(few, key=lambda column: values[column]) if few else ordered[0]


def _choose_file_pattern(files: tuple[Path, ...]) -> str:
    suffixes = {path.suffix for path in files}
    return f"*{suffixes.pop()}" if len(suffixes) == 1 else "*"


def _copy_sample_files(files: tuple[Path, ...], folder: Path, landing: Path) -> None:
    """Copy the files with their sub-folders and modification times; each is renamed into place, so that it appears whole."""
    for path in files:
        target = landing / path.relative_to(folder)
        if target.resolve() == path.resolve():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.part")
        shutil.copy2(path, partial)
        move_file_durably(partial, target)


def _format_python_files(paths: list[Path]) -> None:
    """Format the files like the rest of the project. Without ruff they still work, with longer lines."""
    if importlib.util.find_spec("ruff") is not None:
        subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", *map(str, paths)], check=False, capture_output=True)
