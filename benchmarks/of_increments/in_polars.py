"""The contestant without Spark: Polars computes, delta-rs keeps the tables, a text file lists the files that were read.

python -m of_increments.in_polars LANDING TO
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Bring three tables up to date."""
    import polars as pl

    landing, to = Path(sys.argv[1]), Path(sys.argv[2])
    to.mkdir(parents=True, exist_ok=True)
    listed = to / "files.txt"
    known = set(listed.read_text().splitlines()) if listed.exists() else set()
    new = sorted(str(path) for path in landing.iterdir() if str(path) not in known)
    if not new:
        return
    fields = {
        "id": pl.Int64,
        "device": pl.String,
        "heart_rate": pl.Float64,
        "steps": pl.Int64,
        "at": pl.String,
        "day": pl.String,
        "active": pl.Boolean,
        "gym": pl.String,
        "note": pl.String,
        "score": pl.Float64,
    }
    came = pl.concat([pl.read_ndjson(name, schema=fields) for name in new]).with_columns(
        pl.col("at").str.to_datetime(time_zone="UTC"), pl.col("day").str.to_date()
    )
    came.write_delta(str(to / "visits_raw"), mode="append")
    latest = came.sort("at").unique("id", keep="last")
    if (to / "visits").exists():
        merging = latest.write_delta(
            str(to / "visits"),
            mode="merge",
            delta_merge_options={"predicate": "s.id = t.id", "source_alias": "s", "target_alias": "t"},
        )
        merging.when_matched_update_all("s.at >= t.at").when_not_matched_insert_all().execute()
    else:
        latest.write_delta(str(to / "visits"))
    visits = pl.scan_delta(str(to / "visits"))
    by_device = visits.group_by("device", "day").agg(pl.len().cast(pl.Int64).alias("visits"), pl.col("steps").sum())
    by_device.collect().write_delta(str(to / "device_day"), mode="overwrite")
    listed.write_text("\n".join([*sorted(known), *new]))


if __name__ == "__main__":
    main()
