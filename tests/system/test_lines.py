"""Who can log in to the local Airflow, on either line: nobody without the password, and nobody with an earlier one."""

from __future__ import annotations

import base64
import urllib.error
from collections.abc import Iterator

import pytest
from tests.checkout import Checkout

from orchestration.local import (
    LOGIN,
    Client,
    LocalAirflow,
    airflow_line,
    local_airflow_home,
    local_airflow_password,
    stop_running_airflow,
)

pytestmark = [pytest.mark.system, pytest.mark.airflow, pytest.mark.filterwarnings("default")]


@pytest.fixture
def stopped(checkout: Checkout) -> Iterator[Checkout]:
    yield checkout
    stop_running_airflow(checkout.settings)


def proof(client: Client, secret: str) -> str:
    """The header by which a request proves that it comes from the user: a token, or on Airflow 2 the password."""
    if airflow_line() == 2:
        return f"Basic {base64.b64encode(f'{LOGIN}:{secret}'.encode()).decode()}"
    token = client.send("POST", "/auth/token", {"username": LOGIN, "password": secret})["access_token"]
    return f"Bearer {token}"


def refused(client: Client, header: str) -> bool:
    fresh = type(client)(client.address, LOGIN, "")  # without the session that an earlier answer gave
    try:
        fresh.send("GET", f"{client.PREFIX}/dags", authorization=header)
    except urllib.error.HTTPError as error:
        assert error.code in (401, 403)
        return True
    return False


def test_removing_the_secrets_ends_all_that_was_given_out(stopped: Checkout) -> None:
    settings = stopped.settings
    with LocalAirflow(settings, idle_schedule=True) as first:
        earlier = local_airflow_password(settings)
        given = proof(first.client, earlier)
        assert not refused(first.client, given)
        assert refused(first.client, "")
        assert refused(first.client, f"Basic {base64.b64encode(f'{LOGIN}:{LOGIN}'.encode()).decode()}")
    (local_airflow_home(settings) / "secrets.json").unlink()
    with LocalAirflow(settings, idle_schedule=True) as second:
        assert local_airflow_password(settings) != earlier
        assert refused(second.client, given)
        assert not refused(second.client, proof(second.client, local_airflow_password(settings)))
