"""Tells an outage of Airflow's secret back ends from a variable or a connection that does not exist. Airflow only logs that one failed."""

from __future__ import annotations

import logging
from typing import Any, Literal

from airflow.providers.common.compat.sdk import AirflowException

from orchestration.airflow_line import airflow_line

log = logging.getLogger(__name__)

Kind = Literal["variable", "connection"]


def require_answers(kind: Kind, name: str) -> None:
    """Raises AirflowException, which is retried, if a back end cannot say that it has no such variable or connection.

    Call it for what Airflow did not find.
    """
    for back_end in _list_back_ends():
        try:
            answered = not _ask_back_end(back_end, kind, name)
        except NotImplementedError:  # it has the other kind alone
            continue
        except Exception as error:  # each back end has errors of its own
            log.warning("%s failed with %s.", type(back_end).__name__, type(error).__name__)
            answered = False
        if not answered:
            raise AirflowException(
                f"Airflow's secret back end {type(back_end).__name__} could not be asked for the {kind} {name}, so nobody knows whether "
                f"there is one. The next attempt asks again. If it never answers, let it say that it has no {name}, or take it out of Airflow's "
                "configuration."
            )


def _list_back_ends() -> list[Any]:
    if airflow_line() == 3:
        from airflow.sdk.execution_time.supervisor import ensure_secrets_backend_loaded

        return list(ensure_secrets_backend_loaded())
    from airflow.configuration import ensure_secrets_loaded

    return list(ensure_secrets_loaded())


def _ask_back_end(back_end: Any, kind: Kind, name: str) -> object:
    """What one back end has; None if nothing. Raises whatever keeps the back end from an answer."""
    if airflow_line() == 3:
        from airflow.sdk.execution_time.secrets.execution_api import ExecutionAPISecretsBackend

        if isinstance(back_end, ExecutionAPISecretsBackend):
            return _ask_server(kind, name)
    return back_end.get_variable(key=name) if kind == "variable" else back_end.get_connection(conn_id=name)


def _ask_server(kind: Kind, name: str) -> object:
    """Asks Airflow's own server as its back end does, which conceals errors."""
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import ErrorResponse, GetConnection, GetVariable

    request, missing = (
        (GetVariable(key=name), ErrorType.VARIABLE_NOT_FOUND)
        if kind == "variable"
        else (GetConnection(conn_id=name), ErrorType.CONNECTION_NOT_FOUND)
    )
    said: Any = task_runner.SUPERVISOR_COMMS.send(request)
    if not isinstance(said, ErrorResponse):
        return said.value if kind == "variable" else said  # an empty one is as good as none
    if said.error == missing:
        return None
    raise AirflowRuntimeError(said)
