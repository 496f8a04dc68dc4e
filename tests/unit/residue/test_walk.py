"""A scan reports its progress, in one process and in several, and finds the same whether or not anybody listens."""

from __future__ import annotations

from pathlib import Path

import pytest

from residue import ScannedSoFar, ScanRoot, needles, scan_roots, walk

WHO = "anna-schmidt-4711"


@pytest.mark.parametrize("processes", [1, 2])
def test_a_scan_says_how_many_files_and_bytes_it_has_searched(
    processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(7):
        (tmp_path / f"{number}.txt").write_text(f"{WHO if number == 3 else 'nobody'}\n" * (number + 1))
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    monkeypatch.setattr(walk, "_MOST_FILES", 3)
    monkeypatch.setattr(walk, "_SMALL", 0)
    heard: list[ScannedSoFar] = []
    wanted = needles.build_needles([("who", WHO)])
    result = scan_roots([ScanRoot("here", str(tmp_path))], wanted, processes=processes, heard=heard.append)
    assert [(one.files, one.all_files, one.all_bytes) for one in heard] == [(3, 7, size), (6, 7, size), (7, 7, size)]
    assert [one.bytes for one in heard] == sorted(one.bytes for one in heard) and heard[-1].bytes == size
    assert [hit.path for hit in result.hits] == ["3.txt"] and (result.files, result.bytes) == (7, size)
