"""The address of a database as people and logs may see it."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote_plus

from sqlalchemy import URL, make_url

_SECRET: Final = ("password", "passwd", "passphrase", "secret", "token")
"""What the name of a parameter holds whose value is nobody's business: libpq takes
`password`, `sslpassword` and `oauth_client_secret` behind the question mark, too."""
_HIDDEN: Final = "***"


def shown(address: str | URL) -> str:
    """An address without its passwords, wherever in it they stand."""
    url = make_url(address)
    hidden = {
        name: _HIDDEN
        for name in url.query
        if any(word in name.lower() for word in _SECRET)
    }
    text = url.update_query_dict(hidden).render_as_string(hide_password=True)
    return text.replace(f"={quote_plus(_HIDDEN)}", f"={_HIDDEN}")
