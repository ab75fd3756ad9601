// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// A sleep asks the peer for barriers, and enough waits without a sleep withdraw that.
func TestBarriersAreRequestedAndWithdrawn(t *testing.T) {
	if !isRegistered() {
		t.Skip("needs x86-64 and membarrier(2)")
	}
	for _, pair := range pairs {
		t.Run(pair.name, func(t *testing.T) {
			p, c := pair.make(t, limit)
			ctx := testContext(t)
			receive := func() {
				_, err := c.Recv(ctx)
				must(t, err)
			}
			must(t, p.Send(ctx, nil))
			must(t, p.Send(ctx, nil))
			receive()
			receive()
			c.Release()
			if !p.announced || !c.announced || !p.light {
				t.Fatalf("announced %v and %v, light %v", p.announced, c.announced, p.light)
			}
			flags := &c.own.waitFlags
			c.spinMax, c.spinFor = 0, 0
			wait := later(func() { p.Send(ctx, nil) })
			receive()
			wait()
			if asked := atomic.LoadUint32(flags); asked != ringNeedFence {
				t.Fatalf("after a sleep the flags are %#x", asked)
			}
			for range waitsUntilLight {
				must(t, c.await(ctx, &condition{ready: func() (bool, error) { return true, nil }}))
			}
			if asked := atomic.LoadUint32(flags); asked != 0 {
				t.Fatalf("after waits without a sleep the flags are %#x", asked)
			}
		})
	}
}

// Of a publication and the begin of a sleep at the same time, at least one side finds the store of the other.
func TestHeavyBarrierOrders(t *testing.T) {
	if !isRegistered() || runtime.NumCPU() < 2 {
		t.Skip("needs x86-64, membarrier(2) and two processors")
	}
	const count = 20_000
	sleepers, states := make([]ringCtrlABI, count), make([]ringHeaderABI, count)
	var requests, found [count]uint32
	var arrived [2]atomic.Int32
	meet := func(own int, turn int) {
		arrived[own].Store(int32(turn))
		for checks := 1; arrived[1-own].Load() < int32(turn); checks++ {
			if checks%1000 == 0 {
				runtime.Gosched()
			}
		}
	}
	published := make(chan struct{})
	go func() {
		defer close(published)
		b := barriers{light: true}
		for i := range count {
			meet(0, i+1)
			b.storeState(&states[i].state, ringRecordReady)
			requests[i] = atomic.LoadUint32(&sleepers[i].waitFlags)
		}
	}()
	for i := range count {
		b := barriers{announced: true}
		meet(1, i+1)
		b.beforeSleep(&sleepers[i])
		found[i] = atomic.LoadUint32(&states[i].state)
	}
	<-published
	for i := range count {
		if requests[i] == 0 && found[i] == 0 {
			t.Fatalf("turn %d: neither side found the other", i)
		}
	}
}

// Gaps as long as the time of spinning: many waits are about to sleep when their record comes. A wake-up that is lost ends the test by its
// context.
func TestNoWakeUpIsLost(t *testing.T) {
	const count, spin = 20_000, 5 * time.Microsecond
	for _, pair := range pairs {
		t.Run(pair.name, func(t *testing.T) {
			p, c := pair.make(t, spin)
			ctx := testContext(t)
			sent := make(chan error, 1)
			go func() {
				for number := range count {
					for began := time.Now(); time.Since(began) < time.Duration(number%16)*time.Microsecond; {
					}
					if err := p.Send(ctx, nil); err != nil {
						sent <- err
						return
					}
					if err := p.WaitReleased(ctx); err != nil {
						sent <- err
						return
					}
				}
				sent <- nil
			}()
			for range count {
				_, err := c.RecvAppend(ctx, nil)
				must(t, err)
			}
			must(t, <-sent)
		})
	}
}
