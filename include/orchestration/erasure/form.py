"""The form of the DAG `erasure`: ids of requests, and nothing that could be an identifier."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import Param

from orchestration.erasure.ids import REQUEST


def erasure_form() -> dict[str, Param]:
    """The fields by name."""
    return {
        "requests": Param(
            [],
            type="array",
            items={"type": "string", "pattern": REQUEST},
            uniqueItems=True,
            maxItems=1000,
            title="Requests",
            description="Ids of requests (`sluice erase list`), one a line. None: all that is due. Never write an identifier here.",
        )
    }
