// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"bytes"
	"context"
	"iter"
	"syscall"
	"time"
	"unsafe"
)

// MapOptions are the options of [OpenMap]. The fields after Options apply to a map that is created.
type MapOptions struct {
	Options
	// MaxEntries limits the entries. 0 means that only the capacity does.
	MaxEntries uint64
	// Events is the number of changes that the map keeps for watchers, a power of two. 0 means 1,024.
	Events uint32
	// Durable: the daemon sluiced stores the changes of the map, and restores it after a restart of the host.
	Durable bool
	// Deadline limits each wait of a durable map for its store. 0 means 30 s.
	Deadline time.Duration
	// Interval, if not 0: changes of a durable map do not wait until they are stored, which is done at this interval.
	Interval time.Duration
	// Refuse: changes of a durable map that would wait to be admitted fail with EAGAIN.
	Refuse bool
}

func (o MapOptions) params() *mapParamsABI {
	p := &mapParamsABI{size: sizeOf[mapParamsABI](), entries: o.MaxEntries, events: o.Events}
	p.deadlineMs, p.intervalMs = milliseconds(o.Deadline), milliseconds(o.Interval)
	if o.Durable {
		p.flags |= mapDurable
	}
	if o.Interval != 0 {
		p.flags |= mapInterval
	}
	if o.Refuse {
		p.flags |= mapRefuse
	}
	return p
}

// milliseconds rounds up.
func milliseconds(d time.Duration) uint32 {
	return clampU32(int((max(d, 0) + time.Millisecond - 1) / time.Millisecond))
}

// A Map is an endpoint of a map: [Read] gets and watches, [Write] sets and deletes. Its methods may be called by several goroutines.
type Map struct {
	poller
	durable bool
}

// The limits of the lengths of keys, from 1 byte, and of values, from 0 bytes.
const (
	MaxKey   = mapKeyMax
	MaxValue = mapValueMax
)

// An Entry is a key with its value.
type Entry struct {
	Key   []byte
	Value []byte
	// Version is the number of the change that gave the entry its value.
	Version uint64
	// TTL is the remaining time to live, or 0 without a limit.
	TTL time.Duration
}

var hintsOfMap = map[syscall.Errno]string{
	syscall.ENOENT:     "there is no entry",
	syscall.EEXIST:     "there is an entry",
	syscall.ESTALE:     "the entry has another version; get it, and decide again",
	syscall.ENOSPC:     "the map or its store is full",
	syscall.EPIPE:      "the map was destroyed",
	syscall.EIDRM:      "the map was unlinked; open it again",
	syscall.EBADF:      "the endpoint lacks the access",
	syscall.EAGAIN:     "repeat later; is sluiced running?",
	syscall.ETIMEDOUT:  "the change is made, but not known to be stored; is sluiced running?",
	syscall.EOPNOTSUPP: "the map is not durable",
	syscall.EINVAL:     "a key has 1 to 4,096 bytes, a value up to 1 MiB",
}

// OpenMap opens a map. Only the open of a durable map waits, for sluiced. If the context ends first, OpenMap returns, and the open ends
// later, after Deadline at the latest.
func OpenMap(ctx context.Context, name string, access Access, options MapOptions) (*Map, error) {
	open := func() (*Map, error) {
		endpoint, err := options.openPoller(KindMap, name, uint32(access), unsafe.Pointer(options.params()), hintsOfMap)
		if err != nil {
			return nil, err
		}
		return &Map{poller: endpoint}, nil
	}
	if !options.Durable {
		ctx = context.Background()
	}
	m, err := detached(ctx, open, func(m *Map) { m.Close() })
	if err != nil {
		return nil, err
	}
	info, err := m.Info()
	if err != nil {
		m.Close()
		return nil, err
	}
	m.durable = info.Durable
	return m, nil
}

// Get returns a copy of an entry. errors.Is(err, fs.ErrNotExist): there is none.
func (m *Map) Get(key []byte) (Entry, error) {
	room := make([]byte, 256)
	for {
		op := mapOpABI{size: sizeOf[mapOpABI](), key: pointerTo(key), keyLength: clampU32(len(key))}
		op.value, op.valueLength = pointerTo(room), clampU32(len(room))
		_, err := m.ioctl("get from ", mapGet, unsafe.Pointer(&op))
		switch {
		case err == nil:
			return Entry{bytes.Clone(key), room[:op.valueLength:op.valueLength], op.version, time.Duration(op.ttlNs)}, nil
		case !isErrno(err, syscall.EMSGSIZE):
			return Entry{}, err
		}
		room = make([]byte, op.valueLength)
	}
}

// SetOptions are the options of [Map.Set]. The zero value sets without a condition and without a time to live.
type SetOptions struct {
	// IfVersion, if not nil: the set fails with ESTALE or ENOENT unless the entry has this version; 0 means that there must be no entry.
	IfVersion *uint64
	// TTL is the time to live; 0 means no limit.
	TTL time.Duration
	// NoWait: a change of a durable map does not wait for the store.
	NoWait bool
}

// A Change is the result of a set or a delete. After ESTALE and EEXIST its version is that of the entry, which has not changed.
type Change struct {
	Version uint64
	// Created: there was no entry before.
	Created bool
}

// Set sets the value of a key.
//
// A TTL that is negative is an error, so that the time until a moment in the past does not mean no limit.
//
// On a map that is not durable it waits for at most 5 s, if the map is full, whatever the context. On a durable map it waits for the store:
// ETIMEDOUT means that the change is made, and not known to be stored. If the context ends, Set returns, and the change may be made.
func (m *Map) Set(ctx context.Context, key, value []byte, options SetOptions) (Change, error) {
	if options.TTL < 0 {
		return Change{}, &Error{"set in " + m.name, syscall.EINVAL, "the time to live is negative"}
	}
	op := mapOpABI{ttlNs: uint64(options.TTL), valueLength: clampU32(len(value))}
	op.require(options.IfVersion, options.NoWait)
	return m.change(ctx, "set in ", mapSet, op, key, value)
}

// DeleteOptions are the options of [Map.Delete].
type DeleteOptions struct {
	// IfVersion, if not nil: the delete fails with ESTALE unless the entry has this version.
	IfVersion *uint64
	// NoWait: a change of a durable map does not wait for the store.
	NoWait bool
}

// Delete deletes an entry, and returns the number of the change. It waits as Set does.
func (m *Map) Delete(ctx context.Context, key []byte, options DeleteOptions) (Change, error) {
	op := mapOpABI{}
	op.require(options.IfVersion, options.NoWait)
	return m.change(ctx, "delete from ", mapDelete, op, key, nil)
}

func (op *mapOpABI) require(version *uint64, noWait bool) {
	if version != nil {
		op.flags, op.version = mapIfVersion, *version
	}
	if noWait {
		op.flags |= mapNowait
	}
}

func (m *Map) change(ctx context.Context, verb string, command uint32, op mapOpABI, key, value []byte) (Change, error) {
	if !m.durable {
		ctx = context.Background()
	}
	if ctx.Done() != nil {
		key, value = bytes.Clone(key), bytes.Clone(value) // the call may outlast this one
	}
	op.keyLength = clampU32(len(key))
	op.key, op.value = pointerTo(key), pointerTo(value)
	call := func() (Change, error) { return m.changeNow(verb, command, op) }
	return detached(ctx, call, func(Change) {})
}

// changeNow makes a call, and again after a signal, unless the change is made: then it waits until it is stored.
func (m *Map) changeNow(verb string, command uint32, op mapOpABI) (Change, error) {
	for {
		done := op
		done.size = sizeOf[mapOpABI]()
		result, err := m.ioctl(verb, command, unsafe.Pointer(&done))
		if isErrno(err, syscall.EINTR) {
			if done.version == op.version {
				continue
			}
			_, err = m.syncNow(done.version)
		}
		return Change{done.version, result == 1}, err
	}
}

// Sync waits until all changes of a durable map up to a number, or up to the last one with [Now], are stored. It returns the number up to
// which they are. The wait is limited by the Deadline of the map.
func (m *Map) Sync(ctx context.Context, number uint64) (uint64, error) {
	return detached(ctx, func() (uint64, error) { return m.syncNow(number) }, func(uint64) {})
}

func (m *Map) syncNow(number uint64) (uint64, error) {
	for {
		setting := settingABI{size: sizeOf[settingABI](), value: number}
		_, err := m.ioctl("sync ", mapSync, unsafe.Pointer(&setting))
		if !isErrno(err, syscall.EINTR) {
			return setting.value, err
		}
	}
}

// Entries iterates over all entries, in no order: over each that exists from beginning to end once. Keys and values are valid until the
// next step. An error is yielded, and ends the iteration.
func (m *Map) Entries() iter.Seq2[Entry, error] { return m.dump(0) }

// Keys is Entries without the values.
func (m *Map) Keys() iter.Seq2[Entry, error] { return m.dump(mapKeys) }

func (m *Map) dump(flags uint32) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		room := make([]byte, 64<<10)
		cursor := mapCursorABI{}
		for {
			call := mapDumpABI{size: sizeOf[mapDumpABI](), flags: flags, cursor: cursor}
			call.records, call.length = pointerTo(room), uint32(len(room))
			_, err := m.ioctl("list the entries of ", mapDump, unsafe.Pointer(&call))
			switch {
			case isErrno(err, syscall.EMSGSIZE):
				room = make([]byte, call.length)
			case err != nil:
				yield(Entry{}, err)
				return
			case call.count == 0 || !yieldRecords(room[:call.length], flags, yield):
				return
			}
			cursor = call.cursor
		}
	}
}

// yieldRecords returns whether the iteration goes on.
func yieldRecords(records []byte, flags uint32, yield func(Entry, error) bool) bool {
	for len(records) > 0 {
		record := (*mapRecordABI)(unsafe.Pointer(&records[0]))
		value := int(record.header) + int(record.keyLength)
		entry := Entry{Key: records[record.header:value:value], Version: record.version, TTL: time.Duration(record.ttlNs)}
		if flags&mapKeys == 0 {
			end := value + int(record.valueLength)
			entry.Value = records[value:end:end]
		}
		if !yield(entry, nil) {
			return false
		}
		records = records[record.size:]
	}
	return true
}

// MapInfo is the state of a map.
type MapInfo struct {
	Capacity, Bytes     uint64
	MaxEntries, Entries uint64
	Sequence            uint64 // number of the last change
	Expired, Missed     uint64
	Events, Watchers    uint32
	Durable             bool
	Stored, Pending     uint64        // all changes up to Stored are stored; Pending bytes are not
	StoreError          syscall.Errno // with which the store refuses changes, or 0
}

// Info returns the state of the map.
func (m *Map) Info() (MapInfo, error) {
	i := mapInfoABI{size: sizeOf[mapInfoABI]()}
	_, err := m.ioctl("get the state of ", mapInfo, unsafe.Pointer(&i))
	return MapInfo{
		i.capacity, i.bytes, i.entriesMax, i.entries, i.sequence, i.expired, i.missed, i.events, i.watchers, i.flags&mapDurable != 0,
		i.stored, i.pending, syscall.Errno(i.error),
	}, err
}

// Close closes the endpoint, and with it its watcher. It waits for calls in progress, also for a change of a durable map whose context has
// ended: until the change is stored, or up to the Deadline.
func (m *Map) Close() error { return m.poller.Close() }
