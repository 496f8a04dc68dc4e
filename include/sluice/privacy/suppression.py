"""The suppression list: who was erased, as pseudonyms by domain, so that no re-delivery brings anybody back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice.lake import log, tables
from sluice.lake.tables import Shape
from sluice.lake.workspace import Workspace
from sluice.privacy import secrets
from sluice.privacy.pseudonyms import with_pseudonym

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SCHEMA = "domain STRING, pseudonym STRING, request STRING, since TIMESTAMP"
_PSEUDONYM = "_pseudonym"


def create(workspace: Workspace) -> None:
    """Make the list unless it is there."""
    shape = Shape(
        schema=tables.columns(SCHEMA),
        comment="Who was erased, as keyed hashes.",
        statistics=("domain",),
        change_feed=False,
    )
    tables.create(workspace.session, workspace.suppression, shape)


def is_empty(workspace: Workspace) -> bool:
    """Whether nobody was ever erased; the flows then leave the check out of their plans."""
    state = log.state(workspace.suppression)
    return state is None or state.rows == 0


def without_suppressed(workspace: Workspace, frame: DataFrame, subject: Column, domain: str) -> DataFrame:
    """The frame's rows whose subject is not on the list. NULL subjects stay."""
    return _matched(workspace, frame, subject, domain, "left_anti")


def only_suppressed(workspace: Workspace, frame: DataFrame, subject: Column, domain: str) -> DataFrame:
    """The frame's rows whose subject is on the list."""
    return _matched(workspace, frame, subject, domain, "left_semi")


def _matched(workspace: Workspace, frame: DataFrame, subject: Column, domain: str, how: str) -> DataFrame:
    session = frame.sparkSession
    listed = tables.read(session, workspace.suppression).where(F.col("domain") == domain)
    hashed = with_pseudonym(frame, secrets.key(workspace.settings, make=False), domain, subject, _PSEUDONYM)
    people = F.broadcast(listed.select(F.col("pseudonym").alias(_PSEUDONYM)))
    return hashed.join(people, _PSEUDONYM, how).drop(_PSEUDONYM)
