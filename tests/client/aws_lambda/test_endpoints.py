"""The endpoints to which the wrappers, which import no SDK, send telemetry."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from botocore.session import Session

from queuewatch import aws_lambda as layer
from queuewatch.aws_lambda.posting import HttpPoster, QueuePoster, transport_for
from queuewatch.tls import HTTP_FIX
from queuewatch.transports import SendError
from tests.proxy.fake_sqs import fake_sqs
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


DESTINATIONS = [
    ("q", {"AWS_ENDPOINT_URL_SQS": "", "AWS_REGION": "eu-west-1"}),
    ("q", {"AWS_ENDPOINT_URL_SQS": "", "AWS_ENDPOINT_URL": "http://localhost:1/", "AWS_REGION": ""}),
    ("q?region=", {"AWS_REGION": "eu-west-1"}),
    ("q?region=eu-west-1", {"AWS_REGION": "us-east-1"}),
    ("https://sqs.eu-west-1.amazonaws.com/1/q", {"AWS_REGION": "us-east-1"}),
    ("https://eu-west-1.queue.amazonaws.com/1/q", {"AWS_REGION": "us-east-1"}),
]
REFUSED = ["sqs:https://u:s3cret@host/q?token=s3cret", "sqs:q?regoin=eu-west-1", "sqs:q?region=eu-west-1&x=1", "sqs:/", "sqs://"]


def test_the_wrappers_read_a_destination_alike(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both call the same endpoint for the same region. A variable that is set to nothing is not set."""
    script = f"""
        import {{ transportFor }} from {json.dumps(MODULE.as_uri())};
        const posters = {json.dumps(DESTINATIONS)}.map(([to, environment]) => transportFor(`sqs:${{to}}`, environment));
        console.log(JSON.stringify(posters.map((poster) => [poster.region, poster.endpoint.href])));
    """
    command = [services.found(find_node).executable, "--input-type=module", "--eval", script]
    found = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=30).stdout)
    for (to, variables), of_node in zip(DESTINATIONS, found, strict=True):
        with monkeypatch.context() as patch:
            for name in ("AWS_ENDPOINT_URL_SQS", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION"):
                patch.delenv(name, raising=False)
            for name, value in {**variables, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}.items():
                patch.setenv(name, value)
            poster = transport_for(f"sqs:{to}")
            assert isinstance(poster, QueuePoster)
            assert [poster._region, poster._endpoint()] == of_node


def test_the_wrappers_refuse_the_same_destinations(services: Services) -> None:
    """A misspelt option would send telemetry to another region."""
    script = f"""
        import {{ transportFor }} from {json.dumps(MODULE.as_uri())};
        const refused = (to) => {{ try {{ transportFor(to, {{}}); return ""; }} catch (error) {{ return error.message; }} }};
        console.log(JSON.stringify({json.dumps(REFUSED)}.map(refused)));
    """
    command = [services.found(find_node).executable, "--input-type=module", "--eval", script]
    found = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=30).stdout)
    for to, of_node in zip(REFUSED, found, strict=True):
        with pytest.raises(ValueError, match="sqs:") as caught:
            transport_for(to)
        assert of_node
        assert "s3cret" not in of_node + str(caught.value)


def test_both_wrappers_say_that_a_port_does_not_speak_tls(services: Services) -> None:
    """OpenSSL's words, and Node's EPROTO, name neither the cause nor the remedy."""
    with fake_sqs(lambda _: (202, "application/json", b"{}")) as plain:
        to = plain.endpoint.replace("http:", "https:") + "/api/v1/events"
        script = f"""
            import {{ HttpPoster }} from {json.dumps(MODULE.as_uri())};
            const alive = setInterval(() => {{}}, 100); // the poster keeps no function running
            await new HttpPoster({json.dumps(to)}, {{}}).send(Buffer.from("{{}}")).catch((error) => console.log(error.message));
            clearInterval(alive);
        """
        command = [services.found(find_node).executable, "--input-type=module", "--eval", script]
        of_node = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
        with pytest.raises(SendError) as caught:
            HttpPoster(to, to).send(b"{}\n")
    assert of_node == str(caught.value) == f"{to}: {HTTP_FIX}"
