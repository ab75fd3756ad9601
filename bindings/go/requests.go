// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"syscall"
	"time"
)

// Requests and replies over a multicast bus: docs/abi/bus.md.

// Request sends a request to the server whose turn it is, and waits for its reply. It requires a client: the access [Read]|[Write], Client,
// and the policy [Drop]. It fails with ENOTCONN if there is no server, or if the server ends before it has replied. A context that has ended
// sends nothing; when it ends later, the request may have been executed. Other messages, such as late replies, are discarded.
func (b *Bus) Request(ctx context.Context, request []byte) (Message, error) {
	before, err := b.Info()
	if err != nil {
		return Message{}, err
	}
	server, err := b.sendRequest(ctx, request)
	if err != nil {
		return Message{}, err
	}
	for waiting := ctx; ctx.Err() == nil; {
		message, err := b.Recv(waiting)
		switch {
		case err == errWouldWait:
			return Message{}, &Error{"get a reply over " + b.name, syscall.ENOTCONN, "the server has ended, or a reply was lost"}
		case isErrno(err, ErrNotice):
			if lost, err := b.hasLost(server, before.OwnLost); err != nil {
				return Message{}, err
			} else if lost {
				waiting = noWait // a reply may have come before
			}
		case err != nil:
			return Message{}, err
		case message.Tag == b.tag && message.Sender == server:
			return message, nil
		}
	}
	return Message{}, context.Cause(ctx)
}

// sendRequest returns the id of the server.
func (b *Bus) sendRequest(ctx context.Context, request []byte) (uint64, error) {
	for ctx.Err() == nil {
		server, err := b.Turn()
		if err != nil {
			return 0, err
		}
		b.tag++
		if err := b.PublishTo(ctx, server, b.tag, request); !isErrno(err, syscall.ENOENT) {
			return server, err
		}
	}
	return 0, context.Cause(ctx)
}

// hasLost returns whether a reply of a server cannot be expected any more, after a notice.
func (b *Bus) hasLost(server, ownLost uint64) (bool, error) {
	found, err := b.subscribersAfter(server-1, 1)
	if err != nil {
		return false, err
	}
	info, err := b.Info()
	return len(found) == 0 || found[0].ID != server || info.OwnLost > ownLost, err
}

// Reply answers a request. It requires a server: the access [Read]|[Write], and the policy [Block] or [Evict]. While there is no room, it
// receives further requests into memory, because what a server with the policy Block has not received can occupy the room. So one goroutine
// at a time receives and replies.
func (b *Bus) Reply(ctx context.Context, request Message, reply []byte) error {
	err := b.PublishTo(noWait, request.Sender, request.Tag, reply)
	if err != errWouldWait {
		return err
	}
	b.buffer = make([]byte, len(b.buffer)) // the batch and the request stay valid
	for err == errWouldWait {
		if err := b.makeRoom(ctx); err != nil {
			return err
		}
		err = b.PublishTo(noWait, request.Sender, request.Tag, reply)
	}
	return err
}

// makeRoom adds the requests that there are to the batch. If there are none, it waits for a short time.
func (b *Bus) makeRoom(ctx context.Context) error {
	rest := b.rest
	switch err := b.fill(noWait); err {
	case nil:
		b.rest = append(align8(rest), b.rest...)
	case errWouldWait:
		b.rest = rest
		b.awaitEvent(ctx)
	default:
		b.rest = rest
		return err
	}
	return context.Cause(ctx)
}

// awaitEvent waits for an event, for a short time: poll(2) may report room that a reply does not have, and which is no event then.
func (b *Bus) awaitEvent(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	waited := false
	b.wait(limited, toWrite, func(uintptr) bool {
		defer func() { waited = true }()
		return waited
	})
}

// align8 returns a copy of a batch, to which another one can be appended.
func align8(batch []byte) []byte {
	aligned := make([]byte, (len(batch)+7)&^7, len(batch)+bufferSize)
	copy(aligned, batch)
	return aligned
}
