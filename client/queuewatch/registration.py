"""The callbacks in botocore's event emitters, which call the hooks of the newest watch."""

from __future__ import annotations

from typing import Any, Final

from queuewatch.hooks import MARK, SqsHooks

_BEFORE: Final = f"{MARK}-before"
_AFTER: Final = f"{MARK}-after"


class Registration:
    """The callback of a session's, client's or resource's emitter, and of the copies of it.

    A client copies the emitter of its session, with the callbacks, so they cannot be replaced when the session is watched again:
    they stay, and `hooks` changes.
    """

    def __init__(self, emitter: Any) -> None:
        self.hooks: SqsHooks | None = None
        # A client's emitter may have the callback of its session. Last before the call and first after it, so that other hooks
        # see the same calls and responses as without this one.
        emitter.unregister("before-parameter-build.sqs", unique_id=_BEFORE)
        emitter.register_last("before-parameter-build.sqs", self._before, unique_id=_BEFORE)
        # Stays for good, because a call in flight needs it even if its watch has ended.
        emitter.register_first("after-call.sqs", _after, unique_id=_AFTER)

    def _before(self, params: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        hooks = self.hooks
        if hooks is not None:
            hooks.before(params=params, model=model, context=context)


def _after(parsed: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    seen = context.get(MARK)
    if seen is not None:
        seen[0].after(parsed=parsed, context=context)
