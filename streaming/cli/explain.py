"""`queuewatch explain`: asks the running service why signals fire or do not."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Annotated

import typer

from streaming.cli.errors import CommandError


def explain(
    what: Annotated[str, typer.Argument(help="A queue, message id, group or consumer.")],
    url: Annotated[str, typer.Option(help="URL of the service.", envvar="QUEUEWATCH_URL")] = "http://127.0.0.1:9400",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with the token of the service's http.auth. Without this option: QUEUEWATCH_TOKEN holds the token, or "
            "QUEUEWATCH_TOKEN_FILE names a file with it."
        ),
    ] = None,
) -> None:
    """Explain in words and numbers why signals fire, or do not, for a queue, message, group or consumer."""
    from urllib.parse import quote

    import httpx

    from queuewatch.tls import HTTP_FIX, is_plain_text
    from streaming.config.section import NOT_A_TOKEN, is_token

    if not what.strip():
        raise CommandError("give the name of a queue, message, group or consumer")
    address = f"{url.rstrip('/')}/api/v1/explain/{quote(os.fsencode(what), safe='')}"
    headers = {b"Accept": b"application/json" if as_json else b"text/plain"}
    if token := _token(token_file):
        if not is_token(token):
            raise CommandError(f"the token {NOT_A_TOKEN}")
        headers[b"Authorization"] = b"Bearer " + token.encode()
    # A URL may hold a user and a password.
    shown = re.sub(r"//[^/]*@", "//", url)
    try:
        answer = httpx.get(address, headers=headers, timeout=10)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        if is_plain_text(error):
            raise CommandError(f"no queuewatch answers at {shown}: {HTTP_FIX}") from error
        raise CommandError(f"no queuewatch answers at {shown} ({error}); start it, or give its address with --url") from error
    if answer.status_code == 401:
        refusal = "rejected the token" if token else "requires credentials"
        raise CommandError(
            f"{shown} {refusal}: give the token of http.auth with --token-file, or its user and password in "
            "QUEUEWATCH_URL, as in http://USER:PASSWORD@HOST:9400"
        )
    if answer.status_code == 503 and _error_code(answer.text) == "starting":
        raise CommandError(f"{shown} has published no batch yet: it is starting, or cannot reach its source; /-/ready says more")
    # A name that is not known is explained with a 404; so may be the whole address, by any server's page or error.
    foreign = answer.text.lstrip().startswith("<") or _error_code(answer.text) is not None
    if answer.status_code not in (200, 404) or foreign:
        words = " ".join(answer.text.split())[:200]
        raise CommandError(f"{shown} answers {answer.status_code}: {words}; is this the address of queuewatch?")
    typer.echo(answer.text.rstrip("\n"))
    if answer.status_code == 404:
        raise typer.Exit(1)


def _error_code(text: str) -> str | None:
    """Return the code of an error of the service's API, None for any other text."""
    try:
        return str(json.loads(text)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return None


def _token(file: Path | None) -> str | None:
    """Return the token from the option's file, else from the environment, else None. White space around it does not count."""
    if file is None:
        if value := os.environ.get("QUEUEWATCH_TOKEN", "").strip():
            return value
        named = os.environ.get("QUEUEWATCH_TOKEN_FILE")
        if not named:
            return None
        file = Path(named)
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise CommandError(f"cannot read the token file {file}: {reason}") from None
