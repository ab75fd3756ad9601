// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"errors"
	"os"
	"syscall"
)

// An Error is a failed operation. [errors.Is] compares its cause: with the sentinels below, with a [syscall.Errno], or with the errors of
// [io/fs], as in errors.Is(err, fs.ErrNotExist).
//
// Three results are no Error:
//   - [io.EOF]: a consumer or a pipe has received everything, and the other side has ended normally;
//   - [ErrClosed]: this endpoint was closed by its own program;
//   - the cause of a context that ended the call, such as [context.DeadlineExceeded]. If its deadline has passed while a ring or a bus had
//     no peer, an error that says so wraps the cause: compare with [errors.Is].
type Error struct {
	// Op is what failed, such as "open map config".
	Op string
	// Errno is the cause.
	Errno syscall.Errno
	// Hint is what to do, or empty.
	Hint string
}

// ErrClosed is the result of a call on an endpoint that its own program has closed.
var ErrClosed = os.ErrClosed

// Causes of the errors of a ring.
const (
	// ErrPeerClosed: the consumer has closed the ring.
	ErrPeerClosed = syscall.EPIPE
	// ErrPeerDied: the peer has ended without closing the ring.
	ErrPeerDied = syscall.ECONNRESET
	// ErrDestroyed: the channel was destroyed.
	ErrDestroyed = syscall.EIDRM
	// ErrProtocol: a protocol violation of the peer.
	ErrProtocol = syscall.EPROTO
)

// Error returns one line: what failed, the cause, and what to do.
func (e *Error) Error() string {
	text := "sluice: " + e.Op + ": " + e.Errno.Error()
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

// Unwrap returns the errno.
func (e *Error) Unwrap() error { return e.Errno }

// failure makes an Error of an error that contains an errno, with the hint for the errno if there is one. Other errors are returned as they
// are.
func failure(op string, err error, hints map[syscall.Errno]string) error {
	var errno syscall.Errno
	if err == nil || !errors.As(err, &errno) {
		return err
	}
	return &Error{Op: op, Errno: errno, Hint: hints[errno]}
}

var hintsOfNode = map[syscall.Errno]string{
	syscall.ENOENT: "is the module sluice loaded, and the node in this container?",
	syscall.ENXIO:  "is the module sluice loaded?",
	syscall.EACCES: "may this user open the node?",
}

var hintsOfChannel = map[syscall.Errno]string{
	syscall.ENOENT:     "set Create, or let another process of this cgroup create it; 'sudo sluice ls --all' lists other cgroups, too",
	syscall.EEXIST:     "use another name, or omit Exclusive; of a map: it is not durable",
	syscall.EACCES:     "the mode, the scope or the owner forbids it; see AnyOwner",
	syscall.EPERM:      "requires the owner of the channel, or a capability",
	syscall.EBADF:      "the scope must be an open directory of a cgroup v2 file system",
	syscall.EBUSY:      "the role of the ring is taken",
	syscall.ENOSPC:     "a limit of the cgroup; remove channels, or raise scope_max_bytes",
	syscall.EDQUOT:     "a limit of the user; remove channels, or raise user_max_bytes",
	syscall.ENOMEM:     "use a smaller capacity, or raise memory.max",
	syscall.ENOTTY:     "the module is older than this package",
	syscall.EOPNOTSUPP: "mount cgroup2 at /sys/fs/cgroup",
	syscall.EUSERS:     "close a subscriber, or raise bus_max_subscribers",
	syscall.ETIMEDOUT:  "is sluiced running?",
}

var hintsOfRing = map[syscall.Errno]string{
	ErrPeerClosed:     "the consumer has closed the ring",
	ErrPeerDied:       "the peer has ended without closing the ring",
	ErrDestroyed:      "the channel was destroyed",
	ErrProtocol:       "protocol violation of the peer",
	syscall.ESHUTDOWN: "this side has ended",
}

var hintsOfDial = map[syscall.Errno]string{
	syscall.ENOENT:       "start the program that listens first",
	syscall.ECONNREFUSED: "no program listens; start it, and remove a path that it has left before",
	syscall.EPROTOTYPE:   "the program that listens must use the network unixpacket",
	syscall.EACCES:       "may this user write to the socket?",
}

var hintsOfHandshake = map[syscall.Errno]string{
	syscall.EPERM:           "allow the user of the peer, or run as an allowed one",
	syscall.EPROTO:          "do both programs use a ring on this socket?",
	syscall.EPROTONOSUPPORT: "use the same version of rings on both sides",
	syscall.EALREADY:        "one side must be the producer, the other the consumer",
	syscall.ERANGE:          "use a smaller capacity, or raise the limit of the consumer",
	syscall.EACCES:          "the memory of a side is not sealed",
	syscall.ECANCELED:       "see the error of the other side",
	syscall.ECONNREFUSED:    "see the error of the other side",
	syscall.ETIMEDOUT:       "try again",
	syscall.ECONNRESET:      "the peer has hung up",
}

// isErrno returns whether the cause is an errno.
func isErrno(err error, errno syscall.Errno) bool { return errors.Is(err, errno) }
