// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"syscall"
	"time"
)

// Requests and replies over a multicast bus: docs/abi/bus.md.

// Request sends a request to the server whose turn it is, and waits for its reply. It requires a client: the access [Read]|[Write], Client,
// and the policy [Drop]. It fails with ENOTCONN if there is no server. The request may have been executed if it fails with ECONNRESET,
// because the server has ended without a reply, with ENOBUFS, because the reply was lost, or when the context ends after it was sent. A
// context that has ended sends nothing. Other messages, such as late replies, are discarded.
func (b *Bus) Request(ctx context.Context, request []byte) (Message, error) {
	before, err := b.Info()
	if err != nil {
		return Message{}, err
	}
	server, err := b.sendRequest(ctx, request)
	if err != nil {
		return Message{}, err
	}
	waiting, reason := ctx, syscall.Errno(0)
	for ctx.Err() == nil {
		message, err := b.Recv(waiting)
		switch {
		case err == errWouldWait:
			return Message{}, b.fail("get a reply over ", reason)
		case isErrno(err, ErrNotice):
			if reason, err = b.reasonOfNotice(server, before.OwnLost); err != nil {
				return Message{}, err
			} else if reason != 0 {
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

// reasonOfNotice returns why a reply of a server cannot be expected any more, or 0.
func (b *Bus) reasonOfNotice(server, ownLost uint64) (syscall.Errno, error) {
	found, err := b.subscribersAfter(server-1, 1)
	if err != nil {
		return 0, err
	}
	info, err := b.Info()
	switch {
	case len(found) == 0 || found[0].ID != server:
		return syscall.ECONNRESET, err
	case info.OwnLost > ownLost:
		return syscall.ENOBUFS, err
	}
	return 0, err
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
