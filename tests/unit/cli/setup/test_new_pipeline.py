"""`sluice new pipeline`: what is made of a folder of files."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sluice.cli.setup.new_pipeline import write_new_pipeline
from sluice.errors import UsageError
from sluice.settings import Settings, list_pipeline_names

ROOT = Path(__file__).parents[4]
ORDERS = "Order ID,Größe (cm),Bought,Seen at,Postcode,Price,,order id,Class\n"
ROWS = """\
1,x,2026-01-01,2026-01-01T10:00:00Z,01234,1.5,?,9,a
2,x,2026-01-01,2026-01-01 10:00:05,99999,2,?,9,a
3,y,2026-01-02,2026-01-02,12345,-3e2,?,9,
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    root = tmp_path / "checkout"
    (root / "include" / "pipelines").mkdir(parents=True)
    (root / "include" / "orchestration").mkdir()
    (root / "include" / "orchestration" / "medallion.py").touch()  # so that ruff knows it for a part of the project
    (root / "dags").mkdir()
    (root / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    return replace(Settings.current(), root=root, landing=root / "landing")


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    folder = tmp_path / "Orders"
    (folder / "2026").mkdir(parents=True)
    (folder / "2026" / "january.csv").write_text(ORDERS + ROWS, encoding="utf-8")
    (folder / "2026" / "january.csv").touch()
    os.utime(folder / "2026" / "january.csv", (1_700_000_000, 1_700_000_000))
    return folder


@pytest.fixture
def import_made(settings: Settings) -> Iterator[Any]:
    """Import a generated module as pipelines.<name>.<layer> without putting it into the real package."""
    loaded: list[str] = []

    def load(name: str, layer: str) -> ModuleType:
        path = settings.root / "include" / "pipelines" / name / f"{layer}.py"
        spec = importlib.util.spec_from_file_location(f"made_{name}_{layer}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        loaded.append(spec.name)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in loaded:
        del sys.modules[name]


def folder_of(tmp_path: Path, **files: str | bytes) -> Path:
    """A folder `things` with these files; "__" in a name stands for a dot."""
    folder = tmp_path / "things"
    folder.mkdir()
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def made(settings: Settings, name: str, layer: str) -> str:
    return (settings.root / "include" / "pipelines" / name / f"{layer}.py").read_text(encoding="utf-8")


def test_what_is_written_and_where_the_files_go(settings: Settings, orders: Path) -> None:
    package = settings.root / "include" / "pipelines" / "shop"
    landing = settings.landing / "shop" / "orders_files"
    assert write_new_pipeline(settings, "shop", orders) == [
        *(package / f"{layer}.py" for layer in ("__init__", "pipeline", "bronze", "silver", "gold")),
        settings.root / "dags" / "shop.py",
        landing,
    ]
    assert list_pipeline_names(settings) == ["shop"]
    (copied,) = (path for path in landing.rglob("*") if path.is_file())
    assert copied == landing / "2026" / "january.csv"
    assert copied.read_bytes() == (orders / "2026" / "january.csv").read_bytes()
    assert copied.stat().st_mtime == 1_700_000_000


def test_the_declarations_fit_each_other(settings: Settings, orders: Path, import_made: Any) -> None:
    write_new_pipeline(settings, "shop", orders)
    pipeline, bronze, silver, gold = (import_made("shop", layer) for layer in ("pipeline", "bronze", "silver", "gold"))
    assert pipeline.PIPELINE.name == "shop"
    assert pipeline.PIPELINE.layers == ("pipelines.shop.bronze", "pipelines.shop.silver", "pipelines.shop.gold")
    assert pipeline.PIPELINE.publishes == (gold.orders_by_bought.name,)
    source, table, view = bronze.orders_files, silver.orders, gold.orders_by_bought
    assert (source.name, source.path, source.format, source.pattern) == ("orders_files", "orders_files", "csv", "*.csv")
    assert (source.delimiter, source.encoding) == (",", "utf-8")
    assert (table.reads, table.keys) == (("orders_files",), ("order_id",))
    assert [(one.name, one.condition, one.action.value) for one in table.expectations] == [
        ("known_order_id", "order_id IS NOT NULL", "quarantine"),
    ]
    assert (view.reads, view.keys) == (("orders",), ("bought",))


@pytest.mark.spark
def test_the_transforms_run_and_give_the_guessed_types(settings: Settings, orders: Path, import_made: Any, spark: Any) -> None:
    write_new_pipeline(settings, "shop", orders)
    silver, gold = import_made("shop", "silver"), import_made("shop", "gold")
    # The names that bronze gives them; `Class` has not come yet.
    names = ("Order_ID", "Größe__cm_", "Bought", "Seen_at", "Postcode", "Price")
    rows = [
        ("1", " x ", "2026-01-01", "2026-01-01T10:00:00Z", "01234", "1.5"),
        ("2", "", "2026-01-01", "2026-01-01 10:00:05", "99999", "2"),
        ("three", "y", "soon", "later", "12345", "dear"),
    ]
    bronze = spark.createDataFrame(rows, ", ".join(f"`{name}` STRING" for name in names))
    table = silver.orders(bronze)
    assert table.dtypes == [
        *(("order_id", "bigint"), ("grosse_cm", "string"), ("bought", "date"), ("seen_at", "timestamp")),
        *(("postcode", "string"), ("price", "double"), ("class", "string")),
    ]
    found = table.selectExpr("order_id", "grosse_cm", "bought", "CAST(seen_at AS STRING)", "postcode", "price", "class").collect()
    assert [tuple(map(str, row)) for row in found] == [
        ("1", "x", "2026-01-01", "2026-01-01 10:00:00", "01234", "1.5", "None"),
        ("2", "None", "2026-01-01", "2026-01-01 10:00:05", "99999", "2.0", "None"),
        ("None", "y", "None", "None", "12345", "None", "None"),
    ]
    counted = gold.orders_by_bought(table).orderBy("bought").collect()
    assert [(str(row["bought"]), row["rows"]) for row in counted] == [("None", 1), ("2026-01-01", 2)]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found_also_where_others_are_in_the_fields(
    settings: Settings, tmp_path: Path, import_made: Any, delimiter: str
) -> None:
    others = "".join(sign for sign in ",;|" if sign != delimiter)
    rows = "".join(f'{number}{delimiter}"a {others} b"{delimiter}1{others[0]}5\n' for number in range(1, 5))
    write_new_pipeline(settings, "things", folder_of(tmp_path, a__csv=delimiter.join(("id", "note", "price")) + "\n" + rows))
    assert import_made("things", "bronze").things_files.delimiter == delimiter


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        ("id,name\n1,Größe\n".encode(), "utf-8"),
        ("\ufeffid,name\n1,Größe\n".encode(), "utf-8"),
        (b"id,name\n1,size\n", "utf-8"),
        ("id,name\n1,Größe €\n".encode("windows-1252"), "windows-1252"),
    ],
)
def test_the_encoding_is_found(settings: Settings, tmp_path: Path, import_made: Any, content: bytes, encoding: str) -> None:
    write_new_pipeline(settings, "things", folder_of(tmp_path, a__csv=content, b__csv=b"id,name\n2,plain\n"))
    assert import_made("things", "bronze").things_files.encoding == encoding
    assert import_made("things", "silver").things.keys == ("id",)


def test_json_lines_with_other_fields_in_each(settings: Settings, tmp_path: Path, import_made: Any) -> None:
    content = (
        '{"userId": 1, "at": "2026-01-01T00:00:00Z", "n": 1}\n{"userId": 1, "at": "2026-01-02T00:00:00Z", "tags": ["a"]}\n{"user'
    )
    write_new_pipeline(settings, "things", folder_of(tmp_path, a__jsonl=content))
    source, table = import_made("things", "bronze").things_files, import_made("things", "silver").things
    assert (source.format, source.pattern) == ("json", "*.jsonl")
    assert table.keys == ("at",)
    view = import_made("things", "gold").things_by_day
    assert view.keys == ("day",)
    text = made(settings, "things", "silver")
    assert '_text(files, "userId").try_cast("bigint").alias("user_id")' in text
    assert '_text(files, "tags").alias("tags")' in text


@pytest.mark.parametrize(
    ("rows", "keys", "sure"),
    [
        ("a,b,c,d\n1,1,1,1\n1,2,1,2\n2,1,1,3\n", ("a", "b"), True),
        # A file that came twice has each row twice: that says nothing against its keys.
        ("a,b,c,d\n1,1,1,1\n2,1,1,1\n1,1,1,1\n", ("a",), True),
        # Measured numbers are no keys, and what may be empty is none either.
        ("a,b,c,d\n1.5,1,1,1\n2.5,,1,2\n3.5,3,2,2\n", ("c", "d"), True),
        ("a,b,c,d\n1,1,1,1.5\n1,1,1,2.5\n", ("a", "b", "c"), False),
    ],
)
def test_keys_are_the_leftmost_columns_that_tell_the_rows_apart(
    settings: Settings, tmp_path: Path, import_made: Any, rows: str, keys: tuple[str, ...], sure: bool
) -> None:
    write_new_pipeline(settings, "things", folder_of(tmp_path, a__csv=rows))
    assert import_made("things", "silver").things.keys == keys
    assert ("EDIT THE KEYS" in made(settings, "things", "silver")) is not sure


AWKWARD = {
    "plain": ("orders", ORDERS + ROWS),
    "long": ("orders", ",".join(["id", *(f"question {i} " + "that is long " * 9 for i in range(4))]) + "\n1,2,3,4,5\n"),
    "keyword": ("class", "import,2026,a b,A-B,a_b,Ärger,名前,\"quo\"\"te\"\n1,2,3,4,5,6,7,8\n"),
    "decorator": ("table", "id;rows\n1;a\n2;a\n3;b\n4;b\n"),
    "number": ("2026", "id|rows\n1|a\n"),
}  # fmt: skip


@pytest.mark.parametrize(("folder", "content"), AWKWARD.values(), ids=AWKWARD)
def test_generated_code_is_clean(settings: Settings, tmp_path: Path, folder: str, content: str) -> None:
    """By this project's own rules: ruff, its format, and mypy --strict."""
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "a.csv").write_text(content, encoding="utf-8")
    written = write_new_pipeline(settings, "shop", tmp_path / folder)[:-1]
    for command in (["ruff", "check"], ["ruff", "format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", *command, *map(str, written)], cwd=settings.root, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout
    if folder == "class":
        environment = os.environ | {"MYPYPATH": f"{settings.root / 'include'}:{ROOT / 'include'}"}
        command = ["mypy", "--strict", "--explicit-package-bases", "--follow-imports=silent", *map(str, written[:-1])]
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True, check=False, env=environment
        )
        assert done.returncode == 0, done.stdout


def test_a_generated_dag_reads_like_the_others(settings: Settings, orders: Path) -> None:
    write_new_pipeline(settings, "shop", orders)
    made_lines = (settings.root / "dags" / "shop.py").read_text().splitlines()
    own_lines = (ROOT / "dags" / "gym.py").read_text().replace("gym", "shop").splitlines()
    assert made_lines[1:] == own_lines[1:]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has no files with records. Expected are names that end in .csv"),
        ({"a__csv": "", "b__csv": "\n\n"}, "has no files with records"),
        ({"a__parquet": "PAR1"}, "has no files with records"),
        ({"a__csv": "id\n1\n", "b__jsonl": '{"id": 1}\n'}, "a.csv is CSV, b.jsonl is JSON lines"),
        ({"a__csv": "a,b\n1,2\n", "b__csv": "a;b\n1;2\n"}, "a.csv is separated by commas, b.csv is separated by semicolons"),
        (
            {"a__csv": "a,b\n1,é\n".encode(), "b__csv": "a,b\n1,é\n".encode("windows-1252")},
            "a.csv is encoded as utf-8, b.csv is encoded as windows-1252",
        ),
        ({"a__csv": "1,2026-01-01,x\n2,2026-01-02,y\n"}, "a.csv has no header"),
        ({"a__json": '[{"id": 1},\n {"id": 2}]\n'}, "a.json is not JSON lines"),
        ({"a__csv": "a,b\n1,2\n".encode("utf-16")}, "a.csv is no text in UTF-8 or Windows-1252"),
        ({"a__csv": "a,b\n1,é\n".encode("windows-1252") + b"\x81"}, "a.csv is no text in UTF-8 or Windows-1252"),
    ],
)
def test_files_that_no_source_could_read_are_named_and_nothing_is_written(
    settings: Settings, tmp_path: Path, files: dict[str, str | bytes], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        write_new_pipeline(settings, "things", folder_of(tmp_path, **files))
    assert list_pipeline_names(settings) == []
    assert list((settings.root / "dags").iterdir()) == []
    assert not settings.landing.exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Web Shop", r"A pipeline cannot be called 'Web Shop'.*How about 'web_shop'\?"),
        ("../shop", "cannot be called"),
        ("2026", "cannot be called"),
        ("class", "cannot be called 'class'"),
        ("", "cannot be called ''"),
    ],
)
def test_a_name_that_is_none_is_refused(settings: Settings, orders: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        write_new_pipeline(settings, name, orders)
    assert list_pipeline_names(settings) == []


def test_a_pipeline_or_dag_that_is_there_is_left_alone(settings: Settings, orders: Path) -> None:
    write_new_pipeline(settings, "shop", orders)
    silver = settings.root / "include" / "pipelines" / "shop" / "silver.py"
    silver.write_text("# edited\n")
    with pytest.raises(UsageError, match="There is a pipeline 'shop' already"):
        write_new_pipeline(settings, "shop", orders)
    assert silver.read_text() == "# edited\n"
    (settings.root / "dags" / "erasure.py").write_text("# ours\n")
    with pytest.raises(UsageError, match="There is a pipeline 'erasure' already"):
        write_new_pipeline(settings, "erasure", orders)
    assert (settings.root / "dags" / "erasure.py").read_text() == "# ours\n"


def test_a_folder_that_is_not_there_is_named(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"There is no folder .*/nowhere"):
        write_new_pipeline(settings, "shop", tmp_path / "nowhere")
