"""The endpoints of AWS that the proxy forwards to without `--endpoint`."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.session import Session

from queuewatch.proxy.upstreams import upstream_of_region

_FIPS = {"AWS_USE_FIPS_ENDPOINT": "true"}
_DUAL_STACK = {"AWS_USE_DUALSTACK_ENDPOINT": "true"}


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1", "us-gov-west-1", "cn-north-1", "eusc-de-east-1"])
@pytest.mark.parametrize("variables", [{}, _FIPS, _DUAL_STACK, _FIPS | _DUAL_STACK, {"AWS_USE_FIPS_ENDPOINT": "false"}])
def test_the_endpoint_is_that_of_the_sdk(region: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise calls of an application that has to use FIPS endpoints leave them when the proxy is put in between."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    session = Session()
    client = session.create_client("sqs", region_name=region, aws_access_key_id="x", aws_secret_access_key="x")
    assert upstream_of_region(session, region).origin == client.meta.endpoint_url


def test_the_profile_may_ask_for_a_kind_of_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config"
    config.write_text("[profile strict]\nuse_fips_endpoint = true\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    assert upstream_of_region(Session(profile="strict"), "us-east-1").origin == "https://sqs-fips.us-east-1.amazonaws.com"


def test_a_missing_endpoint_says_which_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_USE_DUALSTACK_ENDPOINT", "true")
    with pytest.raises(ValueError, match="'us-iso-east-1' and use_dualstack_endpoint; give --endpoint us-iso-east-1=https://"):
        upstream_of_region(Session(), "us-iso-east-1")
