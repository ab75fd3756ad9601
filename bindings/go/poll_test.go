// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// busesOverSockets returns two endpoints that exchange messages over sockets instead of a bus: they wait and send as those of a bus do.
func busesOverSockets(t *testing.T) (*Bus, *Bus) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	var buses [2]*Bus
	for i, fd := range fds {
		endpoint, err := newPoller(fd, "bus of the test", hintsOfBus)
		must(t, err)
		buses[i] = &Bus{poller: endpoint, max: bufferSize, buffer: make([]byte, bufferSize)}
		t.Cleanup(func() { endpoint.Close() })
	}
	return buses[0], buses[1]
}

// Of two senders that wait on an endpoint, the end of one context ends one of them, and the message of the other one is sent.
func TestContextsOfSeveralSenders(t *testing.T) {
	sender, receiver := busesOverSockets(t)
	for err := error(nil); err != errWouldWait; {
		err = sender.Publish(noWait, make([]byte, 1000))
	}
	patient := make(chan error, 1)
	go func() { patient <- sender.Publish(testContext(t), []byte("patient")) }()
	time.Sleep(5 * time.Millisecond)
	for range 3 {
		short, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		mustBe(t, sender.Publish(short, []byte("impatient")), context.DeadlineExceeded)
		cancel()
	}
	select {
	case err := <-patient:
		t.Fatalf("ended by the context of another call: %v", err)
	default:
	}
	for {
		message, err := receiver.Recv(testContext(t))
		must(t, err)
		if string(message.Bytes) == "patient" {
			break
		}
	}
	must(t, <-patient)
}

func TestCloseEndsSeveralWaits(t *testing.T) {
	sender, _ := busesOverSockets(t)
	for err := error(nil); err != errWouldWait; {
		err = sender.Publish(noWait, make([]byte, 1000))
	}
	ended := make(chan error, 3)
	for range cap(ended) {
		go func() { ended <- sender.Publish(testContext(t), nil) }()
	}
	time.Sleep(5 * time.Millisecond)
	must(t, sender.Close())
	for range cap(ended) {
		mustBe(t, <-ended, ErrClosed)
	}
	mustBe(t, sender.Close(), ErrClosed)
}

// detached discards the result of a call that its context has left.
func TestDetached(t *testing.T) {
	called, discarded := make(chan struct{}), make(chan int, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-called
		cancel()
	}()
	release := make(chan struct{})
	call := func() (int, error) {
		close(called)
		<-release
		return 7, nil
	}
	_, err := detached(ctx, call, func(n int) { discarded <- n })
	mustBe(t, err, context.Canceled)
	close(release)
	if n := <-discarded; n != 7 {
		t.Fatal(n)
	}
	_, err = detached(ctx, call, func(int) {}) // makes no call, which would close the channel again
	mustBe(t, err, context.Canceled)
}

func TestNoGoroutinesAreLeft(t *testing.T) {
	_, c := memfdRing(t, small)
	before := runtime.NumGoroutine()
	for range 100 {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Microsecond)
		_, err := c.Recv(ctx)
		mustBe(t, err, context.DeadlineExceeded)
		cancel()
	}
	for start := time.Now(); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Since(start) > limit {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// A process that this one starts inherits no descriptor of a ring.
func TestDescriptorsAreNotInherited(t *testing.T) {
	before := inherited(t)
	memfdRing(t, small)
	if after := inherited(t); after != before {
		t.Fatalf("%d, %d before", after, before)
	}
}

// inherited returns the number of descriptors that a process inherits.
func inherited(t *testing.T) (count int) {
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		must(t, err)
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			count++
		}
	}
	return count
}

// A directory that is nil or closed is never the cgroup of the caller.
func TestScopeWithoutADirectory(t *testing.T) {
	directory, err := os.Open("/")
	must(t, err)
	must(t, directory.Close())
	for _, scope := range []Scope{ScopeOf(directory), ScopeOf(nil)} {
		if fd := scope.fd(); fd == scopeSelf || fd == scopeRoot {
			t.Fatal(fd)
		}
		if _, err := os.Stat(nodeOfCtl); err == nil {
			_, err = List(scope)
			mustBe(t, err, syscall.EBADF)
		}
	}
}

func TestNegativeTimeToLive(t *testing.T) {
	_, err := new(Map).Set(testContext(t), []byte("key"), nil, SetOptions{TTL: -time.Second})
	mustBe(t, err, syscall.EINVAL)
}
