// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// conformBus is an endpoint of a bus: a sender, a subscriber or both, a client, or a server.
type conformBus struct {
	*Bus
	// The last message that was received, such as a request.
	last Message
}

var conformModes = map[string]BusMode{"": Broadcast, "multicast": Multicast, "unicast": Unicast}

var conformPolicies = map[string]Policy{"drop": Drop, "block": Block, "evict": Evict}

func openConformBus(name, side string, settings conformSettings) (conformEndpoint, error) {
	options := BusOptions{
		Options: settings.options(), Mode: conformModes[settings.text("mode")], Policy: conformPolicies[settings.text("policy")],
		Limit: settings.number("limit"),
	}
	if settings.has("mappable") {
		return nil, errUnsupported
	}
	for _, name := range strings.Split(settings.text("policies"), "+") {
		options.Policies |= conformPolicies[name]
	}
	access := Read | Write
	switch side {
	case "sender":
		access = Write
	case "subscriber":
		access = Read
	case "client":
		options.Mode, options.Policies, options.Policy, options.Client = Multicast, Drop|Block|Evict, Drop, true
	case "server":
		options.Mode, options.Policies, options.Policy = Multicast, Drop|Block|Evict, Block
	}
	b, err := OpenBus(name, access, options)
	return &conformBus{Bus: b}, err
}

func (b *conformBus) execute(words []string, numbers []int) string {
	switch words[0] {
	case "whoami":
		info, err := b.Info()
		if err != nil {
			return conformDone(err)
		}
		return fmt.Sprint(info.ID, os.Getpid(), os.Geteuid(), os.Getegid())
	case "from":
		return fmt.Sprint(b.last.Sender, b.last.PID, b.last.UID, b.last.GID)
	case "send":
		ctx, cancel := contextOf(numbers, 2)
		defer cancel()
		return conformWithin(b.Publish(ctx, conformBytes(words[1])), numbers, 2, "full")
	case "send-to":
		return conformDone(b.PublishTo(context.Background(), uint64(numbers[1]), 0, conformBytes(words[2])))
	case "batch":
		return b.batch(conformBytes(words[1]), numbers[2])
	case "recv":
		return b.recv("message", numbers)
	case "request":
		return b.recv("request", numbers)
	case "take":
		return b.recvMany(numbers[1], nil)
	case "drain":
		return b.recvMany(1<<30, []int{0})
	case "call":
		ctx, cancel := contextOf(numbers, 2)
		defer cancel()
		reply, err := b.Request(ctx, conformBytes(words[1]))
		if err != nil {
			return conformDone(err)
		}
		return "reply " + conformWord(reply.Bytes)
	case "reply":
		return conformDone(b.Reply(context.Background(), b.last, conformBytes(words[1])))
	}
	return "unsupported"
}

// batch sends without waiting.
func (b *conformBus) batch(message []byte, count int) string {
	ctx, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	for sent := range count {
		if err := b.Publish(ctx, message); err != nil {
			return fmt.Sprint("sent ", sent, " ", conformWithin(err, []int{0}, 0, "full"))
		}
	}
	return fmt.Sprint("sent ", count)
}

func (b *conformBus) recv(word string, numbers []int) string {
	ctx, cancel := contextOf(numbers, 1)
	defer cancel()
	message, err := b.Recv(ctx)
	if err != nil {
		return conformWithin(err, numbers, 1, "empty")
	}
	b.last = message
	result := word + " " + conformWord(message.Bytes)
	if message.Lost > 0 {
		result += fmt.Sprint(" lost ", message.Lost)
	}
	return result
}

// recvMany receives so many messages, or those that there are if numbers has a time.
func (b *conformBus) recvMany(count int, numbers []int) string {
	ctx, cancel := contextOf(numbers, 0)
	defer cancel()
	received, lost := 0, 0
	for ; received < count; received++ {
		message, err := b.Recv(ctx)
		if err != nil {
			if result := conformDone(err); result != "timeout" {
				return result
			}
			break
		}
		lost += int(message.Lost)
	}
	if lost == 0 {
		return fmt.Sprint("received ", received)
	}
	return fmt.Sprint("received ", received, " lost ", lost, " of ", received+lost)
}
