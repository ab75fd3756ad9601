// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests of the kinds that need the kernel module. They skip without it, and need nothing but this binary:
//
//	CGO_ENABLED=0 go test -c, and then ./sluice.test -test.v in the VM.

func needsModule(t testing.TB) {
	if _, err := os.Stat(nodeOfCtl); err != nil {
		t.Skip("needs the kernel module")
	}
}

var namesGiven atomic.Uint32

func newName() string { return fmt.Sprintf("go-%d-%d", os.Getpid(), namesGiven.Add(1)) }

func creating() Options { return Options{Create: true} }

func deviceRing(t testing.TB, spin time.Duration) (*Producer, *Consumer) {
	needsModule(t)
	name, options := newName(), RingOptions{Options: Options{Create: true, Capacity: 4096}, Spin: spin}
	p, err := OpenProducer(name, options)
	must(t, err)
	c, err := OpenConsumer(name, options)
	must(t, err)
	t.Cleanup(func() {
		p.Close()
		c.Close()
	})
	return p, c
}

func TestDestroyedRing(t *testing.T) {
	needsModule(t)
	name := newName()
	p, err := OpenProducer(name, RingOptions{Options: creating()})
	must(t, err)
	defer p.Close()
	c, err := OpenConsumer(name, RingOptions{})
	must(t, err)
	defer c.Close()
	must(t, p.Send(testContext(t), []byte("before")))
	defer later(func() { Destroy(context.Background(), KindRing, name, Scope{}) })()
	record, err := c.Recv(testContext(t))
	must(t, err)
	if string(record) != "before" {
		t.Fatalf("%q", record)
	}
	_, err = c.Recv(testContext(t))
	mustBe(t, err, ErrDestroyed)
}

func TestTimeoutWithoutPeer(t *testing.T) {
	needsModule(t)
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	mustSay := func(err error, text string) {
		t.Helper()
		mustBe(t, err, context.DeadlineExceeded)
		if says := strings.Contains(err.Error(), "no "+text) && strings.Contains(err.Error(), "same cgroup"); says != (text != "") {
			t.Fatal(err)
		}
	}
	name := newName()
	c, err := OpenConsumer(name, RingOptions{Options: creating()})
	must(t, err)
	defer c.Close()
	_, err = c.Recv(short())
	mustSay(err, "producer has ring "+name+" open")
	p, err := OpenProducer(name, RingOptions{})
	must(t, err)
	defer p.Close()
	_, err = c.Recv(short())
	mustSay(err, "")
	alone, err := OpenProducer(newName(), RingOptions{Options: creating()})
	must(t, err)
	defer alone.Close()
	must(t, alone.Send(short(), []byte("early")))
	mustSay(alone.WaitReleased(short()), "consumer has ring")

	subscriber, err := OpenBus(name, Read, BusOptions{Options: creating()})
	must(t, err)
	defer subscriber.Close()
	_, err = subscriber.Recv(short())
	mustSay(err, "sender has bus "+name+" open")
	publisher, err := OpenBus(name, Write, BusOptions{})
	must(t, err)
	defer publisher.Close()
	_, err = subscriber.Recv(short())
	mustSay(err, "")
}

func TestTakenRole(t *testing.T) {
	needsModule(t)
	name := newName()
	p, err := OpenProducer(name, RingOptions{Options: creating()})
	must(t, err)
	defer p.Close()
	_, err = OpenProducer(name, RingOptions{})
	mustBe(t, err, syscall.EBUSY)
}

// The records of a producer that has ended are there for a consumer that comes later.
func TestConsumerComesLater(t *testing.T) {
	needsModule(t)
	name := newName()
	options := RingOptions{Options: Options{Create: true, Persistent: true}}
	p, err := OpenProducer(name, options)
	must(t, err)
	defer Remove(context.Background(), KindRing, name, Scope{})
	must(t, sendAll(testContext(t), p, 0, 3))
	must(t, p.Close())
	c, err := OpenConsumer(name, RingOptions{})
	must(t, err)
	defer c.Close()
	must(t, receiveAll(testContext(t), c, 0, 3))
	_, err = c.Recv(testContext(t))
	mustBe(t, err, io.EOF)
}

func TestPipe(t *testing.T) {
	needsModule(t)
	name := newName()
	ctx := testContext(t)
	readers := make(chan *Pipe, 1)
	go func() {
		r, err := OpenPipe(ctx, name, Read, PipeOptions{Options: creating()})
		if err != nil {
			t.Error(err)
		}
		readers <- r
	}()
	w, err := OpenPipe(ctx, name, Write, PipeOptions{Options: creating()})
	must(t, err)
	r := <-readers
	defer r.Close()
	go func() {
		w.Write(table)
		w.Close()
	}()
	all, err := io.ReadAll(r)
	must(t, err)
	if string(all) != string(table) {
		t.Fatalf("%d other bytes", len(all))
	}
}

func TestPipeDeadline(t *testing.T) {
	needsModule(t)
	both, err := OpenPipe(testContext(t), newName(), Read|Write, PipeOptions{Options: creating()})
	must(t, err)
	defer both.Close()
	must(t, both.SetReadDeadline(time.Now().Add(5*time.Millisecond)))
	_, err = both.Read(make([]byte, 1))
	mustBe(t, err, os.ErrDeadlineExceeded)
	capacity, err := both.SetCapacity(100_000)
	must(t, err)
	if capacity != 1<<17 {
		t.Fatal(capacity)
	}
	_, err = both.SetCapacity(0)
	mustBe(t, err, syscall.EINVAL)
	_, err = both.Write([]byte("12345"))
	must(t, err)
	info, err := both.Info()
	must(t, err)
	if info.Bytes != 5 || info.Readers != 1 || info.Writers != 1 {
		t.Fatalf("%+v", info)
	}
}

func TestErrorsOfPipes(t *testing.T) {
	needsModule(t)
	name := newName()
	r, err := OpenPipe(testContext(t), name, Read, PipeOptions{Options: creating(), NoWait: true})
	must(t, err)
	w, err := OpenPipe(testContext(t), name, Write, PipeOptions{})
	must(t, err)
	defer w.Close()
	must(t, r.Close())
	_, err = r.Read(make([]byte, 1))
	mustBe(t, err, ErrClosed)
	_, err = w.Write([]byte("nobody reads"))
	mustBe(t, err, syscall.EPIPE)
	var failed *Error
	if !errors.As(err, &failed) || failed.Hint == "" {
		t.Fatalf("%T: %v", err, err)
	}
}

func TestPipeOpenIsCancelled(t *testing.T) {
	needsModule(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	name := newName()
	_, err := OpenPipe(ctx, name, Read, PipeOptions{Options: creating()})
	mustBe(t, err, context.DeadlineExceeded)
	// This ends the detached open, which may not have begun yet.
	for err = fs.ErrNotExist; errors.Is(err, fs.ErrNotExist); {
		err = Destroy(context.Background(), KindPipe, name, Scope{})
	}
	must(t, err)
	_, err = OpenPipe(testContext(t), name, Write, PipeOptions{Options: creating(), NoWait: true})
	mustBe(t, err, syscall.ENXIO)
}

func TestDefaultPipe(t *testing.T) {
	needsModule(t)
	p, err := OpenPipe(testContext(t), "", Read|Write, PipeOptions{})
	must(t, err)
	defer p.Close()
	_, err = p.Write([]byte("default"))
	must(t, err)
	b := make([]byte, 7)
	_, err = io.ReadFull(p, b)
	must(t, err)
}

func TestBroadcast(t *testing.T) {
	needsModule(t)
	name, ctx := newName(), testContext(t)
	publisher, err := OpenBus(name, Write, BusOptions{Options: creating()})
	must(t, err)
	defer publisher.Close()
	var subscribers []*Bus
	for range 3 {
		s, err := OpenBus(name, Read, BusOptions{})
		must(t, err)
		defer s.Close()
		subscribers = append(subscribers, s)
	}
	long := table[:100_000] // longer than the first buffer
	messages := []string{"", "one", "seventeen bytes!!", string(long)}
	for _, m := range messages {
		must(t, publisher.Publish(ctx, []byte(m)))
	}
	for _, s := range subscribers {
		for number, expected := range messages {
			m, err := s.Recv(ctx)
			must(t, err)
			if string(m.Bytes) != expected || m.Sequence != uint64(number) || m.PID != uint32(os.Getpid()) {
				t.Fatalf("%d: %d bytes, %+v", number, len(m.Bytes), m.Sequence)
			}
		}
	}
	short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	_, err = subscribers[0].Recv(short)
	mustBe(t, err, context.DeadlineExceeded)
	all, err := publisher.Subscribers()
	must(t, err)
	if len(all) != 3 {
		t.Fatalf("%+v", all)
	}
	defer later(func() { Destroy(context.Background(), KindBus, name, Scope{}) })()
	_, err = subscribers[0].Recv(ctx)
	mustBe(t, err, syscall.EPIPE)
}

func TestLosses(t *testing.T) {
	needsModule(t)
	name, ctx := newName(), testContext(t)
	s, err := OpenBus(name, Read, BusOptions{Options: Options{Create: true, Capacity: 4096}})
	must(t, err)
	defer s.Close()
	publisher, err := OpenBus(name, Write, BusOptions{})
	must(t, err)
	defer publisher.Close()
	for range 1000 {
		must(t, publisher.Publish(ctx, []byte("lost")))
	}
	received, lost := uint64(0), uint64(0)
	for received+lost < 1000 {
		m, err := s.Recv(ctx)
		must(t, err)
		received++
		lost += m.Lost
	}
	if lost == 0 {
		t.Fatal("nothing was lost")
	}
}

func TestBlockedPublisherIsCancelled(t *testing.T) {
	needsModule(t)
	name := newName()
	options := BusOptions{Options: Options{Create: true, Capacity: 4096}, Policies: Block, Policy: Block}
	s, err := OpenBus(name, Read, options)
	must(t, err)
	defer s.Close()
	publisher, err := OpenBus(name, Write, BusOptions{})
	must(t, err)
	defer publisher.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	for err = nil; err == nil; {
		err = publisher.Publish(ctx, make([]byte, 100))
	}
	mustBe(t, err, context.DeadlineExceeded)
	defer later(func() {
		for range 16 {
			s.Recv(testContext(t))
		}
	})()
	must(t, publisher.Publish(testContext(t), make([]byte, 100)))
}

// A context that has ended sends no request, and messages without end leave a request to its context.
func TestContextsOfRequests(t *testing.T) {
	needsModule(t)
	name, ctx := newName(), testContext(t)
	server, err := OpenBus(name, Read|Write, serverOptions())
	must(t, err)
	defer server.Close()
	client, err := OpenBus(name, Read|Write, clientOptions())
	must(t, err)
	defer client.Close()
	_, err = client.Request(noWait, []byte("never sent"))
	mustBe(t, err, errWouldWait)
	_, err = server.Recv(noWait)
	mustBe(t, err, errWouldWait)

	info, err := client.Info()
	must(t, err)
	flooding, stop := context.WithCancel(ctx)
	defer stop()
	for range 3 {
		flooder, err := OpenBus(name, Write, BusOptions{})
		must(t, err)
		defer flooder.Close()
		go func() {
			for flooding.Err() == nil {
				flooder.PublishTo(flooding, info.ID, 0, []byte("no reply"))
			}
		}()
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err = client.Request(short, []byte("without a reply"))
	mustBe(t, err, context.DeadlineExceeded)
}

func serverOptions() BusOptions {
	return BusOptions{Options: creating(), Mode: Multicast, Policies: Drop | Block, Policy: Block}
}

func clientOptions() BusOptions {
	options := serverOptions()
	options.Policy, options.Client = Drop, true
	return options
}

func TestRequests(t *testing.T) {
	needsModule(t)
	name, ctx := newName(), testContext(t)
	client, err := OpenBus(name, Read|Write, clientOptions())
	must(t, err)
	defer client.Close()
	_, err = client.Request(ctx, []byte("without a server"))
	mustBe(t, err, syscall.ENOTCONN)
	server, err := OpenBus(name, Read|Write, serverOptions())
	must(t, err)
	wait := later(func() {
		for range 100 {
			request, err := server.Recv(ctx)
			if err == nil {
				err = server.Reply(ctx, request, append([]byte("re: "), request.Bytes...))
			}
			if err != nil {
				t.Error(err)
			}
		}
		server.Recv(ctx) // the last request gets no reply
		server.Close()
	})
	for number := range 100 {
		reply, err := client.Request(ctx, fmt.Appendf(nil, "%d", number))
		must(t, err)
		if string(reply.Bytes) != fmt.Sprintf("re: %d", number) {
			t.Fatalf("%q", reply.Bytes)
		}
	}
	_, err = client.Request(ctx, []byte("last"))
	mustBe(t, err, syscall.ECONNRESET)
	wait()
}

func TestMap(t *testing.T) {
	needsModule(t)
	ctx := testContext(t)
	m, err := OpenMap(ctx, newName(), Read|Write, MapOptions{Options: creating()})
	must(t, err)
	defer m.Close()
	key := []byte("key")
	_, err = m.Get(key)
	mustBe(t, err, fs.ErrNotExist)
	created, err := m.Set(ctx, key, []byte("one"), SetOptions{})
	must(t, err)
	updated, err := m.Set(ctx, key, table[:1000], SetOptions{IfVersion: &created.Version})
	must(t, err)
	if !created.Created || updated.Created {
		t.Fatalf("%+v %+v", created, updated)
	}
	stale, err := m.Set(ctx, key, nil, SetOptions{IfVersion: &created.Version})
	mustBe(t, err, syscall.ESTALE)
	if stale.Version != updated.Version {
		t.Fatalf("%+v", stale)
	}
	entry, err := m.Get(key)
	must(t, err)
	if string(entry.Value) != string(table[:1000]) || entry.Version != updated.Version {
		t.Fatalf("%d bytes, version %d", len(entry.Value), entry.Version)
	}
	_, err = m.Set(ctx, nil, nil, SetOptions{})
	mustBe(t, err, syscall.EINVAL)
	_, err = m.Set(ctx, key, nil, SetOptions{TTL: time.Hour})
	must(t, err)
	entry, err = m.Get(key)
	must(t, err)
	if entry.TTL <= 0 || entry.TTL > time.Hour || len(entry.Value) != 0 {
		t.Fatalf("%+v", entry)
	}
	_, err = m.Delete(ctx, key, DeleteOptions{})
	must(t, err)
	_, err = m.Delete(ctx, key, DeleteOptions{})
	mustBe(t, err, fs.ErrNotExist)
	_, err = m.Sync(ctx, Now)
	mustBe(t, err, syscall.EOPNOTSUPP)
}

func TestEntries(t *testing.T) {
	needsModule(t)
	ctx := testContext(t)
	m, err := OpenMap(ctx, newName(), Read|Write, MapOptions{Options: creating()})
	must(t, err)
	defer m.Close()
	lengths := map[string]int{}
	for number := range 300 {
		key := fmt.Sprintf("key %d", number)
		lengths[key] = number * 30
		_, err := m.Set(ctx, []byte(key), table[:number*30], SetOptions{})
		must(t, err)
	}
	count := 0
	for entry, err := range m.Entries() {
		must(t, err)
		if length, ok := lengths[string(entry.Key)]; !ok || length != len(entry.Value) {
			t.Fatalf("%q has %d bytes", entry.Key, len(entry.Value))
		}
		count++
	}
	for entry, err := range m.Keys() {
		must(t, err)
		delete(lengths, string(entry.Key))
	}
	if count != 300 || len(lengths) != 0 {
		t.Fatalf("%d entries, %d keys missing", count, len(lengths))
	}
}

func TestWatcher(t *testing.T) {
	needsModule(t)
	ctx := testContext(t)
	m, err := OpenMap(ctx, newName(), Read|Write, MapOptions{Options: creating(), Events: 16})
	must(t, err)
	defer m.Close()
	w, err := m.Watch(Now)
	must(t, err)
	short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	_, err = w.Recv(short)
	mustBe(t, err, context.DeadlineExceeded)
	defer later(func() {
		m.Set(ctx, []byte("a"), nil, SetOptions{TTL: time.Nanosecond})
		m.Set(ctx, []byte("bb"), nil, SetOptions{})
		m.Set(ctx, []byte("bb"), nil, SetOptions{})
		m.Delete(ctx, []byte("bb"), DeleteOptions{})
	})()
	seen := map[EventKind]string{}
	for event, err := range w.Events(ctx) {
		must(t, err)
		seen[event.Kind] += string(event.Key)
		if len(seen) == 4 {
			break
		}
	}
	if seen[Updated] != "bb" || seen[Deleted] != "bb" || seen[Expired] != "a" || len(seen[Created]) != 3 {
		t.Fatal(seen)
	}
}

func TestMissedEvents(t *testing.T) {
	needsModule(t)
	ctx := testContext(t)
	m, err := OpenMap(ctx, newName(), Read|Write, MapOptions{Options: creating(), Events: 16})
	must(t, err)
	defer m.Close()
	w, err := m.Watch(0)
	must(t, err)
	for range 100 {
		_, err := m.Set(ctx, []byte("key"), nil, SetOptions{})
		must(t, err)
	}
	event, err := w.Recv(ctx)
	must(t, err)
	if event.Missed == 0 || event.Missed != event.Sequence-1 {
		t.Fatalf("%+v", event)
	}
	name := m.name[len("map "):]
	defer later(func() { Destroy(context.Background(), KindMap, name, Scope{}) })()
	for err == nil {
		_, err = w.Recv(ctx)
	}
	mustBe(t, err, syscall.EPIPE)
}

func TestFeed(t *testing.T) {
	needsModule(t)
	f, err := OpenFeed("")
	if errors.Is(err, syscall.EACCES) {
		t.Skip("needs root")
	}
	must(t, err)
	defer f.Close()
	_, err = OpenFeed("")
	mustBe(t, err, syscall.EBUSY)
	must(t, f.StartSimulator(100*time.Microsecond, 50, 10))
	defer f.StopSimulator()
	last := Packet{}
	for number := range 20 {
		p, err := f.Recv(testContext(t))
		must(t, err)
		if len(p.Bytes) != 10 || number > 0 && p.Sequence != last.Sequence+1+p.Lost {
			t.Fatalf("%+v after %+v", p, last)
		}
		last = p
	}
	must(t, f.StopSimulator())
	for err = nil; err == nil; {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		_, err = f.Recv(ctx)
		cancel()
	}
	mustBe(t, err, context.DeadlineExceeded)
}

func TestListAndInfo(t *testing.T) {
	needsModule(t)
	name := newName()
	m, err := OpenMap(testContext(t), name, Read, MapOptions{Options: Options{Create: true, Persistent: true, Permissions: 0o640}})
	must(t, err)
	must(t, m.Close())
	channels, err := List(Scope{})
	must(t, err)
	found := false
	for _, channel := range channels {
		found = found || channel.Kind == KindMap && channel.Name == name && channel.Persistent
	}
	info, err := Info(KindMap, name, Scope{})
	must(t, err)
	if !found || info.Permissions != 0o640 || info.Capacity != 4<<20 {
		t.Fatalf("%v, %+v", found, info)
	}
	must(t, Remove(context.Background(), KindMap, name, Scope{}))
	_, err = Info(KindMap, name, Scope{})
	mustBe(t, err, fs.ErrNotExist)
	features, err := GetFeatures()
	must(t, err)
	if features.ABI != SupportedABI || !features.Has(KindRing) || features.Has(KindMap+1) {
		t.Fatalf("%+v", features)
	}
	usage, err := GetUsage(Scope{})
	must(t, err)
	if usage.UserMaxChannels == 0 {
		t.Fatalf("%+v", usage)
	}
}

func TestScopeOfADirectory(t *testing.T) {
	needsModule(t)
	directory, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd", os.Getpid()), unix.O_PATH, 0)
	must(t, err)
	defer directory.Close()
	_, err = List(ScopeOf(directory))
	mustBe(t, err, syscall.EBADF)
}

func TestEndpointsAreClosed(t *testing.T) {
	needsModule(t)
	m, err := OpenMap(testContext(t), newName(), Read|Write, MapOptions{Options: creating()})
	must(t, err)
	w, err := m.Watch(Now)
	must(t, err)
	defer later(func() { m.Close() })()
	_, err = w.Recv(testContext(t))
	mustBe(t, err, ErrClosed)
	_, err = m.Get([]byte("key"))
	mustBe(t, err, ErrClosed)
}

// Without the module.

func TestWithoutModule(t *testing.T) {
	if _, err := os.Stat(nodeOfCtl); err == nil {
		t.Skip("the module is loaded")
	}
	_, err := OpenProducer("ring", RingOptions{})
	mustBe(t, err, fs.ErrNotExist)
	if _, ok := err.(*Error); !ok {
		t.Fatalf("%T: %v", err, err)
	}
}

func TestNames(t *testing.T) {
	long := string(table[:64])
	for _, name := range []string{"", ".", "..", "a/b", "a\x00", long} {
		_, err := Info(KindMap, name, Scope{})
		mustBe(t, err, syscall.EINVAL)
	}
}
