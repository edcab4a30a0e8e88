#!/bin/bash
# Makes the topics that are not there yet, then ends. Runs in the Kafka image; safe to run again.
set -euo pipefail

make_topic() {
    /opt/kafka/bin/kafka-topics.sh --bootstrap-server "$BROKER" --create --if-not-exists \
        --topic "$1" --partitions "$2" --replication-factor 1 --config "retention.ms=$3"
}

week=604800000
month=2592000000

make_topic flights.events 1 "$month"
make_topic flights.labels 1 "$month"
make_topic riverrun.predictions 1 "$week"
make_topic riverrun.alerts 1 "$month"
make_topic riverrun.deadletter 1 "$month"
