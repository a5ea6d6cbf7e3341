"""The least that FastAPI can do: answers that were given before, by name.

python -m benchmarks.bare ANSWERS PORT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Response


def create(answers: dict[str, dict[str, Any]]) -> FastAPI:
    """An application with one route for all of them."""
    app = FastAPI(openapi_url=None)
    ready = {
        name: (bytes.fromhex(one["content"]), one["status"], dict(one["headers"]))
        for name, one in answers.items()
    }

    @app.get("/{name}")
    async def get(name: str) -> Response:
        content, status, headers = ready.get(name, (b"", 200, {}))
        return Response(content, status_code=status, headers=headers)

    return app


def main() -> None:
    """Serve until told to end."""
    path, port = sys.argv[1:]
    app = create(json.loads(Path(path).read_text()))
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(port),
        loop="uvloop",
        http="httptools",
        log_config=None,
        access_log=False,
    )


if __name__ == "__main__":
    main()
