"""Bearer tokens: only their hashes are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from sqlalchemy import String, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from service.store.base import Base

Scope = Literal["plans:read", "jobs:submit", "plans:write", "admin"]

SCOPES: Final[tuple[Scope, ...]] = ("plans:read", "jobs:submit", "plans:write", "admin")
"""What a token may allow; `admin` allows everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What is kept of a token.

    Attributes:
        name: who or what uses it, unique, for people.
        hash: SHA-256 of its text.
    """

    id: str
    name: str
    hash: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        """Whether it opens anything at this moment."""
        expired = self.expires_at is not None and self.expires_at <= now
        return self.revoked_at is None and not expired

    def allows(self, scope: Scope) -> bool:
        """Whether it has a scope."""
        return scope in self.scopes or "admin" in self.scopes


class TokenRow(Base):
    """Table `tokens`."""

    __tablename__ = "tokens"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(100), unique=True)
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    scopes: Mapped[list[Any]]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


def hash_of(text: str) -> str:
    """SHA-256 of a token's text; the text has 256 random bits, so no salt is needed."""
    return hashlib.sha256(text.encode()).hexdigest()


def scopes_of(words: Collection[str]) -> tuple[Scope, ...]:
    """The scopes that these words name, in their fixed order."""
    return tuple(scope for scope in SCOPES if scope in words)


def add(session: Session, token: Token) -> None:
    """Keep a new token."""
    session.add(
        TokenRow(
            id=token.id,
            name=token.name,
            hash=token.hash,
            scopes=list(token.scopes),
            created_at=token.created_at,
            expires_at=token.expires_at,
            revoked_at=token.revoked_at,
        )
    )
    session.flush()


def find(session: Session, name: str) -> Token | None:
    """The token of this name."""
    row = session.scalars(select(TokenRow).where(TokenRow.name == name)).first()
    return None if row is None else _token(row)


def by_hashes(session: Session, hashes: Collection[str]) -> dict[str, Token]:
    """The tokens whose texts have these hashes, valid or not, by hash."""
    rows = session.scalars(select(TokenRow).where(TokenRow.hash.in_(hashes)))
    return {row.hash: _token(row) for row in rows}


def everyone(session: Session) -> tuple[Token, ...]:
    """Every token that was ever made."""
    rows = session.scalars(select(TokenRow).order_by(TokenRow.created_at, TokenRow.id))
    return tuple(map(_token, rows))


def revoke(session: Session, name: str, *, now: datetime) -> Token | None:
    """End a token; None when there is none of this name."""
    row = session.scalars(select(TokenRow).where(TokenRow.name == name)).first()
    if row is None:
        return None
    row.revoked_at = row.revoked_at or now
    session.flush()
    return _token(row)


def count(session: Session) -> int:
    """How many tokens were ever made, revoked ones too."""
    return session.scalar(select(func.count()).select_from(TokenRow)) or 0


def _token(row: TokenRow) -> Token:
    return Token(
        id=row.id,
        name=row.name,
        hash=row.hash,
        scopes=scopes_of(row.scopes),
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )
