// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"fmt"
	"unsafe"
)

// peer is the side of a channel that a call waits for.
type peer int

const (
	sender peer = iota
	receiver
)

// absent explains the end of a wait by the deadline of its context if the channel has no peer, perhaps because that has opened the same name
// in another cgroup.
func (p *poller) absent(ctx context.Context, awaited peer, err error) error {
	if err == nil || ctx.Err() != context.DeadlineExceeded {
		return err
	}
	info := channelInfoABI{size: sizeOf[channelInfoABI]()}
	if _, failed := p.ioctl("get the state of ", endpointInfo, unsafe.Pointer(&info)); failed != nil {
		return err // an older module
	}
	count := info.writers
	if awaited == receiver {
		count = info.readers
	}
	if count != 0 {
		return err
	}
	return fmt.Errorf("sluice: no %s has %s open: %w (start it in the same cgroup; 'sudo sluice ls --all' shows whether it has opened the "+
		"name in another one)", awaited.noun(Kind(info.kind)), p.name, err)
}

func (p peer) noun(kind Kind) string {
	switch {
	case kind == KindRing && p == sender:
		return "producer"
	case kind == KindRing:
		return "consumer"
	case p == sender:
		return "sender"
	}
	return "receiver"
}
