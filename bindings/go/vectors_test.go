// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"os"
	"reflect"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A vector is an example of bytes of spec/vectors.json, which docs/abi/conformance.md describes.
type vector struct {
	Name, Form string
	Given      struct {
		Capacity, Position, Published, Released uint64
		Receiver                                uint32
		Files                                   int
		Keys                                    bool
	}
	Bytes hexBytes
	Value json.RawMessage
	Error string
}

type hexBytes []byte

func (h *hexBytes) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

func readVectors(t *testing.T) []vector {
	one := uint16(1)
	if runsAlone() || os.Getpagesize() != pageOfTests || bytesOf(&one)[0] != 1 {
		t.Skip("this binary runs without the sources, or on another machine than that of spec/vectors.json")
	}
	text, err := os.ReadFile("../../spec/vectors.json")
	must(t, err)
	var file struct{ Vectors []vector }
	must(t, json.Unmarshal(text, &file))
	return file.Vectors
}

// eachVector runs a test for every vector of a form.
func eachVector(t *testing.T, form string, test func(t *testing.T, v vector)) {
	count := 0
	for _, v := range readVectors(t) {
		if v.Form == form {
			count++
			t.Run(v.Name, func(t *testing.T) { test(t, v) })
		}
	}
	if count == 0 {
		t.Fatalf("no vector of the form %s", form)
	}
}

// valueOf decodes the value of a vector, or returns the zero value if the bytes are to be refused.
func valueOf[T any](t *testing.T, v vector) (value T) {
	if v.Error == "" {
		must(t, json.Unmarshal(v.Value, &value))
	}
	return value
}

func mustEqual[T any](t *testing.T, got, expected T) {
	t.Helper()
	if !reflect.DeepEqual(got, expected) {
		t.Fatalf("%+v; expected: %+v", got, expected)
	}
}

// errnoOf returns the errno that a vector names, or 0.
func (v vector) errnoOf() syscall.Errno {
	return map[string]syscall.Errno{
		"EPROTO": syscall.EPROTO, "EPROTONOSUPPORT": syscall.EPROTONOSUPPORT, "EALREADY": syscall.EALREADY, "ERANGE": syscall.ERANGE,
		"EACCES": syscall.EACCES,
	}[v.Error]
}

// ---- the memory of a ring ----

type ringValue struct {
	Records []hexBytes
	End     uint64
}

// doubled is the data of a ring, twice in a row, of which the second half is not mapped to the first.
type doubled struct {
	words    []uint64
	capacity uint64
}

func newDoubled(capacity uint64) doubled { return doubled{make([]uint64, 2*capacity/8), capacity} }

func (d doubled) byteAt(position uint64) *byte {
	return (*byte)(unsafe.Add(unsafe.Pointer(&d.words[0]), position))
}

func (d doubled) put(position uint64, content []byte) {
	for i, b := range content {
		at := (position + uint64(i)) % d.capacity
		*d.byteAt(at), *d.byteAt(at + d.capacity) = b, b
	}
}

// get returns bytes of which one half was written, and the other is 0.
func (d doubled) get(position uint64, length int) []byte {
	content := make([]byte, length)
	for i := range content {
		at := (position + uint64(i)) % d.capacity
		content[i] = *d.byteAt(at) | *d.byteAt(at + d.capacity)
	}
	return content
}

func (d doubled) side() side {
	return side{own: new(ringCtrlABI), peer: new(ringCtrlABI), data: unsafe.Pointer(&d.words[0]), capacity: d.capacity}
}

func TestVectorsOfRecords(t *testing.T) {
	eachVector(t, "ring-data", func(t *testing.T, v vector) {
		memory := newDoubled(v.Given.Capacity)
		memory.put(v.Given.Position, v.Bytes)
		c := newConsumer(memory.side(), -1)
		c.pos, c.released = v.Given.Position, v.Given.Position
		received, err := receiveWhatIsThere(testContext(t), c)
		if v.Error != "" {
			mustBe(t, err, ErrProtocol)
			return
		}
		must(t, err)
		mustEqual(t, received, valueOf[ringValue](t, v))

		memory = newDoubled(v.Given.Capacity)
		p := newProducer(memory.side(), -1)
		p.pos, p.released = v.Given.Position, v.Given.Position
		var records [][]byte
		for _, record := range received.Records {
			records = append(records, record)
		}
		_, err = p.SendBatch(testContext(t), records)
		must(t, err)
		mustEqual(t, memory.get(v.Given.Position, len(v.Bytes)), v.Bytes)
	})
}

func receiveWhatIsThere(ctx context.Context, c *Consumer) (received ringValue, err error) {
	received.Records = []hexBytes{}
	for {
		ok, err := c.hasRecord()
		if !ok || err != nil {
			received.End = c.pos
			return received, err
		}
		record, err := c.Recv(ctx)
		if err != nil {
			return received, err
		}
		received.Records = append(received.Records, hexBytes(record.Clone()))
	}
}

func TestVectorsOfControlPages(t *testing.T) {
	type value struct {
		Pos      uint64
		Flags    uint32 `json:"wait_flags"`
		Sequence uint32 `json:"wake_seq"`
		Closed   uint32
		Ack      uint32 `json:"wake_ack"`
		Features uint32
	}
	eachVector(t, "ring-control", func(t *testing.T, v vector) {
		p := newProducer(newDoubled(4096).side(), -1)
		p.pos, p.released = v.Given.Published, v.Given.Released
		copy(bytesOf(p.peer), v.Bytes)
		if v.Error == "" {
			c := p.peer
			mustEqual(t, value{c.pos, c.waitFlags, c.wakeSeq, c.closed, c.wakeAck, c.features}, valueOf[value](t, v))
		}
		if v.Given.Published != 0 {
			if err := p.loadReleased(); (err != nil) != (v.Error == "violation") {
				t.Fatal(err)
			}
		}
	})
}

// ---- the handshake ----

// sendVector sends the bytes of a vector with so many files, which are sealed and have the length that the receiver of a role expects.
func sendVector(t *testing.T, socket int, v vector, role uint32) {
	hello := ringHelloABI{role: ringProducer + ringConsumer - role, data: pageOfTests, capacity: 4096}
	if v.Error == "" {
		hello.capacity = valueOf[struct{ Capacity uint64 }](t, v).Capacity
	}
	file := memfdWith(allSeals, 0)(t, &hello)
	defer unix.Close(file)
	var files []int
	for range v.Given.Files {
		files = append(files, file)
	}
	var control []byte
	if len(files) > 0 {
		control = unix.UnixRights(files...)
	}
	must(t, unix.Sendmsg(socket, v.Bytes, control, nil, 0))
}

func TestVectorsOfTheFirstMessage(t *testing.T) {
	eachVector(t, "ring-first-message", func(t *testing.T, v vector) {
		own, peers := socketPair(t)
		defer peers.Close()
		raw, err := peers.SyscallConn()
		must(t, err)
		must(t, raw.Control(func(fd uintptr) { sendVector(t, int(fd), v, v.Given.Receiver) }))
		if v.Error == "" {
			accepted := ringReplyABI{magic: ringMagic}
			_, err = peers.Write(bytesOf(&accepted))
			must(t, err)
		}
		peer := maliciousPeer{role: ringProducer + ringConsumer - v.Given.Receiver}
		err = peer.acceptFrom(t, own, SocketOptions{Capacity: 4096, HandshakeTimeout: limit})
		if refusal := valueOf[struct{ Error syscall.Errno }](t, v).Error; refusal != 0 {
			mustBe(t, err, refusal)
			return
		}
		if v.Error != "" {
			mustBe(t, err, v.errnoOf())
		} else {
			must(t, err)
		}
		mustEqual(t, replyFrom(t, peers), v.errnoOf())
	})
}

func TestVectorsOfTheSecondMessage(t *testing.T) {
	var hello vector
	for _, v := range readVectors(t) {
		if v.Name == "memfd: hello of a producer" {
			hello = v
		}
	}
	eachVector(t, "ring-second-message", func(t *testing.T, v vector) {
		own, peers := socketPair(t)
		defer peers.Close()
		raw, err := peers.SyscallConn()
		must(t, err)
		must(t, raw.Control(func(fd uintptr) {
			sendVector(t, int(fd), hello, ringConsumer)
			sendVector(t, int(fd), v, ringConsumer)
		}))
		err = maliciousPeer{role: ringProducer}.acceptFrom(t, own, SocketOptions{HandshakeTimeout: limit})
		switch errno := valueOf[struct{ Error syscall.Errno }](t, v).Error; {
		case v.Error != "":
			mustBe(t, err, syscall.EPROTO)
		case errno > 4095: // not a number of the protocol
			mustBe(t, err, syscall.ECONNREFUSED)
		case errno != 0:
			mustBe(t, err, errno)
		default:
			must(t, err)
		}
	})
}

// ---- what the kernel sends ----

func TestVectorsOfMessages(t *testing.T) {
	type value struct {
		Message                             hexBytes
		Sender, Target, Tag, Sequence, Lost uint64
		PID, UID, GID                       uint32
	}
	eachVector(t, "bus-read", func(t *testing.T, v vector) {
		b := Bus{rest: v.Bytes}
		for _, m := range valueOf[[]value](t, v) {
			mustEqual(t, b.next(), Message{m.Message, m.Sender, m.Target, m.Tag, m.Sequence, m.Lost, m.PID, m.UID, m.GID})
		}
		mustEqual(t, len(b.rest), 0)
	})
}

func TestVectorsOfSentMessages(t *testing.T) {
	type value struct {
		Size        int
		Target, Tag uint64
		Message     hexBytes
	}
	eachVector(t, "bus-write", func(t *testing.T, v vector) {
		sender, receiver := busesOverSockets(t)
		for _, m := range valueOf[[]value](t, v) {
			if m.Size != frameSize {
				t.Skip("a longer frame, which this package does not send")
			}
			must(t, sender.PublishTo(testContext(t), m.Target, m.Tag, m.Message))
			sent := make([]byte, len(v.Bytes)+1)
			n, err := receiver.read(testContext(t), sent)
			must(t, err)
			mustEqual(t, sent[:n], v.Bytes)
		}
	})
}

func TestVectorsOfEvents(t *testing.T) {
	type value struct {
		Change                    EventKind
		Key                       hexBytes
		Sequence, Version, Missed uint64
	}
	eachVector(t, "map-events", func(t *testing.T, v vector) {
		w := Watcher{m: new(Map), rest: v.Bytes}
		for _, e := range valueOf[[]value](t, v) {
			got, err := w.Recv(testContext(t))
			must(t, err)
			mustEqual(t, got, Event{e.Change, e.Key, e.Sequence, e.Version, e.Missed})
		}
		mustEqual(t, len(w.rest), 0)
	})
}

func TestVectorsOfEntries(t *testing.T) {
	type value struct {
		Key, Value hexBytes
		Version    uint64
		TTL        time.Duration `json:"ttl_ns"`
	}
	eachVector(t, "map-records", func(t *testing.T, v vector) {
		flags := uint32(0)
		if v.Given.Keys {
			flags = mapKeys
		}
		var got []Entry
		yieldRecords(v.Bytes, flags, func(e Entry, _ error) bool {
			got = append(got, e)
			return true
		})
		var expected []Entry
		for _, e := range valueOf[[]value](t, v) {
			expected = append(expected, Entry{e.Key, e.Value, e.Version, e.TTL})
		}
		mustEqual(t, got, expected)
	})
}

func TestVectorsOfPackets(t *testing.T) {
	type value struct {
		Bytes          hexBytes
		Sequence, Lost uint64
		Time           time.Duration `json:"time_ns"`
		Cycles         uint64
	}
	eachVector(t, "feed-packet", func(t *testing.T, v vector) {
		var fds [2]int
		must(t, unix.Pipe2(fds[:], unix.O_CLOEXEC))
		defer unix.Close(fds[1])
		endpoint, err := newPoller(fds[0], "feed", hintsOfFeed)
		must(t, err)
		f := Feed{poller: endpoint}
		defer f.Close()
		_, err = unix.Write(fds[1], v.Bytes)
		must(t, err)
		got, err := f.Recv(testContext(t))
		must(t, err)
		p := valueOf[[]value](t, v)[0]
		mustEqual(t, got, Packet{p.Bytes, p.Sequence, p.Lost, p.Time, p.Cycles})
	})
}
