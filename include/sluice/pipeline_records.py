"""The locations of one pipeline's tables, records and checkpoints. Loads no Spark."""

from __future__ import annotations

from dataclasses import dataclass

from sluice import own_records
from sluice.locations import Location, locate
from sluice.settings import Settings, list_pipeline_names, require_known_pipeline

LAKE_FORMAT = 1
"""Version of the lake's inner layout. A lake with a higher one is refused."""

QUARANTINE = "quarantine"
"""The folder of a pipeline with its quarantines, beside those of its layers."""
QUARANTINED_RECORD = ("record", "made", "content")
"""The columns of a quarantine that hold a record: as delivered, as the transform made it, and as the bytes of a whole file."""
PERSONAL_IN_QUARANTINE = frozenset({*QUARANTINED_RECORD, "_subject"})
"""The columns of a quarantine that may hold personal data: a record, and the person whose record it is."""


@dataclass(frozen=True, slots=True)
class PipelineRecords:
    """The locations of one pipeline. Made once, where a job, a command or a task learns its pipeline, and passed on from there."""

    settings: Settings
    pipeline: str

    @classmethod
    def of_known(cls, settings: Settings, pipeline: str) -> PipelineRecords:
        """The records of a pipeline of this checkout. Raises UsageError, with the nearest name, if there is no such pipeline."""
        return cls(settings, require_known_pipeline(settings, pipeline))

    @property
    def landing(self) -> Location:
        """The folder that holds the landing folders of the pipeline's sources."""
        return locate(self.settings.landing) / self.pipeline

    def table_path(self, layer: str, table: str, *, restricted: bool = False) -> str:
        """The path of a table: <lake>/<pipeline>/<layer>/<table>, or the same below the restricted root."""
        return f"{self._root(restricted)}/{layer}/{table}"

    def quarantine(self, table: str, *, restricted: bool = False) -> str:
        """The path of the rows that a table's flow did not accept: <lake>/<pipeline>/quarantine/<table>, or below the restricted root."""
        return self.table_path(QUARANTINE, table, restricted=restricted)

    def bookkeeping(self, name: str = "", *, restricted: bool = False) -> str:
        """The path of one of Sluice's own records: <lake>/<pipeline>/_sluice/<name>, or the same below the restricted root.

        name: from `own_records`, alone or with what lies below it; "" is the folder of all.
        """
        return f"{self._root(restricted)}/{own_records.OWN_FOLDER}/{name}".rstrip("/")

    @property
    def delivery_ledger(self) -> str:
        """The table of deliveries: which file came when. Append-only; bronze flows stream it."""
        return self.bookkeeping(own_records.DELIVERIES.name)

    @property
    def outcome_ledger(self) -> str:
        """The table of outcomes: what became of each delivery. Append-only; silver flows stream it."""
        return self.bookkeeping(own_records.OUTCOMES.name)

    @property
    def run_ledger(self) -> str:
        """The table of runs: what each stage did with each table."""
        return self.bookkeeping(own_records.RUNS.name)

    @property
    def suppression_list(self) -> str:
        """The table of people who were erased, as keyed hashes."""
        return self.bookkeeping(own_records.SUPPRESSION.name)

    @property
    def erasure_requests(self) -> Location:
        """The folder of the requests to erase people, without names, and of how far each one is."""
        return locate(self.bookkeeping(own_records.ERASURE_REQUESTS.name))

    @property
    def searched_tables_file(self) -> Location:
        """What bronze was when it was last searched for requests. The requests' own files have no dot."""
        return self.erasure_requests / ".asked"

    def checkpoints(self, flow: str) -> str:
        """The folder of a flow's checkpoints, one sub-folder per generation. Only this function knows where it is."""
        return self.bookkeeping(f"{own_records.CHECKPOINTS.name}/{flow}")

    def stop_request(self, run: str) -> Location:
        """The file whose presence asks a run to stop before its next batch."""
        return locate(self.bookkeeping(own_records.STOP_REQUESTS.name)) / run

    def _root(self, restricted: bool) -> str:
        return f"{self.settings.restricted if restricted else self.settings.lake}/{self.pipeline}"


def list_pipeline_records(settings: Settings) -> list[PipelineRecords]:
    """The records of each pipeline of this checkout."""
    return [PipelineRecords(settings, name) for name in list_pipeline_names(settings)]


def name_quarantine(table: str) -> str:
    """The name of a table's quarantine in `sluice sql`, reports and errors."""
    return f"{table}_{QUARANTINE}"


def name_quarantined_table(name: str) -> str | None:
    """The table whose quarantine has this name; None if it is not the name of a quarantine."""
    return name.removesuffix(f"_{QUARANTINE}") if name.endswith(f"_{QUARANTINE}") else None
