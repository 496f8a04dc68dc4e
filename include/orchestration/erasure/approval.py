"""A step of Airflow 3 in which somebody approves an erasure before it begins. Airflow 2 has no such step: use `sluice erase approve`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.providers.standard.operators.hitl import ApprovalOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

ASKED_FOR = timedelta(hours=23)
"""How long a step waits. No answer has the same effect as a rejection: the next day's run asks again."""


class ApprovalStep(ApprovalOperator):
    """Waits until somebody approves or rejects. If no request waits for approval, it is skipped with the tasks after it.

    pipeline: the one whose requests are meant; listed_by: the task whose XCom lists them.
    """

    def __init__(self, *, pipeline: str, listed_by: str, **options: Any) -> None:
        ids = f"{{{{ (ti.xcom_pull(task_ids='{listed_by}') or {{}}).get('unapproved', []) | join(', ') }}}}"
        super().__init__(
            subject=f"Erase people from {pipeline}?",
            body=f"Requests: {ids}. Erased data cannot be recovered.",
            defaults=self.REJECT,
            response_timeout=ASKED_FOR,
            execution_timeout=None,
            **options,
        )
        self.listed_by = listed_by

    def execute(self, context: Context) -> Any:
        """Ask. Raises AirflowSkipException if there is nothing to approve."""
        if not (context["ti"].xcom_pull(task_ids=self.listed_by) or {}).get("unapproved"):
            raise AirflowSkipException("No request waits for approval.")
        return super().execute(context)
