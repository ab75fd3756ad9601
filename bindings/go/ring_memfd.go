// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"errors"
	"math/bits"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rings over memfd: docs/abi/ring-memfd.md.

// SocketOptions are the options of a ring over a Unix socket. The zero value has the defaults.
type SocketOptions struct {
	// Capacity of a producer's ring in bytes, a power of two from 4 KiB, and a page, to 256 MiB. 0 means 4 MiB.
	Capacity int
	// MaxCapacity is the largest capacity that a consumer accepts, in bytes. 0 means 256 MiB.
	MaxCapacity int
	// AllowUser decides which users the peer may have. Nil allows the effective uid of this process, and 0.
	AllowUser func(uid uint32) bool
	// HandshakeTimeout limits the handshake. 0 means 5 s.
	HandshakeTimeout time.Duration
	// Spin is the time for which a call spins before it blocks. 0 means DefaultSpin; a negative time means not at all.
	Spin time.Duration
}

// DialProducer connects to a Unix socket of the type SOCK_SEQPACKET ("unixpacket"), and becomes the producer of a ring over it.
func DialProducer(ctx context.Context, path string, options SocketOptions) (*Producer, error) {
	socket, err := dial(ctx, path)
	if err != nil {
		return nil, err
	}
	return NewProducer(ctx, socket, options)
}

// DialConsumer connects to a Unix socket of the type SOCK_SEQPACKET ("unixpacket"), and becomes the consumer of a ring over it.
func DialConsumer(ctx context.Context, path string, options SocketOptions) (*Consumer, error) {
	socket, err := dial(ctx, path)
	if err != nil {
		return nil, err
	}
	return NewConsumer(ctx, socket, options)
}

func dial(ctx context.Context, path string) (*net.UnixConn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unixpacket", path)
	switch {
	case err == nil:
		return conn.(*net.UnixConn), nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, failure("connect to "+path, err, hintsOfDial)
}

// NewProducer becomes the producer of a ring over a connected socket of the type SOCK_SEQPACKET ("unixpacket"), which it takes over: the
// socket is closed when NewProducer returns. Which side listens is independent of which side is the producer.
func NewProducer(ctx context.Context, socket *net.UnixConn, options SocketOptions) (*Producer, error) {
	capacity := options.Capacity
	if capacity == 0 {
		capacity = 4 << 20
	}
	if !isCapacity(uint64(capacity), uint64(os.Getpagesize())) {
		socket.Close()
		return nil, &Error{"create a ring", syscall.EINVAL, "the capacity is a power of two, at least a page, 4 KiB to 256 MiB"}
	}
	h := handshake{options: options, role: ringProducer, data: uint64(os.Getpagesize()), capacity: uint64(capacity)}
	s, err := h.run(ctx, socket)
	if err != nil {
		return nil, err
	}
	return newProducer(s, options.Spin), nil
}

// NewConsumer becomes the consumer of a ring over a connected socket, which it takes over as [NewProducer] does.
func NewConsumer(ctx context.Context, socket *net.UnixConn, options SocketOptions) (*Consumer, error) {
	h := handshake{options: options, role: ringConsumer}
	s, err := h.run(ctx, socket)
	if err != nil {
		return nil, err
	}
	return newConsumer(s, options.Spin), nil
}

func isCapacity(capacity, page uint64) bool {
	return bits.OnesCount64(capacity) == 1 && capacity >= max(ringCapacityMin, page) && capacity <= ringCapacityMax
}

const (
	ctrlSize    = unsafe.Sizeof(ringCtrlABI{})
	commonSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	allSeals    = commonSeals | unix.F_SEAL_FUTURE_WRITE
	opHandshake = "set up the ring"
)

// A handshake exchanges hello and reply with the peer.
type handshake struct {
	options        SocketOptions
	role           uint32
	data, capacity uint64
	side           side
	refusal        syscall.Errno // an error of the peer's hello, for the reply
	replied        bool
}

// takeOver moves a socket to a descriptor that nothing else in the program can close, and closes the other one.
func (h *handshake) takeOver(socket *net.UnixConn) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return failure(opHandshake, err, nil)
	}
	defer socket.Close()
	var kind int
	if raw.Control(func(fd uintptr) {
		if kind, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TYPE); err == nil {
			h.side.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
		}
	}) != nil {
		return ErrClosed
	}
	if err != nil {
		return failure(opHandshake, err, nil)
	}
	h.side.poller, err = newPoller(h.side.fd, "socket", nil)
	if err == nil && kind != unix.SOCK_SEQPACKET {
		h.side.poller.Close()
		err = &Error{opHandshake, syscall.EPROTOTYPE, "the socket must be of the network unixpacket"}
	}
	return err
}

// run executes the handshake. If it fails, it sends the errno as its reply, and closes the socket.
func (h *handshake) run(ctx context.Context, socket *net.UnixConn) (side, error) {
	if err := h.takeOver(socket); err != nil {
		return side{}, err
	}
	timeout := h.options.HandshakeTimeout
	if timeout == 0 {
		timeout = 5 * time.Second
	}
	limited, cancel := context.WithTimeoutCause(ctx, timeout, &Error{opHandshake, syscall.ETIMEDOUT, "the peer did not answer in time"})
	defer cancel()
	err := h.steps(limited)
	if err == nil {
		return h.side, nil
	}
	if !h.replied {
		h.reply(h.replyTo(err))
	}
	unmap(h.side.mappings)
	h.side.poller.Close()
	return side{}, err
}

// refuse is the result of an invalid hello.
func (h *handshake) refuse(errno syscall.Errno) error {
	h.refusal = errno
	return failure("accept the peer of the ring", errno, hintsOfHandshake)
}

func (h *handshake) replyTo(err error) syscall.Errno {
	switch {
	case h.refusal != 0:
		return h.refusal
	case errors.Is(err, syscall.ETIMEDOUT):
		return syscall.ETIMEDOUT
	}
	return syscall.ECANCELED // a failure of this side
}

func (h *handshake) steps(ctx context.Context) error {
	file, err := h.createFile()
	if err != nil {
		return err
	}
	defer unix.Close(file)
	if err := h.checkUser(); err != nil {
		return err
	}
	if err := h.sendHello(file); err != nil {
		return err
	}
	message, files, err := h.receive(ctx)
	defer closeAll(files)
	if err != nil {
		return err
	}
	if err := h.acceptHello(message, files); err != nil {
		return err
	}
	if err := h.reply(0); err != nil {
		return err
	}
	return h.awaitReply(ctx)
}

// createFile creates, maps and seals the memory of this side, in this order.
func (h *handshake) createFile() (int, error) {
	file, err := unix.MemfdCreate("sluice-ring", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, failure("create the memory of a ring", err, nil)
	}
	if err = unix.Ftruncate(file, int64(h.fileLength())); err == nil {
		err = h.mapFile(file, h.role, h.data, unix.PROT_READ|unix.PROT_WRITE)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(file), unix.F_ADD_SEALS, allSeals)
	}
	if err != nil {
		unix.Close(file)
	}
	return file, failure("create the memory of a ring", err, nil)
}

func (h *handshake) fileLength() uint64 {
	if h.role == ringProducer {
		return h.data + h.capacity
	}
	return uint64(ctrlSize)
}

// mapFile maps the file of a role.
func (h *handshake) mapFile(file int, role uint32, data uint64, protection int) error {
	ctrl := &h.side.own
	if role != h.role {
		ctrl = &h.side.peer
	}
	if role == ringConsumer {
		start, err := h.side.addMapping(file, 0, ctrlSize, protection, unix.MAP_SHARED)
		*ctrl = (*ringCtrlABI)(start)
		return err
	}
	// The data is mapped twice in a row, so that a record that wraps is contiguous. That of huge pages begins at a multiple of one.
	length := uintptr(data + h.capacity)
	reserved := uintptr(data) + length + uintptr(h.capacity)
	start, err := h.side.addMapping(-1, 0, reserved, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	start = unsafe.Add(start, -uintptr(start)&uintptr(data-1))
	if _, err := unix.MmapPtr(file, 0, start, length, protection, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		return err
	}
	second := unsafe.Add(start, length)
	if _, err := unix.MmapPtr(file, int64(data), second, uintptr(h.capacity), protection, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		return err
	}
	*ctrl = (*ringCtrlABI)(start)
	h.side.data, h.side.capacity = unsafe.Add(start, data), h.capacity
	return nil
}

// addMapping maps memory that close unmaps.
func (s *side) addMapping(file int, offset int64, length uintptr, protection, flags int) (unsafe.Pointer, error) {
	start, err := unix.MmapPtr(file, offset, nil, length, protection, flags)
	if err == nil {
		s.mappings = append(s.mappings, mapping{start, length})
	}
	return start, err
}

func (h *handshake) checkUser() (err error) {
	var peer *unix.Ucred
	if closed := h.side.poller.control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); closed != nil {
		return closed
	}
	if err != nil {
		return failure("get the user of the peer", err, nil)
	}
	allowed := peer.Uid == 0 || peer.Uid == uint32(os.Geteuid())
	if h.options.AllowUser != nil {
		allowed = h.options.AllowUser(peer.Uid)
	}
	if !allowed {
		return h.refuse(syscall.EPERM)
	}
	return nil
}

func (h *handshake) sendHello(file int) error {
	hello := ringHelloABI{magic: ringMagic, size: sizeOf[ringHelloABI](), version: ringVersion, role: h.role}
	hello.data, hello.capacity = uint32(h.data), h.capacity
	if isRegistered() {
		hello.flags = ringFMembarrier
	}
	return h.send(bytesOf(&hello), unix.UnixRights(file))
}

// reply sends the result of the validation of the peer's hello.
func (h *handshake) reply(errno syscall.Errno) error {
	h.replied = true
	reply := ringReplyABI{magic: ringMagic, error: uint32(errno)}
	return h.send(bytesOf(&reply), nil)
}

// send sends one message. A peer that has closed its socket may have sent its reply before, so that is no error.
func (h *handshake) send(message, control []byte) (err error) {
	if closed := h.side.poller.control(func(fd uintptr) {
		for {
			_, err = unix.SendmsgN(int(fd), message, control, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			if err != unix.EINTR {
				return
			}
		}
	}); closed != nil {
		return closed
	}
	if err == unix.EPIPE || err == unix.ECONNRESET {
		return nil
	}
	return failure(opHandshake, err, nil)
}

func bytesOf[T any](structure *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(structure)), unsafe.Sizeof(*structure))
}

// A message is a received one. A message with too many bytes or files is one with truncated.
type message struct {
	bytes     []byte
	truncated bool
}

// receive waits for one message with its files, or returns io.ErrUnexpectedEOF.
func (h *handshake) receive(ctx context.Context) (m message, files []int, err error) {
	buffer, control := make([]byte, 64), make([]byte, unix.CmsgSpace(4))
	var n, controls, flags int
	waited := h.side.poller.do(ctx, toRead, func(fd uintptr) bool {
		for {
			n, controls, flags, _, err = unix.Recvmsg(int(fd), buffer, control, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
			// ECONNRESET is reported once, before messages that were sent earlier.
			if err != unix.EINTR && err != unix.ECONNRESET {
				return err != unix.EAGAIN
			}
		}
	})
	if waited != nil {
		return m, nil, waited
	}
	if err != nil {
		return m, nil, failure(opHandshake, err, nil)
	}
	files = filesIn(control[:controls])
	if n == 0 && len(files) == 0 && h.side.events()&hangUp != 0 {
		return m, nil, failure(opHandshake, syscall.ECONNRESET, hintsOfHandshake)
	}
	truncated := flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || len(files) > 1
	return message{buffer[:n], truncated}, files, nil
}

func filesIn(control []byte) (files []int) {
	messages, _ := unix.ParseSocketControlMessage(control)
	for i := range messages {
		received, _ := unix.ParseUnixRights(&messages[i])
		files = append(files, received...)
	}
	return files
}

func closeAll(files []int) {
	for _, file := range files {
		unix.Close(file)
	}
}

func (h *handshake) awaitReply(ctx context.Context) error {
	message, files, err := h.receive(ctx)
	closeAll(files)
	if err != nil {
		return err
	}
	errno, ok := message.replied()
	switch {
	case !ok || len(files) > 0 || message.truncated:
		return failure(opHandshake, syscall.EPROTO, hintsOfHandshake)
	case errno != 0:
		return refusedBy(errno)
	}
	return nil
}

// refusedBy is the error of a reply of the peer. A malicious peer may send a number that is none of the protocol, such as EAGAIN.
func refusedBy(errno syscall.Errno) error {
	switch errno {
	case syscall.EPERM, syscall.EPROTONOSUPPORT, syscall.EALREADY, syscall.EACCES, syscall.EPROTO, syscall.ERANGE, syscall.ETIMEDOUT,
		syscall.ECANCELED:
	default:
		errno = syscall.ECONNREFUSED
	}
	return &Error{opHandshake + ": the peer refuses", errno, hintsOfHandshake[errno]}
}

// replied returns the errno if the message has the form of a reply.
func (m message) replied() (errno syscall.Errno, ok bool) {
	var reply ringReplyABI
	if len(m.bytes) != len(bytesOf(&reply)) {
		return 0, false
	}
	copy(bytesOf(&reply), m.bytes)
	return syscall.Errno(reply.error), reply.magic == ringMagic
}

// acceptHello validates the peer's hello and maps its file.
func (h *handshake) acceptHello(m message, files []int) error {
	if errno, ok := m.replied(); ok && errno != 0 {
		return refusedBy(errno)
	}
	var hello ringHelloABI
	copy(bytesOf(&hello), m.bytes)
	if errno := h.checkHello(m, &hello, len(files)); errno != 0 {
		return h.refuse(errno)
	}
	h.side.announced = isRegistered() && hello.flags&ringFMembarrier != 0
	h.side.light = h.side.announced
	return h.acceptFile(&hello, files[0])
}

// checkHello makes the checks of a hello in the order of the ABI.
func (h *handshake) checkHello(m message, hello *ringHelloABI, files int) syscall.Errno {
	isProducer, page := hello.role == ringProducer, uint64(os.Getpagesize())
	maxCapacity := uint64(ringCapacityMax)
	if h.options.MaxCapacity > 0 {
		maxCapacity = uint64(h.options.MaxCapacity)
	}
	switch {
	case len(m.bytes) < 12 || hello.magic != ringMagic:
		return syscall.EPROTO
	case hello.version != ringVersion:
		return syscall.EPROTONOSUPPORT
	case len(m.bytes) != len(bytesOf(hello)) || hello.size != sizeOf[ringHelloABI]() || files != 1 || m.truncated:
		return syscall.EPROTO
	case hello.flags&^(ringFMembarrier|ringFUnsealed) != 0:
		return syscall.EPROTO
	case hello.role == h.role:
		return syscall.EALREADY
	case !isProducer && hello.role != ringConsumer:
		return syscall.EPROTO
	case !isProducer && (hello.data != 0 || hello.capacity != 0 || hello.flags&ringFUnsealed != 0):
		return syscall.EPROTO
	case isProducer && (bits.OnesCount32(hello.data) != 1 || uint64(hello.data) < page):
		return syscall.EPROTO
	case isProducer && (!isCapacity(hello.capacity, uint64(hello.data)) || hello.capacity > maxCapacity):
		return syscall.ERANGE
	case hello.flags&ringFUnsealed != 0:
		return syscall.EACCES
	}
	return 0
}

// acceptFile validates and maps the file of the peer.
func (h *handshake) acceptFile(hello *ringHelloABI, file int) error {
	length, pageSize := int64(ctrlSize), int64(0)
	if hello.role == ringProducer {
		h.capacity = hello.capacity
		length, pageSize = int64(hello.data)+int64(hello.capacity), int64(hello.data)
	}
	seals, err := unix.FcntlInt(uintptr(file), unix.F_GET_SEALS, 0)
	if err != nil || seals&allSeals != allSeals {
		return h.refuse(syscall.EACCES)
	}
	var stat unix.Stat_t
	var system unix.Statfs_t
	if unix.Fstat(file, &stat) != nil || stat.Size != length || unix.Fstatfs(file, &system) != nil {
		return h.refuse(syscall.EACCES)
	}
	isHuge := uint32(system.Type) == unix.HUGETLBFS_MAGIC
	if isHuge && pageSize != int64(system.Bsize) || !isHuge && pageSize != 0 && pageSize != int64(os.Getpagesize()) {
		return h.refuse(syscall.EACCES)
	}
	err = h.mapFile(file, hello.role, uint64(hello.data), unix.PROT_READ)
	switch {
	case err == unix.EMFILE || err == unix.ENFILE || err == unix.ENOMEM && !isHuge:
		return failure("map the memory of the peer", err, nil)
	case err != nil || isHuge && h.populate(hello) != nil:
		return h.refuse(syscall.EACCES)
	}
	return nil
}

// populate makes huge pages present: a missing one would be a SIGBUS later.
func (h *handshake) populate(hello *ringHelloABI) error {
	start := unsafe.Add(h.side.data, -int(hello.data))
	return unix.Madvise(unsafe.Slice((*byte)(start), uint64(hello.data)+2*hello.capacity), unix.MADV_POPULATE_READ)
}

var wakeMessage = []byte{0}

// wakeOverMemfd wakes the peer by the method in its wait_flags, and returns whether they are answered.
func (s *side) wakeOverMemfd(flags uint32) bool {
	if flags&ringWakeFD == 0 {
		_, _, errno := unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&s.own.wakeSeq)), futexWake, 1, 0, 0, 0)
		return errno == 0
	}
	for range 10 {
		switch unix.Send(s.fd, wakeMessage, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) {
		case unix.ENOBUFS, unix.ENOMEM, unix.EINTR:
			time.Sleep(time.Millisecond)
		default:
			// Also EAGAIN, because the queued messages wake, and EPIPE and ECONNRESET, because the next check finds the hang-up.
			return true
		}
	}
	return false
}

const futexWake = 1

// drain receives messages that wake. Those that it leaves end the next sleep.
func (s *side) drain() {
	var buffer [16]byte
	for range 16 {
		n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(&buffer)), unsafe.Sizeof(buffer),
			unix.MSG_DONTWAIT, 0, 0)
		if errno != 0 && errno != unix.EINTR || errno == 0 && n == 0 && s.events()&hangUp != 0 {
			return
		}
	}
}
