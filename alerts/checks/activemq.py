"""ActiveMQ Classic: inspects a queue through the broker's JMX-over-HTTP interface (Jolokia), with curl and jq.

Browsing leaves a message in place: unlike a receive, it neither hides the message nor counts as a delivery.
"""

from __future__ import annotations

from alerts.entry import Check

PREPARE = """\
export BROKER='localhost'              # label "scope_id": the broker's name
export JOLOKIA='http://localhost:8161/api/jolokia'
export NETRC="$HOME/.netrc"            # machine, login and password of the broker's web console
export ACTIVEMQ_DATA='/opt/activemq/data'   # on the broker's host: where its log is
export CONNECTOR='openwire' CLIENT='...'   # to close a connection: names as the check of connections shows them
export B="org.apache.activemq:type=Broker,brokerName=$BROKER"
amq() { curl -fsS --netrc-file "$NETRC" -H 'Origin: http://localhost' "$JOLOKIA/$1" | jq .value; }
marked() { amq "read/$B,destinationType=Queue,destinationName=$1/DLQ"; }   # null: there is no such queue
use_queue() {                          # NAME [DEAD-LETTER QUEUE]: sets QUEUE, Q and DLQ
  export QUEUE="$1" Q="$B,destinationType=Queue,destinationName=$1" DLQ="${2:-DLQ.$1}"
  if [ -n "$2" ]; then return; fi
  case "$QUEUE" in
    # A dead-letter queue by its name. If yours are named otherwise: use_queue NAME NAME
    ActiveMQ.DLQ | DLQ.* | *.DLQ) DLQ="$QUEUE" ;;
    *)
      if [ "$(marked "$QUEUE")" = true ]; then DLQ="$QUEUE"
      # The broker's default: one dead-letter queue for all queues.
      elif [ "$(marked "$DLQ")" = null ]; then DLQ='ActiveMQ.DLQ'; fi ;;
  esac
}
use_queue "$QUEUE"\
"""


def counts(look_for: str) -> Check:
    return Check(
        "The queue's own counts",
        'amq "read/$Q/QueueSize,InFlightCount,EnqueueCount,DispatchCount,DequeueCount,ExpiredCount,ConsumerCount,'
        'ProducerCount,Paused"',
        look_for,
    )


def consumers(look_for: str) -> Check:
    return Check(
        "Every consumer: the messages it holds, its prefetch, whether the broker considers it slow",
        'amq "read/$Q,endpoint=Consumer,clientId=*,consumerId=*/ClientId,ConnectionId,DispatchedQueueSize,'
        'MessageCountAwaitingAcknowledge,PrefetchSize,DequeueCounter,Exclusive,SlowConsumer,Selector"',
        look_for,
    )


def connections(look_for: str) -> Check:
    return Check(
        "The connections, with their hosts and open transactions",
        'amq "read/$B,connector=clientConnectors,connectorName=*,connectionViewType=clientId,connectionName=*/'
        'ClientId,RemoteAddress,Active,Blocked,Slow,ActiveTransactionCount,OldestActiveTransactionDuration"',
        look_for,
    )


def browse(look_for: str) -> Check:
    return Check(
        "The messages at the front, without receiving them",
        "amq \"exec/$Q/browse()\" | jq '.[:5][] | {JMSMessageID, JMSTimestamp, JMSRedelivered, JMSXGroupID, PropertiesText}'",
        look_for,
    )


def groups(look_for: str) -> Check:
    return Check(
        "Which consumer owns which message group",
        'amq "read/$Q/MessageGroups,MessageGroupType"',
        look_for,
    )


def dead_letters(look_for: str) -> Check:
    return Check(
        "The dead-letter queue",
        'amq "read/$B,destinationType=Queue,destinationName=$DLQ/Name,QueueSize,EnqueueCount,DequeueCount,ExpiredCount,'
        'ConsumerCount"',
        look_for,
    )


def browse_dead_letters(look_for: str) -> Check:
    return Check(
        "Why the dead letters were moved, and from which queue",
        'amq "exec/$B,destinationType=Queue,destinationName=$DLQ/browse()" | jq '
        "'.[:5][] | {JMSMessageID, JMSTimestamp, OriginalDestination, StringProperties}'",
        look_for,
    )


def broker(look_for: str) -> Check:
    return Check(
        "The broker's memory, store and temporary space",
        'amq "read/$B/MemoryPercentUsage,StorePercentUsage,TempPercentUsage,UptimeMillis,CurrentConnectionsCount,BrokerVersion"',
        look_for,
    )


def times(look_for: str) -> Check:
    return Check(
        "How long messages usually stay in the queue (milliseconds)",
        'amq "read/$Q/AverageEnqueueTime,MaxEnqueueTime,MinEnqueueTime,BlockedSends,AverageBlockedTime"',
        look_for,
    )


def memory(look_for: str) -> Check:
    return Check(
        "The queue's memory and cursor, which limit dispatching",
        'amq "read/$Q/MemoryPercentUsage,MemoryLimit,CursorPercentUsage,CursorFull,MaxPageSize,MessagesCachedCount"',
        look_for,
    )


def options(look_for: str) -> Check:
    return Check(
        "The queue's options and whether it is a dead-letter queue",
        'amq "read/$Q/Options,DLQ,PrioritizedMessages,MessageGroupType,SlowConsumerStrategy,ProducerFlowControl"',
        look_for,
    )


def log(look_for: str) -> Check:
    return Check(
        "The latest warnings and errors about the queue in the broker's log",
        'grep -hE \'WARN|ERROR\' "$ACTIVEMQ_DATA/activemq.log" | grep -F "$QUEUE" | tail -n 40',
        look_for,
    )


def audit(look_for: str) -> Check:
    return Check(
        "The latest operations on queues in the broker's audit log, if it is on (`-Dorg.apache.activemq.audit=true`)",
        'grep -hF -e "$QUEUE" -e QueueView "$ACTIVEMQ_DATA/audit.log" | tail -n 40',
        look_for,
    )
