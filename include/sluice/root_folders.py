"""The root folders of an environment, once each, with what the rest of Sluice asks about them.

A new root folder is one entry here, a field of that name in `Settings`, and a line in the files of environments/. Whoever needs several of
them selects by a property and lists none by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath

_SEARCHED = "which is searched for erased people"


@dataclass(frozen=True, kw_only=True)
class RootFolder:
    """One root folder. No property has a default, so that a new root folder answers each question.

    name: its field in `Settings`, its key in an environment's file, and its root in a certificate.
    meaning: what it is, as the table of settings in docs/commands.md begins.
    in_environment_file: whether each environment's file must say where it is. If not, only the variable does, and its default is beside
    the truth.
    may_be_on_store: whether it may be a URL; else it is always on a disk.
    on_store_with_lake: what it holds, in words, if it may be on a store only while the lake is too; "" if it need not follow the lake.
    holds_tables: whether the tables and records of pipelines lie here, with a folder for each pipeline.
    is_scanned: whether pipelines have folders here that may hold people's data, which an erasure proves to be free of them.
    is_written_by_runs: whether a run of a pipeline writes here, so that its disk must have room, and is flushed before a run is done.
    ends_quiet: whether a pipeline that had nothing to do may have something to do once this root lies elsewhere.
    is_private: whether only its owner may enter it (mode 0700).
    no_vault_below: why the vault must not lie below it, as the end of a sentence; "" for the vault itself.
    """

    name: str
    meaning: str
    in_environment_file: bool
    may_be_on_store: bool
    on_store_with_lake: str
    holds_tables: bool
    is_scanned: bool
    is_written_by_runs: bool
    ends_quiet: bool
    is_private: bool
    no_vault_below: str

    @property
    def variable(self) -> str:
        """The variable that says where it is, in place of the environment's file."""
        return f"SLUICE_{self.name.upper()}"


LAKE = RootFolder(
    name="lake",
    meaning="root of the tables",
    in_environment_file=True,
    may_be_on_store=True,
    on_store_with_lake="",
    holds_tables=True,
    is_scanned=True,
    is_written_by_runs=True,
    ends_quiet=True,
    is_private=False,
    no_vault_below=_SEARCHED,
)
LANDING = RootFolder(
    name="landing",
    meaning="root of the landing folders",
    in_environment_file=True,
    may_be_on_store=True,
    on_store_with_lake="",
    holds_tables=False,
    is_scanned=True,
    is_written_by_runs=True,  # by erasures and `clean_source`
    ends_quiet=True,
    is_private=False,
    no_vault_below=_SEARCHED,
)
SECRETS = RootFolder(
    name="secrets",
    meaning="folder of secret files",
    in_environment_file=True,
    may_be_on_store=False,
    on_store_with_lake="",
    holds_tables=False,
    is_scanned=False,
    is_written_by_runs=False,  # a run makes a missing key at most, durably; deployments mount the folder read-only
    ends_quiet=True,
    is_private=True,
    no_vault_below="of which copies are kept elsewhere",
)
RESTRICTED = RootFolder(
    name="restricted",
    meaning="root of restricted tables",
    in_environment_file=True,
    may_be_on_store=True,
    on_store_with_lake="restricted tables",
    holds_tables=True,
    is_scanned=True,
    is_written_by_runs=True,
    ends_quiet=True,
    is_private=True,
    no_vault_below=_SEARCHED,
)
TRUTH = RootFolder(
    name="truth",
    meaning="root of the expected content of tables",
    in_environment_file=True,
    may_be_on_store=False,
    on_store_with_lake="",
    holds_tables=False,
    is_scanned=False,  # it is made up, and a certificate names it as an exception
    is_written_by_runs=False,  # `sluice land` writes it, and no run reads it
    ends_quiet=False,
    is_private=False,
    no_vault_below="which is removed by hand",
)
VAULT = RootFolder(
    name="vault",
    meaning="identifiers of people who asked to be erased",
    in_environment_file=True,
    may_be_on_store=False,
    on_store_with_lake="",
    holds_tables=False,
    is_scanned=False,
    is_written_by_runs=True,
    ends_quiet=True,
    is_private=True,
    no_vault_below="",
)
RELEASED = RootFolder(
    name="released",
    meaning="root of de-identified copies",
    in_environment_file=False,
    may_be_on_store=True,
    on_store_with_lake="released copies",
    holds_tables=False,  # copies, which no flow keeps up to date
    is_scanned=True,
    is_written_by_runs=True,
    ends_quiet=False,  # only a request that is due makes a run look here, and that ends the quiet by itself
    is_private=False,
    no_vault_below=_SEARCHED,
)

ROOT_FOLDERS = (LAKE, LANDING, SECRETS, RESTRICTED, TRUTH, VAULT, RELEASED)
"""All of them, in the order of an environment's file."""
TABLE_ROOTS = tuple(one for one in ROOT_FOLDERS if one.holds_tables)
SCANNED_ROOTS = tuple(one for one in ROOT_FOLDERS if one.is_scanned)
ROOTS_IN_FILE = tuple(one for one in ROOT_FOLDERS if one.in_environment_file)
ROOTS_WRITTEN_BY_RUNS = tuple(one for one in ROOT_FOLDERS if one.is_written_by_runs)
STORE_ROOTS = tuple(one for one in ROOT_FOLDERS if one.may_be_on_store)


def build_root_variables(folder: str | PurePath, roots: Iterable[RootFolder] = ROOT_FOLDERS) -> dict[str, str]:
    """The variables that put each of these root folders below one folder, or below one URL, under its own name."""
    return {one.variable: f"{folder}/{one.name}" for one in roots}
