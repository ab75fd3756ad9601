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
	"unsafe"

	"golang.org/x/sys/unix"
)

// A poller makes calls on a descriptor, and waits on it, without a thread and without a goroutine of its own.
//
// Every wait of this package is one of the Go runtime's poller, an epoll(7): of the endpoint of a channel, or of the socket of a ring over
// memfd, whose peer then wakes with a message and not with a futex. So no thread blocks, and a deadline of the descriptor ends the wait.
// A context that ends sets such a deadline: [context.AfterFunc] registers that after the first attempt has failed, and starts no goroutine
// before the context ends. A call that need not wait does not check its context.
type poller struct {
	file  *os.File
	raw   syscall.RawConn
	name  string                   // of the endpoint in errors, such as "map config"
	hints map[syscall.Errno]string // of errors of its calls
	turns [2]chan struct{}         // of waits in each direction; a waiting call has the only place
}

// direction is that of a wait.
type direction int

const (
	toRead direction = iota
	toWrite
)

// newPoller takes over a descriptor of an endpoint.
func newPoller(fd int, name string, hints map[syscall.Errno]string) (poller, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return poller{}, failure("open "+name, err, hints)
	}
	file := os.NewFile(uintptr(fd), name)
	raw, err := file.SyscallConn()
	if err == nil {
		err = file.SetDeadline(time.Time{}) // fails if the runtime cannot poll it
	}
	if err != nil {
		file.Close()
	}
	return poller{file, raw, name, hints, [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}}, err
}

// fail makes an Error of an errno of a call on the endpoint.
func (p *poller) fail(verb string, err error) error {
	if err == nil {
		return nil
	}
	return failure(verb+p.name, err, p.hints)
}

// do calls attempt until it returns true, and waits for the descriptor between two calls.
func (p *poller) do(ctx context.Context, dir direction, attempt func(fd uintptr) bool) error {
	done := false
	if err := p.control(func(fd uintptr) { done = attempt(fd) }); err != nil || done {
		return err
	}
	return p.wait(ctx, dir, attempt)
}

// wait is do, but checks the context before the first attempt. The runtime notes events from before the first attempt on.
//
// One call at a time waits in each direction: the deadline that ends it is the one of the descriptor, and would end other calls, too.
func (p *poller) wait(ctx context.Context, dir direction, attempt func(fd uintptr) bool) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case p.turns[dir] <- struct{}{}:
		defer func() { <-p.turns[dir] }()
	case <-ctx.Done():
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

// errWouldWait is the result of a call with the context noWait that cannot be done at once.
var errWouldWait = errors.New("the call would wait")

// noWait is a context that has ended.
var noWait = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errWouldWait)
	return ctx
}()

// read waits until read(2) returns bytes. 0 bytes are [io.EOF].
func (p *poller) read(ctx context.Context, buffer []byte) (n int, err error) {
	waited := p.do(ctx, toRead, func(fd uintptr) bool {
		for {
			n, err = unix.Read(int(fd), buffer)
			if err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	})
	switch {
	case waited != nil:
		return 0, waited
	case err != nil:
		return 0, p.fail("receive from ", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// control makes a call that does not wait.
func (p *poller) control(call func(fd uintptr)) error {
	if p.raw.Control(call) != nil {
		return ErrClosed
	}
	return nil
}

// ioctl makes a call that neither waits for long nor is ended by a context.
func (p *poller) ioctl(verb string, command uint32, argument unsafe.Pointer) (result int, err error) {
	var errno syscall.Errno
	if err := p.control(func(fd uintptr) { result, errno = ioctl(fd, command, argument) }); err != nil {
		return 0, err
	}
	if errno != 0 {
		return result, p.fail(verb, errno)
	}
	return result, nil
}

// Close closes the endpoint, and ends its calls that wait in the poller with [ErrClosed].
func (p *poller) Close() error { return p.file.Close() }

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

// sequence iterates over what a call receives, until io.EOF, or up to an error, which it yields. The end of the context is one also while
// the call need not wait: a sender that is fast would otherwise keep the iteration going.
func sequence[T any](ctx context.Context, recv func(context.Context) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for ctx.Err() == nil {
			received, err := recv(ctx)
			if err == io.EOF || !yield(received, err) || err != nil {
				return
			}
		}
		var none T
		yield(none, context.Cause(ctx))
	}
}
