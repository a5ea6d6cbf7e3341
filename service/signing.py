"""Signatures of bundles: Ed25519 (RFC 8032) over the bundle's SHA256SUMS.

The sums tell the digest of every file of a bundle, so that signing them signs all. Keys
are files as `openssl genpkey -algorithm ed25519` writes them; a public key is told as
64 hexadecimal digits. The algorithm itself comes with the extra `sign`.
"""

from __future__ import annotations

import json
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from service.errors import SigningUnavailable, UntrustedBundle

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SCHEMA: Final = "fuseplan.signature/1"
_MAX_BYTES: Final = 1000


def create_key(path: Path) -> str:
    """Write a new private key that only its owner reads; gives the public one.

    Raises:
        SigningUnavailable: the extra `sign` is not installed, or the file cannot be
            made; an existing one is never replaced.
    """
    private = _algorithm().Ed25519PrivateKey.generate()
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - optional

    text = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(text)
    except OSError as error:
        raise SigningUnavailable(
            str(path), f"cannot be made: {error.strerror}", hint="choose another file"
        ) from error
    return public_key(private)


def sign(data: bytes, key: Path) -> bytes:
    """The signature of some bytes, as a bundle holds it.

    Raises:
        SigningUnavailable: the extra `sign` is missing, or the key cannot be read.
    """
    private = _load(key)
    statement = {
        "schema": SCHEMA,
        "key": public_key(private),
        "signature": private.sign(data).hex(),
    }
    return json.dumps(statement, sort_keys=True).encode()


def check(statement: bytes | None, data: bytes, trusted: AbstractSet[str]) -> None:
    """Make sure that a trusted key signed some bytes.

    Args:
        statement: what `sign` gave; None when there is none.
        data: the bytes.
        trusted: public keys, as hexadecimal digits; without any, all is trusted.

    Raises:
        UntrustedBundle: nobody signed them, or none of these, or they were changed.
        SigningUnavailable: the extra `sign` is not installed.
    """
    if not trusted:
        return
    if statement is None:
        raise _untrusted("it is not signed")
    key, signature = _parsed(statement)
    if key not in trusted:
        raise _untrusted(f"key {key} signed it, which is not trusted")
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - optional

    public = _algorithm().Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
    try:
        public.verify(signature, data)
    except InvalidSignature as error:
        raise _untrusted("its signature is not of these bytes") from error


def trusted_keys(text: str) -> frozenset[str]:
    """Public keys from a setting: hexadecimal digits, with commas between.

    Raises:
        SigningUnavailable: one is no public key.
    """
    keys = frozenset(one.strip().lower() for one in text.split(",") if one.strip())
    for key in keys:
        if not _is_hex(key, 64):
            raise SigningUnavailable(
                "FUSEPLAN_BUNDLE_TRUST",
                f"{key[:80]!r} is no public key",
                hint="give 64 hexadecimal digits, as `fuseplan bundle key` prints them",
            )
    return keys


def public_key(private: Ed25519PrivateKey) -> str:
    """The public key of a private one, as 64 hexadecimal digits."""
    return private.public_key().public_bytes_raw().hex()


def _parsed(statement: bytes) -> tuple[str, bytes]:
    try:
        told = json.loads(statement[:_MAX_BYTES])
        key, signature = told["key"], told["signature"]
        known = told["schema"] == SCHEMA
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _untrusted("its signature cannot be read") from error
    if not (known and _is_hex(key, 64) and _is_hex(signature, 128)):
        raise _untrusted("its signature is of an unknown form")
    return key, bytes.fromhex(signature)


def _is_hex(text: object, length: int) -> bool:
    return (
        isinstance(text, str)
        and len(text) == length
        and set(text) <= set("0123456789abcdef")
    )


def _load(path: Path) -> Ed25519PrivateKey:
    algorithm = _algorithm()
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - optional

    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise _bad_key(path, "cannot be read as a private key") from error
    if not isinstance(key, algorithm.Ed25519PrivateKey):
        raise _bad_key(path, "is no Ed25519 key")
    return cast("Ed25519PrivateKey", key)


def _bad_key(path: Path, problem: str) -> SigningUnavailable:
    return SigningUnavailable(
        str(path), problem, hint="make one with `fuseplan bundle key FILE`"
    )


def _algorithm() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import (  # noqa: PLC0415
            ed25519,
        )
    except ImportError as error:
        raise SigningUnavailable(
            "cryptography",
            "signing bundles needs this package",
            hint="install fuseplan[sign]",
        ) from error
    return ed25519


def _untrusted(problem: str) -> UntrustedBundle:
    return UntrustedBundle(
        "bundle",
        problem,
        hint="get it from who you trust, or add the key to FUSEPLAN_BUNDLE_TRUST",
    )
