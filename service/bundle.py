"""Bundles: plans with all that they name, in one file for machines without a network.

A bundle is a tar under Zstandard. Equal plans give an equal tar, byte for byte: names
are sorted, times and owners are zero. Inside lie `manifest.json`, `SHA256SUMS`, its
signature in a signed bundle, and the blobs as `blobs/sha256/<digest>`, so that any
static file server can serve them.

Nothing of a bundle is ever written to a path that the bundle names: members are read
into memory, and each is refused unless its name, kind, size and digest are as agreed.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import zstandard
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service import signing
from service.errors import BadBundle, BundleTooLarge
from tuner import document

SCHEMA: Final = "fuseplan.bundle/1"
MEDIA_TYPE: Final = "application/zstd"
MANIFEST: Final = "manifest.json"
SUMS: Final = "SHA256SUMS"
SIGNATURE: Final = "SHA256SUMS.sig"

MAX_PLANS: Final = 10_000
MAX_MEMBERS: Final = 200_000
MAX_MANIFEST_BYTES: Final = 64 * 2**20

_LEVEL: Final = 10
_WINDOW_BYTES: Final = 2**27
"""Largest window of a frame that is read: what a packer may make us hold at once."""

_PIECE_BYTES: Final = 1 << 20

_NAME: Final = re.compile(
    r"(?:manifest\.json|SHA256SUMS(?:\.sig)?|blobs/sha256/[0-9a-f]{64})"
)
_PREFIX: Final = "blobs/sha256/"

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
MediaType = Annotated[
    str,
    Field(
        pattern=r"^(?:application/vnd\.fuseplan\.[a-z.+]{1,40}|text/x-(?:opencl|cuda); "
        r"charset=utf-8|application/octet-stream)$"
    ),
]
"""Types that no browser runs: they come back as headers of the blob."""
Count = Annotated[int, Field(ge=0, lt=2**31)]
Finite = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class BundledPlan(BaseModel):
    """A plan of a bundle: what its key stands for, and where its bytes are.

    Attributes:
        graph_hash: fingerprint of the graph, as in the plan key.
        nodes, tensors: size of that graph.
        parts: hash of each part of the key.
        digest: blob of the body.
        blobs: blobs that the body names.
        seconds: by what plans of equal evidence are compared.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    key: Sha256
    graph_hash: Sha256
    nodes: Count
    tensors: Count
    target: Annotated[str, Field(max_length=100, pattern=r"^[^\x00]*$")]
    parts: dict[str, Sha256]
    options: dict[str, Any]
    evidence: Literal["analytic", "compiled", "measured"]
    digest: Sha256
    blobs: tuple[Sha256, ...]
    seconds: Finite
    objective_seconds: Finite
    bound_seconds: Finite
    kernels: Count


class _Manifest(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    schema_: Annotated[Literal["fuseplan.bundle/1"], Field(alias="schema")]
    media_types: dict[Sha256, MediaType]
    plans: Annotated[tuple[BundledPlan, ...], Field(max_length=MAX_PLANS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The bytes of a blob, and what they are."""

    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Plans and every blob that they name, by digest."""

    plans: tuple[BundledPlan, ...]
    contents: Mapping[str, Content]

    def body(self, plan: BundledPlan) -> bytes:
        """The stored body of a plan."""
        return self.contents[plan.digest].data


def pack(bundle: Bundle, *, key: Path | None = None) -> bytes:
    """The file of a bundle; equal bundles give equal bytes.

    Args:
        bundle: what goes in.
        key: file of the private key that signs it; Ed25519 is deterministic.
    """
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(
        pack_tar(bundle, key=key)
    )


def pack_tar(bundle: Bundle, *, key: Path | None = None) -> bytes:
    """The tar inside of a bundle: sorted names, no times, no owners."""
    manifest = {
        "schema": SCHEMA,
        "media_types": {
            digest: content.media_type for digest, content in bundle.contents.items()
        },
        "plans": [
            one.model_dump(mode="json")
            for one in sorted(bundle.plans, key=lambda one: (one.key, one.evidence))
        ],
    }
    files = {MANIFEST: document.encode(manifest)}
    files |= {f"{_PREFIX}{d}": content.data for d, content in bundle.contents.items()}
    files[SUMS] = sums(files)
    if key is not None:
        files[SIGNATURE] = signing.sign(files[SUMS], key)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size = len(files[name])
            archive.addfile(member, io.BytesIO(files[name]))
    return buffer.getvalue()


def sums(files: Mapping[str, bytes]) -> bytes:
    """The text of SHA256SUMS, as `sha256sum --check` reads it."""
    lines = (f"{_sha256(files[name])}  {name}\n" for name in sorted(files))
    return "".join(lines).encode()


def unpack(
    data: bytes, *, max_bytes: int, trusted: AbstractSet[str] = frozenset()
) -> Bundle:
    """Read a bundle, trusting nothing of it.

    Args:
        data: the file.
        max_bytes: most bytes that it may unfold to.
        trusted: public keys of which one must have signed it; without any, none must.

    Raises:
        BadBundle: it is no bundle, or not as it says.
        UntrustedBundle: none of the trusted keys signed it.
        BundleTooLarge: it unfolds to more than that.
    """
    try:
        files = dict(_members(data, max_bytes))
    except (zstandard.ZstdError, tarfile.TarError, EOFError, ValueError) as error:
        raise _bad("bundle", f"it cannot be read: {error}") from error
    for name in (MANIFEST, SUMS):
        if name not in files:
            raise _bad("bundle", f"it has no {name}")
    stated, signature = files.pop(SUMS), files.pop(SIGNATURE, None)
    if stated != sums(files):
        raise _bad(SUMS, "it does not tell the digests of the files beside it")
    signing.check(signature, stated, trusted)
    manifest = _manifest(files.pop(MANIFEST))
    contents = _contents(files, manifest)
    for plan in manifest.plans:
        missing = {plan.digest, *plan.blobs} - set(contents)
        if missing:
            raise _bad(f"plan {plan.key}", f"it names {min(missing)}, not there")
    return Bundle(plans=manifest.plans, contents=contents)


def _contents(files: Mapping[str, bytes], manifest: _Manifest) -> dict[str, Content]:
    contents = {}
    for name, content in files.items():
        digest = name.removeprefix(_PREFIX)
        if _sha256(content) != digest:
            raise _bad(name, "its bytes have another digest")
        kind = manifest.media_types.get(digest, "application/octet-stream")
        contents[digest] = Content(media_type=kind, data=content)
    return contents


def _members(data: bytes, max_bytes: int) -> Iterator[tuple[str, bytes]]:
    # A stream is only ever asked to `read`, which is all that there is.
    stream: Any = Unfolding(data, what="bundle", max_bytes=max_bytes)
    seen: set[str] = set()
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            name = member.name
            if member.type != tarfile.REGTYPE or not _NAME.fullmatch(name):
                raise _bad(repr(name[:100]), "a bundle holds no such member")
            if name in seen or len(seen) >= MAX_MEMBERS:
                raise _bad(name, "it is there twice, or there are too many")
            seen.add(name)
            file = archive.extractfile(member)
            assert file is not None, "a regular member has content"
            yield name, file.read()


class Unfolding:
    """What Zstandard packed, as a file to read, which ends with an error when too long.

    Args:
        data: the packed bytes.
        what: how a message calls them.
        max_bytes: most bytes that may come out.
    """

    def __init__(self, data: bytes, *, what: str, max_bytes: int) -> None:
        unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
        self._stream: Any = unpacker.stream_reader(io.BytesIO(data))
        self._what = what
        self._max_bytes = max_bytes
        self._given_bytes = 0

    def read(self, size: int = -1) -> bytes:
        """Some bytes, or all of them.

        Raises:
            BundleTooLarge: more came out than is allowed.
            zstandard.ZstdError: the bytes are damaged.
        """
        return self._whole() if size < 0 else self._piece(size)

    def _whole(self) -> bytes:
        found = bytearray()
        while piece := self._piece(_PIECE_BYTES):
            found += piece
        return bytes(found)

    def _piece(self, size: int) -> bytes:
        piece: bytes = self._stream.read(size)
        self._given_bytes += len(piece)
        if self._given_bytes > self._max_bytes:
            raise BundleTooLarge(
                self._what,
                f"it unfolds to more than {self._max_bytes} bytes",
                hint="split it, or raise FUSEPLAN_MAX_BUNDLE_BYTES",
            )
        return piece


def _manifest(data: bytes) -> _Manifest:
    if len(data) > MAX_MANIFEST_BYTES:
        raise _bad(MANIFEST, "it is too large")
    try:
        return _Manifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join((MANIFEST, *map(str, first["loc"])))
        raise _bad(where, str(first["msg"])) from error


def _bad(where: str, problem: str) -> BadBundle:
    return BadBundle(where, problem, hint="export the bundle again")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
