// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// roleOfProcess makes this binary a side of a ring whose socket is descriptor 3, instead of running tests.
const roleOfProcess = "SLUICE_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleOfProcess); role != "" {
		if err := play(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// limit is far longer than every test of this package takes.
const limit = 60 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustBe(t testing.TB, err, expected error) {
	t.Helper()
	if !errors.Is(err, expected) {
		t.Fatalf("%v; expected: %v", err, expected)
	}
}

func socketPair(t testing.TB) (*net.UnixConn, *net.UnixConn) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	must(t, err)
	return socketOf(t, fds[0]), socketOf(t, fds[1])
}

func socketOf(t testing.TB, fd int) *net.UnixConn {
	file := os.NewFile(uintptr(fd), "socket")
	conn, err := net.FileConn(file)
	must(t, err)
	file.Close()
	return conn.(*net.UnixConn)
}

// memfdRing returns both sides of a ring in this process.
func memfdRing(t testing.TB, options SocketOptions) (*Producer, *Consumer) {
	first, second := socketPair(t)
	ctx := testContext(t)
	consumers := make(chan *Consumer, 1)
	go func() {
		c, err := NewConsumer(ctx, second, options)
		if err != nil {
			t.Error(err)
		}
		consumers <- c
	}()
	p, err := NewProducer(ctx, first, options)
	must(t, err)
	c := <-consumers
	if c == nil {
		t.FailNow()
	}
	t.Cleanup(func() {
		p.Close()
		c.Close()
	})
	return p, c
}

// small is the smallest ring, so that records wrap often.
var small = SocketOptions{Capacity: max(4096, os.Getpagesize()), HandshakeTimeout: limit}

var table = func() []byte {
	bytes := make([]byte, 1<<18)
	for i := range bytes {
		bytes[i] = byte(uint32(i) * 2654435761 >> 16)
	}
	return bytes
}()

// lengthOf takes every value up to the maximum before it repeats one, because the factor is prime.
func lengthOf(number, longest int) int { return number * 7919 % (longest + 1) }

// contentOf returns the content of a record of a stream, which docs/abi/conformance.md defines.
func contentOf(number, longest int) []byte {
	return contentFrom(number, lengthOf(number, longest))
}

func sendAll(ctx context.Context, p *Producer, from, to int) error {
	for number := from; number < to; number++ {
		if err := p.Send(ctx, contentOf(number, p.MaxRecord())); err != nil {
			return fmt.Errorf("record %d: %w", number, err)
		}
	}
	return nil
}

func receiveAll(ctx context.Context, c *Consumer, from, to int) error {
	for number := from; number < to; number++ {
		record, err := c.Recv(ctx)
		if err != nil {
			return fmt.Errorf("record %d: %w", number, err)
		}
		if string(record) != string(contentOf(number, c.MaxRecord())) {
			return fmt.Errorf("record %d has %d other bytes", number, len(record))
		}
	}
	return nil
}

// play is the main function of the other process: "send 10", "receive 10", then "close", or "hang" to be killed.
func play(role string) error {
	if role == "conform" {
		return conform()
	}
	words := strings.Fields(role)
	count, err := strconv.Atoi(words[1])
	if err != nil {
		return err
	}
	conn, err := net.FileConn(os.NewFile(3, "socket"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	end := func() error { return nil }
	if words[0] == "send" {
		p, failed := NewProducer(ctx, conn.(*net.UnixConn), small)
		if failed != nil {
			return failed
		}
		end = p.Close
		err = sendAll(ctx, p, 0, count)
	} else {
		c, failed := NewConsumer(ctx, conn.(*net.UnixConn), small)
		if failed != nil {
			return failed
		}
		end = c.Close
		err = receiveAll(ctx, c, 0, count)
	}
	if err != nil {
		return err
	}
	fmt.Println("done")
	if words[2] == "hang" {
		time.Sleep(limit)
	}
	return end()
}

// otherProcess starts a process with a role, and returns the socket to it.
func otherProcess(t *testing.T, role string) (*net.UnixConn, *exec.Cmd) {
	command := exec.Command("/proc/self/exe")
	command.Env = append(os.Environ(), roleOfProcess+"="+role)
	own, peers := socketPair(t)
	file, err := peers.File()
	must(t, err)
	peers.Close()
	command.ExtraFiles = []*os.File{file}
	command.Stderr = os.Stderr
	must(t, command.Start())
	file.Close()
	t.Cleanup(func() {
		command.Process.Kill()
		command.Wait()
	})
	return own, command
}

func kill(t *testing.T, command *exec.Cmd) {
	must(t, command.Process.Signal(syscall.SIGKILL))
	command.Wait()
}

// later executes a function in a moment, in another goroutine. It returns a function that waits for its end, because the race detector
// does not see the synchronisation by the memory of a ring.
func later(f func()) (wait func()) {
	done := make(chan struct{})
	time.AfterFunc(5*time.Millisecond, func() {
		f()
		close(done)
	})
	return func() { <-done }
}
