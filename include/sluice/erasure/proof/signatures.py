"""Signatures of certificates (Ed25519). The secret `certificate.key` makes them; its public half can only check them.

Certificates of the first format were sealed by an HMAC instead, which only the holder of the secret can check.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from sluice.declare.assembly.subjects import CERTIFICATE_KEY
from sluice.errors import UsageError
from sluice.locations import Location
from sluice.privacy import secrets
from sluice.settings import Settings

FIRST_SIGNED = 2
"""The first format of records in which every certificate is signed."""
_SEED = b"sluice: Ed25519 of certificates"


@dataclass(frozen=True)
class SealCheck:
    """The keys that check seals. public: for signatures. secret: for the HMAC of the first format; None if it is not here."""

    public: Ed25519PublicKey
    secret: bytes | None

    def holds(self, record: Mapping[str, Any]) -> bool | None:
        """Whether the holder of the key issued this record and its page.

        None if that cannot be known: its seal is an HMAC, which needs the secret.
        """
        if _is_signed_format(record):
            return _is_valid_signature(self.public, record.get("signature"), _signed_text(record))
        if self.secret is None:
            return None if "seal" in record else False
        return "seal" in record and hmac.compare_digest(
            str(record["seal"]).encode(), _compute_record_hmac(self.secret, record).encode()
        )


def load_seal_check(settings: Settings, public: Ed25519PublicKey | None = None) -> SealCheck:
    """Loads the keys that check seals: the given public key, else the secret of this machine.

    Raises UsageError if the secret is not here.
    """
    if public is not None:
        return SealCheck(public, None)
    secret = secrets.read_secret_key(settings, CERTIFICATE_KEY, make=False)
    return SealCheck(_private_key(secret).public_key(), secret)


def sign_certificate_record(settings: Settings, record: Mapping[str, Any], make: bool) -> str:
    """Signs a record with its hash and its page's. make: whether to generate a missing key. Raises UsageError."""
    return _private_key(secrets.read_secret_key(settings, CERTIFICATE_KEY, make=make)).sign(_signed_text(record)).hex()


def export_public_key(settings: Settings) -> str:
    """The public half of the key, as PEM, for anybody to have. Raises UsageError if there is no key."""
    public = _private_key(secrets.read_secret_key(settings, CERTIFICATE_KEY, make=False)).public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def read_public_key(path: Location) -> Ed25519PublicKey:
    """Reads the public key of a PEM file. Raises UsageError if it has none."""
    try:
        found = load_pem_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no public key in PEM"
        raise UsageError(f"{path}: {why}. The holder of the key prints it: sluice erase public-key") from None
    if not isinstance(found, Ed25519PublicKey):
        raise UsageError(f"{path} is no Ed25519 key. The holder of the key prints it: sluice erase public-key")
    return found


def _is_signed_format(record: Mapping[str, Any]) -> bool:
    """True for everything except the first format, including damaged formats."""
    return bool(record.get("format") != 1)


def _is_valid_signature(public: Ed25519PublicKey, signature: object, text: bytes) -> bool:
    try:
        public.verify(bytes.fromhex(str(signature)), text)
    except (InvalidSignature, ValueError):
        return False
    return True


def _signed_text(record: Mapping[str, Any]) -> bytes:
    return f"sluice certificate\n{record['hash']}\n{record.get('page')}".encode()


def _compute_record_hmac(secret: bytes, record: Mapping[str, Any]) -> str:
    return hmac.new(secret, f"{record['hash']}\n{record.get('page')}".encode(), hashlib.sha256).hexdigest()


def _private_key(secret: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hmac.new(secret, _SEED, hashlib.sha256).digest())
