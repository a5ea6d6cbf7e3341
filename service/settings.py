"""Settings of the service; the only reader of the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """What an operator may set, by argument or as `FUSEPLAN_<NAME>`.

    Attributes:
        data_home: folder for user data, from `XDG_DATA_HOME`.
        state_home: folder for logs, from `XDG_STATE_HOME`.
        database_url: SQLAlchemy address; empty means a SQLite file in `data_home`.
        busy_timeout_seconds: how long a locked database is waited for.
        host, port: where the service listens.
        allow_remote: whether it may listen on an address that other hosts reach. There
            are no tokens yet: say so only behind a proxy that keeps strangers out.
        public_url: address that users see, when a proxy stands in front.
        max_body_bytes: largest request body; more is refused with 413.
        worker: whether a worker runs beside the API, in the same process.
        device: device that the embedded worker measures on.
        budget_seconds, budget_trials: what a tuning job may use when it does not say.
        max_budget_seconds, max_budget_trials: the most that it may ask for.
        plan_seconds: time limit of the partition solver for one request.
        memo_entries: how many request bodies the API remembers the key of.
        event_poll_seconds: how often a stream of events looks for new ones.
        log_format: `json` for machines, `console` for people.
        log_level: least level that is logged.
    """

    model_config = SettingsConfigDict(
        env_prefix="FUSEPLAN_", frozen=True, populate_by_name=True, extra="forbid"
    )

    data_home: Path = Field(
        default_factory=lambda: Path.home() / ".local" / "share",
        validation_alias="XDG_DATA_HOME",
    )
    state_home: Path = Field(
        default_factory=lambda: Path.home() / ".local" / "state",
        validation_alias="XDG_STATE_HOME",
    )
    database_url: str = ""
    busy_timeout_seconds: float = Field(default=5.0, gt=0)
    host: str = "127.0.0.1"
    port: int = Field(default=8321, ge=0, le=65535)
    allow_remote: bool = False
    public_url: str = ""
    max_body_bytes: int = Field(default=64 * 2**20, ge=1024)
    worker: bool = True
    device: str = "cpu"
    budget_seconds: float = Field(default=60.0, gt=0)
    budget_trials: int = Field(default=400, ge=1)
    max_budget_seconds: float = Field(default=24 * 3600.0, gt=0)
    max_budget_trials: int = Field(default=100_000, ge=1)
    plan_seconds: float = Field(default=20.0, gt=0)
    memo_entries: int = Field(default=512, ge=0)
    event_poll_seconds: float = Field(default=0.2, gt=0)
    log_format: Literal["json", "console"] = "json"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def data_folder(self) -> Path:
        """Folder of everything that the service keeps."""
        return self.data_home / "fuseplan"

    @property
    def log_file(self) -> Path:
        """Where the command line keeps the details of unexpected errors."""
        return self.state_home / "fuseplan" / "fuseplan.log"

    @property
    def url(self) -> str:
        """Address of the database, with the default filled in."""
        return self.database_url or f"sqlite:///{self.data_folder / 'fuseplan.db'}"

    @property
    def address(self) -> str:
        """Address of the service, as a user types it."""
        return self.public_url or f"http://{self.host}:{self.port}"
