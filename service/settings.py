"""Settings of the service; the only reader of the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

_SPECIAL: Final = {"%": "%25", "?": "%3F"}
"""Letters of a path that mean something in an address; the first is in the others."""

_DRIVERS: Final = frozenset(
    {"sqlite", "sqlite+pysqlite", "postgresql", "postgresql+psycopg"}
)


class Settings(BaseSettings):
    """What an operator may set, by argument or as `FUSEPLAN_<NAME>`.

    Attributes:
        data_home: folder for user data, from `XDG_DATA_HOME`.
        cache_home: folder for what can be fetched again, from `XDG_CACHE_HOME`.
        state_home: folder for logs, from `XDG_STATE_HOME`.
        database_url: SQLAlchemy address; empty means a SQLite file in `data_home`.
        busy_timeout_seconds: how long a locked database is waited for.
        host, port: where the service listens.
        allow_remote: whether it may listen on an address that other hosts reach without
            any token: say so only behind a proxy that keeps strangers out.
        tokens: `auto` asks for a bearer token as soon as one was ever made, `required`
            in any case, `off` never.
        admin_token: text of a token that may do everything, for a first start.
        rate_per_second, rate_burst: requests that one token, or one address without
            tokens, may make in the long run and at once; 0 means any number.
        public_url: address that users see, when a proxy stands in front.
        keep_alive_seconds: how long a connection may idle. Longer than clients and
            proxies keep one (60 seconds for many), so that none is closed just as it
            is used again.
        max_body_bytes: largest request body; more is refused with 413.
        max_bundle_bytes: most bytes that a bundle may hold or unfold to.
        bundle_key: file of the private key that signs exported bundles.
        bundle_trust: public keys, with commas between; when there are any, bundles
            that none of them signed are refused.
        retain_days: how long what is not served any more is kept: older plans of a key.
        retain_revisions: how many older plans of a key are kept in any case.
        retain_jobs_days: how long jobs that have ended are kept, with their events and
            the models that were handed in.
        retain_audit_days: how long the audit is kept.
        otlp_url: where spans of requests go (OTLP over HTTP); empty means nowhere.
        worker: whether a worker runs beside the API, in the same process.
        device: device that the embedded worker measures on.
        budget_seconds, budget_trials: what a tuning job may use when it does not say.
        max_budget_seconds, max_budget_trials: the most that it may ask for.
        plan_seconds: time limit of the partition solver for one request.
        planner_processes: processes that read and plan models, so that a hostile model
            can harm nothing else; 0 plans in the process of the API.
        planner_memory_bytes: most memory that such a process may take.
        read_seconds: how long reading one model may take.
        rules: files with operators and fusion rules, as a search path is written.
        worker_niceness: what a worker in a process of its own adds to its niceness, so
            that an API on the same machine goes first.
        measure_niceness: the same for the process in which it measures: behind an API,
            which answers people, and before preparation of any worker, which disturbs
            what is timed and may wait; at most that of the worker counts.
        heartbeat_seconds: time between two signs of life of a worker.
        dead_after_seconds: a worker that said nothing for so long is dead, when its
            process is not seen on this host; one of another host after three times.
        memo_entries: how many request bodies the API remembers the key of.
        event_poll_seconds: how often a stream of events looks for new ones.
        server: address of the service that builds ask; empty means none.
        token: bearer token that the command line sends there.
        offline: whether builds must not ask a service.
        build_seconds: what all lookups of one build may take together.
        log_format: `json` for machines, `console` for people.
        log_level: least level that is logged.
    """

    model_config = SettingsConfigDict(
        env_prefix="FUSEPLAN_",
        frozen=True,
        populate_by_name=True,
        extra="forbid",
        allow_inf_nan=False,
    )

    data_home: Path = Field(
        default_factory=lambda: Path.home() / ".local" / "share",
        validation_alias="XDG_DATA_HOME",
    )
    cache_home: Path = Field(
        default_factory=lambda: Path.home() / ".cache",
        validation_alias="XDG_CACHE_HOME",
    )
    state_home: Path = Field(
        default_factory=lambda: Path.home() / ".local" / "state",
        validation_alias="XDG_STATE_HOME",
    )
    database_url: str = ""
    rules: str = ""
    busy_timeout_seconds: float = Field(default=5.0, gt=0)
    host: str = "127.0.0.1"
    port: int = Field(default=8321, ge=0, le=65535)
    allow_remote: bool = False
    tokens: Literal["auto", "required", "off"] = "auto"
    admin_token: SecretStr = SecretStr("")
    rate_per_second: float = Field(default=0.0, ge=0)
    rate_burst: int = Field(default=200, ge=1)
    public_url: str = ""
    keep_alive_seconds: int = Field(default=75, ge=1)
    max_body_bytes: int = Field(default=64 * 2**20, ge=1024)
    max_bundle_bytes: int = Field(default=512 * 2**20, ge=1024)
    bundle_key: Path | None = None
    bundle_trust: str = ""
    retain_days: float = Field(default=30.0, ge=0)
    retain_revisions: int = Field(default=3, ge=0)
    retain_jobs_days: float = Field(default=90.0, ge=0)
    retain_audit_days: float = Field(default=365.0, ge=0)
    otlp_url: str = ""
    worker: bool = True
    device: str = "cpu"
    budget_seconds: float = Field(default=60.0, gt=0)
    budget_trials: int = Field(default=400, ge=1, lt=2**31)
    max_budget_seconds: float = Field(default=24 * 3600.0, gt=0)
    max_budget_trials: int = Field(default=100_000, ge=1, lt=2**31)
    plan_seconds: float = Field(default=20.0, gt=0)
    planner_processes: int = Field(default=2, ge=0, le=64)
    planner_memory_bytes: int = Field(default=4 * 2**30, ge=2**28)
    read_seconds: float = Field(default=30.0, gt=0)
    worker_niceness: int = Field(default=19, ge=0, le=19)
    measure_niceness: int = Field(default=10, ge=0, le=19)
    heartbeat_seconds: float = Field(default=2.0, gt=0)
    dead_after_seconds: float = Field(default=15.0, gt=0)
    memo_entries: int = Field(default=512, ge=0)
    event_poll_seconds: float = Field(default=0.2, gt=0)
    server: str = ""
    token: SecretStr = SecretStr("")
    offline: bool = False
    build_seconds: float = Field(default=2.0, gt=0)
    log_format: Literal["json", "console"] = "json"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def data_folder(self) -> Path:
        """Folder of everything that the service keeps."""
        return self.data_home / "fuseplan"

    @field_validator("database_url")
    @classmethod
    def _is_address(cls, value: str) -> str:
        """An address that no database of ours can have is refused where it is said."""
        if not value:
            return value
        # Commands that never touch a database need not wait for its library.
        from sqlalchemy import make_url  # noqa: PLC0415 - see above
        from sqlalchemy.exc import ArgumentError  # noqa: PLC0415 - see above

        wanted = "sqlite:////folder/file.db or postgresql://user@host/name"
        try:
            kind = make_url(value).drivername
        except (ArgumentError, ValueError) as error:
            msg = f"is no address of a database; use {wanted}"
            raise ValueError(msg) from error
        if kind not in _DRIVERS:
            msg = f"{kind} databases cannot be used; use {wanted}"
            raise ValueError(msg)
        return value

    @property
    def cache_folder(self) -> Path:
        """Folder of plans that were fetched for builds."""
        return self.cache_home / "fuseplan"

    @property
    def log_file(self) -> Path:
        """Where the command line keeps the details of unexpected errors."""
        return self.state_home / "fuseplan" / "fuseplan.log"

    @property
    def url(self) -> str:
        """Address of the database, with the default filled in."""
        file = str(self.data_folder / "fuseplan.db")
        for letter, code in _SPECIAL.items():
            file = file.replace(letter, code)
        return self.database_url or f"sqlite:///{file}"

    @property
    def address(self) -> str:
        """Address of the service, as a user types it."""
        return self.public_url or f"http://{self.host}:{self.port}"
