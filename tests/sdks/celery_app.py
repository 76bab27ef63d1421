"""A Celery application on SQS that knows nothing of the proxy."""

import os

from celery import Celery

app = Celery("shop", broker="sqs://")
app.conf.task_default_queue = os.environ["SHOP_QUEUE"]
app.conf.broker_transport_options = {"region": "us-east-1", "wait_time_seconds": 2, "is_secure": False}
app.conf.worker_enable_remote_control = False


@app.task  # type: ignore[untyped-decorator]  # Celery has no types
def charge(order: int) -> int:
    """Process an order."""
    return order
