// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"fmt"
	"time"
)

// conformFeed is the consumer of a feed.
type conformFeed struct{ *Feed }

func openConformFeed(name string) (conformEndpoint, error) {
	if name == "simulator" {
		name = "" // it has none
	}
	f, err := OpenFeed(name)
	return conformFeed{f}, err
}

func (f conformFeed) execute(words []string, numbers []int) string {
	switch words[0] {
	case "start":
		return conformDone(f.StartSimulator(time.Millisecond, uint64(numbers[1]), numbers[2]))
	case "packet":
		ctx, cancel := contextOf(numbers, 1)
		defer cancel()
		packet, err := f.Recv(ctx)
		if err != nil {
			return conformWithin(err, numbers, 1, "empty")
		}
		result := fmt.Sprint("packet ", len(packet.Bytes))
		if packet.Lost > 0 {
			result += fmt.Sprint(" lost ", packet.Lost)
		}
		return result
	}
	return "unsupported"
}
