"""Declarations: what is wrong is said when they are made or put together, with the offender and what was expected."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sluice.declare import Pipeline, Source, expect, expect_or_drop, materialized_view, table
from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.declare.assembly.loading import collect_declarations
from sluice.declare.datasets.computed import View
from sluice.declare.declaration import Declaration
from sluice.errors import DeclarationError, UsageError

LAYERS = ("shop.bronze", __name__)
PIPELINE = Pipeline(name="shop", description="A shop.", owner="t", layers=LAYERS)
SOURCE = Source(name="orders", format="csv", path="orders", comment="Orders.", subject="who", personal=("email",))


def declared(name: str = "sales", **options: Any) -> Any:
    def transform(orders: Any) -> Any:
        return orders

    transform.__name__ = name
    return table(**{"reads": "orders", "keys": "id", "subject": "who", **options})(transform)


def view(name: str, reads: str | tuple[str, ...], **options: Any) -> Any:
    def one(a: Any) -> Any:
        return a

    one.__name__ = name
    return materialized_view(**{"reads": reads, "keys": "id", **options})(one)


def test_declarations_load_no_pyspark() -> None:
    code = "import sys, sluice.declare, pipelines.gym.gold, pipelines.italy.silver; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_decorated_function_is_still_a_function() -> None:
    assert declared()("frame") == "frame"


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (lambda: [SOURCE, declared(reads="order")], "reads 'order', which is not declared. Did you mean 'orders'?"),
        (lambda: [SOURCE, declared(), declared()], "two declarations are named 'sales'"),
        (lambda: [SOURCE, declared(), view("a", "b"), view("b", "a")], "read each other in a circle"),
        (lambda: [SOURCE, declared(subject=None)], "whose records have a subject"),
        (lambda: [SOURCE, declared(key_in_one_file=True)], "needs a source with redelivery='replace'"),
        (
            lambda: [SOURCE, declared(), declared("more", reads="sales")],
            "reads 'sales', which is a table; a @table reads sources and temporary views. Make the shared step a @temporary_view, or",
        ),
        (lambda: [SOURCE, declared(), view("a", "sales"), declared("more", reads="a")], "which is a materialized view; a @table"),
        (
            lambda: [replace(SOURCE, redelivery="replace"), view("a", "orders")],
            "'a' reads 'orders', whose bronze table keeps the replaced versions of files too",
        ),
        (
            lambda: [replace(SOURCE, redelivery="replace"), View(name="a", function=lambda o: o, reads=("orders",))],
            "'a' reads 'orders', whose bronze table keeps the replaced versions of files too",
        ),
        (lambda: [SOURCE, declared(), view("a", "sales", zorder_by="email")], "zorder_by names the personal column 'email'"),
    ],
)
def test_mistakes_between_declarations(items: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message.replace("?", r"\?").replace("(", r"\(")):
        build_declaration_graph(PIPELINE, items())


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("sale.quarantined", "alert_when names the table 'sale'. Did you mean 'sales'?"),
        ("sales.quarantine", "'sales' has no such rule. Did you mean 'quarantined'?"),
    ],
)
def test_an_alert_on_nothing_is_refused(named: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=message.replace("?", r"\?")):
        build_declaration_graph(replace(PIPELINE, alert_when={named: 3}), [SOURCE, declared()])
    build_declaration_graph(replace(PIPELINE, alert_when={"sales.dropped": 3}), [SOURCE, declared()])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: declared(zorder_by="who"), "zorder_by names the personal column 'who'"),
        (lambda: declared(partition_by="who"), "partition_by names the personal column 'who'"),
        (lambda: declared(keys=()), "may not be empty"),
        (lambda: declared(reads=("orders", "more")), "reads names 2 inputs, the function takes 1"),
        (lambda: declared("Sales"), "lower-case snake case"),
        (lambda: expect("x", "a > 0")(declared()), "@table must stand above @expect"),
        (lambda: materialized_view(reads="a", keys="id")(expect_or_drop("x", "a > 0")(lambda a: a)), "cannot be dropped"),
        (lambda: Source(name="x", format="xml", path="x", comment=""), "unknown format 'xml'"),
        (lambda: Source(name="x", format="csv", path="../x", comment=""), "is a folder below"),
        (lambda: Source(name="x", path="s3://b/x"), "no URL. The landing folder may be one: set SLUICE_LANDING to s3://"),
        (lambda: Source(name="x", path="dbfs:/x"), "no URL. The landing folder may be one"),
        (lambda: Source(name="x", pattern="*.{csv,json}"), r"pattern '\*.{csv,json}' has a '{': it is of file names"),
        (lambda: Source(name="x", pattern="**/*.json"), "has a '/': it is of file names, not paths"),
        (lambda: Source(name="x", clean_source="MOVE"), r"unknown clean_source 'MOVE'. \(Auto Loader's MOVE is 'archive' here"),
        (lambda: Source(name="x", clean_source="delte"), "unknown clean_source 'delte'. Did you mean 'delete'"),
        (lambda: view("x", "a", recompute="incremental"), "unknown recompute 'incremental'. There are: auto, full, keys, strict"),
        (
            lambda: Pipeline(name="x", description="d", owner="o", layers=LAYERS, schedule="daily at 2"),
            "Pipeline 'x': schedule 'daily at 2' is no cron expression",
        ),
        (lambda: Pipeline(name="x", description="d", owner="o", layers=LAYERS, retain="soon"), "retain is an interval"),
        (
            lambda: Pipeline(name="x", description="d", owner="o", layers=("x.bronze", "x.optimize")),
            "not be called 'optimize'.* clone, erase",
        ),
        (
            lambda: Pipeline(name="x", description="d", owner="o", layers=("x.bronze", "x.quarantine")),
            "not be called 'quarantine'",
        ),
        (
            lambda: Pipeline(name="x", description="d", owner="o", layers=("x.a.bronze", "x.b.bronze")),
            "two layers are called 'bronze'",
        ),
    ],
)
def test_mistakes_in_one_declaration(make: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        make()


@pytest.mark.parametrize("schedule", ["@daily", "*/5 * * * *", "0 2 * * MON#1", "0 2 * * * 30"])
def test_a_schedule_is_what_airflow_takes_as_cron(schedule: str) -> None:
    assert replace(PIPELINE, schedule=schedule).schedule == schedule
    assert replace(PIPELINE, schedule="@quarterly").schedule == "0 0 1 */3 *", "which Airflow knows, and not everybody here"


def test_a_graph_knows_who_reads_whom_and_what_is_personal() -> None:
    whole = build_declaration_graph(PIPELINE, [view("by_day", "sales"), SOURCE, declared(), view("by_week", "by_day")])
    assert list(whole.views) == ["by_day", "by_week"]
    assert whole.below("sales") == {"by_day", "by_week"}
    assert whole["by_week"].private == {"who", "email"}
    with pytest.raises(UsageError, match="Did you mean 'by_week'"):
        whole["byweek"]


def north(**options: Any) -> Source:
    return replace(SOURCE, **{"name": "north", "path": "north", "format": "json", "into": "orders", **options})


SHOPS = "id BIGINT, who STRING, email STRING, parts STRUCT<a: INT, b: DECIMAL(10,2)>"


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (lambda: [SOURCE, north(into="order")], "goes into 'order', which is not declared. Did you mean 'orders'?"),
        (lambda: [SOURCE, declared(), north(into="sales")], "goes into 'sales', which is no source"),
        (
            lambda: [SOURCE, north(), north(name="east", into="north")],
            "'east' goes into 'north', which goes into 'orders' itself: write into='orders'",
        ),
        (lambda: [SOURCE, north(subject="whom")], "it says 'whom', 'orders' 'who'"),
        (lambda: [SOURCE, north(personal=("email", "name"))], "'name' is personal in only one of them"),
        (lambda: [SOURCE, north(dated_by="day")], "it says 'day', 'orders' none"),
        (lambda: [SOURCE, north(schema="id BIGINT")], "only 'north' has one"),
        (lambda: [SOURCE, north(infer_types=False)], "both need the same infer_types"),
        (
            lambda: [replace(SOURCE, schema=SHOPS), north(schema=SHOPS.replace("a: INT", "a: BIGINT"))],
            "column 'parts' is not the same in both",
        ),
        (lambda: [SOURCE, north(redelivery="replace"), view("a", "orders")], "keeps the replaced versions of files too"),
        (lambda: [SOURCE, north(), declared(reads="north")], "whose records go into 'orders': write reads='orders'"),
        (
            lambda: [replace(SOURCE, redelivery="replace"), north(), declared(key_in_one_file=True)],
            "needs a source with redelivery='replace'",
        ),
    ],
)
def test_sources_that_go_into_one_table_are_of_one_kind(items: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message.replace("?", r"\?").replace("(", r"\(")):
        build_declaration_graph(PIPELINE, items())


def test_a_schema_spelt_in_another_way_is_the_same() -> None:
    spelt = "PARTS struct<a:integer,b: decimal(10, 2)>, `email` string COMMENT 'never shown', who STRING NOT NULL, id  LONG"
    assert build_declaration_graph(PIPELINE, [replace(SOURCE, schema=SHOPS), north(schema=spelt)])
    told = (
        "id BIGINT COMMENT 'which one, of all (or <none)', who: STRING, email STRING COMMENT \"it's, so to say, hers\", "
        "parts STRUCT<a INT COMMENT 'a, b', b: DECIMAL(10,2)>"
    )
    assert build_declaration_graph(PIPELINE, [replace(SOURCE, schema=SHOPS), north(schema=told)])
    with pytest.raises(DeclarationError, match="column 'email' is not the same in both"):
        build_declaration_graph(
            PIPELINE, [replace(SOURCE, schema=SHOPS), north(schema=told.replace("email STRING", "email DATE"))]
        )


def test_a_graph_knows_which_sources_feed_a_table() -> None:
    whole = build_declaration_graph(PIPELINE, [north(), declared(), SOURCE, view("by_day", "sales")])
    assert list(whole.sources) == ["orders", "north"], "the one that the table is named after comes first"
    assert [source.name for source in whole.feeding("orders")] == ["orders", "north"]
    assert whole.feeding("north") == whole.feeding("orders")
    assert [whole.table_of(name) for name in ("orders", "north", "sales")] == ["orders", "orders", "sales"]
    assert whole.below("north") == whole.below("orders") == {"sales", "by_day"}


def _factor(value: int) -> int:
    return value * 2


def fanned_out(name: str, wanted: str) -> Any:
    @table(reads="orders", keys="id", subject="who", name=name)
    def of_kind(orders: Any) -> Any:
        return orders.where(f"kind = '{wanted}'")

    return of_kind


def test_tables_declared_in_a_loop_have_names_of_their_own_and_are_found() -> None:
    module = ModuleType(__name__)
    tables = {name: fanned_out(name, name) for name in ("sales", "returns")}
    vars(module).update(SOURCES=[SOURCE], of_kind=tables, last=tables["returns"])
    whole = build_declaration_graph(PIPELINE, collect_declarations([module], Declaration))
    assert set(whole.tables) == {"sales", "returns"}
    with pytest.raises(DeclarationError, match="lower-case snake case"):
        fanned_out("Sales", "sales")


def test_a_fingerprint_changes_with_what_a_loop_gave_the_function() -> None:
    prints = [compute_declaration_fingerprint(fanned_out("sales", wanted)) for wanted in ("sale", "sale", "return")]
    assert prints[0] == prints[1] != prints[2]


HELPER = """
from functools import lru_cache

class Steps:
    def clean(self, rows):
        return rows.where("{0}")

    __call__ = clean

@lru_cache
def cached(rows):
    return rows.where("{0}")

def outer(rows, column="a"):
    return inner(rows)

def inner(rows):
    return rows.where("{0}")
"""
CALLS = {
    "through its module": "from pipelines.{0} import helper\n\ndef made(rows): return helper.outer(rows)\n",
    "through its package": "import pipelines.{0}.helper\n\ndef made(rows): return pipelines.{0}.helper.inner(rows)\n",
    "as a class": "from pipelines.{0}.helper import Steps\n\ndef made(rows): return Steps().clean(rows)\n",
    "cached": "from pipelines.{0}.helper import cached\n\ndef made(rows): return cached(rows)\n",
    "in part": (
        "from functools import partial\nfrom pipelines.{0}.helper import outer\npart = partial(outer, column='b')\n\n"
        "def made(rows): return part(rows)\n"
    ),
    "by the same name": (
        "from pipelines.{0}.helper import inner as theirs\n\ndef inner(rows): return theirs(rows)\n\n"
        "def made(rows): return inner(rows)\n"
    ),
    "as a default": (
        "from pipelines.{0}.helper import inner\ndef cut(rows, use=inner): return use(rows)\n\ndef made(rows): return cut(rows)\n"
    ),
    "in a dictionary": "from pipelines.{0}.helper import inner\nRULES = {{'a': inner}}\n\ndef made(rows): return RULES['a'](rows)\n",
    "by an object that can be called": (
        "from pipelines.{0}.helper import Steps\nSTEPS = Steps()\n\ndef made(rows): return STEPS(rows)\n"
    ),
    "by the method of an object": (
        "from pipelines.{0}.helper import Steps\nSTEPS = Steps()\n\ndef made(rows): return STEPS.clean(rows)\n"
    ),
    "by a bound method": (
        "from pipelines.{0}.helper import Steps\nclean = Steps().clean\n\ndef made(rows): return clean(rows)\n"
    ),
    "by a class above": (
        "from pipelines.{0}.helper import Steps\n\nclass More(Steps):\n    pass\n\ndef made(rows): return More().clean(rows)\n"
    ),
}


@pytest.fixture
def made_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """The fingerprint of the function `made` of a pipeline's silver.py. Each pipeline is imported anew."""
    import pipelines

    monkeypatch.setattr(pipelines, "__path__", [*pipelines.__path__, str(tmp_path / "pipelines")])
    before = set(sys.modules)

    def compute(shop: str, **files: str) -> str:
        folder = tmp_path / "pipelines" / shop
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text)
        importlib.invalidate_caches()  # a folder that was listed a moment ago may have the same time
        made = importlib.import_module(f"pipelines.{shop}.silver").made
        return compute_declaration_fingerprint(table(reads="orders", keys="id")(made))

    yield compute
    for name in set(sys.modules) - before:
        if name.startswith("pipelines."):
            del sys.modules[name]


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_fingerprint_changes_with_the_code_that_is_called_however_it_is_reached(call: str, made_by: Callable[..., str]) -> None:
    def printed(shop: str, condition: str) -> str:
        return made_by(shop, helper=HELPER.format(condition), silver=call.format(shop))

    one, other = printed("shop_of_one", "a > 0"), printed("shop_of_other", "a > 1")
    assert one != other
    again = printed("shop_of_once_more", "a > 0")
    assert one == again or "pipelines.{0}." in call.split("def made")[1], "and with nothing else"


VALUES = {
    "a default from a name": "MOST = {0}\ndef cut(rows, most=MOST): return rows.limit(most)\n\ndef made(rows): return cut(rows)\n",
    "a default by name alone": "MOST = {0}\ndef cut(rows, *, most=MOST): return rows.limit(most)\n\ndef made(rows): return cut(rows)\n",
    "an object": (
        "class Band:\n    def __init__(self, most): self.most = most\n    def __call__(self, rows): return rows.limit(self.most)\n"
        "MOST = {0}\nBAND = Band(MOST)\n\ndef made(rows): return BAND(rows)\n"
    ),
    "an object with slots": (
        "class Band:\n    __slots__ = ('most',)\n    def __init__(self, most): self.most = most\n"
        "MOST = {0}\nBAND = Band(MOST)\n\ndef made(rows): return rows.limit(BAND.most)\n"
    ),
    "an object with one slot": (
        "class Band:\n    __slots__ = 'most'\n    def __init__(self, most): self.most = most\n"
        "MOST = {0}\nBAND = Band(MOST)\n\ndef made(rows): return rows.limit(BAND.most)\n"
    ),
    "a name in a class": "MOST = {0}\nclass Band:\n    most = MOST\n\ndef made(rows): return rows.limit(Band().most)\n",
    "a kind of number": ("class Limit(int):\n    pass\nMOST = Limit({0})\n\ndef made(rows): return rows.limit(MOST)\n"),
    "a kind of dictionary": (
        "class Bands(dict):\n    pass\nBANDS = Bands(most={0})\n\ndef made(rows): return rows.limit(BANDS['most'])\n"
    ),
    "an object in a list": (
        "from dataclasses import dataclass\n@dataclass\nclass Band:\n    most: int\n"
        "MOST = {0}\nBANDS = [Band(MOST)]\n\ndef made(rows): return rows.limit(BANDS[0].most)\n"
    ),
}


@pytest.mark.parametrize("code", VALUES.values(), ids=VALUES.keys())
def test_a_fingerprint_changes_with_a_value_however_it_is_reached(code: str, made_by: Callable[..., str]) -> None:
    one, again, other = (
        made_by(shop, silver=code.format(most))
        for shop, most in (("shop_of_one", 200), ("shop_once_more", 200), ("shop_of_other", 180))
    )
    assert one == again != other


IN_EVERY_PROCESS = """
from sluice.declare import table
from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint

CITIES = {"Oslo", "Rome", "Bari", "Turin", "Lecce"}
KINDS = {"of": frozenset({"a", "b", "c", "d"}), "rule": lambda rows: rows}
KINDS["itself"] = KINDS


class Plain:
    pass


PLAIN = Plain()


def made(orders):
    return orders.where(str(CITIES)), KINDS, PLAIN


print(compute_declaration_fingerprint(table(reads="orders", keys="id")(made)))
"""


def test_a_fingerprint_is_the_same_in_every_process(tmp_path: Path) -> None:
    """The order of a set differs from process to process, and so do addresses: each run would recompute everything."""
    (tmp_path / "declared.py").write_text(IN_EVERY_PROCESS)

    def printed(seed: str) -> str:
        command = [sys.executable, str(tmp_path / "declared.py")]
        return subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
        ).stdout

    assert len({printed(seed) for seed in ("1", "2", "3")}) == 1


def test_threads_compute_fingerprints_beside_each_other() -> None:
    sale = fanned_out("sales", "sale")
    found: list[str] = []

    def compute_some() -> None:
        found.extend(compute_declaration_fingerprint(sale) for _ in range(40))

    def pause(phase: str, info: dict[str, int]) -> None:
        time.sleep(0.0002)  # what is collected may run code, and then another thread has its turn

    often = gc.get_threshold()
    threads = [threading.Thread(target=compute_some) for _ in range(3)]
    gc.callbacks.append(pause)
    gc.set_threshold(20)
    try:
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    finally:
        gc.callbacks.remove(pause)
        gc.set_threshold(*often)
    assert len(found) == 120 and len(set(found)) == 1


def test_a_fingerprint_changes_with_the_code_and_not_with_its_layout() -> None:
    def one(orders: Any) -> Any:
        """Doc."""
        return orders.select("a")

    def two(orders: Any) -> Any:
        # A comment, and another docstring.
        """Other."""

        return orders.select("a")

    def three(orders: Any) -> Any:
        return orders.select("b")

    two.__name__ = three.__name__ = "one"
    prints = [compute_declaration_fingerprint(table(reads="orders", keys="id")(function)) for function in (one, two, three)]
    assert prints[0] == prints[1] != prints[2]
    assert compute_declaration_fingerprint(table(reads="orders", keys=("id", "a"))(one)) != prints[0]
