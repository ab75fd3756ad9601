// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"bytes"
	"io/fs"
	"math"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	nodeOfCtl  = "/dev/sluice/ctl"
	nodeOfPipe = "/dev/sluice/pipe"
	nodeOfFeed = "/dev/sluice/feed"
)

// A Kind is a kind of channel.
type Kind uint32

// The kinds of channels.
const (
	KindPipe Kind = kindPipe
	KindRing Kind = kindRing
	KindFeed Kind = kindFeed
	KindBus  Kind = kindBus
	KindMap  Kind = kindMap
)

// String returns the name of the kind.
func (k Kind) String() string {
	switch k {
	case KindPipe:
		return "pipe"
	case KindRing:
		return "ring"
	case KindFeed:
		return "feed"
	case KindBus:
		return "bus"
	case KindMap:
		return "map"
	}
	return "channel"
}

// Access is what an endpoint is opened for: [Read], [Write] or both.
type Access uint32

// The bits of an Access.
const (
	Read  Access = openRead
	Write Access = openWrite
)

// A Scope is the cgroup to which a name belongs. The zero value is the cgroup of the caller.
type Scope struct {
	form      scopeForm
	directory *os.File
}

type scopeForm int

const (
	ownScope scopeForm = iota
	rootScope
	scopeOfDirectory
)

const invalidFd = scopeRoot - 1

// RootScope is the root of the cgroup hierarchy, the scope of every feed.
var RootScope = Scope{form: rootScope}

// ScopeOf returns the scope of an open directory of a cgroup v2 file system, which must stay open while the scope is used.
func ScopeOf(directory *os.File) Scope { return Scope{scopeOfDirectory, directory} }

// fd returns the scope_fd of a call. A directory that is nil or closed is EBADF, and never the cgroup of the caller.
func (s Scope) fd() int32 {
	switch s.form {
	case ownScope:
		return scopeSelf
	case rootScope:
		return scopeRoot
	}
	if fd := int32(s.directory.Fd()); fd >= 0 {
		return fd
	}
	return invalidFd
}

// Options are those of every channel that a program can create. Permissions and Capacity apply to a channel that is created. The zero
// value opens an existing channel of the caller's own cgroup.
type Options struct {
	Scope Scope
	// Create creates the channel if it does not exist. An existing channel of another user is refused, unless AnyOwner is set.
	Create bool
	// Exclusive, with Create: fails if the channel exists.
	Exclusive bool
	// Persistent, with Create: keeps the channel without endpoints, until it is removed.
	Persistent bool
	// AnyOwner, with Create: opens the channel also if another user has created it.
	AnyOwner bool
	// Permissions of a channel that is created, such as 0o660. 0 means 0o600.
	Permissions fs.FileMode
	// Capacity of a channel that is created, in bytes. 0 means the default of the kind.
	Capacity uint64
}

func (o Options) flags() uint32 {
	flags := uint32(0)
	for _, option := range []struct {
		set  bool
		flag uint32
	}{{o.Create, openCreate}, {o.Exclusive, openExcl}, {o.Persistent, openPersist}, {o.AnyOwner, openAnyOwner}} {
		if option.set {
			flags |= option.flag
		}
	}
	return flags
}

// open makes the call SLUICE_CTL_OPEN, and returns the new descriptor.
func (o Options) open(kind Kind, name string, flags uint32, params unsafe.Pointer) (int, error) {
	call := openABI{
		size: sizeOf[openABI](), kind: uint32(kind), flags: flags | o.flags(), scopeFd: o.Scope.fd(),
		mode: uint32(o.Permissions), capacity: o.Capacity, params: params,
	}
	if call.mode == 0 {
		call.mode = 0o600
	}
	op := "open " + kind.String() + " " + name
	if err := setName(&call.name, op, name); err != nil {
		return -1, err
	}
	fd, err := onCtl(op, ctlOpen, unsafe.Pointer(&call))
	runtime.KeepAlive(o.Scope.directory)
	return fd, err
}

// openPoller opens an endpoint that the runtime polls.
func (o Options) openPoller(kind Kind, name string, flags uint32, params unsafe.Pointer, hints map[syscall.Errno]string) (poller, error) {
	fd, err := o.open(kind, name, flags, params)
	if err != nil {
		return poller{}, err
	}
	return newPoller(fd, kind.String()+" "+name, hints)
}

// setName fills in the name of a channel, and refuses what the kernel would, with a better reason.
func setName(to *[nameSize]byte, op, name string) error {
	if len(name) == 0 || len(name) >= nameSize || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return &Error{op, syscall.EINVAL, "a name has 1 to 63 bytes, no '/' and no NUL, and is neither . nor .."}
	}
	copy(to[:], name)
	return nil
}

func nameOf(from *[nameSize]byte) string {
	name, _, _ := bytes.Cut(from[:], []byte{0})
	return string(name)
}

// openNode opens a node of /dev/sluice.
func openNode(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, failure("open "+path, err, hintsOfNode)
		}
	}
}

// onCtl makes one call on /dev/sluice/ctl.
func onCtl(op string, command uint32, argument unsafe.Pointer) (int, error) {
	ctl, err := openNode(nodeOfCtl, unix.O_RDWR)
	if err != nil {
		return -1, err
	}
	defer unix.Close(ctl)
	result, errno := ioctl(uintptr(ctl), command, argument)
	if errno != 0 {
		return -1, failure(op, errno, hintsOfChannel)
	}
	return result, nil
}

func ioctl(fd uintptr, command uint32, argument unsafe.Pointer) (int, syscall.Errno) {
	result, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uintptr(command), uintptr(argument))
	return int(result), errno
}

// sizeOf returns the size field of a structure of the ABI.
func sizeOf[T any]() uint32 {
	var structure T
	return uint32(unsafe.Sizeof(structure))
}

// pointerTo returns the address of the first byte, or nil if there is none.
func pointerTo(b []byte) unsafe.Pointer {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Pointer(&b[0])
}

func clampU32(n int) uint32 { return uint32(min(uint64(n), math.MaxUint32)) }
