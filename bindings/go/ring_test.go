// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// A pair makes both sides of a ring. Each test of the protocol runs on both carriers.
type pair struct {
	name string
	make func(t testing.TB, spin time.Duration) (*Producer, *Consumer)
}

var pairs = []pair{
	{"memfd", func(t testing.TB, spin time.Duration) (*Producer, *Consumer) {
		options := small
		options.Spin = spin
		return memfdRing(t, options)
	}},
	{"device", deviceRing},
}

// onBoth runs a test on both carriers, spinning and not.
func onBoth(t *testing.T, test func(t *testing.T, p *Producer, c *Consumer)) {
	for _, pair := range pairs {
		for _, spin := range []time.Duration{0, -1} {
			name := pair.name + "/spins"
			if spin < 0 {
				name = pair.name + "/blocks"
			}
			t.Run(name, func(t *testing.T) {
				p, c := pair.make(t, spin)
				test(t, p, c)
			})
		}
	}
}

func TestAllLengthsInOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, p *Producer, c *Consumer) {
		ctx := testContext(t)
		count := 3 * (p.MaxRecord() + 1)
		sent := make(chan error, 1)
		go func() {
			err := sendAll(ctx, p, 0, count)
			if err == nil {
				err = p.Close()
			}
			sent <- err
		}()
		must(t, receiveAll(ctx, c, 0, count))
		for range 2 {
			_, err := c.Recv(ctx)
			mustBe(t, err, io.EOF)
		}
		must(t, <-sent)
		mustBe(t, p.Send(ctx, nil), ErrClosed)
	})
}

// TestPositionsNearTheEndOfWords has both sides begin shortly before 2^31, 2^32 and 2^63. A ring ends before 2^64: at 10 GB/s after 58 years.
func TestPositionsNearTheEndOfWords(t *testing.T) {
	for _, end := range []uint64{1 << 31, 1 << 32, 1 << 63, 1<<64 - 1<<30} {
		onBoth(t, func(t *testing.T, p *Producer, c *Consumer) {
			ctx := testContext(t)
			begin := end - 2*p.capacity
			for _, side := range []*side{&p.side, &c.side} {
				side.pos, side.released = begin, begin
				atomic.StoreUint64(&side.own.pos, begin)
			}
			count := 3 * (p.MaxRecord() + 1)
			sent := make(chan error, 1)
			go func() { sent <- sendAll(ctx, p, 0, count) }()
			must(t, receiveAll(ctx, c, 0, count))
			must(t, <-sent)
			if c.pos <= end {
				t.Errorf("the position is %#x, not beyond %#x", c.pos, end)
			}
		})
	}
}

func TestEndIsAfterTheRecords(t *testing.T) {
	onBoth(t, func(t *testing.T, p *Producer, c *Consumer) {
		ctx := testContext(t)
		must(t, sendAll(ctx, p, 0, 2))
		must(t, p.Close())
		mustBe(t, p.Close(), ErrClosed)
		must(t, receiveAll(ctx, c, 0, 2))
		_, err := c.Recv(ctx)
		mustBe(t, err, io.EOF)
	})
}

func TestAbortIsAfterTheRecords(t *testing.T) {
	onBoth(t, func(t *testing.T, p *Producer, c *Consumer) {
		ctx := testContext(t)
		must(t, sendAll(ctx, p, 0, 2))
		must(t, p.Abort())
		must(t, receiveAll(ctx, c, 0, 2))
		for range 2 {
			_, err := c.Recv(ctx)
			mustBe(t, err, ErrPeerDied)
		}
	})
}

// fill sends until there is no room.
func fill(t testing.TB, p *Producer) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		err := p.Send(ctx, make([]byte, p.MaxRecord()))
		cancel()
		if err != nil {
			mustBe(t, err, context.DeadlineExceeded)
			return
		}
	}
}

func TestConsumerEnds(t *testing.T) {
	for _, end := range []struct {
		name string
		end  func(c *Consumer) error
		err  error
	}{{"close", (*Consumer).Close, ErrPeerClosed}, {"abort", (*Consumer).Abort, ErrPeerDied}} {
		t.Run(end.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, p *Producer, c *Consumer) {
				fill(t, p)
				defer later(func() { end.end(c) })()
				mustBe(t, p.Send(testContext(t), make([]byte, p.MaxRecord())), end.err)
				mustBe(t, p.WaitReleased(testContext(t)), end.err)
			})
		})
	}
}

func TestCancelEndsAWait(t *testing.T) {
	onBoth(t, func(t *testing.T, p *Producer, c *Consumer) {
		for range 20 {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(time.Millisecond, cancel)
			_, err := c.Recv(ctx)
			mustBe(t, err, context.Canceled)
		}
		ctx, cancel := context.WithCancel(testContext(t))
		wait := later(func() { p.Send(context.Background(), []byte("late")) })
		record, err := c.Recv(ctx)
		wait()
		must(t, err)
		if string(record) != "late" {
			t.Fatalf("%q", record)
		}
		cancel()
		must(t, p.Send(ctx, []byte("there is room")))
		_, err = c.Recv(ctx)
		must(t, err)
	})
}

func TestReservation(t *testing.T) {
	onBoth(t, func(t *testing.T, p *Producer, c *Consumer) {
		ctx := testContext(t)
		_, err := p.Reserve(ctx, p.MaxRecord()+1)
		mustBe(t, err, syscall.EMSGSIZE)
		_, err = p.Reserve(ctx, -1)
		mustBe(t, err, syscall.EMSGSIZE)
		room, err := p.Reserve(ctx, 100)
		must(t, err)
		mustBe(t, room.Publish(101), syscall.EINVAL)
		copy(room.Bytes, "in place")
		must(t, room.Publish(8))
		mustBe(t, room.Publish(8), syscall.EINVAL)
		b, err := c.RecvAppend(ctx, []byte("> "))
		must(t, err)
		if string(b) != "> in place" {
			t.Fatalf("%q", b)
		}
	})
}

func TestBatches(t *testing.T) {
	onBoth(t, func(t *testing.T, p *Producer, c *Consumer) {
		ctx := testContext(t)
		var records [][]byte
		for number := range 2000 {
			records = append(records, contentOf(number, p.MaxRecord()))
		}
		defer later(func() {
			p.SendBatch(ctx, records)
			p.Close()
		})()
		count := 0
		for record, err := range c.Records(ctx) {
			must(t, err)
			if !bytes.Equal(record, records[count]) {
				t.Fatalf("record %d", count)
			}
			count++
		}
		if count != len(records) {
			t.Fatalf("%d records", count)
		}
	})
}

func TestWaitReleased(t *testing.T) {
	onBoth(t, func(t *testing.T, p *Producer, c *Consumer) {
		ctx := testContext(t)
		must(t, p.WaitReleased(ctx))
		must(t, p.Send(ctx, []byte("one")))
		must(t, p.Send(ctx, []byte("two")))
		for range 2 {
			short, cancel := context.WithTimeout(ctx, time.Millisecond)
			mustBe(t, p.WaitReleased(short), context.DeadlineExceeded)
			cancel()
			_, err := c.Recv(ctx)
			must(t, err)
		}
		wait := later(c.Release)
		must(t, p.WaitReleased(ctx))
		wait()
		must(t, p.Send(ctx, []byte("three")))
		defer later(func() {
			c.Recv(ctx)
			c.Close()
		})()
		must(t, p.WaitReleased(ctx)) // a success also after the end
	})
}

func TestNoAllocations(t *testing.T) {
	onBoth(t, func(t *testing.T, p *Producer, c *Consumer) {
		record, ctx := make([]byte, 64), context.Background()
		if allocations := testing.AllocsPerRun(1000, func() {
			p.Send(ctx, record)
			c.Recv(ctx)
		}); allocations != 0 {
			t.Fatalf("%f allocations per record", allocations)
		}
	})
}

// The end of a context ends an iteration while there are records, and loses none.
func TestCancelEndsAnIteration(t *testing.T) {
	onBoth(t, func(t *testing.T, p *Producer, c *Consumer) {
		must(t, sendAll(testContext(t), p, 0, 3))
		ctx, cancel := context.WithCancel(testContext(t))
		defer cancel()
		var last error
		for _, last = range c.Records(ctx) {
			cancel()
		}
		mustBe(t, last, context.Canceled)
		must(t, receiveAll(testContext(t), c, 1, 3))
	})
}

// Protocol violations.

func TestMaliciousProducer(t *testing.T) {
	for name, corrupt := range map[string]func(p *Producer){
		"state 2":      func(p *Producer) { atomic.StoreUint32(&p.header(p.pos).state, 2) },
		"state max":    func(p *Producer) { atomic.StoreUint32(&p.header(p.pos).state, ^uint32(0)) },
		"too long":     func(p *Producer) { announce(p, uint32(p.longest)+1) },
		"length max":   func(p *Producer) { announce(p, ^uint32(0)) },
		"length max-7": func(p *Producer) { announce(p, ^uint32(0)-7) },
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, p *Producer, c *Consumer) {
				ctx := testContext(t)
				must(t, p.Send(ctx, []byte("valid")))
				corrupt(p)
				_, err := c.Recv(ctx)
				must(t, err)
				_, err = c.Recv(ctx)
				mustBe(t, err, ErrProtocol)
				p.header(p.pos).length = 0
				atomic.StoreUint32(&p.header(p.pos).state, ringRecordReady)
				_, err = c.Recv(ctx)
				mustBe(t, err, ErrProtocol) // it is final
			})
		})
	}
}

// announce publishes a record of any length.
func announce(p *Producer, length uint32) {
	p.header(p.pos).length = length
	atomic.StoreUint32(&p.header(p.pos).state, ringRecordReady)
}

func TestMaliciousConsumer(t *testing.T) {
	for name, position := range map[string]func(p *Producer) uint64{
		"unaligned": func(p *Producer) uint64 { return p.pos - 1 },
		"backwards": func(p *Producer) uint64 { return p.released - 8 },
		"ahead":     func(p *Producer) uint64 { return p.pos + 8 },
		"max":       func(p *Producer) uint64 { return ^uint64(7) },
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, p *Producer, c *Consumer) {
				ctx := testContext(t)
				fill(t, p)
				_, err := c.Recv(ctx)
				must(t, err)
				c.Release()
				fill(t, p)
				atomic.StoreUint64(&c.own.pos, position(p))
				mustBe(t, p.Send(ctx, make([]byte, p.MaxRecord())), ErrProtocol)
				atomic.StoreUint64(&c.own.pos, p.pos)
				mustBe(t, p.Send(ctx, nil), ErrProtocol) // it is final
			})
		})
	}
}

// A peer that writes anything anywhere ends the ring with an error at worst.
func TestPeerWritesAnything(t *testing.T) {
	onBoth(t, func(t *testing.T, p *Producer, c *Consumer) {
		stop := make(chan struct{})
		var writer sync.WaitGroup
		writer.Add(1)
		go func() {
			defer writer.Done()
			writeAnywhere(p, stop)
		}()
		defer writer.Wait()
		defer close(stop)
		total := 0
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			record, err := c.Recv(ctx)
			cancel()
			for _, b := range record {
				total += int(b)
			}
			if err != nil {
				return
			}
		}
	})
}

// writeAnywhere writes to all memory of a producer, most often small numbers, which are valid.
func writeAnywhere(p *Producer, stop chan struct{}) {
	random := rand.New(rand.NewSource(1))
	words := unsafe.Slice((*uint32)(p.data), p.capacity/4)
	ctrl := unsafe.Slice((*uint32)(unsafe.Pointer(p.own)), ctrlSize/4)
	for {
		select {
		case <-stop:
			return
		default:
		}
		value := random.Uint32() >> random.Intn(32)
		atomic.StoreUint32(&words[random.Intn(len(words))], value&1)
		if word := random.Intn(len(ctrl)); random.Intn(4) == 0 && uintptr(word)*4 != unsafe.Offsetof(p.own.closed) {
			atomic.StoreUint32(&ctrl[word], value)
		}
		if random.Intn(1000) == 0 {
			atomic.StoreUint32(&words[random.Intn(len(words))], value)
		}
	}
}

// Wakes without a reason must neither end a wait nor prevent its cancellation.
func TestNeedlessWakes(t *testing.T) {
	onBoth(t, func(t *testing.T, p *Producer, c *Consumer) {
		stop := make(chan struct{})
		var waker sync.WaitGroup
		waker.Add(1)
		go func() {
			defer waker.Done()
			for {
				select {
				case <-stop:
					return
				default:
					p.wake(ringWakeFD)
				}
			}
		}()
		defer waker.Wait()
		defer close(stop)
		for range 5 {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
			_, err := c.Recv(ctx)
			cancel()
			mustBe(t, err, context.DeadlineExceeded)
		}
	})
}

// Other processes.

func TestOtherProcessSends(t *testing.T) {
	socket, _ := otherProcess(t, "send 5000 close")
	ctx := testContext(t)
	c, err := NewConsumer(ctx, socket, small)
	must(t, err)
	defer c.Close()
	must(t, receiveAll(ctx, c, 0, 5000))
	_, err = c.Recv(ctx)
	mustBe(t, err, io.EOF)
}

func TestOtherProcessReceives(t *testing.T) {
	socket, command := otherProcess(t, "receive 5000 close")
	ctx := testContext(t)
	p, err := NewProducer(ctx, socket, small)
	must(t, err)
	defer p.Close()
	must(t, sendAll(ctx, p, 0, 5000))
	must(t, p.WaitReleased(ctx))
	must(t, command.Wait())
}

func TestKilledProducer(t *testing.T) {
	socket, command := otherProcess(t, "send 2 hang")
	ctx := testContext(t)
	c, err := NewConsumer(ctx, socket, small)
	must(t, err)
	defer c.Close()
	must(t, receiveAll(ctx, c, 0, 2))
	defer later(func() { kill(t, command) })()
	_, err = c.Recv(ctx)
	mustBe(t, err, ErrPeerDied)
}

func TestKilledConsumer(t *testing.T) {
	socket, command := otherProcess(t, "receive 0 hang")
	p, err := NewProducer(testContext(t), socket, small)
	must(t, err)
	defer p.Close()
	fill(t, p)
	defer later(func() { kill(t, command) })()
	mustBe(t, p.Send(testContext(t), make([]byte, p.MaxRecord())), ErrPeerDied)
}

func TestErrorsOfContexts(t *testing.T) {
	_, c := memfdRing(t, small)
	reason := errors.New("the reason")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(reason)
	_, err := c.Recv(ctx)
	mustBe(t, err, reason)
}
