// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"iter"
	"unsafe"
)

// Now is the position after the last change of a map.
const Now uint64 = mapNow

// An EventKind is what a change has done to an entry.
type EventKind uint16

// The kinds of events.
const (
	Created EventKind = mapCreated
	Updated EventKind = mapUpdated
	Deleted EventKind = mapDeleted
	Expired EventKind = mapExpired
)

// String returns the name of the kind.
func (k EventKind) String() string {
	return map[EventKind]string{Created: "created", Updated: "updated", Deleted: "deleted", Expired: "expired"}[k]
}

// An Event is a change of a map, without the value: get it with the key.
type Event struct {
	Kind EventKind
	// Key is valid until the next Recv.
	Key []byte
	// Sequence is the number of the change.
	Sequence uint64
	// Version is that of the entry; of an entry that was deleted or has expired, the one that it had.
	Version uint64
	// Missed is the number of changes directly before this one that are lost. If it is not 0, dump the map again.
	Missed uint64
}

// A Watcher receives the changes of a map. One goroutine uses it at a time.
type Watcher struct {
	m        *Map
	position uint64
	buffer   []byte
	rest     []byte
}

// Watch begins to watch: the watcher receives the changes after the one with a number, or from now on with [Now]. The position belongs to
// the endpoint: a second call replaces it, so a Map has one watcher. Closing the Map ends it.
func (m *Map) Watch(after uint64) (*Watcher, error) {
	setting := settingABI{size: sizeOf[settingABI](), value: after}
	if _, err := m.ioctl("watch ", mapWatch, unsafe.Pointer(&setting)); err != nil {
		return nil, err
	}
	return &Watcher{m: m, position: setting.value, buffer: make([]byte, 16<<10)}, nil
}

// Position returns the number of the last change that was received or passed over.
func (w *Watcher) Position() uint64 { return w.position }

// Recv waits for the next change.
func (w *Watcher) Recv(ctx context.Context) (Event, error) {
	if len(w.rest) == 0 {
		n, err := w.m.read(ctx, w.buffer)
		if err != nil {
			return Event{}, err
		}
		w.rest = w.buffer[:n]
	}
	e := (*mapEventABI)(unsafe.Pointer(&w.rest[0]))
	end := eventSize + int(e.keyLength)
	event := Event{EventKind(e.change), w.rest[eventSize:end:end], e.sequence, e.version, e.missed}
	w.rest = w.rest[e.size:]
	w.position = event.Sequence
	return event, nil
}

const eventSize = int(unsafe.Sizeof(mapEventABI{}))

// Events iterates over changes, up to an error, which it yields. The end of the context is an error also while there are changes.
func (w *Watcher) Events(ctx context.Context) iter.Seq2[Event, error] { return sequence(ctx, w.Recv) }
