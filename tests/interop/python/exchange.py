# SPDX-License-Identifier: MIT OR Apache-2.0
"""exchange.py TASK [OPTION...]: one side of a ring; the other side is crates/sluice/tests/interop/.

It is a device ring if SLUICE_CHANNEL is the name of a channel, otherwise a ring over memfd and the socket of standard input.

Sends or receives --records records whose content both sides can compute, checks each byte, and prints the outcome in its last line.
"""

import argparse
import errno
import os
import signal
import socket as sockets

import device
import memfd
from handshake import Refused, Tampering
from ring import PeerClosed, PeerDied

# Long and without a period, so that a byte identifies its position and record.
TABLE = bytes((position * 2654435761 >> 16) & 0xFF for position in range(1 << 18))


def length_of(number, max_len):
    """Takes every value from 0 to the maximum before it repeats one, because the factor is prime."""
    return number * 7919 % (max_len + 1)


def content_of(number, length):
    start = number * 17 % 8191
    return TABLE[start : start + length]


def record_of(number, max_len):
    return content_of(number, length_of(number, max_len))


def send(producer, records, batch):
    for first in range(0, records, batch):
        numbers = range(first, min(first + batch, records))
        producer.send_batch([record_of(number, producer.max_record_len) for number in numbers])


def receive(consumer, records, batch):
    """Returns fewer than `records` only if the producer closed the ring."""
    number = 0
    while number < records:
        try:
            received = consumer.receive_batch(min(batch, records - number))
        except PeerDied as died:
            raise PeerDied(f"{died} after {number} records") from died
        if not received:
            break
        for record in received:
            if record != record_of(number, consumer.max_record_len):
                raise SystemExit(f"record {number} is not what was sent: {len(record)} bytes")
            number += 1
    return number


def send_all(producer, options):
    send(producer, options.records, options.batch)
    producer.close()
    return f"sent {options.records}"


def send_and_die(producer, options):
    send(producer, options.records, options.batch)
    os.kill(os.getpid(), signal.SIGKILL)


def receive_all(consumer, options):
    received = receive(consumer, options.records, options.batch)
    if received == options.records and consumer.receive() is not None:
        raise SystemExit(f"there are more records than {received}")
    consumer.close()
    return f"received {received}"


def receive_and_close(consumer, options):
    received = receive(consumer, options.records, options.batch)
    consumer.close()
    return f"received {received}"


def receive_and_die(consumer, options):
    receive(consumer, options.records, options.batch)
    os.kill(os.getpid(), signal.SIGKILL)


TASKS = {
    "send": ("producer", send_all),
    "send-and-die": ("producer", send_and_die),
    "receive": ("consumer", receive_all),
    "receive-and-close": ("consumer", receive_and_close),
    "receive-and-die": ("consumer", receive_and_die),
}


def field_and_value(text):
    name, value = text.split("=")
    return name, int(value, 0)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--capacity", type=int, default=4096)
    parser.add_argument("--how", choices=["futex", "socket", "wait", "poll"])
    parser.add_argument("--spins", type=int, default=0)
    parser.add_argument("--unregistered", action="store_true")
    parser.add_argument("--field", type=field_and_value, action="append", default=[], help="FIELD=NUMBER in the hello")
    parser.add_argument("--unsealed", action="store_true")
    parser.add_argument("--refuse", type=lambda name: getattr(errno, name), default=0, help="with this errno")
    parser.add_argument("--before-hello", action="store_true")
    return parser.parse_args()


def set_up(side, options):
    settings = {"registered": not options.unregistered, "spins": options.spins}
    if options.how:
        settings["how"] = options.how
    channel = os.environ.get("SLUICE_CHANNEL")
    if channel:
        return getattr(device, side)(channel, options.capacity, **settings)
    socket = sockets.socket(fileno=0)
    settings["tampering"] = Tampering(dict(options.field), not options.unsealed, options.refuse, options.before_hello)
    if side == "producer":
        return memfd.producer(socket, options.capacity, **settings)
    return memfd.consumer(socket, **settings)


def main():
    options = parse()
    side, task = TASKS[options.task]
    try:
        print(task(set_up(side, options), options))
    except Refused as refused:
        print(refused)
    except PeerDied as died:
        print(f"died: {died}")
    except PeerClosed as closed:
        print(f"gone: {closed}")


if __name__ == "__main__":
    main()
