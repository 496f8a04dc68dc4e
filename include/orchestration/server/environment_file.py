"""Makes `.env`, the secrets of docker-compose.yaml and docker-compose.store.yaml. Standard library only: nothing need be installed.

`make env`, or: python3 include/orchestration/server/environment_file.py [PATH]
"""

from __future__ import annotations

import base64
import os
import secrets
import sys
from pathlib import Path

HEADER = """# The secrets of docker-compose.yaml, made by `make env`. Keep this file to yourself, and keep it: the database's password is set
# at its first start, and what Airflow has encrypted can be read with AIRFLOW_FERNET_KEY alone.
#
# Without the first #: lake, restricted tables and landing folders on an S3 server of the deployment, in place of a volume.
# COMPOSE_FILE=docker-compose.yaml:docker-compose.store.yaml
#
"""


def generate_deployment_secrets() -> dict[str, str]:
    """New secrets, by the name of their variable."""
    return {
        "POSTGRES_PASSWORD": secrets.token_urlsafe(24),
        "AIRFLOW_ADMIN_PASSWORD": secrets.token_urlsafe(12),
        "AIRFLOW_JWT_SECRET": secrets.token_urlsafe(64),
        "AIRFLOW_SECRET_KEY": secrets.token_urlsafe(48),
        "AIRFLOW_FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "STORE_SECRET_KEY": secrets.token_urlsafe(30),
        "STORE_READER_KEY": secrets.token_urlsafe(30),
    }


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
