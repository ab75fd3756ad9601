# SPDX-License-Identifier: MIT OR Apache-2.0
"""Local IPC for Linux: fast channels with names and with access control by the kernel.

| kind       | carries                                                            | needs the module |
|------------|--------------------------------------------------------------------|------------------|
| SocketRing | records from one process to another, through shared memory         | no               |
| Ring       | the same, by name                                                  | yes              |
| Pipe       | bytes, as through a FIFO that each cgroup has for itself           | yes              |
| Bus        | messages from many senders to many subscribers; requests           | yes              |
| Map        | keys and values, durable with the daemon sluiced                   | yes              |
| Feed       | packets from a kernel module to one process                        | yes              |

Each kind has calls that open an endpoint by name, with options as keyword arguments:

    with sluice.Ring.producer("prices", create=True) as producer:
        producer.send(b"4711 99.50")
        producer.flush()  # records are lost if the producer ends before the consumer comes

    with sluice.Ring.consumer("prices", create=True) as consumer:
        for record in consumer:
            print(record)

Options of all kinds but feeds: scope (the directory of a cgroup, by default the caller's), create, any_owner, exclusive, persistent,
permissions (0o600), capacity. Two terminals usually have different cgroups, and so different channels of one name: use one shell, or
give both processes the same scope.

A timeout is in seconds. None waits, 0 does not wait and fails with WouldBlock, others fail with Timeout. While a call waits, other threads
run, and a signal ends it. Calls whose names end with _async are for asyncio. Errors are subclasses of Error, with errno and hint.
At the end of a ring recv() returns None, recv_batch() an empty list, recv_view() raises EOFError, and an iteration ends.

An endpoint belongs to the process that opened it. One thread uses it at a time, unless its class says otherwise; a second one gets
RuntimeError.
"""

from . import _methods as _methods
from ._errors import (
    Aborted,
    AlreadyExists,
    Closed,
    Conflict,
    Error,
    Full,
    InvalidInput,
    NotConnected,
    NotFound,
    PeerDied,
    PermissionDenied,
    Refused,
    Timeout,
    Unacknowledged,
    Unsupported,
    WouldBlock,
)
from ._info import (
    BusEndpointInfo,
    BusInfo,
    ChannelInfo,
    DurableInfo,
    FeedInfo,
    MapInfo,
    PipeInfo,
    SubscriberInfo,
)
from ._map import Batch, Map
from ._sluice import (
    Bus,
    Channel,
    Client,
    Consumer,
    Endpoint,
    Entry,
    Event,
    Feed,
    FeedConsumer,
    Listener,
    Message,
    Packet,
    Pipe,
    PipeReader,
    PipeWriter,
    Producer,
    Record,
    Request,
    Reservation,
    Ring,
    Sender,
    Server,
    SocketRing,
    Subscriber,
    Watcher,
    channels,
)

# fmt: off
__all__ = [
    "Aborted", "AlreadyExists", "Batch", "Bus", "BusEndpointInfo", "BusInfo", "Channel", "ChannelInfo", "Client",
    "Closed", "Conflict", "Consumer", "DurableInfo", "Endpoint", "Entry", "Error", "Event", "Feed", "FeedConsumer",
    "FeedInfo", "Full", "InvalidInput", "Listener", "Map", "MapInfo", "Message", "NotConnected", "NotFound",
    "Packet", "PeerDied", "PermissionDenied", "Pipe", "PipeInfo", "PipeReader", "PipeWriter", "Producer", "Record",
    "Refused", "Request", "Reservation", "Ring", "Sender", "Server", "SocketRing", "Subscriber", "SubscriberInfo",
    "Timeout", "Unacknowledged", "Unsupported", "Watcher", "WouldBlock", "channels",
]
# fmt: on

# Where they are documented, also in tracebacks.
for _name in __all__:
    globals()[_name].__module__ = __name__
