"""The log: one port, and its adapters for Kafka, Redis Streams and memory."""
