"""The secrets of docker-compose.yaml and docker-compose.store.yaml, and `.env`, which holds them. Standard library only: nothing need be installed.

`make env`, or: python3 include/orchestration/server/environment_file.py [PATH]
"""

from __future__ import annotations

import base64
import os
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path

HEADER = """# The secrets of docker-compose.yaml, made by `make env`. Keep this file to yourself, and keep it: the database's password is set
# at its first start, and what Airflow has encrypted can be read with AIRFLOW_FERNET_KEY alone.
#
# Without the first #: lake, restricted tables and landing folders on an S3 server of the deployment, instead of a volume.
# COMPOSE_FILE=docker-compose.yaml:docker-compose.store.yaml
#
"""


@dataclass(frozen=True)
class DeploymentSecret:
    """One secret. in_env_file, in_container: the variables that hold it in `.env`, and in the containers that get it.

    bytes: how many random ones it is made of. least: how many characters it must have at least when a container starts; 0 if none that
    gets it checks it. padded: whether its base64 ends with "=" where the bytes are no multiple of three, as a Fernet key's must.
    """

    in_env_file: str
    in_container: str
    bytes: int
    least: int
    padded: bool = False


STORE_KEY = DeploymentSecret("STORE_SECRET_KEY", "AWS_SECRET_ACCESS_KEY", 30, 32)
"""The key of the store's owner."""
DEPLOYMENT_SECRETS = (
    DeploymentSecret("POSTGRES_PASSWORD", "POSTGRES_PASSWORD", 24, 24),
    DeploymentSecret("AIRFLOW_ADMIN_PASSWORD", "AIRFLOW_ADMIN_PASSWORD", 12, 12),
    DeploymentSecret("AIRFLOW_JWT_SECRET", "AIRFLOW__API_AUTH__JWT_SECRET", 64, 64),
    DeploymentSecret("AIRFLOW_SECRET_KEY", "AIRFLOW__API__SECRET_KEY", 48, 32),
    DeploymentSecret("AIRFLOW_FERNET_KEY", "AIRFLOW__CORE__FERNET_KEY", 32, 44, padded=True),
    STORE_KEY,
    DeploymentSecret("STORE_READER_KEY", STORE_KEY.in_container, 30, 0),
)
"""All secrets of a deployment, in the order of `.env`."""


def generate_deployment_secrets() -> dict[str, str]:
    """New secrets, by the name of their variable in `.env`."""
    return {secret.in_env_file: _generate_secret(secret) for secret in DEPLOYMENT_SECRETS}


def _generate_secret(secret: DeploymentSecret) -> str:
    text = base64.urlsafe_b64encode(secrets.token_bytes(secret.bytes)).decode()
    return text if secret.padded else text.rstrip("=")


def write_environment_file(path: Path) -> None:
    """Write the file for its owner alone. Raises FileExistsError if there is one: nothing is overwritten."""
    lines = [f"{name}={value}" for name, value in generate_deployment_secrets().items()]
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(HEADER + "\n".join(lines) + "\n")


def main(arguments: list[str]) -> int:
    """Returns 0, or 2 if the file exists already or cannot be made."""
    path = Path(arguments[0] if arguments else ".env")
    try:
        write_environment_file(path)
    except FileExistsError:
        print(
            f"{path} exists already and is kept. To make new secrets, move it away (and read its comments first).",
            file=sys.stderr,
        )
        return 2
    except OSError as error:
        print(f"{path} cannot be made: {error.strerror}.", file=sys.stderr)
        return 2
    print(f"{path} holds new secrets; the password of admin is AIRFLOW_ADMIN_PASSWORD in it.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
