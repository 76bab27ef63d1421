"""Limit the doctor to the actions of `iam-policy-doctor.json`, whatever else the login allows."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

POLICY: Final = Path(__file__).parents[1] / "iam-policy-doctor.json"


class NotPermitted(Exception):
    """The doctor was about to make a call that its policy does not list: a bug in the doctor itself."""


@cache
def allowed_actions() -> frozenset[str]:
    """Return the actions of the policy, for example `sqs:ListQueues`."""
    actions: set[str] = set()
    for statement in json.loads(POLICY.read_text(encoding="utf-8"))["Statement"]:
        named = statement["Action"]
        actions.update([named] if isinstance(named, str) else named)
    return frozenset(actions)


def read_only(client: Any) -> Any:
    """Return `client`, modified to raise `NotPermitted` before any call that the policy does not list."""

    def check(model: Any, **_: Any) -> None:
        action = f"{model.service_model.endpoint_prefix}:{model.name}"
        if action not in allowed_actions():
            raise NotPermitted(action)

    client.meta.events.register("before-parameter-build", check)
    return client
