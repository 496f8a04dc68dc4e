"""Makes the buckets of the S3 server that docker-compose.store.yaml starts: `python -m orchestration.server.store_buckets READER`.

Runs once at each start, before anything reads the store. Repeating it changes nothing. On another store, its owner makes the buckets.
"""

from __future__ import annotations

import json
import sys
from urllib.parse import urlsplit

from orchestration.server.deployment import refuse_weak_secrets
from orchestration.server.environment_file import STORE_KEY
from sluice.errors import SluiceError
from sluice.root_folders import LAKE, STORE_ROOTS
from sluice.settings import Settings
from sluice.stores.s3_client import open_s3_client


def make_buckets(settings: Settings, reader: str) -> list[str]:
    """Makes the missing buckets of the locations that are on a store, and returns their names.

    reader: the user of the store who may read the lake, and nothing else. Raises UsageError for a weak secret, and SluiceError.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]  # it has no types

    refuse_weak_secrets([STORE_KEY])
    by_root = {name: urlsplit(str(folder)).netloc for name, folder in settings.locate_roots(STORE_ROOTS).items()}
    lake, buckets = by_root[LAKE.name], sorted({*by_root.values()} - {""})  # a path on a disk has none
    client = open_s3_client()
    try:
        there = {str(one["Name"]) for one in client.list_buckets()["Buckets"]}
        missing = [bucket for bucket in buckets if bucket not in there]
        for bucket in missing:
            client.create_bucket(Bucket=bucket)
        client.put_bucket_policy(Bucket=lake, Policy=json.dumps(allow_reading(lake, reader)))
    except (BotoCoreError, ClientError) as error:
        raise SluiceError(
            f"The store makes no buckets ({type(error).__name__}). Are AWS_ENDPOINT_URL and the keys those of its owner?"
        ) from None
    return missing


def allow_reading(bucket: str, reader: str) -> dict[str, object]:
    """The policy of a bucket that only its owner and one user may list and read."""
    user, name = {"AWS": [reader]}, f"arn:aws:s3:::{bucket}"
    may_list = {"Effect": "Allow", "Principal": user, "Action": ["s3:ListBucket"], "Resource": [name]}
    may_read = {"Effect": "Allow", "Principal": user, "Action": ["s3:GetObject"], "Resource": [f"{name}/*"]}
    return {"Version": "2012-10-17", "Statement": [may_list, may_read]}


if __name__ == "__main__":
    try:
        made = make_buckets(Settings.current(), sys.argv[1])
        print(f"buckets made: {', '.join(made) or 'none, all exist'}", flush=True)
    except SluiceError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
