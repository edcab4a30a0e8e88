"""What goes wrong with Kafka, in the words of `core.errors`."""

from __future__ import annotations

from confluent_kafka import KafkaError

from core.errors import LogError, LogUnavailable, OffsetOutOfRange, UnknownTopic

_OUT_OF_RANGE = {
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError._LOG_TRUNCATION,
}
_UNKNOWN = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_AWAY = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._AUTHENTICATION,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._PURGE_INFLIGHT,
    KafkaError._PURGE_QUEUE,
    KafkaError._RESOLVE,
    KafkaError._RETRY,
    KafkaError._SSL,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
}
# A reader goes on through these by itself; nor does it use the group that it must name.
_PASSING = _AWAY | {
    KafkaError._PARTITION_EOF,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}


def log_error(what: str, error: KafkaError) -> LogError:
    """The error to raise for `error`; `what` says who wanted what of which topic."""
    code = error.code()
    text = f"{what}: {error.str()}"
    if code in _OUT_OF_RANGE:
        return OffsetOutOfRange(text)
    if code in _UNKNOWN:
        return UnknownTopic(text)
    if code in _DENIED:
        return LogError(f"{text} (this user has no right to)")
    if code in _AWAY or error.retriable() or error.fatal():
        return LogUnavailable(text)
    return LogError(text)


def passes(error: KafkaError) -> bool:
    """Whether a reader that got this error simply reads on."""
    return not error.fatal() and (error.code() in _PASSING or error.retriable())
