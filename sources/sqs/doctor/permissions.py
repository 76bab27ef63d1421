"""What the doctor may call: the actions of `iam-policy-doctor.json`, and nothing else whatever the login allows."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

POLICY: Final = Path(__file__).parents[1] / "iam-policy-doctor.json"


class NotPermitted(Exception):
    """The doctor was about to make a call that its policy does not list: a mistake in the doctor itself."""


@cache
def allowed_actions() -> frozenset[str]:
    """The actions of the policy, for example `sqs:ListQueues`."""
    actions: set[str] = set()
    for statement in json.loads(POLICY.read_text(encoding="utf-8"))["Statement"]:
        named = statement["Action"]
        actions.update([named] if isinstance(named, str) else named)
    return frozenset(actions)


def read_only(client: Any) -> Any:
    """Give back `client`, which raises `NotPermitted` before it makes any other call than the policy's."""

    def check(model: Any, **_: Any) -> None:
        action = f"{model.service_model.endpoint_prefix}:{model.name}"
        if action not in allowed_actions():
            raise NotPermitted(action)

    client.meta.events.register("before-parameter-build", check)
    return client
