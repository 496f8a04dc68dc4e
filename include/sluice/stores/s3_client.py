"""A client of S3 for what obstore cannot ask for: versions of objects, uploads that nobody completed, and Hadoop's marks of folders."""

from __future__ import annotations

import os
from datetime import datetime
from functools import cache
from typing import Any


def open_s3_client() -> Any:
    """The client of the store that the environment names. Its errors are those of botocore."""
    names = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_PROFILE")
    return _make_client(*(os.environ.get(name) for name in names))


@cache
def _make_client(endpoint: str | None, region: str | None, *who: str | None) -> Any:
    """One client for each store and user: making one takes a tenth of a second."""
    import boto3  # type: ignore[import-untyped]  # it has no types
    import botocore.session  # type: ignore[import-untyped]
    from botocore.config import Config  # type: ignore[import-untyped]  # it has no types

    # Other stores than Amazon's have neither a host for each bucket nor the newer checksums.
    config = Config(
        s3={"addressing_style": "path"} if endpoint else None,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    session = botocore.session.Session()
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_parse_instant)
    return boto3.Session(botocore_session=session).client("s3", endpoint_url=endpoint, region_name=region, config=config)


def _parse_instant(text: Any) -> datetime:
    """The instant that a store says. Three quarters of the time of a listing went into botocore's own parser, which knows more forms."""
    from botocore.utils import parse_timestamp  # type: ignore[import-untyped]

    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        found: datetime = parse_timestamp(text)
        return found
