// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"net"
	"os"
	"sync"
	"time"
)

// A Conn is a [net.Conn] made of a pair of rings: a stream of bytes in each direction. Its methods may be called by several goroutines.
type Conn struct {
	reading, writing sync.Mutex // held by the user of the consumer, of the producer
	consumer         *Consumer
	producer         *Producer
	rest             []byte // of the record received last
	read, write      deadline
}

var _ net.Conn = (*Conn)(nil)

// NewConn makes a connection of two rings, which are then its own. The peer makes one of the other sides of both.
func NewConn(consumer *Consumer, producer *Producer) *Conn {
	c := &Conn{consumer: consumer, producer: producer}
	c.read.init()
	c.write.init()
	return c
}

// Read waits for bytes. It returns [io.EOF] when the peer has closed the connection and everything was read.
func (c *Conn) Read(b []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	ctx := c.read.context()
	for ctx.Err() == nil { // also between empty records, which a peer can send without end
		if len(c.rest) > 0 || len(b) == 0 {
			return c.take(b), nil
		}
		record, err := c.consumer.Recv(ctx)
		if err != nil {
			return 0, err
		}
		c.rest = record
	}
	return 0, context.Cause(ctx)
}

// take moves bytes of the record received last.
func (c *Conn) take(b []byte) int {
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	if len(c.rest) == 0 {
		c.consumer.Release()
	}
	return n
}

// maxOfConn is the longest record of a Conn in bytes: records that fit into the caches of processors are copied faster.
const maxOfConn = 64 << 10

// Write waits until all bytes are in the ring.
func (c *Conn) Write(b []byte) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	ctx := c.write.context()
	longest := min(c.producer.Capacity()/4, maxOfConn)
	for ctx.Err() == nil {
		if n == len(b) {
			return n, nil
		}
		record := b[n:min(n+longest, len(b))]
		if err := c.producer.Send(ctx, record); err != nil {
			return n, err
		}
		n += len(record)
	}
	return n, context.Cause(ctx)
}

// CloseWrite ends a write that waits, and the ring for writing: the peer reads what was written, and then [io.EOF]. Reading goes on.
func (c *Conn) CloseWrite() error {
	c.write.end(net.ErrClosed)
	c.writing.Lock()
	defer c.writing.Unlock()
	return closeOnce(c.producer.Close())
}

// Close ends calls that wait, and then both rings. The peer receives what was written.
func (c *Conn) Close() error {
	c.read.end(net.ErrClosed)
	written := c.CloseWrite()
	c.reading.Lock()
	defer c.reading.Unlock()
	c.rest = nil
	err := closeOnce(c.consumer.Close())
	if err == nil && written != net.ErrClosed {
		err = written
	}
	return err
}

// closeOnce translates the error of a ring that was closed before.
func closeOnce(err error) error {
	if err == ErrClosed {
		return net.ErrClosed
	}
	return err
}

// SetDeadline ends reads and writes at the time t with [os.ErrDeadlineExceeded], those that wait included. The zero time removes it.
func (c *Conn) SetDeadline(t time.Time) error {
	c.read.set(t)
	c.write.set(t)
	return nil
}

// SetReadDeadline is SetDeadline for reads.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.read.set(t)
	return nil
}

// SetWriteDeadline is SetDeadline for writes.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.write.set(t)
	return nil
}

// LocalAddr returns an address without a content: rings have none.
func (c *Conn) LocalAddr() net.Addr { return ringAddr{} }

// RemoteAddr returns an address without a content: rings have none.
func (c *Conn) RemoteAddr() net.Addr { return ringAddr{} }

type ringAddr struct{}

func (ringAddr) Network() string { return "sluice" }
func (ringAddr) String() string  { return "ring" }

// A deadline is a context that ends at a time which can be changed while calls wait.
type deadline struct {
	mu     sync.Mutex
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	closed bool
}

func (d *deadline) init() { d.ctx, d.cancel = context.WithCancelCause(context.Background()) }

func (d *deadline) context() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ctx
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	// The timer of a context that it has ended, or is about to, is of no use any more.
	if d.timer != nil && !d.timer.Stop() || d.ctx.Err() != nil {
		d.init()
	}
	d.timer = nil
	if t.IsZero() {
		return
	}
	cancel := d.cancel
	d.timer = time.AfterFunc(time.Until(t), func() { cancel(os.ErrDeadlineExceeded) })
	if time.Until(t) <= 0 {
		cancel(os.ErrDeadlineExceeded)
	}
}

// end ends the context for ever.
func (d *deadline) end(cause error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.timer != nil {
		d.timer.Stop()
	}
	if d.ctx.Err() != nil {
		d.init()
	}
	d.cancel(cause)
}
