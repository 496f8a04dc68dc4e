"""A journal of rows that bronze is about to lose, by delivery and number: who finds bronze without them still knows which they were.

The tables made from such rows are folded again only after bronze has lost them. If the run is killed in between, the next one goes on from
the journal, however much later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice import durable_files
from sluice.durable_files import load_kept_object, write_json_durably
from sluice.lake.workspace import Workspace
from sluice.locations import Location, locate, remove_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class RowJournal:
    """kind: the folder among the pipeline's records, which says why rows go. what, remedy: for the error if it is damaged."""

    workspace: Workspace
    kind: str
    source: str
    what: str
    remedy: str

    def is_written(self) -> bool:
        """Whether rows are to go, or have gone and were not followed."""
        return self._note_file.is_file()

    def write_rows(self, rows: DataFrame, said: Mapping[str, str]) -> None:
        """Writes the list of rows; nothing if there are none. rows: _delivery and _row of each. said: facts to keep with the list."""
        if rows.isEmpty():
            return
        rows.write.mode("overwrite").parquet(str(self._rows_folder))
        durable_files.flush_run_output(self.workspace.settings)
        # The list is complete once the note exists.
        write_json_durably(self._note_file, dict(said))

    def read_rows(self) -> DataFrame:
        """The rows, of this run or of one that did not finish."""
        load_kept_object(self._note_file, self.what, self.remedy)
        return self.workspace.session.read.parquet(str(self._rows_folder))

    def remove_journal(self) -> None:
        """Removes it: everything followed."""
        self._note_file.unlink(missing_ok=True)
        remove_folder(self._rows_folder)

    @property
    def _rows_folder(self) -> Location:
        return locate(self.workspace.paths.bookkeeping(self.kind)) / f"{self.source}.rows"

    @property
    def _note_file(self) -> Location:
        return locate(self.workspace.paths.bookkeeping(self.kind)) / f"{self.source}.json"
