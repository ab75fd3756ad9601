// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PipeOptions are the options of [OpenPipe].
type PipeOptions struct {
	Options
	// NoWait does not wait for the other side: a reader is opened without a writer, and a writer without a reader fails with ENXIO. A
	// reader can then receive the bytes that were left in a persistent pipe.
	NoWait bool
}

// A Pipe is an endpoint of a pipe. Its methods may be called by several goroutines. Read and Write wait in the poller of the Go runtime;
// deadlines and Close end them. Read returns [io.EOF] if the pipe is empty and has no writer. Write fails with EPIPE if there is no reader.
// A write of up to 4,096 bytes is atomic.
type Pipe struct{ poller }

var hintsOfPipe = map[syscall.Errno]string{
	syscall.EPIPE:  "the pipe has no reader, or was destroyed",
	syscall.EBADF:  "the endpoint lacks the access",
	syscall.EBUSY:  "read what is in the pipe first",
	syscall.EPERM:  "only the owner enlarges a pipe, and only root beyond pipe_max_size",
	syscall.ENOMEM: "raise memory.max",
}

// OpenPipe opens a pipe. With an empty name it is the default pipe of the cgroup of the caller, to which only NoWait applies.
//
// An endpoint for [Read] or [Write] alone waits for the other side, as that of a FIFO. If the context ends first, OpenPipe returns, but the
// kernel counts the open as a reader or a writer until the other side has come, or the process has ended; its endpoint is then closed.
func OpenPipe(ctx context.Context, name string, access Access, options PipeOptions) (*Pipe, error) {
	open := func() (int, error) { return options.openPipe(name, access) }
	if !options.NoWait && access != Read|Write {
		waiting := open
		open = func() (int, error) { return detached(ctx, waiting, func(fd int) { unix.Close(fd) }) }
	}
	fd, err := open()
	if err != nil {
		return nil, err
	}
	if name == "" {
		name = "of the cgroup"
	}
	endpoint, err := newPoller(fd, "pipe "+name, hintsOfPipe)
	if err != nil {
		return nil, err
	}
	return &Pipe{endpoint}, nil
}

func (o PipeOptions) openPipe(name string, access Access) (int, error) {
	if name == "" {
		return openNode(nodeOfPipe, o.nodeFlags(access))
	}
	flags := uint32(access)
	if o.NoWait {
		flags |= openNonblock
	}
	return o.open(KindPipe, name, flags, nil)
}

func (o PipeOptions) nodeFlags(access Access) int {
	flags := 0
	if o.NoWait {
		flags = unix.O_NONBLOCK
	}
	switch access {
	case Read:
		return flags | unix.O_RDONLY
	case Write:
		return flags | unix.O_WRONLY
	case Read | Write:
		return flags | unix.O_RDWR
	}
	return flags | unix.O_ACCMODE // EINVAL
}

// Read returns the bytes that there are, at least one.
func (p *Pipe) Read(b []byte) (int, error) {
	n, err := p.file.Read(b)
	return n, p.fail("read from ", err)
}

// Write writes all bytes, or returns an error.
func (p *Pipe) Write(b []byte) (int, error) {
	n, err := p.file.Write(b)
	return n, p.fail("write to ", err)
}

// SetDeadline ends reads and writes that wait at the time t with [os.ErrDeadlineExceeded]. The zero time removes the deadline.
func (p *Pipe) SetDeadline(t time.Time) error { return p.file.SetDeadline(t) }

// SetReadDeadline is SetDeadline for reads.
func (p *Pipe) SetReadDeadline(t time.Time) error { return p.file.SetReadDeadline(t) }

// SetWriteDeadline is SetDeadline for writes.
func (p *Pipe) SetWriteDeadline(t time.Time) error { return p.file.SetWriteDeadline(t) }

// SyscallConn gives access to the descriptor.
func (p *Pipe) SyscallConn() (syscall.RawConn, error) { return p.raw, nil }

// SetCapacity sets the capacity of the pipe in bytes, and returns what it is then: a power of two, and at least a page.
func (p *Pipe) SetCapacity(bytes uint64) (uint64, error) {
	setting := settingABI{size: sizeOf[settingABI](), value: bytes}
	_, err := p.ioctl("set the capacity of ", pipeSetCapacity, unsafe.Pointer(&setting))
	return setting.value, err
}

// PipeInfo is the state of a pipe.
type PipeInfo struct {
	Readers, Writers uint32
	Capacity         uint64 // bytes
	Bytes            uint64 // written and not yet read
}

// Info returns the state of the pipe.
func (p *Pipe) Info() (PipeInfo, error) {
	info := pipeInfoABI{size: sizeOf[pipeInfoABI]()}
	_, err := p.ioctl("get the state of ", pipeInfo, unsafe.Pointer(&info))
	return PipeInfo{info.readers, info.writers, info.capacity, info.bytes}, err
}
