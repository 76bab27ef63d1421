"""What the exposition keeps from scrape to scrape: lines, and compressed blocks of lines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sinks import gzip_blocks
from sinks.prometheus import Exposition
from sinks.queue_lines import queue_labels
from streaming.judge.snapshot import QueueView
from tests.sinks.exposed import catalogued, gunzipped, parsed
from tests.sinks.fakes import NOW_MS, many_queues, shop_snapshot

SNAPSHOT = shop_snapshot()


def test_only_queues_that_changed_are_rendered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands of queues few change between two scrapes. A queue without a revision counts as changed."""
    rendered: list[str] = []

    def noted(view: QueueView) -> str:
        rendered.append(view.queue)
        return queue_labels(view)

    monkeypatch.setattr("sinks.prometheus.queue_labels", noted)
    views = [replace(view, revision=i) for i, view in enumerate(many_queues(6).queues)]
    renderer = Exposition(process_metrics=False)
    renderer.render(replace(SNAPSHOT, queues=tuple(views)), NOW_MS)
    assert len(rendered) == 6
    rendered.clear()
    changed = [*views[:5], replace(views[5], visible=99, revision=77)]
    text = renderer.render(replace(SNAPSHOT, queues=tuple(changed)), NOW_MS).decode()
    assert rendered == [views[0].queue, views[5].queue]
    assert f'queue="{views[5].queue}",state="visible"}} 99' in text


@pytest.mark.slow
@pytest.mark.parametrize("openmetrics", [False, True], ids=["text", "openmetrics"])
def test_the_compressed_exposition_is_the_same(openmetrics: bool) -> None:
    """A thousand queues fill blocks that are kept; then one of them changes, all grow older, one vanishes and one appears."""
    views = [replace(view, revision=1 + i) for i, view in enumerate(many_queues(1_000).queues)]
    renderer = Exposition(process_metrics=False)
    changed = [*views[:500], replace(views[500], visible=99, revision=7_777), *views[501:]]
    older = [replace(view, age_sum_s=view.age_sum_s + 5, age_counts=view.age_counts[::-1]) for view in changed]
    other = [*older[:300], *older[301:], replace(views[300], queue="zzz", revision=8_888)]
    for queues in (views, changed, older, other):
        snapshot = replace(SNAPSHOT, queues=tuple(queues))
        text = Exposition(process_metrics=False).render(snapshot, NOW_MS, openmetrics=openmetrics)
        assert gunzipped(renderer.render_gzip(snapshot, NOW_MS, openmetrics=openmetrics)) == text
    # Parsing a hundred thousand lines takes seconds, so only the last text is parsed.
    assert parsed(text.decode(), openmetrics=openmetrics) == catalogued(snapshot)


def test_lines_that_did_not_change_are_not_compressed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a scrape in which all blocks were compressed, only the block of the queue that changed is, and what is no block."""
    sizes: list[int] = []
    deflate = gzip_blocks._deflated

    def noted(text: bytes) -> gzip_blocks.Deflated:
        sizes.append(len(text))
        return deflate(text)

    monkeypatch.setattr("sinks.gzip_blocks._deflated", noted)
    views = [replace(view, revision=1 + i) for i, view in enumerate(many_queues(1_000).queues)]
    renderer = Exposition(process_metrics=False)
    renderer.render_gzip(replace(SNAPSHOT, queues=tuple(views)), NOW_MS)
    all_of_it = sum(sizes)
    sizes.clear()
    renderer.render_gzip(replace(SNAPSHOT, queues=tuple(views)), NOW_MS + 1_000)
    loose = sum(sizes)
    assert loose < all_of_it / 3, "ages, and the queues that fill no block"
    sizes.clear()
    changed = [*views[:10], replace(views[10], visible=99, revision=7_777), *views[11:]]
    renderer.render_gzip(replace(SNAPSHOT, queues=tuple(changed)), NOW_MS + 1_000)
    assert loose < sum(sizes) < loose + 70_000, "and one block of lines"
