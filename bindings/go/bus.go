// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"iter"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A BusMode decides who receives a message.
type BusMode uint32

// The modes of a bus.
const (
	Broadcast BusMode = busBroadcast // every subscriber
	Multicast BusMode = busMulticast // one subscriber, in turn
	Unicast   BusMode = busUnicast   // the first that receives: one queue
)

// A Policy decides what happens to a subscriber that does not keep up.
type Policy uint32

// The policies of subscribers.
const (
	Drop  Policy = busDrop  // it loses its oldest messages
	Block Policy = busBlock // senders wait for it
	Evict Policy = busEvict // it loses its subscription
)

// BusOptions are the options of [OpenBus].
type BusOptions struct {
	Options
	// Mode of a bus that is created.
	Mode BusMode
	// Policies that subscribers may choose, of a bus that is created: a sum. 0 means Drop|Evict.
	Policies Policy
	// Policy of this subscriber. 0 means the first that is permitted of Drop, Block, Evict.
	Policy Policy
	// Limit makes a subscriber full while its unread messages for it alone have more bytes. 0 means half of the capacity.
	Limit uint64
	// Client, in the mode Multicast: this subscriber takes no turn, and receives replies only. See [Bus.Request].
	Client bool
	// Monitor: this subscriber receives every message, whoever it is for. Requires CAP_SYS_ADMIN.
	Monitor bool
}

// A Bus is an endpoint of a bus: with [Read] a subscriber, with [Write] a sender, with both a client or a server. One goroutine at a time
// receives, by Recv, Messages, Request or Reply. Everything else may be called by several goroutines meanwhile.
type Bus struct {
	poller
	max    int
	buffer []byte
	rest   []byte // of the last batch
	tag    uint64 // of the last request
}

// A Message is a message of a bus.
type Message struct {
	// Bytes are valid until the next Recv on the endpoint.
	Bytes []byte
	// Sender is the id of the endpoint that sent the message.
	Sender uint64
	// Target is the id of the only subscriber that the message is for, or 0.
	Target uint64
	// Tag is what the sender gave, such as the number of a request.
	Tag uint64
	// Sequence is the number of the message.
	Sequence uint64
	// Lost is the number of messages that this subscriber has lost since the message before.
	Lost uint64
	// PID, UID and GID are those of the process that opened the sending endpoint.
	PID, UID, GID uint32
}

// ErrNotice is the cause of an error of Recv on a client: a server has ended, or the client has lost messages.
const ErrNotice = syscall.ENOLINK

var hintsOfBus = map[syscall.Errno]string{
	syscall.ENOTCONN:  "no server subscribes; try again later",
	syscall.ENOENT:    "the target has ended",
	syscall.EPIPE:     "the bus was destroyed",
	syscall.ESHUTDOWN: "this subscriber was evicted; open the bus again",
	syscall.EMSGSIZE:  "send parts, or create the bus with a larger capacity",
	syscall.EBADF:     "the endpoint lacks the access",
	ErrNotice:         "a server has ended, or messages were lost",
	// Of a request.
	syscall.ECONNRESET: "the server has ended without a reply; it may have executed the request",
	syscall.ENOBUFS:    "the client has lost messages, and the reply may be among them",
}

// OpenBus opens a bus. A subscriber receives what is sent from then on.
func OpenBus(name string, access Access, options BusOptions) (*Bus, error) {
	params := busParamsABI{
		size: sizeOf[busParamsABI](), mode: uint32(options.Mode), policies: uint32(options.Policies), policy: uint32(options.Policy),
		format: busBatched, limit: options.Limit,
	}
	if options.Client {
		params.flags |= busAddressed
	}
	if options.Monitor {
		params.flags |= busMonitor
	}
	endpoint, err := options.openPoller(KindBus, name, uint32(access), unsafe.Pointer(&params), hintsOfBus)
	if err != nil {
		return nil, err
	}
	b := &Bus{poller: endpoint}
	if err := b.prepare(); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// prepare sets what depends on the bus, which another process may have created. A receiver of a unicast bus receives one message at a time:
// a batch would take messages from the queue that others could receive.
func (b *Bus) prepare() error {
	info, err := b.Info()
	if err != nil {
		return err
	}
	b.max = int(info.MaxMessage) + frameSize
	b.buffer = make([]byte, min(b.max, bufferSize))
	if info.Mode != Unicast {
		return nil
	}
	setting := settingABI{size: sizeOf[settingABI](), value: busFramed}
	_, err = b.ioctl("set the format of ", busSetFormat, unsafe.Pointer(&setting))
	return err
}

const (
	frameSize  = int(unsafe.Sizeof(busFrameABI{}))
	bufferSize = 64 << 10
)

// Publish sends a message. It waits for room, and for subscribers with the policy Block.
func (b *Bus) Publish(ctx context.Context, message []byte) error {
	return b.PublishTo(ctx, 0, 0, message)
}

// PublishTo sends a message with a tag to one subscriber only, whose id the program has from [Message.Sender], [Bus.Turn] or
// [Bus.Subscribers]. The target 0 is as in Publish.
func (b *Bus) PublishTo(ctx context.Context, target, tag uint64, message []byte) (err error) {
	frame := busFrameABI{size: uint32(frameSize), length: clampU32(len(message)), target: target, tag: tag}
	parts := [][]byte{bytesOf(&frame), message}
	if len(message) == 0 {
		parts = parts[:1]
	}
	waited := b.do(ctx, toWrite, func(fd uintptr) bool {
		for {
			_, err = unix.Writev(int(fd), parts)
			if err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	})
	if waited != nil {
		return waited
	}
	return b.fail("send to ", err)
}

// Recv waits for the next message. An error with the cause ENOLINK is a notice of a client, see [ErrNotice].
func (b *Bus) Recv(ctx context.Context) (Message, error) {
	if len(b.rest) == 0 {
		if err := b.fill(ctx); err != nil {
			return Message{}, err
		}
	}
	return b.next(), nil
}

// fill waits for a batch of messages.
func (b *Bus) fill(ctx context.Context) error {
	n, err := b.read(ctx, b.buffer)
	if isErrno(err, syscall.EMSGSIZE) && len(b.buffer) < b.max {
		b.buffer = make([]byte, b.max)
		return b.fill(ctx)
	}
	b.rest = b.buffer[:n]
	return b.absent(ctx, sender, err)
}

// next returns the first message of the batch. The next frame begins at a multiple of 8.
func (b *Bus) next() Message {
	frame := (*busFrameABI)(unsafe.Pointer(&b.rest[0]))
	end := frameSize + int(frame.length)
	message := Message{
		Bytes: b.rest[frameSize:end:end], Sender: frame.sender, Target: frame.target, Tag: frame.tag, Sequence: frame.sequence,
		Lost: frame.lost, PID: frame.pid, UID: frame.uid, GID: frame.gid,
	}
	b.rest = b.rest[min((end+7)&^7, len(b.rest)):]
	return message
}

// Messages iterates over messages, up to an error, which it yields. The end of the context is an error also while there are messages.
func (b *Bus) Messages(ctx context.Context) iter.Seq2[Message, error] { return sequence(ctx, b.Recv) }

// Turn returns the id of the server whose turn it is, without sending. Only in the mode Multicast.
func (b *Bus) Turn() (uint64, error) {
	setting := settingABI{size: sizeOf[settingABI]()}
	_, err := b.ioctl("take a turn on ", busTurn, unsafe.Pointer(&setting))
	return setting.value, err
}

// BusInfo is the state of a bus and of an endpoint.
type BusInfo struct {
	Mode                              BusMode
	Policies                          Policy
	Capacity, MaxMessage              uint64 // bytes
	Subscribers, Senders              uint32
	Sent, Unsubscribed, Lost, Evicted uint64 // since the creation of the bus
	Lag                               uint64 // messages, of the subscriber furthest behind
	ID                                uint64 // of this endpoint
	Policy                            Policy // of this subscriber
	OwnLost                           uint64 // since this subscriber was opened
	OwnLag                            uint64 // messages that this subscriber has not received
}

// Info returns the state of the bus and of this endpoint.
func (b *Bus) Info() (BusInfo, error) {
	i := busInfoABI{size: sizeOf[busInfoABI]()}
	_, err := b.ioctl("get the state of ", busInfo, unsafe.Pointer(&i))
	return BusInfo{
		BusMode(i.mode), Policy(i.policies), i.capacity, i.messageMax, i.subscribers, i.senders, i.sent, i.unsubscribed, i.lost, i.evicted,
		i.lag, i.id, Policy(i.policy), i.ownLost, i.ownLag,
	}, err
}

// A BusSubscriber is a subscriber of a bus.
type BusSubscriber struct {
	ID              uint64
	Policy          Policy
	Client, Monitor bool
	Lag, Lost       uint64 // messages
	PID, UID        uint32 // of its opener
}

// Subscribers returns the subscribers, clients and monitors in the order of their ids.
func (b *Bus) Subscribers() (all []BusSubscriber, err error) {
	after := uint64(0)
	for {
		some, err := b.subscribersAfter(after, busSubscribersMax)
		all = append(all, some...)
		if err != nil || len(some) < busSubscribersMax {
			return all, err
		}
		after = some[len(some)-1].ID
	}
}

func (b *Bus) subscribersAfter(after uint64, count int) ([]BusSubscriber, error) {
	var entries [busSubscribersMax]busSubscriberInfoABI
	call := busSubscribersABI{
		size: sizeOf[busSubscribersABI](), count: uint32(count), after: after, entries: unsafe.Pointer(&entries),
		entrySize: sizeOf[busSubscriberInfoABI](),
	}
	if _, err := b.ioctl("list the subscribers of ", busSubscribers, unsafe.Pointer(&call)); err != nil {
		return nil, err
	}
	var some []BusSubscriber
	for _, e := range entries[:call.count] {
		some = append(some, BusSubscriber{
			e.id, Policy(e.policy), e.flags&busAddressed != 0, e.flags&busMonitor != 0, e.lag, e.lost, e.pid, e.uid,
		})
	}
	return some, nil
}
