// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"syscall"
	"time"
)

// A poller makes calls on a descriptor, and waits on it, without a thread and without a goroutine of its own.
//
// Every wait of this package is one of the Go runtime's poller, an epoll(7): of the endpoint of a channel, or of the socket of a ring over
// memfd, whose peer then wakes with a message and not with a futex. So no thread blocks, and a deadline of the descriptor ends the wait.
// A context that ends sets such a deadline: [context.AfterFunc] registers that after the first attempt has failed, and starts no goroutine
// before the context ends. A call that need not wait does not check its context.
type poller struct {
	file interface {
		SyscallConn() (syscall.RawConn, error)
		SetReadDeadline(time.Time) error
		SetWriteDeadline(time.Time) error
		Close() error
	}
	raw syscall.RawConn
}

// direction is that of a wait.
type direction bool

const (
	toRead  direction = false
	toWrite direction = true
)

// newPoller takes over a descriptor of an endpoint.
func newPoller(fd int, name string) (poller, error) {
	if err := syscall.SetNonblock(fd, true); err != nil {
		syscall.Close(fd)
		return poller{}, os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(fd), name)
	raw, err := file.SyscallConn()
	if err == nil {
		err = file.SetDeadline(time.Time{}) // fails if the runtime cannot poll it
	}
	if err != nil {
		file.Close()
	}
	return poller{file, raw}, err
}

// do calls attempt until it returns true, and waits for the descriptor between two calls. Waits in the same direction exclude each other.
func (p *poller) do(ctx context.Context, dir direction, attempt func(fd uintptr) bool) error {
	call := p.raw.Read
	if dir == toWrite {
		call = p.raw.Write
	}
	done := false
	err := call(func(fd uintptr) bool {
		done = attempt(fd)
		return true
	})
	if err != nil || done {
		return outcome(ctx, err)
	}
	return p.wait(ctx, dir, attempt)
}

// wait is do, but checks the context before the first attempt. The runtime notes events from before the first attempt on.
func (p *poller) wait(ctx context.Context, dir direction, attempt func(fd uintptr) bool) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	call, setDeadline := p.raw.Read, p.file.SetReadDeadline
	if dir == toWrite {
		call, setDeadline = p.raw.Write, p.file.SetWriteDeadline
	}
	if ctx.Done() == nil {
		return outcome(ctx, call(attempt))
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		setDeadline(time.Unix(1, 0))
		close(ended)
	})
	err := call(attempt)
	if !stop() {
		<-ended
		setDeadline(time.Time{})
	}
	return outcome(ctx, err)
}

// outcome translates the errors of a raw connection: it ends by the deadline of a context, or because it is closed.
func outcome(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return context.Cause(ctx)
	default:
		return ErrClosed
	}
}

// control makes a call that does not wait.
func (p *poller) control(call func(fd uintptr)) error {
	if p.raw.Control(call) != nil {
		return ErrClosed
	}
	return nil
}

// detached makes a call that blocks its thread and that nothing can interrupt: the Go runtime installs all its signal handlers with
// SA_RESTART. If the context can end, a goroutine makes the call. When the context ends, detached returns before the call does, and
// discard gets the result of the call later. A context that has ended makes no call.
func detached[T any](ctx context.Context, call func() (T, error), discard func(T)) (T, error) {
	if ctx.Done() == nil {
		return call()
	}
	var none T
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	type result struct {
		value T
		err   error
	}
	results := make(chan result, 1)
	go func() {
		value, err := call()
		results <- result{value, err}
	}()
	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
		go func() {
			if r := <-results; r.err == nil {
				discard(r.value)
			}
		}()
		return none, context.Cause(ctx)
	}
}

// sequence iterates over what a call receives, until io.EOF, or up to an error, which it yields.
func sequence[T any](ctx context.Context, recv func(context.Context) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			received, err := recv(ctx)
			if err == io.EOF || !yield(received, err) || err != nil {
				return
			}
		}
	}
}
