"""Clients of boto3, for what obstore cannot ask for.

Of S3 that is versions of objects, uploads that nobody completed, Hadoop's marks of folders, and objects whose names are no paths; and
there are queues of events.
"""

from __future__ import annotations

import os
from datetime import datetime
from functools import cache
from typing import Any

_CONNECTIONS = 16
"""The most requests that are under way in parallel."""


def open_s3_client() -> Any:
    """The client of the store that the environment names. Its errors are those of botocore."""
    names = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_PROFILE")
    return _make_client("s3", *(os.environ.get(name) for name in names))


def open_sqs_client() -> Any:
    """The client of the queues that the environment names: AWS_ENDPOINT_URL_SQS, where they are not beside the store."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_SQS") or os.environ.get("AWS_ENDPOINT_URL")
    names = ("AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_PROFILE")
    return _make_client("sqs", endpoint, *(os.environ.get(name) for name in names))


@cache
def _make_client(service: str, endpoint: str | None, region: str | None, *who: str | None) -> Any:
    """One client for each service, place and user: making one takes a tenth of a second."""
    import boto3  # type: ignore[import-untyped]  # it has no types
    import botocore.session  # type: ignore[import-untyped]
    from botocore.config import Config  # type: ignore[import-untyped]

    # Other stores than Amazon's have neither a host for each bucket nor the newer checksums.
    config = Config(
        s3={"addressing_style": "path"} if endpoint else None,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        max_pool_connections=_CONNECTIONS,
    )
    session = botocore.session.Session()
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_parse_instant)
    return boto3.Session(botocore_session=session).client(service, endpoint_url=endpoint, region_name=region, config=config)


def _parse_instant(text: Any) -> datetime:
    """The instant that a store says. Three quarters of the time of a listing went into botocore's own parser, which knows more forms."""
    from botocore.utils import parse_timestamp  # type: ignore[import-untyped]

    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        found: datetime = parse_timestamp(text)
        return found
