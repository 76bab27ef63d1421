"""The endpoints at which the wrappers, which import no SDK, find a telemetry queue given by name."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from botocore.session import Session

from queuewatch import aws_lambda as layer
from queuewatch.aws_lambda.posting import QueuePoster
from tests.services.node import find_node
from tests.services.provider import Services

MODULE = Path(layer.__file__).parent / "node/posting.mjs"
REGIONS = (
    *("us-east-1", "me-central-1", "us-gov-west-1", "cn-north-1", "cn-northwest-1", "eusc-de-east-1"),
    *("us-iso-east-1", "us-isob-east-1", "us-isof-south-1", "eu-isoe-west-1"),
)


def of_sdk(region: str) -> str:
    """Return the endpoint that boto3 calls."""
    client = Session().create_client("sqs", region_name=region, aws_access_key_id="x", aws_secret_access_key="x")
    return str(client.meta.endpoint_url) + "/"


@pytest.mark.parametrize("region", REGIONS)
def test_the_python_wrapper_calls_the_endpoint_of_the_sdk(region: str) -> None:
    """Each partition of AWS has a domain of its own."""
    assert QueuePoster("telemetry", region=region)._endpoint() == of_sdk(region)


def test_the_node_wrapper_calls_the_endpoints_of_the_sdk(services: Services) -> None:
    """Each partition of AWS has a domain of its own."""
    script = f"""
        import {{ QueuePoster }} from {json.dumps(MODULE.as_uri())};
        const posters = {json.dumps(REGIONS)}.map((region) => new QueuePoster("sqs:telemetry", {{ AWS_REGION: region }}));
        console.log(JSON.stringify(posters.map((poster) => poster.endpoint.href)));
    """
    command = [services.found(find_node).executable, "--input-type=module", "--eval", script]
    found = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=30).stdout)
    assert found == [of_sdk(region) for region in REGIONS]
