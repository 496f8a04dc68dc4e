"""A driver with Spark that holds a store's lease: python lease_driver.py FOLDER RUN SECONDS, in a process of its own.

FOLDER: the `_sluice` folder of a pipeline, as a URL. It prints "ready" and the number of its JVM, and waits for lines on its standard input:
"take", then any number of statements of SQL, then "end". After each it prints "done", or the kind of the error and how it begins.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conftest import FEW_ROWS, ROOT

from sluice import session as sessions
from sluice.errors import LeaseLost
from sluice.locations import locate
from sluice.runs.lease import holder, lock
from sluice.runs.lease.store_lease import hold_store_lease
from sluice.settings import Settings, build_root_settings
from sluice.stores.store_location import StoreLocation


def tell(*said: object) -> None:
    print(*said, flush=True)


def main(url: str, run: str, seconds: str, own: str) -> None:
    """Hold the lease from "take" to "end"."""
    folder = locate(url)
    assert isinstance(folder, StoreLocation)
    settings = Settings(root=ROOT, **{**build_root_settings(Path(own)), "lake": str(folder.parent.parent)})
    spark = sessions.start_spark_session(settings, run, {**FEW_ROWS, "spark.ui.enabled": "false"})
    jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    tell("ready", jvm)
    for line in sys.stdin:
        if line.strip() == "take":
            break
        spark.sql(line)
        tell("done")
    mine = holder.describe_this_holder(run, jvm=jvm)

    def take_over(epoch: int) -> None:
        lock._take_over_tables(folder.parent, epoch, session=spark)

    try:
        with hold_store_lease(folder, mine, 120, take_over, str, jvm=spark._jvm, seconds=float(seconds)):
            tell("done")
            for line in sys.stdin:
                if line.strip() == "end":
                    break
                try:
                    spark.sql(line)
                    tell("done")
                except Exception as error:
                    tell(type(error).__name__, " ".join(str(error).split())[:600])
        tell("done")
    except LeaseLost:
        tell("LeaseLost")


if __name__ == "__main__":
    with TemporaryDirectory() as own:
        main(*sys.argv[1:4], own)
