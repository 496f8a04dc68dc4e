"""The cost of known files: 10 new files among 10,000 known ones against 10 new among 10 known, as the CPU time of a real `sluice run`.

    .venv/bin/python benchmarks/ingest_known_files.py [--known 10000] [--rounds 3]

Both pipelines have one source of JSON lines. Each round lands ten files in each of them and runs `sluice run --stage bronze` for it, in its own
process, in turn. CPU seconds are those of this process and of all processes that it started. The milliseconds of discovery are also printed.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from _cpu_seconds import adopt_orphans, measure_sluice
from _options import BenchmarkOptions, PrintedLines
from sluice.declare import Source
from sluice.ingest.deliveries import discovery
from sluice.root_folders import build_root_variables

SHORT = {"known": 2_000, "rounds": 1}
NEW = 10
GOAL = 1.5
_PIPELINE = """
from sluice.declare import Pipeline

PIPELINE = Pipeline(name="{name}", description="A benchmark.", owner="nobody", layers=("pipelines.{name}.bronze",))
"""
_BRONZE = """
from sluice.declare import Source

records = Source(name="records")
"""


class Bench:
    """A pipeline with one source, in a checkout of its own beside links to the real one's engine."""

    def __init__(self, root: Path, name: str, known: int) -> None:
        """Make it, with so many files that were taken before."""
        self.root, self.name, self.landed = root, name, 0
        folder = root / "include" / "pipelines" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "pipeline.py").write_text(_PIPELINE.format(name=name))
        (folder / "bronze.py").write_text(_BRONZE)
        self.land(known)
        self.run()

    def land(self, number: int) -> None:
        """Land files of a few records, a thousand a folder; each modified long ago."""
        for at in range(self.landed, self.landed + number):
            path = self.root / "landing" / self.name / "records" / f"{at // 1000}" / f"{at}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f'{{"id": {at * 3 + row}, "value": 1.5}}\n' for row in range(3)))
            os.utime(path, (1_600_000_000 + at,) * 2)
        self.landed += number

    def run(self) -> float:
        """CPU seconds of a run of bronze."""
        places = build_root_variables(self.root)
        environment = {**os.environ, **places, "SLUICE_ROOT": str(self.root), "PYTHONPATH": str(self.root / "include")}
        return measure_sluice("run", self.name, "--stage", "bronze", environment=environment)

    def discover(self) -> float:
        """Milliseconds of CPU that a discovery with nothing new takes."""
        deliveries = str(self.root / "lake" / self.name / "_sluice" / "deliveries")
        began = time.process_time()
        found = discovery.discover_deliveries([Source(name="records")], self.root / "landing" / self.name, deliveries, "bench")
        found.raise_first_refusal()
        return (time.process_time() - began) * 1000


def make_checkout_with_pipelines(root: Path) -> Path:
    """A folder that looks like this checkout, with pipelines of its own."""
    real = Path(__file__).resolve().parents[1]
    (root / "include").mkdir(parents=True)
    for name in ("spark_jobs", "environments", ".sluice", "airflow"):
        (root / name).symlink_to(real / name)
    for package in ("sluice", "residue"):
        (root / "include" / package).symlink_to(real / "include" / package)
    (root / "include" / "pipelines").mkdir()
    (root / "include" / "pipelines" / "__init__.py").touch()
    return root


def main() -> None:
    parser = BenchmarkOptions(__file__, __doc__, SHORT)
    parser.add_argument("--known", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.read_options()
    said = PrintedLines()
    adopt_orphans()
    with tempfile.TemporaryDirectory() as folder:
        root = make_checkout_with_pipelines(Path(folder) / "checkout")
        few, many = Bench(root, "few", NEW), Bench(root, "many", options.known)
        ratios = []
        for round_ in range(1, options.rounds + 1):
            for bench in (few, many):
                bench.land(NEW)
            one, other = few.run(), many.run()
            ratios.append(other / one)
            said.add(f"round {round_}: {one:.1f} s, {other:.1f} s with {options.known:,} known, ratio {ratios[-1]:.2f}")
        few.discover()  # the first warms up
        said.add(f"discovery, nothing new: {few.discover():.0f} ms, {many.discover():.0f} ms")
        said.add(
            f"{options.known:,} known files cost {statistics.median(ratios):.2f} times (median of {len(ratios)}; goal {GOAL})"
        )
    parser.write_findings(options, "A folder of many known files", said.format())


if __name__ == "__main__":
    main()
