"""A source's landing folder that is none is said to be what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.declare import Source
from sluice.ingest.deliveries.listing import NoLandingFolder, find_landing_folder
from sluice.locations import locate


def test_a_path_that_is_a_file_is_not_called_missing(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").touch()
    with pytest.raises(NoLandingFolder, match=r"orders.csv is a file, not a folder. path= is the folder that the file lies in"):
        find_landing_folder(Source(name="orders", format="csv", path="orders.csv"), locate(tmp_path))
    with pytest.raises(
        NoLandingFolder, match=r"has no landing folder .*/returns. Create it and put files there; if the pipeline"
    ):
        find_landing_folder(Source(name="returns"), locate(tmp_path))
