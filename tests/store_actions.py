"""Which rights of Amazon S3 a request needs: the actions of the Service Authorization Reference, as IAM policies name them."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

POLICY = Path(__file__).resolve().parents[1] / "deploy" / "aws" / "lake-policy.json"
OF_OWNER = {"s3:ListAllMyBuckets", "s3:CreateBucket", "s3:PutBucketPolicy"}
"""What is asked by whoever makes the buckets."""
EVERYDAY = {"s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:DeleteObject"}
"""What is asked by who reads and writes a lake, without erasures."""

ACTIONS = {
    ("GET", "store", ""): "s3:ListAllMyBuckets",
    ("PUT", "bucket", ""): "s3:CreateBucket",
    ("PUT", "bucket", "policy"): "s3:PutBucketPolicy",
    ("GET", "bucket", ""): "s3:ListBucket",
    ("GET", "bucket", "versions"): "s3:ListBucketVersions",
    ("GET", "bucket", "uploads"): "s3:ListBucketMultipartUploads",
    ("POST", "bucket", "delete"): "s3:DeleteObject",
    ("GET", "object", ""): "s3:GetObject",
    ("HEAD", "object", ""): "s3:GetObject",
    ("PUT", "object", ""): "s3:PutObject",
    ("PUT", "object", "uploadId"): "s3:PutObject",
    ("POST", "object", "uploads"): "s3:PutObject",
    ("POST", "object", "uploadId"): "s3:PutObject",
    ("DELETE", "object", ""): "s3:DeleteObject",
    ("DELETE", "object", "uploadId"): "s3:AbortMultipartUpload",
}
"""By method, what is asked for, and the part of it that the query names."""
_PARTS = ("acl", "delete", "location", "policy", "tagging", "uploadId", "uploads", "versioning", "versions")
_REQUEST = re.compile(r'"(GET|HEAD|PUT|POST|DELETE) (\S+) HTTP/1\.[01]" \d+')


def actions_of_request(method: str, target: str, body: bytes = b"", copied: bool = False) -> set[str]:
    """The actions that a request needs. target: path and query. copied: whether a header names an object to copy.

    Raises ValueError for a request that is not known here, so that none passes unseen.
    """
    parts = urlsplit(target)
    asked = parse_qs(parts.query, keep_blank_values=True)
    kind = ("store", "bucket", "object")[min(len(parts.path.strip("/").split("/", 1)), 2) if parts.path.strip("/") else 0]
    part = next((name for name in _PARTS if name in asked), "")
    if (method, kind, part) not in ACTIONS:
        raise ValueError(f"no action is known of {method} {target}")
    of_version = "versionId" in asked or b"<VersionId>" in body
    return {ACTIONS[method, kind, part] + ("Version" if of_version else ""), *(["s3:GetObject"] if copied else [])}


def actions_in_log(log: str) -> set[str]:
    """The actions that the requests need which moto's server logged. It logs no bodies: a removal of versions is one of objects."""
    requests = [(method, target) for method, target in _REQUEST.findall(log) if not target.startswith("/moto-api")]
    return set().union(*(actions_of_request(method, target) for method, target in requests))
