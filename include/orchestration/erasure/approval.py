"""Somebody approves of an erasure before it begins: a step of Airflow 3. On Airflow 2, which has none, `sluice erase approve` is the way."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.providers.standard.operators.hitl import ApprovalOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

ASKED_FOR = timedelta(hours=23)
"""How long a step waits. Unanswered is as good as rejected: the next day's run asks again."""


class ApprovalStep(ApprovalOperator):
    """Waits until somebody approves or rejects; is skipped, and what follows it too, where no request waits for that.

    pipeline: whose requests; due: the task whose XCom says which.
    """

    def __init__(self, *, pipeline: str, due: str, **options: Any) -> None:
        ids = f"{{{{ (ti.xcom_pull(task_ids='{due}') or {{}}).get('unapproved', []) | join(', ') }}}}"
        super().__init__(
            subject=f"Erase people from {pipeline}?",
            body=f"Requests: {ids}. What is erased cannot be had back.",
            defaults=self.REJECT,
            response_timeout=ASKED_FOR,
            execution_timeout=None,
            **options,
        )
        self.due = due

    def execute(self, context: Context) -> Any:
        """Ask. Raises AirflowSkipException where there is nothing to ask for."""
        if not (context["ti"].xcom_pull(task_ids=self.due) or {}).get("unapproved"):
            raise AirflowSkipException("No request waits for approval.")
        return super().execute(context)
