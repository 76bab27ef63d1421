"""Environment variables override the configuration file, key by key or a section at once."""

from __future__ import annotations

import pytest

from streaming.config import Config, load_config
from streaming.config.tracking import settings_of
from tests.streaming.config.files import ConfigFile, bomb, mistakes


def test_variables_override_the_file(write: ConfigFile) -> None:
    """They set numbers, lists, whole mappings and new sections; an empty variable removes a value."""
    path = write("spark: {shards: 3, conf: {spark.a: x}}\nquarantine: {path: q.ndjson}\n")
    config = load_config(
        path,
        {
            "QUEUEWATCH_SPARK__SHARDS": "4",
            "QUEUEWATCH_SPARK__CONF": "{spark.b: y}",
            "QUEUEWATCH_SOURCE__KAFKA__BOOTSTRAP_SERVERS": "[a:1, b:2]",
            "QUEUEWATCH_SOURCE__KAFKA__TOPICS": "one,two",
            "QUEUEWATCH_QUARANTINE__PATH": "",
            "QUEUEWATCH_JUDGE__SLOW_STRATEGIES": "false",
        },
    )
    assert config.spark.shards == 4
    assert config.spark.conf == {"spark.a": "x", "spark.b": "y"}
    assert config.source.kafka is not None
    assert config.source.kafka.bootstrap_servers == ("a:1", "b:2")
    assert config.source.kafka.topics == ("one", "two")
    assert config.quarantine.path is None
    assert config.judge.slow_strategies is False


def test_an_empty_variable_gives_a_key_its_default(write: ConfigFile) -> None:
    """This holds for numbers and whole sections. No section is created; the error about a required key names the variable."""
    path = write("http: {port: 1, host: a}\nsource: {spool: {folder: in}}\nspark: {shards: 3}\n")
    names = ("HTTP__PORT", "SPARK__MASTER", "SOURCE__KAFKA__TOPICS", "COLLECT__SQS__INTERVAL_S", "JUDGE__THRESHOLDS")
    config = load_config(path, {f"QUEUEWATCH_{name}": "" for name in names})
    assert (config.http.port, config.http.host, config.spark.shards) == (Config().http.port, "a", 3)
    assert (config.spark.master, config.source.kafka) == (Config().spark.master, None)
    assert config.section("collect.sqs") is None
    (mistake,) = mistakes(path, QUEUEWATCH_SOURCE__SPOOL__FOLDER="")
    assert (mistake.key, mistake.where) == ("source.spool.folder", "environment variable QUEUEWATCH_SOURCE__SPOOL__FOLDER")
    (mistake,) = mistakes(write("http: 1\n"), QUEUEWATCH_HTTP__PORT="")
    assert mistake.key == "http"


@pytest.mark.slow
def test_an_error_in_a_variable_names_the_variable(write: ConfigFile) -> None:
    """It does not name the file that the variable overrides."""
    (mistake,) = mistakes(write("http: {port: 1}\n"), QUEUEWATCH_HTTP__PORT="many")
    assert mistake.where == "environment variable QUEUEWATCH_HTTP__PORT"
    (mistake,) = mistakes(write(""), QUEUEWATCH_HTP__PORT="1")
    assert "`http`" in mistake.fix
    (mistake,) = mistakes(write(""), QUEUEWATCH_QUEUES__X="[" * 2_000)
    assert "nested too deeply" in mistake.problem
    for wrong in ("2001-99-99", "!!timestamp foo", "!!bool maybe", "!!int ''"):
        (mistake,) = mistakes(write(""), QUEUEWATCH_QUEUES__X=f"[{wrong}]")
        assert mistake.where == "environment variable QUEUEWATCH_QUEUES__X"
    (mistake,) = mistakes(write(""), QUEUEWATCH_QUEUES__X="{" + ",".join(bomb("[{}]").splitlines()) + "}")
    assert "far too many values" in mistake.problem


def test_a_variable_overrides_a_whole_section(write: ConfigFile) -> None:
    """Lists such as `queues` and `fold` can be overridden in no other way."""
    path = write("queues: [{pattern: a}]\nfold: [{queues: b}]\n")
    config = load_config(path, {"QUEUEWATCH_QUEUES": "[{pattern: c, thresholds: {stalled_s: 60}}]", "QUEUEWATCH_FOLD": ""})
    assert [queue.pattern for queue in config.queues] == ["c"]
    assert config.fold == ()
    (mistake,) = mistakes(path, QUEUEWATCH_QUEUES="[{pattern: c, thresholds: {stalled: 60}}]")
    assert (mistake.key, mistake.where) == ("queues[0].thresholds.stalled", "environment variable QUEUEWATCH_QUEUES")


def test_a_mapping_in_a_variable_changes_the_keys_that_it_names(write: ConfigFile) -> None:
    """At any depth: the others keep the file's values, and errors in them name the file. A list replaces the file's."""
    text = "judge:\n  top_k: 5\n  tag_labels: [team]\n  thresholds:\n    stalled_s: 60\n    poison_receives: {}\n"
    variable = {"QUEUEWATCH_JUDGE": "{tag_labels: [app], thresholds: {stalled_s: 77}}"}
    judge = load_config(write(text.format(9)), variable).judge
    found = settings_of(judge, ()).defaults
    assert (judge.top_k, judge.tag_labels) == (5, ("app",))
    assert (found.stalled_s, found.poison_receives) == (77, 9)
    (mistake,) = mistakes(path := write(text.format(0)), **variable)
    assert (mistake.key, mistake.where) == ("judge.thresholds.poison_receives", f"{path}:6")
    (mistake,) = mistakes(write(text.format(9)), QUEUEWATCH_JUDGE="{thresholds: {stalled_s: 0}}")
    assert (mistake.key, mistake.where) == ("judge.thresholds.stalled_s", "environment variable QUEUEWATCH_JUDGE")


def test_a_list_is_given_as_text_with_commas(write: ConfigFile) -> None:
    """In every section, also those of collectors."""
    config = load_config(
        write("judge: {tag_labels: team}\n"),
        {"QUEUEWATCH_COLLECT__SQS__REGIONS": "eu-west-1, us-east-1", "QUEUEWATCH_HTTP__ALLOWED_HOSTS": "queues.example.org"},
    )
    assert config.section("collect.sqs").regions == ("eu-west-1", "us-east-1")
    assert (config.http.allowed_hosts, config.judge.tag_labels) == (("queues.example.org",), ("team",))
