"""The configuration file: what it accepts, and how every error is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.config import Config, document, load_config, to_settings
from streaming.core.settings import QueueName, Settings
from streaming.core.thresholds import Thresholds
from tests.streaming.config.files import ConfigFile, bomb, mistakes


def test_without_a_file_and_variables_the_core_s_defaults_apply() -> None:
    """The configuration defines no second set of defaults."""
    assert to_settings(load_config(None, {})) == Settings()


def test_logs_with_names_that_only_begin_alike_are_different_files(write: ConfigFile) -> None:
    """They are rotated and marked under names of their own, also in two folders."""
    names = (("/a/s.ndjson", "/a/q.ndjson"), ("/a/s", "/a/s.quarantine"), ("/a/s", "/b/s"), ("/a/s", "/b/s.1"))
    for log, quarantine in names:
        config = load_config(write(f"signal_log: {{path: {log}}}\nquarantine: {{path: {quarantine}}}\n"), {})
        assert (config.signal_log.path, config.quarantine.path) == (Path(log), Path(quarantine))


@pytest.mark.parametrize("archive", ["{folder}", "file://{folder}", "{folder}/x/..", "{link}", "file://{link}/sub", "sp"])
def test_an_archive_that_is_the_spool_folder_is_refused(
    write: ConfigFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: str
) -> None:
    """However it is written: its files would be read for ever."""
    monkeypatch.chdir(tmp_path)
    folder, link = tmp_path / "sp", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    section = f"folder: {folder}, after_reading: archive, archive_folder: '{archive.format(folder=folder, link=link)}'"
    (found,) = mistakes(write(f"source: {{spool: {{{section}}}}}\n"))
    assert "lies inside folder" in found.problem


def test_an_empty_file_gives_the_defaults(write: ConfigFile) -> None:
    """A file with comments alone is valid too."""
    assert load_config(write("# nothing yet\n"), {}) == Config()


def test_a_key_without_a_value_has_its_default(write: ConfigFile) -> None:
    """A section whose lines are all commented out, for example. Where null has a meaning of its own, it keeps it."""
    text = "http:\n  #port: 9500\n  ingest:\nqueues:\njudge: {thresholds: , lateness_s: }\ncollect: {sqs: {discovery: }}\n"
    config = load_config(write(text), {})
    assert (config.http, config.queues, config.judge) == (Config().http, (), Config().judge)
    assert config.section("collect.sqs").discovery.include == ("*",)
    assert load_config(write("collect: {activemq: {probe_queue: null}}\n"), {}).section("collect.activemq").probe_queue is None
    (mistake,) = mistakes(write("source: {kafka: {bootstrap_servers: , topics: [a]}}\n"))
    assert (mistake.key, mistake.problem) == ("source.kafka.bootstrap_servers", "is required")


def test_numbers_and_booleans_are_settings_of_spark_and_kafka(write: ConfigFile) -> None:
    """As Java reads them: people write `16` and `true` without quotes."""
    conf = "spark: {conf: {spark.default.parallelism: 16, spark.authenticate: true, spark.memory.fraction: 0.5}}\n"
    kafka = "source: {kafka: {bootstrap_servers: [a:1], topics: [t], options: {fetch.min.bytes: 1, check.crcs: false}}}\n"
    config = load_config(write(conf + kafka), {})
    assert config.spark.conf == {"spark.default.parallelism": "16", "spark.authenticate": "true", "spark.memory.fraction": "0.5"}
    assert config.source.kafka is not None
    assert config.source.kafka.options == {"fetch.min.bytes": "1", "check.crcs": "false"}


@pytest.mark.parametrize(
    ("text", "key", "line", "guess"),
    [
        pytest.param("spark:\n  shard: 3\n", "spark.shard", 2, "`shards`", id="a letter is missing"),
        pytest.param("sprak: {}\n", "sprak", 1, "`spark`", id="a section is misspelt"),
        pytest.param("judge:\n  latenes_s: 3\n", "judge.latenes_s", 2, "`lateness_s`", id="inside a section"),
        pytest.param(
            "queues:\n  - pattern: a\n    poison_receives: 5\n",
            "queues[0].poison_receives",
            3,
            "`thresholds.poison_receives`",
            id="one level too high",
        ),
        pytest.param("judge:\n  http: {}\n", "judge.http", 2, "`http` is a top-level key", id="a section in another"),
        pytest.param("collect:\n  sqz: {}\n", "collect.sqz", 2, "`sqs`", id="a kind of collector"),
        pytest.param(
            "collect:\n  sqs:\n    interval: 3\n", "collect.sqs.interval", 3, "`interval_s`", id="in an external section"
        ),
    ],
)
def test_an_unknown_key_is_refused_with_a_suggestion(write: ConfigFile, text: str, key: str, line: int, guess: str) -> None:
    """The error has the line, the key and the probable intention."""
    path = write(text)
    (mistake,) = mistakes(path)
    assert mistake.key == key
    assert mistake.where == f"{path}:{line}"
    assert guess in mistake.fix


def test_an_unknown_key_without_a_near_match_lists_the_known_ones(write: ConfigFile) -> None:
    """All keys allowed at that place are listed."""
    (mistake,) = mistakes(write("http:\n  zzz: 1\n"))
    assert "host" in mistake.fix
    assert "port" in mistake.fix


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("spark:\n  trigger_interval_s: soon\n", "spark.trigger_interval_s", "'soon'"),
        ("spark:\n  shards: 0\n", "spark.shards", "greater than or equal to 1"),
        ("http:\n  port: 70000\n", "http.port", "65535"),
        ("judge: {top_k: 9223372036854775807}\n", "judge.top_k", "less than or equal to 1000000000000"),
        ("signal_log: {max_bytes: 10000000000000000000}\n", "signal_log.max_bytes", "less than or equal to 1000000000000000000"),
        ("signal_log: {keep_files: 1000000000}\n", "signal_log.keep_files", "less than or equal to 10000"),
        ("http: {port: yes}\n", "http.port", "must be a number, not true"),
        ("judge: {thresholds: {stalled_s: off}}\n", "judge.thresholds.stalled_s", "must be a number, not false"),
        (
            "judge: {thresholds: {failing_window_s: 700000}}\n",
            "judge.thresholds.failing_window_s",
            "must be a number from 0 to 604,800, not 700000",
        ),
        ("judge: {thresholds: {dropped_quiet_s: 0}}\n", "judge.thresholds.dropped_quiet_s", "from 1 to 1,000,000,000, not 0.0"),
        ("judge: {thresholds: {dead_letter_quiet_s: 0}}\n", "judge.thresholds.dead_letter_quiet_s", "must be a number from 1"),
        (
            "queues: [{pattern: a, thresholds: {noisy_group_quiet_s: 0}}]\n",
            "queues[0].thresholds.noisy_group_quiet_s",
            "must be a number from 1",
        ),
        ("http: {metrics_left_out: [queuewatch_signal]}\n", "http.metrics_left_out", "did you mean queuewatch_signals?"),
        ("source:\n  kafka:\n    topics: [a]\n", "source.kafka.bootstrap_servers", "is required"),
        ("source:\n  kafka: {bootstrap_servers: [], topics: [a]}\n", "source.kafka.bootstrap_servers", "at least 1"),
        ("spark:\n  conf: {spark.sql.shuffle.partitions: '7'}\n", "spark", "spark.sql.shuffle.partitions is set by the pipeline"),
        ("spark:\n  conf: {executor.memory: 1g}\n", "spark", "executor.memory is not a Spark setting"),
        ("source:\n  spool: {folder: a, after_reading: archive}\n", "source.spool", "archive_folder belong together"),
        (
            "source:\n  spool: {folder: a, after_reading: archive, archive_folder: a/b}\n",
            "source.spool",
            "lies inside folder",
        ),
        (
            "source:\n  spool: {folder: a, after_reading: archive, archive_folder: 's3://bucket/done'}\n",
            "source.spool",
            "not on the same file system",
        ),
        ("source: {spool: {folder: a, pattern: ''}}\n", "source.spool.pattern", "at least 1 character"),
        ("http:\n  ingest: {enabled: true}\n", "", "http.ingest needs source.spool"),
        (
            "http:\n  ingest: {enabled: true}\nsource: {spool: {folder: a, pattern: '*.json'}}\n",
            "",
            "source.spool.pattern '*.json' does not match all files that http.ingest writes",
        ),
        (
            "http:\n  ingest: {enabled: true}\nsource: {spool: {folder: a, pattern: '*.{json,ndjson}'}}\n",
            "",
            "remove the key, or use *.{ndjson,json,jsonl,arrow}",
        ),
        (
            "source: {spool: {folder: /a}}\nquarantine: {path: /a/q.ndjson}\n",
            "",
            "quarantine.path /a/q.ndjson would be read as telemetry from source.spool.folder: use another folder",
        ),
        ("source: {spool: {folder: /a}}\nsignal_log: {path: /a/s.json}\n", "", "signal_log.path /a/s.json would be read"),
        ("source: {spool: {folder: /a}}\nsignal_log: {path: /a/b/../s.json}\n", "", "/a/b/../s.json would be read"),
        ("signal_log: {path: /a/s}\nquarantine: {path: /a/s}\n", "", "signal_log.path /a/s and quarantine.path /a/s share files"),
        ("signal_log: {path: /a/s}\nquarantine: {path: /a/b/../s}\n", "", "share files"),
        ("signal_log: {path: /a/s}\nquarantine: {path: /a/s.batch}\n", "", "share files"),
        ("signal_log: {path: /a/q.1}\nquarantine: {path: /a/q}\n", "", "share files"),
        ("source: {spool: {folder: /a}}\nspark: {checkpoint_dir: 'file:/a'}\n", "", "spark.checkpoint_dir would be read"),
        ("queues: {pattern: a}\n", "queues", "must be a list"),
        (
            "collect: {rabbit: {url: a}}\n",
            "collect.rabbit",
            "A collector of another package is known where that package is installed",
        ),
        ("http: 9500\n", "http", "must be a section"),
        ("collect: {sqs: {discovery: [a]}}\n", "collect.sqs.discovery", "must be a section"),
        ("spark: {driver_memory: two}\n", "spark.driver_memory", "'two' is not a size that Java accepts"),
        ("spark: {driver_memory: 2gb}\n", "spark.driver_memory", "use a whole number with its unit"),
        ("spark: {driver_memory: '1024'}\n", "spark.driver_memory", "use a whole number with its unit"),
        ("spark: {master: foo}\n", "spark.master", "'foo' is not a Spark master"),
        ("spark: {master: 'local[0]'}\n", "spark.master", "is not a Spark master"),
        ("spark: {master: 'spark://'}\n", "spark.master", "is not a Spark master"),
        ("spark: {shards: two}\n", "spark.shards", "must be an integer, not 'two'"),
        ("spark: {shards: 2.5}\n", "spark.shards", "must be an integer, not '2.5'"),
        ("spark: {trigger_interval_s: 1s}\n", "spark.trigger_interval_s", "must be a number, not '1s'"),
        ("http: {metrics_zero_states: maybe}\n", "http.metrics_zero_states", "must be true or false, not 'maybe'"),
        ("spark: {master: 7077}\n", "spark.master", "must be text: put it in quotes, not '7077'"),
        ("alertmanager: {destinations: [{url: 'a:9093'}]}\n", "alertmanager.destinations[0].url", "begin it with http://"),
        (
            "judge:\n  thresholds: {coverage_low_ratio: 1, coverage_high_ratio: 1}\n",
            "judge",
            "coverage_low_ratio must be below",
        ),
        (
            "judge: {thresholds: {coverage_low_ratio: 1}}\nqueues: [{pattern: a, thresholds: {coverage_high_ratio: 1}}]\n",
            "",
            "queues[0].thresholds: coverage_low_ratio must be below coverage_high_ratio",
        ),
        (
            "queues: [{pattern: a, thresholds: {coverage_low_ratio: 1.2}}]\n",
            "queues[0].thresholds.coverage_low_ratio",
            "must be a number from 0 to 1, not 1.2",
        ),
        (
            "queues: [{pattern: a, thresholds: {poison_receives: -1}}]\n",
            "queues[0].thresholds.poison_receives",
            "must be a number from 1 to 1,000,000,000, not -1. ",
        ),
        (
            "judge: {thresholds: {fifo_call_limit: 0}}\n",
            "judge.thresholds.fifo_call_limit",
            "must be a number from 1 to 1,000,000,000, not 0: a very large number switches the rule off",
        ),
        (
            "judge: {slow_strategy_params: {check_period_ms: 0}}\n",
            "judge.slow_strategy_params.check_period_ms",
            "greater than or equal to 100",
        ),
    ],
)
def test_an_invalid_value_is_refused(write: ConfigFile, text: str, key: str, says: str) -> None:
    """The error says in words what is wrong."""
    found = mistakes(write(text))
    assert [(m.key, says in str(m)) for m in found] == [(key, True)], found


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[4]",
        "local[*]",
        "local[*, 3]",
        "local-cluster[2,1,1024]",
        "spark://a:7077,b:7077",
        "yarn",
        "k8s://https://10.0.0.1:6443",
    ],
)
@pytest.mark.parametrize("memory", ["2g", "1500m", "2G"])
def test_masters_and_sizes_that_spark_accepts_are_accepted(write: ConfigFile, master: str, memory: str) -> None:
    """As in `spark-submit --master` and `--driver-memory`."""
    spark = load_config(write(f"spark: {{master: '{master}', driver_memory: {memory}}}\n"), {}).spark
    assert (spark.master, spark.driver_memory) == (master, memory)


@pytest.mark.parametrize("value", [".inf", ".nan", "-.inf", "-1", "1.0e+300", "1.0e+10"])
@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("judge: {lateness_s: VALUE}\n", "judge.lateness_s"),
        ("judge: {thresholds: {stalled_s: VALUE}}\n", "judge.thresholds.stalled_s"),
        ("queues: [{pattern: a, retention_s: VALUE}]\n", "queues[0].retention_s"),
        ("spark: {batch_deadline_s: VALUE}\n", "spark.batch_deadline_s"),
        ("alerts: {rules: {PoisonMessage: {for_s: VALUE}}}\n", "alerts.rules.PoisonMessage.for_s"),
        ("collect: {sqs: {interval_s: VALUE}}\n", "collect.sqs.interval_s"),
        ("collect: {activemq: {connect_timeout_s: VALUE}}\n", "collect.activemq.connect_timeout_s"),
        ("collect: {cloudflare: {account_id: a, timeout_s: VALUE}}\n", "collect.cloudflare.timeout_s"),
        (
            "collect: {cloudflare: {account_id: a, backoff: [{queues: [a], first_s: VALUE}]}}\n",
            "collect.cloudflare.backoff[0].first_s",
        ),
    ],
)
def test_a_duration_that_is_no_number_of_seconds_is_refused(write: ConfigFile, text: str, key: str, value: str) -> None:
    """Infinite and far too long ones overflow where times are computed."""
    assert key in [mistake.key for mistake in mistakes(write(text.replace("VALUE", value)))]


def test_the_longest_durations_can_be_computed_with(write: ConfigFile) -> None:
    """The limit is far below the numbers that overflow."""
    path = write("judge: {lateness_s: 1.0e+9, skew_allowance_s: 1.0e+9, forget_queue_after_s: 1.0e+9}\n")
    assert to_settings(load_config(path, {})).lateness_ms == 1_000_000_000_000


def test_a_large_file_without_anchors_is_read(write: ConfigFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit concerns values that stand nowhere in the text."""
    monkeypatch.setattr(document, "_MOST_VALUES", 10)
    config = load_config(write(f"judge: {{tag_labels: [{'t,' * 1_000}]}}\n"), {})
    assert len(config.judge.tag_labels) == 1_000


def test_all_errors_are_listed_at_once_in_the_order_of_the_file(write: ConfigFile) -> None:
    """Users should not have to fix them one run at a time."""
    path = write("http:\n  prt: 1\nspark:\n  shards: no\nreplay:\n  evry_s: 1\n")
    assert [m.where for m in mistakes(path)] == [f"{path}:2", f"{path}:4", f"{path}:6"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "says", "line"),
    [
        ("spark: {\n", "is not valid YAML", None),
        ("spark:\n\tshards: 1\n", "is not valid YAML", 2),
        ("- a\n- b\n", "not a mapping", 1),
        ("spark:\n  shards: 1\n  shards: 2\n", "is set twice", 3),
        ("a: &a\n  b: *a\n", "nested too deeply", None),
        ("a: " + "[" * 2_000, "nested too deeply", None),
        (bomb("[{}]"), "far too many values", None),
        (bomb("{{<<: [{}], k: 1}}"), "far too many values", None),
        ("a: 2001-99-99\n", "is not valid YAML", 1),
        ("a: 1\nb: !!timestamp foo\n", "'foo' is not of type timestamp. Quote it", 2),
        ("a: !!bool maybe\n", "'maybe' is not of type bool. Quote it", 1),
        ("a: !!int ''\n", "'' is not of type int. Quote it", 1),
        ("a: !!float ''\n", "is not valid YAML", 1),
        ("!!bool maybe: 1\n", "'maybe' is not of type bool", 1),
        ("spark:\n  shards: {{ shards }}\n", "is a mapping where a key is expected", 2),
    ],
)
def test_a_file_that_is_not_a_configuration_is_refused(write: ConfigFile, text: str, says: str, line: int | None) -> None:
    """The error has the line if the parser knows it."""
    (mistake,) = mistakes(write(text))
    assert says in str(mistake)
    if line is not None:
        assert str(mistake.where).endswith(f":{line}")


def test_an_alias_of_a_mapping_that_merges_another_is_read_again(write: ConfigFile) -> None:
    """The keys that it overrides are not set twice, wherever the anchor was first read; a key that is written twice is."""
    base = "- {pattern: a, thresholds: &base {poison_receives: 5, stalled_s: 600}}"
    other = "- {pattern: b, thresholds: &other {<<: *base, stalled_s: 900}}"
    inner = "- {pattern: b, thresholds: {<<: &other {<<: *base, stalled_s: 900}}}"
    for second in (other, inner):
        config = load_config(write(f"queues:\n{base}\n{second}\n- {{pattern: c, thresholds: *other}}\n"), {})
        found = [dict(rule.thresholds) for rule in to_settings(config).rules]
        assert found == [{"poison_receives": 5, "stalled_s": 600}, *[{"poison_receives": 5, "stalled_s": 900}] * 2]
    twice = (
        "queues:\n- {pattern: b, thresholds: {<<: &other {stalled_s: 900, stalled_s: 9}}}\n- {pattern: c, thresholds: *other}\n"
    )
    (mistake,) = mistakes(write(twice))
    assert mistake.problem == "is set twice"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """An unreadable file is named too."""
    assert "gone.yaml does not exist" in str(mistakes(tmp_path / "gone.yaml")[0])
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in str(mistakes(tmp_path / "binary.yaml")[0])
    assert str(mistakes(tmp_path)[0]) == f"{tmp_path} cannot be read: Is a directory. It must be a readable UTF-8 text file"


def test_thresholds_reach_the_core_by_pattern(write: ConfigFile) -> None:
    """The defaults for all queues apply first, then the first matching pattern."""
    settings = to_settings(
        load_config(
            write(
                "judge: {lateness_s: 60, thresholds: {poison_receives: 5}}\n"
                "queues:\n"
                "  - {pattern: 'pay*', thresholds: {held_min_s: 1.5}, ordered: true, visibility_timeout_s: 7}\n"
                "  - {pattern: '*', thresholds: {held_min_s: 2}}\n"
            ),
            {},
        )
    )
    pay, other = QueueName("aws_sqs", "", "payments"), QueueName("aws_sqs", "", "orders")
    assert settings.lateness_ms == 60_000
    assert settings.thresholds(pay) == Thresholds(poison_receives=5, held_min_s=1.5)
    assert settings.thresholds(other) == Thresholds(poison_receives=5, held_min_s=2)
    assert settings.is_ordered(pay)
    assert not settings.is_ordered(other)
    rule = settings.rule(pay)
    assert rule is not None
    assert rule.visibility_timeout_s == 7


def test_a_replay_takes_the_current_time_from_the_events() -> None:
    """It is the only setting that users cannot change."""
    assert to_settings(Config(), now_is_event_time=True).now_is_event_time


def test_sections_of_other_packages_have_their_own_models(write: ConfigFile) -> None:
    """The models are found by name."""
    config = load_config(write("collect: {to: 'spool:/x', sqs: {interval_s: 7}}\nalerts: {job: watch}\n"), {})
    assert config.section("collect.sqs").interval_s == 7
    assert config.section("collect.activemq") is None
    assert config.section("alerts").job == "watch"
    assert config.collect.to == "spool:/x"


def test_a_control_character_is_reported_like_any_other_error(write: ConfigFile) -> None:
    """YAML forbids control characters everywhere, even in comments."""
    (mistake,) = mistakes(write("# a\x00b\nspark: {}\n"))
    assert "#x0000" in str(mistake)


def test_a_nul_byte_in_a_value_is_reported_with_its_key(write: ConfigFile) -> None:
    """Whatever the value is: a file, a folder, a URL, one of a list, or of a section that another package reads."""
    found = mistakes(
        write(
            'source: {spool: {folder: "a\\0"}, kafka: {bootstrap_servers: [b, "c\\0:9092"]}}\n'
            'http: {ingest: {enabled: true, token_file: "a\\0"}}\ncollect: {to: "spool:x", sqs: {regions: ["\\0"]}}\n'
        )
    )
    assert [(error.key, error.problem) for error in found] == [
        (key, "has a NUL byte")
        for key in (
            "source.spool.folder",
            "source.kafka.bootstrap_servers[1]",
            "http.ingest.token_file",
            "collect.sqs.regions[0]",
        )
    ]
    assert all(error.where is not None for error in found)


def test_a_nul_byte_in_a_key_is_reported_and_shown(write: ConfigFile) -> None:
    """Also where the keys are the user's own: labels of alerts, properties of Spark."""
    found = mistakes(write('alerts: {labels: {"te\\0am": a}}\nspark: {conf: {"spark.\\0x": "1"}}\n'))
    assert [(error.key, error.problem) for error in found] == [
        (key, "has a NUL byte") for key in ("alerts.labels.te\\0am", "spark.conf.spark.\\0x")
    ]
