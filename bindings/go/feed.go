// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"iter"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Feed is an endpoint of a feed, which receives by read(2). One goroutine uses it at a time.
type Feed struct {
	poller
	buffer [packetHeader + feedPacketMax]byte
}

const packetHeader = int(unsafe.Sizeof(feedPacketABI{}))

// A Packet is a packet of a kernel module.
type Packet struct {
	// Bytes are valid until the next Recv.
	Bytes []byte
	// Sequence is the number of the packet.
	Sequence uint64
	// Lost is the number of packets lost directly before this one.
	Lost uint64
	// Time is CLOCK_MONOTONIC of the publication.
	Time time.Duration
	// Cycles is the processor's counter (x86: TSC), read directly after Time.
	Cycles uint64
}

var hintsOfFeed = map[syscall.Errno]string{
	syscall.EBUSY:  "the feed has another consumer",
	syscall.ENOMEM: "raise memory.max",
	syscall.EPERM:  "requires CAP_SYS_NICE",
	syscall.EPIPE:  "the feed was destroyed",
}

// OpenFeed opens a feed by its name in the root scope, or with an empty name the feed of the packet simulator, and becomes its consumer.
func OpenFeed(name string) (*Feed, error) {
	fd, err := openFeed(name)
	if err != nil {
		return nil, err
	}
	endpoint, err := newPoller(fd, "feed "+name, hintsOfFeed)
	if err != nil {
		return nil, err
	}
	f := &Feed{poller: endpoint}
	setting := settingABI{size: sizeOf[settingABI](), value: feedConsumerReads}
	if _, err := f.ioctl("open ", feedClaim, unsafe.Pointer(&setting)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func openFeed(name string) (int, error) {
	if name == "" {
		return openNode(nodeOfFeed, unix.O_RDWR)
	}
	return Options{Scope: RootScope}.open(KindFeed, name, openRead, nil)
}

// Recv waits for the next packet. It returns [io.EOF] when the feed was destroyed and all packets were received.
func (f *Feed) Recv(ctx context.Context) (Packet, error) {
	n, err := f.read(ctx, f.buffer[:])
	if err != nil {
		return Packet{}, err
	}
	p := (*feedPacketABI)(unsafe.Pointer(&f.buffer))
	return Packet{f.buffer[packetHeader:n:n], p.sequence, p.lost, time.Duration(p.timeNs), p.cycles}, nil
}

// Packets iterates over packets until the end of the feed, or up to an error, which it yields. The end of the context is an error also while
// there are packets.
func (f *Feed) Packets(ctx context.Context) iter.Seq2[Packet, error] { return sequence(ctx, f.Recv) }

// StartSimulator publishes a packet of length bytes at each interval, count times, or without a limit if count is 0. Only on the feed of
// the packet simulator, and with CAP_SYS_NICE. It stops when the feed is closed, at the latest.
func (f *Feed) StartSimulator(interval time.Duration, count uint64, length int) error {
	call := feedStartABI{
		size: sizeOf[feedStartABI](), intervalNs: uint64(interval), count: count, length: clampU32(length), cpu: feedCPUAny,
	}
	_, err := f.ioctl("start the simulator of ", feedStart, unsafe.Pointer(&call))
	return err
}

// StopSimulator stops the packet simulator, which this endpoint has started.
func (f *Feed) StopSimulator() error {
	_, err := f.ioctl("stop the simulator of ", feedStop, nil)
	return err
}
