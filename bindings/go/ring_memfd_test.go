// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A malicious peer of a handshake: the hello and the file that it sends.
type maliciousPeer struct {
	name   string
	role   uint32
	change func(h *ringHelloABI)
	file   func(t *testing.T, h *ringHelloABI) int
	bytes  int // of the hello that are sent; 0: all
	files  int // how often the file is sent; 0: once, -1: never
	reply  syscall.Errno
}

const pageOfTests = 4096

var maliciousPeers = []maliciousPeer{
	{name: "valid producer", role: ringProducer, reply: 0},
	{name: "valid consumer", role: ringConsumer, reply: 0},
	{name: "empty", role: ringProducer, bytes: -1, files: -1, reply: syscall.EPROTO},
	{name: "short", role: ringProducer, bytes: 11, reply: syscall.EPROTO},
	{name: "without capacity", role: ringProducer, bytes: 24, reply: syscall.EPROTO},
	{name: "magic", role: ringProducer, change: func(h *ringHelloABI) { h.magic++ }, reply: syscall.EPROTO},
	{name: "version", role: ringProducer, change: func(h *ringHelloABI) { h.version++ }, reply: syscall.EPROTONOSUPPORT},
	{name: "other version, short", role: ringProducer, bytes: 12, change: func(h *ringHelloABI) { h.version++ }, files: -1,
		reply: syscall.EPROTONOSUPPORT},
	{name: "size", role: ringProducer, change: func(h *ringHelloABI) { h.size++ }, reply: syscall.EPROTO},
	{name: "no file", role: ringProducer, files: -1, reply: syscall.EPROTO},
	{name: "two files", role: ringProducer, files: 2, reply: syscall.EPROTO},
	{name: "five files", role: ringProducer, files: 5, reply: syscall.EPROTO},
	{name: "flags", role: ringProducer, change: func(h *ringHelloABI) { h.flags = 4 }, reply: syscall.EPROTO},
	{name: "flag of membarrier", role: ringProducer, change: func(h *ringHelloABI) { h.flags = ringFMembarrier }, reply: 0},
	{name: "role 0", role: ringProducer, change: func(h *ringHelloABI) { h.role = 0 }, reply: syscall.EPROTO},
	{name: "role 3", role: ringConsumer, change: func(h *ringHelloABI) { h.role = 3 }, reply: syscall.EPROTO},
	{name: "same role", role: ringConsumer, change: func(h *ringHelloABI) { h.role = ringProducer }, reply: syscall.EALREADY},
	{name: "consumer with data", role: ringConsumer, change: func(h *ringHelloABI) { h.data = pageOfTests }, reply: syscall.EPROTO},
	{name: "consumer with capacity", role: ringConsumer, change: func(h *ringHelloABI) { h.capacity = 4096 }, reply: syscall.EPROTO},
	{name: "unsealed consumer", role: ringConsumer, change: func(h *ringHelloABI) { h.flags = ringFUnsealed }, reply: syscall.EPROTO},
	{name: "data 0", role: ringProducer, change: func(h *ringHelloABI) { h.data = 0 }, reply: syscall.EPROTO},
	{name: "data 4104", role: ringProducer, change: func(h *ringHelloABI) { h.data = pageOfTests + 8 }, reply: syscall.EPROTO},
	{name: "data 2048", role: ringProducer, change: func(h *ringHelloABI) { h.data = pageOfTests / 2 }, reply: syscall.EPROTO},
	{name: "data 8192", role: ringProducer, change: func(h *ringHelloABI) { h.data, h.capacity = 2*pageOfTests, 16384 }, reply: syscall.EACCES},
	{name: "data max", role: ringProducer, change: func(h *ringHelloABI) { h.data = 1 << 31 }, reply: syscall.ERANGE},
	{name: "capacity 0", role: ringProducer, change: func(h *ringHelloABI) { h.capacity = 0 }, reply: syscall.ERANGE},
	{name: "capacity 12288", role: ringProducer, change: func(h *ringHelloABI) { h.capacity = 12288 }, reply: syscall.ERANGE},
	{name: "capacity 512 MiB", role: ringProducer, change: func(h *ringHelloABI) { h.capacity = 1 << 29 }, reply: syscall.ERANGE},
	{name: "capacity above the limit", role: ringProducer, change: func(h *ringHelloABI) { h.capacity = 1 << 21 }, reply: syscall.ERANGE},
	{name: "unsealed", role: ringProducer, change: func(h *ringHelloABI) { h.flags = ringFUnsealed }, reply: syscall.EACCES},
	{name: "no future write seal", role: ringProducer, file: memfdWith(commonSeals, 0), reply: syscall.EACCES},
	{name: "no seals", role: ringConsumer, file: memfdWith(0, 0), reply: syscall.EACCES},
	{name: "one byte short", role: ringProducer, file: memfdWith(allSeals, -1), reply: syscall.EACCES},
	{name: "one byte more", role: ringConsumer, file: memfdWith(allSeals, 1), reply: syscall.EACCES},
	{name: "no memfd", role: ringProducer, file: devNull, reply: syscall.EACCES},
}

// memfdWith creates a file with seals, of a length that differs from the right one.
func memfdWith(seals int, surplus int64) func(t *testing.T, h *ringHelloABI) int {
	return func(t *testing.T, h *ringHelloABI) int {
		file, err := unix.MemfdCreate("sluice-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		must(t, err)
		length := int64(ctrlSize)
		if h.role != ringConsumer {
			length = int64(h.data) + int64(h.capacity)
		}
		must(t, unix.Ftruncate(file, length+surplus))
		_, err = unix.FcntlInt(uintptr(file), unix.F_ADD_SEALS, seals)
		must(t, err)
		return file
	}
}

func devNull(t *testing.T, _ *ringHelloABI) int {
	file, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(t, err)
	return file
}

func TestHandshakeWithAMaliciousPeer(t *testing.T) {
	if os.Getpagesize() != pageOfTests {
		t.Skip("needs pages of 4 KiB")
	}
	for _, m := range maliciousPeers {
		t.Run(m.name, func(t *testing.T) {
			own, peers := socketPair(t)
			defer peers.Close()
			m.send(t, peers)
			if m.reply == 0 {
				reply := ringReplyABI{magic: ringMagic}
				_, err := peers.Write(bytesOf(&reply))
				must(t, err)
			}
			err := m.accept(t, own)
			if m.reply != 0 {
				mustBe(t, err, m.reply)
			} else {
				must(t, err)
			}
			if got := replyFrom(t, peers); got != m.reply {
				t.Fatalf("replied %v", got)
			}
		})
	}
}

// accept executes the handshake of this side.
func (m maliciousPeer) accept(t *testing.T, socket *net.UnixConn) error {
	return m.acceptFrom(t, socket, SocketOptions{Capacity: 4096, MaxCapacity: 1 << 20, HandshakeTimeout: limit})
}

func (m maliciousPeer) acceptFrom(t *testing.T, socket *net.UnixConn, options SocketOptions) error {
	if m.role == ringConsumer {
		p, err := NewProducer(testContext(t), socket, options)
		if err == nil {
			p.Close()
		}
		return err
	}
	c, err := NewConsumer(testContext(t), socket, options)
	if err == nil {
		c.Close()
	}
	return err
}

func (m maliciousPeer) send(t *testing.T, socket *net.UnixConn) {
	hello := ringHelloABI{magic: ringMagic, size: sizeOf[ringHelloABI](), version: ringVersion, role: m.role}
	if m.role == ringProducer {
		hello.data, hello.capacity = pageOfTests, 8192
	}
	create := m.file
	if create == nil {
		create = memfdWith(allSeals, 0)
	}
	file := create(t, &hello)
	defer unix.Close(file)
	if m.change != nil {
		m.change(&hello)
	}
	message := bytesOf(&hello)
	if m.bytes != 0 {
		message = message[:max(m.bytes, 0)]
	}
	var files []int
	for range max(m.files, 1) {
		files = append(files, file)
	}
	var control []byte
	if m.files >= 0 {
		control = unix.UnixRights(files...)
	}
	_, _, err := socket.WriteMsgUnix(message, control, nil)
	must(t, err)
}

// replyFrom receives the hello of the other side, and then its reply.
func replyFrom(t *testing.T, socket *net.UnixConn) syscall.Errno {
	var reply ringReplyABI
	buffer := make([]byte, 64)
	socket.SetReadDeadline(time.Now().Add(limit))
	for range 2 {
		n, err := socket.Read(buffer)
		must(t, err)
		if n == len(bytesOf(&reply)) {
			copy(bytesOf(&reply), buffer)
			return syscall.Errno(reply.error)
		}
	}
	t.Fatal("no reply")
	return 0
}

func TestUserOfThePeer(t *testing.T) {
	own, peers := socketPair(t)
	defer peers.Close()
	var asked uint32
	options := SocketOptions{AllowUser: func(uid uint32) bool {
		asked = uid
		return false
	}}
	_, err := NewConsumer(testContext(t), own, options)
	mustBe(t, err, syscall.EPERM)
	if int(asked) != os.Geteuid() {
		t.Fatalf("asked for %d", asked)
	}
	if got := replyFrom(t, peers); got != syscall.EPERM {
		t.Fatalf("replied %v", got)
	}
}

func TestRefusingPeer(t *testing.T) {
	replies := map[uint32]syscall.Errno{
		uint32(syscall.EPERM):     syscall.EPERM,
		uint32(syscall.ECANCELED): syscall.ECANCELED,
		uint32(syscall.EAGAIN):    syscall.ECONNREFUSED,
		uint32(syscall.ENODATA):   syscall.ECONNREFUSED,
		1 << 31:                   syscall.ECONNREFUSED,
	}
	for reply, expected := range replies {
		own, peers := socketPair(t)
		message := ringReplyABI{ringMagic, reply}
		peers.Write(bytesOf(&message))
		peers.Close()
		_, err := NewProducer(testContext(t), own, small)
		mustBe(t, err, expected)
	}
}

func TestSilentPeer(t *testing.T) {
	own, peers := socketPair(t)
	defer peers.Close()
	_, err := NewProducer(context.Background(), own, SocketOptions{HandshakeTimeout: 20 * time.Millisecond})
	mustBe(t, err, syscall.ETIMEDOUT)
	if got := replyFrom(t, peers); got != syscall.ETIMEDOUT {
		t.Fatalf("replied %v", got)
	}
	own, peers = socketPair(t)
	defer peers.Close()
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(5*time.Millisecond, cancel)
	_, err = NewConsumer(ctx, own, small)
	mustBe(t, err, context.Canceled)
}

func TestPeerHangsUpDuringTheHandshake(t *testing.T) {
	own, peers := socketPair(t)
	peers.Close()
	_, err := NewProducer(testContext(t), own, small)
	mustBe(t, err, syscall.ECONNRESET)
}

func TestInvalidCapacity(t *testing.T) {
	for _, capacity := range []int{-1, 1, 4095, 12288, 1 << 29} {
		own, peers := socketPair(t)
		peers.Close()
		_, err := NewProducer(testContext(t), own, SocketOptions{Capacity: capacity})
		mustBe(t, err, syscall.EINVAL)
	}
}

func TestUnusableSockets(t *testing.T) {
	_, err := NewProducer(testContext(t), new(net.UnixConn), small)
	mustBe(t, err, syscall.EINVAL)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fds[1])
	_, err = NewConsumer(testContext(t), socketOf(t, fds[0]), small)
	mustBe(t, err, syscall.EPROTOTYPE)
}

func TestDialErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ring")
	_, err := DialProducer(testContext(t), path, small)
	mustBe(t, err, fs.ErrNotExist)
	var failed *Error
	if !errors.As(err, &failed) || failed.Hint == "" {
		t.Fatalf("%T: %v", err, err)
	}
	reason := errors.New("the reason")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(reason)
	_, err = DialConsumer(ctx, path, small)
	mustBe(t, err, reason)
}

// The program can neither close the socket of a ring nor end its waits by the deadline that the socket had.
func TestSocketIsTakenOver(t *testing.T) {
	first, second := socketPair(t)
	must(t, first.SetDeadline(time.Now().Add(20*time.Millisecond)))
	consumers := make(chan *Consumer, 1)
	go func() {
		c, _ := NewConsumer(testContext(t), first, small)
		consumers <- c
	}()
	p, err := NewProducer(testContext(t), second, small)
	must(t, err)
	defer p.Close()
	c := <-consumers
	defer c.Close()
	mustBe(t, first.Close(), net.ErrClosed)
	mustBe(t, second.Close(), net.ErrClosed)
	time.Sleep(25 * time.Millisecond)
	defer later(func() { p.Send(testContext(t), []byte("record")) })()
	record, err := c.Recv(testContext(t))
	must(t, err)
	if string(record) != "record" {
		t.Fatalf("%q", record)
	}
}

// Without room for its reply in the socket this side fails: the peer would wait for the reply.
func TestReplyThatCannotBeSent(t *testing.T) {
	own, peers := socketPair(t)
	defer peers.Close()
	maliciousPeer{role: ringProducer}.send(t, peers)
	reply := ringReplyABI{magic: ringMagic}
	_, err := peers.Write(bytesOf(&reply))
	must(t, err)
	raw, err := own.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		for unix.Send(int(fd), make([]byte, 32), unix.MSG_DONTWAIT) == nil {
		}
	}))
	_, err = peers.Read(make([]byte, 32)) // makes room for the hello
	must(t, err)
	_, err = NewConsumer(testContext(t), own, small)
	mustBe(t, err, syscall.EAGAIN)
}

func TestPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ring")
	listener, err := net.Listen("unixpacket", path)
	must(t, err)
	defer listener.Close()
	ctx := testContext(t)
	defer later(func() {
		p, err := DialProducer(ctx, path, small)
		if err == nil {
			err = errors.Join(sendAll(ctx, p, 0, 10), p.Close())
		}
		if err != nil {
			t.Error(err)
		}
	})()
	conn, err := listener.Accept()
	must(t, err)
	c, err := NewConsumer(ctx, conn.(*net.UnixConn), small)
	must(t, err)
	defer c.Close()
	must(t, receiveAll(ctx, c, 0, 10))
}

// A waker also wakes a peer that sleeps in FUTEX_WAIT: this consumer does, as a peer of another implementation.
func TestFutex(t *testing.T) {
	p, c := memfdRing(t, small)
	woken := make(chan syscall.Errno, 1)
	sequence := c.peer.wakeSeq
	c.own.waitFlags = ringWakeFutex | 1<<waitSeqShift
	go func() {
		timeout := unix.NsecToTimespec(int64(limit))
		_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&c.peer.wakeSeq)), 0, uintptr(sequence),
			uintptr(unsafe.Pointer(&timeout)), 0, 0)
		woken <- errno
	}()
	time.Sleep(20 * time.Millisecond)
	must(t, p.Send(testContext(t), nil))
	if errno := <-woken; errno != 0 && errno != syscall.EAGAIN {
		t.Fatal(errno)
	}
	must(t, p.Send(testContext(t), nil))
	if p.own.wakeSeq != sequence+1 {
		t.Fatal("a value that was answered is answered again")
	}
}

// Messages of a peer without end leave a wait to its context.
func TestFloodOfMessages(t *testing.T) {
	p, c := memfdRing(t, small)
	for unix.Send(p.fd, make([]byte, 100), unix.MSG_DONTWAIT) == nil {
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := c.Recv(ctx)
	mustBe(t, err, context.DeadlineExceeded)
	must(t, p.Send(ctx, []byte("record")))
	_, err = c.Recv(testContext(t))
	must(t, err)
}

func openDescriptors(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}

func TestDescriptorsAreClosed(t *testing.T) {
	for round := range 3 {
		before := openDescriptors(t)
		for _, m := range maliciousPeers {
			own, peers := socketPair(t)
			m.send(t, peers)
			peers.CloseWrite()
			m.accept(t, own)
			peers.Close()
		}
		// The first round opens those of the runtime.
		if after := openDescriptors(t); round > 0 && after != before {
			t.Fatalf("%d descriptors, %d before", after, before)
		}
	}
}
