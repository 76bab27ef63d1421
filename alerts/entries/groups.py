"""Ordering groups: stuck groups, and their effect on the rest of the queue."""

from __future__ import annotations

from alerts.checks import activemq, sqs
from alerts.entries import links
from alerts.entry import Entry, EvidenceField
from alerts.remedy import Remedy
from alerts.signal_alert import WHY, signal_alert
from alerts.templating import QUEUE, companion, groups_in, messages_in, oldest, own_value

_NO_GROUPS = "Cloudflare Queues have no ordering groups."

GROUP_STUCK = Entry(
    name="GroupStuck",
    group="groups",
    subject="group",
    meaning=(
        "One ordering group of the queue is stuck behind its first message, while more messages of the group wait. The other "
        "groups may flow, so totals and averages of the queue look healthy."
    ),
    rule=(
        "The queue keeps order within a group.",
        "Nothing of the group was settled for the larger of {group_stuck_visibility_factor} × the queue's visibility timeout "
        "and {group_stuck_min_s}.",
        "Its head was received at least once, or has not been received while other groups flow.",
        "More messages of the group wait behind the head. Those in flight with it do not wait, unless the head is a poison "
        "suspect, with which they come back each time, or the broker fills prefetch windows (ActiveMQ). A message sent with a "
        "delay blocks nothing and does not wait; one that failed blocks its group until it is visible again.",
        "A consumer that has just received the head is given time: half of the limit on its first delivery, a minute at most on "
        "later ones, none from the third on. A head that is visible counts while consumers receive from the queue: within the "
        "limit, or within {stalled_s} once it came back. After that the queue is stalled. If busy consumers have received "
        "nothing since the head came back, they are treated as absent and the group is not stuck. Once announced, a group whose "
        "head failed stays stuck until it moves, whatever consumers do.",
        "The severity is info, and nothing alerts, while PoisonMessage does not alert about the head because only one "
        "consumer has failed it.",
        "It is info too while the head is in flight on its first delivery, its consumer extends the "
        "window, and it has been held no longer than twice the 99th percentile of the queue's holds. With fewer than ten "
        "finished messages, the limit is that of MessageHeldTooLong. Otherwise it is critical.",
        "It is info too while the head waits in a prefetch window, held no longer than that: a prefetch of more than one is "
        "reported (ActiveMQ), its consumer has finished others within the limit, and ten messages or more were finished.",
        "A head that was never received is info as well for up to the limit of MessageHeldTooLong while it waits for room in a "
        "prefetch window (ActiveMQ gives all of a group to one consumer): a consumer's window is full, and no consumer with a "
        "full window has worked on one message for longer than the limit and twice the 99th percentile of holds. If one has, "
        "the signal is critical and names it.",
        "For a head that was never received, only the time counts in which consumers were there: pauses for at least half of the "
        "limit are left out if consumers had received ten messages or more in the minute before, or work on a schedule that is "
        "known (pauses of five minutes or more).",
        "On SQS any consumer may receive any group. A group whose head was never received counts as waiting its turn, not "
        "stuck, if the queue has twenty groups or more and its consumers have a backlog: the youngest message that they "
        "received had waited for at least a quarter of the limit.",
        "Where no visibility timeout is reported or configured and messages were held for longer than the default and then "
        "deleted, a head that seems to have come back may still be being processed, so the alert waits twice the longest hold.",
    ),
    thresholds=("group_stuck_visibility_factor", "group_stuck_min_s", "stalled_s"),
    severity="critical",
    alert=signal_alert(
        "GroupStuck",
        "An ordering group is stuck behind its first message.",
        f"Stuck groups in {QUEUE}: {own_value('count')}. Oldest message of a group: "
        f"{companion('queuewatch_group_oldest_message_age_seconds', 'duration')}. Highest receive count in the queue: "
        f"{companion('queuewatch_receive_count_max', 'count')}. Groups with a backlog: {groups_in('backlog')}, in flight: "
        f"{groups_in('in_flight')}.",
        matchers=',severity!="info"',
        why=f"{WHY} Findings of severity info are groups whose head has been processed for no longer than usual, or waits for a "
        "busy consumer. They are shown and never alert.",
    ),
    dashboard="groups",
    evidence=(
        EvidenceField("group", "the name of the group"),
        EvidenceField(
            "reason",
            ("poison_head: the head fails again and again; held_head: a consumer holds it; not_received: nobody receives it"),
        ),
        EvidenceField("head_message_id", "the first message of the group: all others wait for it"),
        EvidenceField("head_receive_count", "deliveries of the head so far"),
        EvidenceField("head_consumer", "the consumer that holds the head, if known"),
        EvidenceField(
            "head_refused_settlements",
            "deletions of the head that were refused as too late: the work succeeds, but outlasts the window",
        ),
        EvidenceField(
            "blocking_consumer",
            "the consumer for which a head that is not received most likely waits: its prefetch window is full, and it does not "
            "finish the message it works on",
        ),
        EvidenceField("blocking_message_id", "the message that this consumer works on"),
        EvidenceField("waiting_behind", "how many messages wait behind it"),
        EvidenceField("stuck_s", "seconds since a message of the group was settled"),
        EvidenceField(
            "usual_limit_s",
            "with severity info: how long the head may be processed, or wait for room, before it alerts, in seconds",
        ),
    ),
    checks={
        "aws_sqs": (
            sqs.message_logs("MESSAGE_ID is the head's id: why every delivery fails"),
            sqs.attributes("maxReceiveCount × VisibilityTimeout: how long the head blocks the group until it is dead-lettered"),
            sqs.metric("ApproximateNumberOfGroupsWithInflightMessages", "Average", "how many groups still make progress"),
            sqs.error_logs("whether only this group's messages fail"),
            sqs.consumers("FunctionResponseTypes: ReportBatchItemFailures; without it one failure returns the whole batch"),
        ),
        "activemq": (
            activemq.groups("the owner of the stuck group"),
            activemq.consumers("that consumer: messages awaiting acknowledgement, a DequeueCounter that does not rise"),
            activemq.browse("the head of the group (JMSXGroupID) and its redelivery flag"),
            activemq.connections("the owner's host, and an old open transaction"),
            activemq.log("the owner's last failure"),
        ),
    },
    not_applicable={"cloudflare_queues": _NO_GROUPS},
    fix=(
        Remedy(
            "Repair or skip the head in the consumer. After max_receive_count deliveries it goes to the dead-letter queue, and "
            "the group flows again without that message. Ask the owner whether the ordering allows this.",
            reasons=("poison_head",),
        ),
        Remedy(
            "Restart the worker that holds the head; its window ends and the head is delivered again.",
            systems=("aws_sqs",),
            reasons=("held_head",),
        ),
        Remedy(
            "Restart the worker that holds the head; when its connection closes, another consumer gets the group.",
            systems=("activemq",),
            reasons=("held_head",),
        ),
        Remedy(
            "If consumers are idle, another group may fill the look-ahead: see the alert LookAheadSaturated.",
            systems=("aws_sqs",),
            reasons=("not_received",),
        ),
        Remedy(
            "Restart the worker that blocking_consumer names: it does not finish the message in blocking_message_id. When its "
            "connection closes, other consumers get its groups.",
            systems=("activemq",),
            reasons=("not_received",),
        ),
        Remedy(
            "If consumers are idle, the group's owner may be dead but still registered: "
            '`amq "exec/$Q/removeMessageGroup/$GROUP"` gives the group to another consumer.',
            systems=("activemq",),
            reasons=("not_received",),
        ),
        "To prevent this, use a low max_receive_count on ordered queues, so that a bad head cannot block for hours.",
    ),
    ignore=(
        "A message of the group naturally takes that long, and its consumer does not extend the visibility window: extend it "
        "while working, or raise group_stuck_min_s for the queue's pattern.",
    ),
    links=(links.SQS_FIFO, links.LAMBDA_SQS, links.ACTIVEMQ_GROUPS),
)

LOOK_AHEAD_SATURATED = Entry(
    name="LookAheadSaturated",
    group="groups",
    subject="queue",
    meaning=(
        "Messages of blocked groups fill the front of a FIFO queue. SQS searches only a limited number of messages for a group "
        "it may deliver, so groups further back get nothing, although nothing is wrong with them and consumers are free."
    ),
    rule=(
        "The queue is a FIFO queue.",
        "The first {look_ahead} unsettled messages belong to blocked groups only. In older accounts the look-ahead is 20,000 "
        "messages: set look_ahead to the value of your account.",
        "Messages of other groups wait behind them.",
        "It ends once a group within these messages could be received for {front_open}: between two deliveries of the group that "
        "fills them, its next message waits for a moment.",
    ),
    thresholds=("look_ahead",),
    severity="critical",
    alert=signal_alert(
        "LookAheadSaturated",
        "Blocked groups fill the front of a FIFO queue and hide all other groups.",
        f"Groups hidden behind the front of {QUEUE}: {groups_in('hidden')}, blocked: {groups_in('blocked')}. Visible messages: "
        f"{messages_in('visible')}. Open findings: {own_value('count')}.",
    ),
    dashboard="groups",
    evidence=(
        EvidenceField("blocking_group", "the group that fills the front"),
        EvidenceField("blocking_messages", "how many messages at the front belong to it"),
        EvidenceField("blocked_groups", "all groups that fill the front"),
        EvidenceField("hidden_groups", "groups that get nothing because of this"),
        EvidenceField("hidden_messages", "the number of their messages"),
        EvidenceField("look_ahead", "the look-ahead of the queue, in messages"),
    ),
    checks={
        "aws_sqs": (
            sqs.attributes("ApproximateNumberOfMessages in the tens of thousands while little is in flight"),
            sqs.metric("ApproximateNumberOfGroupsWithInflightMessages", "Average", "low and flat"),
            sqs.metric("NumberOfEmptyReceives", "Sum", "above zero although the queue is full: typical of this fault"),
            sqs.message_logs("MESSAGE_ID is the head of the group that fills the front: why it is not settled"),
            sqs.metric("NumberOfMessagesSent", "Sum", "a producer that sent many messages of one group (a backfill, a loop)"),
        ),
    },
    not_applicable={
        "activemq": "ActiveMQ dispatches from the whole queue as far as its memory reaches; it has no look-ahead in messages.",
        "cloudflare_queues": _NO_GROUPS,
    },
    fix=(
        "Unblock the group in front: settle or dead-letter its head (see GroupStuck). Each settled message moves the look-ahead "
        "forward.",
        "Stop the producer that fills one group, or spread it over more group ids.",
        "If the group is not important: lower max_receive_count for a while, so that its messages move to the dead-letter queue.",
        "Do not add consumers: SQS has no messages to give them.",
    ),
    ignore=("A planned backfill of one group at a time when the other groups are not needed.",),
    links=(links.SQS_FIFO, links.SQS_QUOTAS),
)

CONCURRENCY_COLLAPSED = Entry(
    name="ConcurrencyCollapsed",
    group="groups",
    subject="queue",
    meaning=(
        "Many groups have waiting messages, but hardly any group is being processed. Consumers are running, but they get their "
        "messages one after the other."
    ),
    rule=(
        "At least {collapsed_groups_backlog} groups of the queue have a backlog: messages that are visible.",
        "The number of groups in flight was at most {collapsed_groups_in_flight} for {collapsed_s}.",
        "Messages sent with a delay are no backlog until they are visible.",
        "The severity is info, and nothing alerts, while consumers that work on a schedule are away, and for {collapsed_s} after "
        "they return. QueueStalled reports consumers that stay away for longer than usual.",
    ),
    thresholds=("collapsed_groups_in_flight", "collapsed_groups_backlog", "collapsed_s"),
    severity="warning",
    alert=signal_alert(
        "ConcurrencyCollapsed",
        "Many groups wait while hardly any is being processed.",
        f"Groups of {QUEUE} being processed: {groups_in('in_flight')}, with a backlog: {groups_in('backlog')}. Oldest "
        f"visible message: {oldest('visible')}. Open findings: {own_value('count')}.",
        matchers=',severity!="info"',
        why=f"{WHY} Findings of severity info are scheduled pauses of the consumers: they are shown, but never alert.",
    ),
    dashboard="groups",
    evidence=(
        EvidenceField("groups_in_flight", "groups being processed now"),
        EvidenceField("groups_backlog", "groups with visible messages"),
        EvidenceField("collapsed_s", "how long this has lasted, in seconds"),
    ),
    checks={
        "aws_sqs": (
            sqs.metric("ApproximateNumberOfGroupsWithInflightMessages", "Average", "close to one"),
            sqs.concurrency("a reserved concurrency of 1 or 0"),
            sqs.lambda_metric("Throttles", "Sum", "above zero: Lambda has no concurrency left"),
            sqs.service("fewer running tasks than desired"),
            sqs.metric("NumberOfEmptyReceives", "Sum", "above zero with a full queue: see LookAheadSaturated"),
        ),
        "activemq": (
            activemq.consumers("one consumer holds everything: a large PrefetchSize; Exclusive true"),
            activemq.groups("all groups owned by one consumer: it was the first to connect"),
            activemq.counts("ConsumerCount"),
            activemq.memory("CursorFull or memory at 100%: the broker cannot page in more messages"),
            activemq.connections("consumers that are connected but not active"),
        ),
    },
    not_applicable={"cloudflare_queues": _NO_GROUPS},
    fix=(
        "Raise whatever limits concurrency: reserved concurrency, tasks, or consumer threads.",
        Remedy(
            "Lower the prefetch of ordered queues, and reassign groups with "
            '`amq "exec/$Q/removeAllMessageGroups()"` after new consumers have joined.',
            systems=("activemq",),
        ),
        "If one group fills the front of the queue, follow LookAheadSaturated or GroupStuck instead.",
    ),
    ignore=("A queue that is meant to be processed by one consumer: raise collapsed_groups_backlog for it.",),
    links=(links.SQS_FIFO, links.ACTIVEMQ_GROUPS, links.ACTIVEMQ_PREFETCH),
)

NOISY_GROUP = Entry(
    name="NoisyGroup",
    group="groups",
    subject="group",
    meaning=(
        "One group (a tenant, a customer) takes so much of the processing capacity that the others wait longer. On a fair queue "
        "SQS now serves the quiet groups first; the noisy one gets slower by design."
    ),
    rule=(
        "The group has more than {noisy_group_ratio} of the queue's messages in flight.",
        "The group has at least {noisy_group_in_flight} messages in flight.",
        "The signal ends when the group's backlog is gone, or after {noisy_group_quiet_s} with nothing in flight. Where not all "
        "sends are reported, its backlog is not known: the signal then ends when it has less than half as many in flight.",
        "It is a warning, until it ends, once a consumer that is well has held one of the group's messages for so long that "
        "SlowConsumer would fire. SlowConsumer is folded into it.",
    ),
    thresholds=("noisy_group_ratio", "noisy_group_in_flight", "noisy_group_quiet_s"),
    severity="info",
    severity_rises="warning once consumers hold the group's messages much longer than is usual on the queue",
    alert=signal_alert(
        "NoisyGroup",
        "One group takes more than its share of the processing capacity.",
        f"Groups of {QUEUE} that take an unfair share: {own_value('count')}. In flight: {messages_in('in_flight')}. Groups with "
        f"a backlog: {groups_in('backlog')}.",
    ),
    dashboard="groups",
    evidence=(
        EvidenceField("group", "the noisy group"),
        EvidenceField("group_in_flight", "its messages in flight"),
        EvidenceField("queue_in_flight", "all messages in flight"),
        EvidenceField("share_ratio", "its share, 0 to 1"),
        EvidenceField("group_unsettled", "its backlog, including messages in flight"),
        EvidenceField("slow_consumers", "how many consumers hold one of its messages for much longer than usual; absent if none"),
    ),
    checks={
        "aws_sqs": (
            sqs.metric("ApproximateNumberOfNoisyGroups", "Maximum", "the number of groups SQS considers noisy"),
            sqs.metric("ApproximateNumberOfMessagesVisibleInQuietGroups", "Maximum", "whether quiet groups are actually waiting"),
            sqs.attributes("how many messages are in flight and visible in total"),
            sqs.metric("NumberOfMessagesSent", "Sum", "when the surge began"),
            sqs.lambda_metric("Duration", "Average", "messages of that group taking longer than others"),
        ),
        "activemq": (
            activemq.groups("how the groups are spread over the consumers"),
            activemq.consumers("the consumer that holds the most messages"),
            activemq.browse("the groups at the front of the queue (JMSXGroupID)"),
            activemq.counts("whether producers outrun consumers"),
            activemq.times("how much longer messages stay than usual"),
        ),
    },
    not_applicable={"cloudflare_queues": _NO_GROUPS},
    fix=(
        "Not urgent: fair queues keep the other groups moving. Contact the tenant, or slow its producer down.",
        "Add consumers if the quiet groups wait as well.",
        "Give a tenant that is always this large its own queue.",
    ),
    ignore=("A planned batch.", "A queue with one group only."),
    links=(links.SQS_FAIR, links.ACTIVEMQ_GROUPS),
)

ENTRIES = (GROUP_STUCK, LOOK_AHEAD_SATURATED, CONCURRENCY_COLLAPSED, NOISY_GROUP)
