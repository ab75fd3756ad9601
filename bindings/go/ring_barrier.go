// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The asymmetric barriers of docs/abi/ring.md: a side that publishes omits its barrier, and a side that is about to sleep makes up for that
// with membarrier(2).
//
// On x86-64 an atomic store of Go is an exchange, which takes as long as half of a small record. There an ordinary store is a release, and the
// compiler keeps its order to other stores and to atomic accesses. On other processors an ordinary store may be no release: sides there publish
// with atomic stores, and do not announce membarrier(2).

// barriers is the part of a side that decides which barriers it issues.
type barriers struct {
	announced bool   // this side has told its peer that the process is registered, so it issues a heavy barrier before it sleeps
	light     bool   // the peer is registered, too: this side publishes without a barrier
	expects   bool   // the peer of a device ring may tell so later
	needFence uint32 // ringNeedFence while the own wait_flags have it, else 0
	successes int    // waits in a row that did not sleep
	fence     uint32 // an atomic addition to it is a full barrier
}

// waitsUntilLight is the number of waits in a row without a sleep after which the peer may publish without a barrier again.
const waitsUntilLight = 256

// heavyWait takes the place of a heavy barrier that fails: a processor holds back a store for a far shorter time.
const heavyWait = 10 * time.Millisecond

// Commands of membarrier(2).
const (
	membarrierGlobalExpedited         = 1 << 1
	membarrierRegisterGlobalExpedited = 1 << 2
)

func membarrier(command uintptr) bool {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, command, 0, 0)
	return errno == 0
}

// isRegistered registers the process with membarrier(2), and returns whether its sides may announce that.
var isRegistered = sync.OnceValue(func() bool {
	return runtime.GOARCH == "amd64" && membarrier(membarrierRegisterGlobalExpedited) && membarrier(membarrierGlobalExpedited)
})

// announce tells the peer of a device ring, which may come later, whether the process is registered.
func (b *barriers) announce(own *ringCtrlABI) {
	if isRegistered() {
		atomic.StoreUint32(&own.features, ringFMembarrier)
		b.announced, b.expects = true, true
	}
}

// storeState stores the state by which a record is published.
func (b *barriers) storeState(state *uint32, value uint32) {
	if b.light {
		*state = value
	} else {
		atomic.StoreUint32(state, value)
	}
}

// storePos stores the position up to which records are released.
func (b *barriers) storePos(pos *uint64, value uint64) {
	if b.light {
		*pos = value
	} else {
		atomic.StoreUint64(pos, value)
	}
}

// beforeSleep is called before the steps of a sleep. It asks the peer to publish with barriers from now on.
func (b *barriers) beforeSleep(own *ringCtrlABI) {
	b.successes = 0
	if !b.announced || b.needFence != 0 {
		return
	}
	atomic.StoreUint32(&own.waitFlags, ringNeedFence)
	b.needFence = ringNeedFence
	if !membarrier(membarrierGlobalExpedited) {
		time.Sleep(heavyWait)
		b.announced = false // and needFence remains
	}
}

// afterWait counts a wait that did not sleep.
func (b *barriers) afterWait(own *ringCtrlABI) {
	if b.needFence == 0 || !b.announced {
		return
	}
	if b.successes++; b.successes >= waitsUntilLight {
		b.needFence = 0
		atomic.StoreUint32(&own.waitFlags, 0)
	}
}
