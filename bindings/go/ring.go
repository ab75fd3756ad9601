// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"fmt"
	"io"
	"iter"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The memory protocol of docs/abi/ring.md, common to both carriers.
//
// sync/atomic has no fences, so this file uses the table "Without fences" there: the stores of state, of the consumer's pos, of closed and
// of wait_flags, and the loads of the peer's wait_flags, of what a side waits for and of the peer's closed are operations of sync/atomic,
// which are sequentially consistent. The other accesses are ordinary ones, or atomic where the peer may write meanwhile. The compiler keeps
// the order of ordinary and atomic accesses. Where both sides have membarrier(2), the stores of state and of the consumer's pos are ordinary
// ones, too: see ring_barrier.go.
//
// The race detector checks neither other processes nor memory that mmap(2) returned. So it checks the fields of a side, which one goroutine
// uses at a time, and not the protocol.

const headerSize = uint64(unsafe.Sizeof(ringHeaderABI{}))

// DefaultSpin is the time for which a side of a ring spins before it blocks, unless its options say otherwise.
const DefaultSpin = 50 * time.Microsecond

// spinChecks is the number of checks between two calls of runtime.Gosched, which lets a peer in this process run.
const spinChecks = 16

// gatherIterations, about 1.5 µs, is the length of a pause of a producer that has waited for room, in which the consumer releases more. A
// producer that takes the room of each record as it is released makes both sides a third slower: the cache line of the consumer's pos then
// goes there and back for each record.
const gatherIterations = 4096

// hangUp are the events of poll(2) by which a descriptor reports the end of the peer.
const hangUp = unix.POLLRDHUP | unix.POLLHUP | unix.POLLERR

// A side is what a producer and a consumer have in common. One goroutine uses it at a time.
type side struct {
	barriers
	own, peer *ringCtrlABI // the peer's is mapped read-only
	data      unsafe.Pointer
	capacity  uint64
	longest   uint64 // bytes of a record
	pos       uint64 // of the next record
	released  uint64 // the consumer's pos, as stored or as loaded last
	answered  uint32 // the wait_flags of the peer for which it was woken last
	waitSeq   uint32
	err       error // final: an end, a protocol violation, or ErrClosed

	poller      poller
	fd          int // of the poller, which keeps it open: only the side uses the poller, and nothing else closes it
	isDevice    bool
	reportedEnd bool // device ring: the last sleep reported an end
	asleep      bool
	condition   *condition
	attempt     func(fd uintptr) bool
	spinFor     time.Duration // adapts to the waits, up to spinMax
	spinMax     time.Duration
	mappings    []mapping
	op          string
	awaited     peer
	ended       error // the result when the peer has closed the ring
}

// A condition is what a side waits for.
type condition struct {
	ready func() (bool, error)
	// afterEnd: it is a success although the peer has ended.
	afterEnd bool
}

func (c *condition) check() (bool, error) { return c.ready() }

type mapping struct {
	start  unsafe.Pointer
	length uintptr
}

func recordSize(length uint64) uint64 { return (headerSize + length + 7) &^ 7 }

func (s *side) init(op string, ended error, spin time.Duration) {
	s.longest = s.capacity/2 - headerSize
	s.op, s.ended = op, ended
	s.attempt = s.trySleep
	if spin == 0 {
		spin = DefaultSpin
	}
	s.spinMax = max(spin, 0)
	s.spinFor = s.spinMax
}

func (s *side) header(position uint64) *ringHeaderABI {
	return (*ringHeaderABI)(unsafe.Add(s.data, position&(s.capacity-1)))
}

func (s *side) bytes(position, length uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(s.data, position&(s.capacity-1)+headerSize)), length)
}

// finish makes an error the result of every later call.
func (s *side) finish(errno syscall.Errno) error {
	s.err = failure(s.op, errno, hintsOfRing)
	return s.err
}

// Capacity returns the capacity of the ring in bytes.
func (s *side) Capacity() int { return int(s.capacity) }

// Pending returns the bytes of the data that are published and not released, with headers, as both sides report it.
func (s *side) Pending() int {
	if s.err == ErrClosed {
		return 0
	}
	pending := atomic.LoadUint64(&s.own.pos) - atomic.LoadUint64(&s.peer.pos)
	return int(min(pending, -pending, s.capacity))
}

// MaxRecord returns the length of the longest record in bytes: 8 less than half of the capacity.
func (s *side) MaxRecord() int { return int(s.longest) }

// notify wakes the peer if it sleeps, or is about to. A store of what the peer waits for precedes it.
func (s *side) notify() {
	if s.expects && atomic.LoadUint32(&s.peer.features)&ringFMembarrier != 0 {
		s.light, s.expects = true, false // from the next publication on
	}
	if flags := atomic.LoadUint32(&s.peer.waitFlags); flags != 0 {
		s.wake(flags)
	}
}

func (s *side) wake(flags uint32) {
	if s.light && flags&ringNeedFence != 0 {
		atomic.AddUint32(&s.fence, 1)
		flags = atomic.LoadUint32(&s.peer.waitFlags)
	}
	if flags&(ringWakeFutex|ringWakeFD) == 0 || flags == s.answered {
		return
	}
	atomic.AddUint32(&s.own.wakeSeq, 1)
	if s.isDevice && s.wakeOnDevice(flags) || !s.isDevice && s.wakeOverMemfd(flags) {
		s.answered = flags
	}
	runtime.KeepAlive(s.poller.file)
}

// await waits until a condition is true: it spins, then it blocks. With a context that has ended it does neither.
func (s *side) await(ctx context.Context, c *condition) error {
	check := s.spin
	if ctx.Err() != nil {
		check = (*condition).check
	}
	if ok, err := check(c); ok || err != nil {
		s.afterWait(s.own)
		return err
	}
	for {
		if over, err := s.checkEnd(c); over {
			return err
		}
		if err := s.sleep(ctx, c); err != nil {
			return s.explain(ctx, err)
		}
		if ok, err := c.ready(); ok || err != nil {
			return err
		}
	}
}

// spin spins for up to a time that adapts to the results of earlier calls.
func (s *side) spin(c *condition) (bool, error) {
	start := time.Now()
	for {
		for range spinChecks {
			if ok, err := c.ready(); ok || err != nil {
				s.spinFor = min(2*s.spinFor, s.spinMax)
				return ok, err
			}
		}
		if time.Since(start) >= s.spinFor {
			s.spinFor = max(s.spinFor/2, s.spinMax/64)
			return false, nil
		}
		runtime.Gosched()
	}
}

// sleep executes one sleep. It may end for any reason.
func (s *side) sleep(ctx context.Context, c *condition) error {
	s.asleep, s.condition = false, c
	err := s.poller.wait(ctx, toRead, s.attempt)
	atomic.StoreUint32(&s.own.waitFlags, s.needFence)
	if s.isDevice {
		// This acknowledges the wake-up before the check of what was published with it.
		atomic.StoreUint32(&s.own.wakeAck, atomic.LoadUint32(&s.peer.wakeSeq))
	}
	if s.err != nil {
		return s.err
	}
	return err
}

// explain tells a peer that has not come from one that is slow. Over memfd the peer has come.
func (s *side) explain(ctx context.Context, err error) error {
	if !s.isDevice || s.err != nil {
		return err
	}
	return s.poller.absent(ctx, s.awaited, err)
}

// trySleep is called by the poller, which notes events from before the first call on. It returns false to sleep. The second call comes
// when the descriptor was readable.
func (s *side) trySleep(uintptr) bool {
	if s.asleep {
		if s.isDevice {
			s.reportedEnd = s.events()&hangUp != 0
		} else {
			s.drain()
		}
		return true
	}
	s.asleep = true
	s.beforeSleep(s.own)
	wakeSeq := atomic.LoadUint32(&s.peer.wakeSeq)
	if s.isDevice {
		atomic.StoreUint32(&s.own.wakeAck, wakeSeq)
	}
	s.waitSeq += 1 << waitSeqShift
	atomic.StoreUint32(&s.own.waitFlags, ringWakeFD|s.needFence|s.waitSeq)
	ok, err := s.condition.ready()
	if ok || err != nil || atomic.LoadUint32(&s.peer.closed) != 0 {
		return true
	}
	// The poller may have noted this event before an earlier sleep.
	if s.events() == 0 {
		return false
	}
	return s.trySleep(0)
}

// events returns the state of the descriptor.
func (s *side) events() int16 {
	fds := [1]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN | unix.POLLRDHUP}}
	for {
		if _, err := unix.Poll(fds[:], 0); err != unix.EINTR {
			return fds[0].Revents
		}
	}
}

// checkEnd returns whether the wait for a condition is over, because the peer has ended or because the condition was true before its end.
func (s *side) checkEnd(c *condition) (over bool, err error) {
	hungUp := !s.isDevice && s.events()&hangUp != 0
	atomic.AddUint32(&s.fence, 1) // the loads below follow poll(2)
	closed, own := atomic.LoadUint32(&s.peer.closed), uint32(0)
	if s.isDevice {
		own = atomic.LoadUint32(&s.own.closed)
	}
	if !hungUp && closed|own == 0 && !s.reportedEnd {
		return false, nil
	}
	if ok, err := c.ready(); err != nil || ok && c.afterEnd {
		return true, err
	}
	return true, s.endedBy(closed, own)
}

// endedBy returns the result of the end of the peer, or of this side.
func (s *side) endedBy(closed, own uint32) error {
	if s.isDevice {
		switch {
		case closed|own == 0:
			return s.finish(ErrProtocol) // the module reports an end that the peer hides
		case closed == ringDied:
			return s.finish(ErrPeerDied)
		case closed == ringDestroyed, closed == 0 && own == ringDestroyed:
			return s.finish(ErrDestroyed)
		case closed == 0:
			return s.finish(syscall.ESHUTDOWN)
		}
	}
	if closed == 0 {
		return s.finish(ErrPeerDied)
	}
	s.err = s.ended
	return s.err
}

// close ends this side. With orderly false, its peer finds that it has died.
func (s *side) close(orderly bool) error {
	if s.err == ErrClosed {
		return ErrClosed
	}
	if orderly {
		atomic.CompareAndSwapUint32(&s.own.closed, 0, ringClosed)
		s.notify()
	}
	unmap(s.mappings)
	s.err = ErrClosed
	return s.poller.Close()
}

func unmap(mappings []mapping) {
	for _, m := range mappings {
		unix.MunmapPtr(m.start, m.length)
	}
}

// A Producer sends records through a ring. One goroutine uses it at a time, Close included: to end a call that waits, cancel its context.
type Producer struct {
	side
	needed      uint64 // the end of the record that waits for room
	room        condition
	release     condition
	reservation Reservation
}

func newProducer(s side, spin time.Duration) *Producer {
	p := &Producer{side: s}
	p.awaited = receiver
	p.init("send to the ring", failure("send to the ring", ErrPeerClosed, hintsOfRing), spin)
	p.room = condition{ready: p.hasRoom}
	p.release = condition{ready: p.isReleased, afterEnd: true}
	p.reservation.producer = p
	return p
}

// A Reservation is room in a ring for one record.
type Reservation struct {
	// Bytes is the room, with any content. It is valid until the next call of a method of the producer, or of Publish.
	Bytes    []byte
	producer *Producer
	pos      uint64
	room     int
}

// Reserve waits for room for a record of n bytes. A reservation that is not published has no effect.
func (p *Producer) Reserve(ctx context.Context, n int) (*Reservation, error) {
	room, err := p.reserve(ctx, uint64(n))
	if err != nil {
		return nil, err
	}
	r := &p.reservation
	r.Bytes, r.pos, r.room = room, p.pos, n
	return r, nil
}

func (p *Producer) reserve(ctx context.Context, length uint64) ([]byte, error) {
	if p.err != nil {
		return nil, p.err
	}
	if length > p.longest {
		hint := fmt.Sprintf("the record has %d bytes; MaxRecord is %d", length, p.longest)
		return nil, &Error{p.op, syscall.EMSGSIZE, hint}
	}
	if end := p.pos + recordSize(length); end+headerSize-p.released > p.capacity {
		p.needed = end
		if err := p.awaitRoom(ctx); err != nil {
			return nil, err
		}
	}
	return p.bytes(p.pos, length), nil
}

func (p *Producer) awaitRoom(ctx context.Context) error {
	if ok, err := p.hasRoom(); ok || err != nil {
		return err
	}
	if err := p.await(ctx, &p.room); err != nil {
		return err
	}
	if p.capacity-(p.pos-p.released) < p.capacity/16 {
		for range gatherIterations {
		}
	}
	return p.loadReleased()
}

// Publish sends the first n bytes of the room as one record.
func (r *Reservation) Publish(n int) error {
	p := r.producer
	switch {
	case p.err != nil:
		return p.err
	case n < 0 || n > r.room || r.pos != p.pos:
		return &Error{p.op, syscall.EINVAL, "the reservation is not valid, or too short"}
	}
	r.Bytes = nil
	p.header(p.pos).length = uint32(n)
	p.publish(p.pos + recordSize(uint64(n)))
	return nil
}

// publish publishes the records from the producer's position on, which end at a position. They are written, without the state of the first.
func (p *Producer) publish(end uint64) {
	p.header(end).state = 0
	p.storeState(&p.header(p.pos).state, ringRecordReady)
	p.pos = end
	p.own.pos = end // only a hint
	p.notify()
}

// Send sends a copy of a record. It waits for room, and not for the consumer.
func (p *Producer) Send(ctx context.Context, record []byte) error {
	room, err := p.reserve(ctx, uint64(len(record)))
	if err != nil {
		return err
	}
	copy(room, record)
	p.header(p.pos).length = uint32(len(record))
	p.publish(p.pos + recordSize(uint64(len(record))))
	return nil
}

// SendBatch sends copies of records, with one wake-up for all that fit at a time. It returns the number of records sent.
func (p *Producer) SendBatch(ctx context.Context, records [][]byte) (sent int, err error) {
	for sent < len(records) {
		if _, err := p.reserve(ctx, uint64(len(records[sent]))); err != nil {
			return sent, err
		}
		sent += p.sendWhatFits(records[sent:])
	}
	return sent, nil
}

// sendWhatFits publishes at least one record, for which there is room.
func (p *Producer) sendWhatFits(records [][]byte) (count int) {
	end := p.pos
	for _, record := range records {
		length := uint64(len(record))
		next := end + recordSize(length)
		if length > p.longest || next+headerSize-p.released > p.capacity {
			break
		}
		copy(p.bytes(end, length), record)
		header := p.header(end)
		header.length = uint32(length)
		if count > 0 {
			header.state = ringRecordReady
		}
		end = next
		count++
	}
	p.publish(end)
	return count
}

// WaitReleased waits until the consumer has released every record that was sent: it has finished with them.
func (p *Producer) WaitReleased(ctx context.Context) error {
	if p.err != nil {
		return p.err
	}
	if ok, err := p.isReleased(); ok || err != nil {
		return err
	}
	return p.await(ctx, &p.release)
}

// loadReleased loads and validates the position of the consumer.
func (p *Producer) loadReleased() error {
	position := atomic.LoadUint64(&p.peer.pos)
	if position%8 != 0 || position < p.released || position > p.pos {
		return p.finish(ErrProtocol)
	}
	p.released = position
	return nil
}

func (p *Producer) hasRoom() (bool, error) {
	err := p.loadReleased()
	return err == nil && p.needed+headerSize-p.released <= p.capacity, err
}

func (p *Producer) isReleased() (bool, error) {
	err := p.loadReleased()
	return err == nil && p.released == p.pos, err
}

// Close ends the stream: the consumer receives what was sent, and then the end. Reservations are invalid from then on.
func (p *Producer) Close() error { return p.close(true) }

// Abort ends the producer so that the consumer learns that the stream is incomplete: it receives what was sent, and then [ErrPeerDied].
func (p *Producer) Abort() error { return p.close(false) }

// A Record is the bytes of a record, in the memory of the ring. It is valid until the next call of a method of its consumer: after that
// the producer may overwrite it, and after Close it is not mapped. A producer that is not trusted can change it at any time: validate a
// copy, as Clone makes it.
type Record []byte

// Clone returns a copy.
func (r Record) Clone() []byte { return append([]byte{}, r...) }

// A Consumer receives records from a ring. One goroutine uses it at a time, Close included: to end a call that waits, cancel its context.
type Consumer struct {
	side
	record condition
}

func newConsumer(s side, spin time.Duration) *Consumer {
	c := &Consumer{side: s}
	c.awaited = sender
	c.init("receive from the ring", io.EOF, spin)
	c.record = condition{ready: c.hasRecord, afterEnd: true}
	return c
}

// Recv waits for the next record. The record before is released then, or a little later: when a quarter of the capacity is to be released,
// when Recv has to wait, or by Release. Recv returns [io.EOF] when the producer has closed the ring and every record was received.
func (c *Consumer) Recv(ctx context.Context) (Record, error) {
	if c.err != nil {
		return nil, c.err
	}
	// So records that are taken and not released, and the header after them, never exceed the capacity.
	if c.pos-c.released >= c.capacity/4 {
		c.Release()
	}
	header := c.header(c.pos)
	if atomic.LoadUint32(&header.state) != ringRecordReady {
		c.Release()
		if err := c.await(ctx, &c.record); err != nil {
			return nil, err
		}
	}
	length := uint64(atomic.LoadUint32(&header.length))
	end := c.pos + recordSize(length)
	if length > c.longest {
		return nil, c.finish(ErrProtocol)
	}
	record := c.bytes(c.pos, length)
	c.pos = end
	return record, nil
}

// RecvAppend waits for the next record, appends a copy of it to b, and releases it.
func (c *Consumer) RecvAppend(ctx context.Context, b []byte) ([]byte, error) {
	record, err := c.Recv(ctx)
	if err != nil {
		return b, err
	}
	b = append(b, record...)
	c.Release()
	return b, nil
}

// Records iterates over all records until the end of the stream, or up to an error, which it yields. The end of the context is an error
// also while there are records.
func (c *Consumer) Records(ctx context.Context) iter.Seq2[Record, error] {
	return sequence(ctx, c.Recv)
}

// Release releases every record that was received: the program has finished with them.
func (c *Consumer) Release() {
	if c.released == c.pos || c.err == ErrClosed {
		return
	}
	c.storePos(&c.own.pos, c.pos)
	c.released = c.pos
	c.notify()
}

func (c *Consumer) hasRecord() (bool, error) {
	switch atomic.LoadUint32(&c.header(c.pos).state) {
	case 0:
		return false, nil
	case ringRecordReady:
		return true, nil
	}
	return false, c.finish(ErrProtocol)
}

// Close ends the consumer. Its producer fails with [ErrPeerClosed] when it next waits for room. Records are invalid from then on.
func (c *Consumer) Close() error {
	c.Release()
	return c.close(true)
}

// Abort ends the consumer so that its producer learns of it by [ErrPeerDied].
func (c *Consumer) Abort() error { return c.close(false) }
