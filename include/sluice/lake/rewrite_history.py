"""Whether data came to a table since its files were last rewritten: by the commits of its log, without a JVM."""

from __future__ import annotations

import itertools

from sluice.lake import commit_history, log
from sluice.table_properties import GROUPS_LEFT

_FIRST_LOOK = 50
"""How many commits are looked at first: the wanted one is nearly always among them."""

_CHANGES_DATA = (
    "WRITE",
    "MERGE",
    "DELETE",
    "UPDATE",
    "STREAMING UPDATE",
    "CREATE TABLE AS SELECT",
    "REPLACE TABLE",
    "CREATE OR REPLACE TABLE",
    "RESTORE",
    "TRUNCATE",
)
"""How the names of operations begin that bring data. Another commit, which changes only properties, brings none."""


def has_new_data(path: str) -> bool:
    """Whether data came since the last OPTIMIZE, or since the table was created, or that OPTIMIZE was killed between two groups of files."""
    if log.latest_table_version(path) is None:
        return False
    for most in (_FIRST_LOOK, None):
        commits = commit_history.read_commit_history(path, most)
        since = list(itertools.takewhile(lambda commit: commit["operation"] != "OPTIMIZE", commits))
        if any(str(commit["operation"]).startswith(_CHANGES_DATA) for commit in since):
            return True
        if len(since) < len(commits):
            return int(commits[len(since)]["metrics"].get(GROUPS_LEFT) or 0) > 0
    return False
