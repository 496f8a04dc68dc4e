"""What the ledger knows about files: the same as reading its rows one by one, whatever their hashes, and in little memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from sluice.ingest.deliveries import seen_files
from sluice.ingest.deliveries.landed_file import LandedFile
from sluice.ingest.deliveries.seen_files import KnownContent, LastSeenFile, SeenFiles, apply_delivery_row
from sluice.record_states import CLEANED, DELIVERED, EXISTING, IGNORED, RETURNED, REWRITTEN, UNOPENED, VANISHED

EVENTS = (CLEANED, DELIVERED, EXISTING, VANISHED, IGNORED, RETURNED, REWRITTEN, UNOPENED)
ROWS = some.lists(some.tuples(some.sampled_from("abcdé"), some.sampled_from(EVENTS), some.integers(0, 9)), max_size=30)


def ledger_of(rows: list[tuple[str, str, int]]) -> pa.Table:
    told = [
        {
            **{"file": file, "delivery": number, "event": event, "size": size, "modified": size * 1000},
            **{"sha256": f"hash of {size}", "etag": f"tag of {size}" if size % 2 else None},
        }
        for number, (file, event, size) in enumerate(rows, start=1)
    ]
    types = {"size": pa.int64(), "delivery": pa.int64(), "modified": pa.int64()}
    table = pa.Table.from_pylist(told, schema=pa.schema([(name, types.get(name, pa.string())) for name in LEDGER]))
    return table.set_column(LEDGER.index("event"), "event", table["event"].dictionary_encode())


LEDGER = ("file", *seen_files.COLUMNS)


def follow(rows: list[tuple[str, str, int]]) -> dict[str, LastSeenFile]:
    """What is known if the rows are read one by one."""
    found: dict[str, LastSeenFile] = {}
    for number, (file, event, size) in enumerate(rows, start=1):
        told = KnownContent(number, event, size, size * 1000, f"hash of {size}", f"tag of {size}" if size % 2 else None)
        found[file] = apply_delivery_row(found.get(file), told)
    return found


def listed(*names: str) -> list[LandedFile]:
    return [LandedFile(name, name, 1, 1) for name in names]


@given(ROWS, some.booleans())
def test_it_is_known_what_the_rows_say_one_after_the_other(rows: list[tuple[str, str, int]], collide: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen_files, "PAGE", 3)
        if collide:  # two names have one hash, until salt is added
            patch.setattr(seen_files, "_hash_name", lambda name, salt: hash(salt + name) if len(salt) > 1 else ord(name) % 2)
        seen, expected = SeenFiles(ledger_of(rows)), follow(rows)
        assert dict(seen.items()) == expected and len(seen) == len(expected) and set(seen) == set(expected)
        marks = seen.mark_none()
        asked = listed("a", "x", "c", "é", "e")
        assert list(seen.look_up_files(asked, marks)) == [(file, expected.get(file.file)) for file in asked]
        there = {name for name, last in expected.items() if last.event in (DELIVERED, EXISTING)}
        assert set(seen.expected_files()) == there and seen.count_expected() == len(there)
        assert set(seen.expected_files(marks)) == there - {"a", "c", "é", "e"}
        unopened = {name: last for name, last in expected.items() if last.event == UNOPENED or last.delivery in (1, 2)}
        assert dict(seen.files_of_events((UNOPENED,), {1, 2})) == unopened


def test_of_several_sources_each_has_its_own() -> None:
    import numpy as np

    rows = ledger_of([("a", DELIVERED, 1), ("a", DELIVERED, 2), ("b", VANISHED, 3)])
    one, other = SeenFiles(rows, np.array([0, 2])), SeenFiles(rows, np.array([1]))
    assert (one["a"].delivery, "b" in one, other["a"].delivery, "b" in other) == (1, True, 2, False)
    with pytest.raises(KeyError):
        other["b"]


MEASURE = """
import sys
from pathlib import Path
import pyarrow as pa
from deltalake import write_deltalake
from sluice.ingest import delivery_tables
from sluice.ingest.deliveries.known_files import compare_with_known_files
from sluice.ingest.deliveries.known_files import read_known_files
from sluice.ingest.deliveries.landed_file import LandedFile

path, many = sys.argv[1], int(sys.argv[2])

def highest():
    (line,) = (one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) * 1024

def name(number):
    return f"day/{number:09d}.json"

before = highest()
known = read_known_files(path)
files = (LandedFile(name(n), f"s3://bucket/landing/{name(n)}", 9, n, etag=f'"{n:032x}"') for n in range(many + 3))
found = compare_with_known_files("a", files, known)
assert [file.file for file, _ in found.changed] == [name(many + n) for n in range(3)]
assert list(known.files_of_source("a").expected_files(found.listed)) == []
print(highest() - before)
"""


def measure(path: Path, many: int) -> int:
    """The bytes that a look at so many known files holds at its highest, in a process of its own."""
    from deltalake import write_deltalake

    numbers = range(many)
    columns = {
        **{"delivery": pa.array(range(1, many + 1), pa.int64()), "size": pa.array([9] * many, pa.int64())},
        "file": pa.array([f"day/{number:09d}.json" for number in numbers]),
        "modified_at": pa.array(numbers, pa.timestamp("us", tz="UTC")),
        "sha256": pa.array([f"{number:064x}" for number in numbers]),
        "etag": pa.array([f'"{number:032x}"' for number in numbers]),
        **{"source": pa.array(["a"] * many), "event": pa.array(["delivered"] * many), "device": pa.nulls(many, pa.int64())},
    }
    write_deltalake(str(path), pa.table(columns))
    done = subprocess.run([sys.executable, "-c", MEASURE, str(path), str(many)], check=True, stdout=subprocess.PIPE)
    return int(done.stdout)


def test_a_known_file_takes_some_hundred_bytes_while_the_folder_is_looked_at(tmp_path: Path) -> None:
    few, many, most, measured = 20_000, 220_000, 700, list[float]()
    # How much a process holds at its highest depends on its threads, too: 470 and 530 bytes were seen of one code.
    while len(measured) < 3 and not any(each < most for each in measured):
        folder = tmp_path / f"{len(measured)}"
        measured.append((measure(folder / "many", many) - measure(folder / "few", few)) / (many - few))
    assert min(measured) < most, f"{min(measured):.0f} bytes for each known file"
