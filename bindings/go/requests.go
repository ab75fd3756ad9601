// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"syscall"
	"time"
)

// Requests and replies over a multicast bus: docs/abi/bus.md.

// Request sends a request to the server whose turn it is, and waits for its reply. It requires a client: the access [Read]|[Write], Client,
// and the policy [Drop]. It fails with ENOTCONN if there is no server, or if the server ends before it has replied. When the context ends,
// the request may have been executed. Other messages, such as late replies, are discarded.
func (b *Bus) Request(ctx context.Context, request []byte) (Message, error) {
	before, err := b.Info()
	if err != nil {
		return Message{}, err
	}
	server, err := b.sendRequest(ctx, request)
	if err != nil {
		return Message{}, err
	}
	recv := b.Recv
	for {
		message, err := recv(ctx)
		switch {
		case isErrno(err, ErrNotice):
			if lost, err := b.hasLost(server, before.OwnLost); err != nil {
				return Message{}, err
			} else if lost {
				recv = b.recvNow // a reply may have come before
			}
		case err != nil:
			return Message{}, err
		case message.Tag == b.tag && message.Sender == server:
			return message, nil
		}
	}
}

// sendRequest returns the id of the server.
func (b *Bus) sendRequest(ctx context.Context, request []byte) (uint64, error) {
	for {
		server, err := b.Turn()
		if err != nil {
			return 0, failure("send a request over "+b.op, err, hintsOfBus)
		}
		b.tag++
		if err := b.PublishTo(ctx, server, b.tag, request); !isErrno(err, syscall.ENOENT) {
			return server, err
		}
	}
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

// recvNow receives what there is, until the context ends.
func (b *Bus) recvNow(ctx context.Context) (Message, error) {
	if ctx.Err() != nil {
		return Message{}, context.Cause(ctx)
	}
	if len(b.rest) == 0 {
		if more, err := b.fillNow(); err != nil {
			return Message{}, err
		} else if !more {
			return Message{}, &Error{"get a reply over " + b.op, syscall.ENOTCONN, "the server has ended, or a reply was lost"}
		}
	}
	return b.next(), nil
}

// fillNow reads the next batch, if there is one.
func (b *Bus) fillNow() (more bool, err error) {
	if closed := b.control(func(fd uintptr) { more = b.reader(&err)(fd) }); closed != nil {
		return false, closed
	}
	if !more {
		return false, nil
	}
	return true, failure("receive from "+b.op, err, hintsOfBus)
}

// Reply answers a request. It requires a server: the access [Read]|[Write], and the policy [Block] or [Evict]. While there is no room, it
// receives further requests into memory, because what a server with the policy Block has not received can occupy the room.
func (b *Bus) Reply(ctx context.Context, request Message, reply []byte) error {
	for {
		var err error
		sent := false
		write := b.writer(request.Sender, request.Tag, reply, &err)
		if closed := b.control(func(fd uintptr) { sent = write(fd) }); closed != nil {
			return closed
		}
		if sent {
			return failure("reply over "+b.op, err, hintsOfBus)
		}
		if err := b.makeRoom(ctx); err != nil {
			return err
		}
	}
}

// makeRoom adds the requests that there are to the batch. If there are none, it waits for a short time.
func (b *Bus) makeRoom(ctx context.Context) error {
	rest := b.rest
	b.buffer = nil // the batch and the request stay valid
	more, err := b.fillNow()
	if more && err == nil {
		b.rest = append(align8(rest), b.rest...)
		return nil
	}
	b.rest = rest
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	waited := false
	b.wait(limited, toWrite, func(uintptr) bool {
		defer func() { waited = true }()
		return waited // an event, because poll(2) may report room that this reply does not have
	})
	return context.Cause(ctx)
}

// align8 returns a copy of a batch, to which another one can be appended.
func align8(batch []byte) []byte {
	return append(make([]byte, 0, len(batch)+(64<<10)), append(batch, make([]byte, -len(batch)&7)...)...)
}
