"""`queuewatch explain`: asks the running service why something fires or does not."""

from __future__ import annotations

from typing import Annotated

import typer


def explain(
    what: Annotated[str, typer.Argument(help="A queue, message id, group or consumer.")],
    url: Annotated[str, typer.Option(help="URL of the service.", envvar="QUEUEWATCH_URL")] = "http://127.0.0.1:9400",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explain in words and numbers why a queue, message, group or consumer fires or does not."""
    from urllib.parse import quote

    import httpx

    from streaming.cli.errors import CommandError

    address = f"{url.rstrip('/')}/api/v1/explain/{quote(what, safe='')}"
    try:
        answer = httpx.get(address, headers={"Accept": "application/json" if as_json else "text/plain"}, timeout=10)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise CommandError(f"no queuewatch answers at {url} ({error}); start it, or give its address with --url") from error
    if answer.status_code not in (200, 404):
        words = " ".join(answer.text.split())[:200]
        raise CommandError(f"{url} answers {answer.status_code}: {words}; is this the address of queuewatch?")
    typer.echo(answer.text.rstrip("\n"))
    if answer.status_code == 404:
        raise typer.Exit(1)
