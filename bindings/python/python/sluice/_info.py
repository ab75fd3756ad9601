# SPDX-License-Identifier: MIT OR Apache-2.0
"""What is known of channels. Times are in seconds, capacities and bytes in bytes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChannelInfo:
    """The state of a channel of any kind."""

    kind: str
    name: bytes
    persistent: bool
    permissions: int
    uid: int
    gid: int
    readers: int
    writers: int
    capacity: int
    bytes: int
    messages: int
    total_bytes: int
    lost: int
    lag: int
    waiting: int


@dataclass(frozen=True, slots=True)
class PipeInfo:
    """The state of a pipe, and the spin limit of its endpoint."""

    readers: int
    writers: int
    capacity: int
    bytes: int
    spin_limit: float
    pages_allocated: int
    pages_spliced_in: int
    pages_spliced_out: int


@dataclass(frozen=True, slots=True)
class BusEndpointInfo:
    """The state of an endpoint of a bus. lag: messages that it has not received; lost: those that it has lost."""

    id: int
    policy: str | None
    mapped: bool
    monitor: bool
    client: bool
    lost: int
    lag: int
    spin_limit: float


@dataclass(frozen=True, slots=True)
class BusInfo:
    """The state of a bus. The counts are totals since it was created; lag is of the subscriber furthest behind."""

    delivery: str
    policies: list[str]
    mappable: bool
    capacity: int
    message_max: int
    subscribers: int
    senders: int
    sent: int
    unsubscribed: int
    lost: int
    evicted: int
    lag: int
    endpoint: BusEndpointInfo | None


@dataclass(frozen=True, slots=True)
class SubscriberInfo:
    """A subscriber in the list of a bus."""

    id: int
    policy: str | None
    mapped: bool
    monitor: bool
    client: bool
    lag: int
    lost: int
    pid: int | None
    uid: int


@dataclass(frozen=True, slots=True)
class DurableInfo:
    """The state of a durable map: all changes up to stored are stored, pending bytes are not yet."""

    interval: float | None
    deadline: float
    refuse: bool
    stored: int
    pending: int
    store_error: str | None


@dataclass(frozen=True, slots=True)
class MapInfo:
    """The state of a map. sequence is the number of its last change."""

    capacity: int
    bytes: int
    entries_max: int | None
    entries: int
    sequence: int
    expired: int
    missed: int
    events: int
    watchers: int
    watched: int
    durable: DurableInfo | None


@dataclass(frozen=True, slots=True)
class FeedInfo:
    """The state of a feed. receiver is "reads", "maps" or None, sequence the number of the next packet."""

    receiver: str | None
    capacity: int
    sequence: int
    published: int
    lost: int
    violations: int
