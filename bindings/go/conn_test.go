// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

func connPair(t testing.TB, options SocketOptions) (*Conn, *Conn) {
	there, here := memfdRing(t, options)
	back, farther := memfdRing(t, options)
	first, second := NewConn(here, back), NewConn(farther, there)
	t.Cleanup(func() {
		first.Close()
		second.Close()
	})
	return first, second
}

func TestConnEchoes(t *testing.T) {
	client, server := connPair(t, small)
	defer later(func() {
		io.Copy(server, server)
		server.Close()
	})()
	sent := table[:200_000]
	go func() { client.Write(sent) }()
	received := make([]byte, len(sent))
	_, err := io.ReadFull(client, received)
	must(t, err)
	if !bytes.Equal(sent, received) {
		t.Fatal("other bytes")
	}
	must(t, client.Close())
	mustBe(t, client.Close(), net.ErrClosed)
	_, err = client.Read(received)
	mustBe(t, err, net.ErrClosed)
	_, err = client.Write(received)
	mustBe(t, err, net.ErrClosed)
}

func TestConnEnds(t *testing.T) {
	client, server := connPair(t, small)
	_, err := client.Write([]byte("last"))
	must(t, err)
	must(t, client.Close())
	all, err := io.ReadAll(server)
	must(t, err)
	if string(all) != "last" {
		t.Fatalf("%q", all)
	}
}

func TestConnDeadlines(t *testing.T) {
	client, server := connPair(t, small)
	b := make([]byte, 1)
	for range 3 {
		must(t, client.SetReadDeadline(time.Now().Add(5*time.Millisecond)))
		_, err := client.Read(b)
		mustBe(t, err, os.ErrDeadlineExceeded)
		_, err = client.Read(b)
		mustBe(t, err, os.ErrDeadlineExceeded)
		if netError := err.(net.Error); !netError.Timeout() {
			t.Fatal(err)
		}
	}
	must(t, client.SetDeadline(time.Time{}))
	_, err := server.Write([]byte{7})
	must(t, err)
	_, err = client.Read(b)
	must(t, err)

	// A call that waits has a new deadline, too, and the end of a write by its deadline returns what was written.
	wait := later(func() { client.SetReadDeadline(time.Now()) })
	_, err = client.Read(b)
	mustBe(t, err, os.ErrDeadlineExceeded)
	wait()
	wait = later(func() {
		for server.consumer.Pending() == 0 {
			time.Sleep(time.Millisecond)
		}
		client.SetWriteDeadline(time.Now())
	})
	n, err := client.Write(make([]byte, 100_000))
	mustBe(t, err, os.ErrDeadlineExceeded)
	wait()
	if n == 0 || n >= 100_000 {
		t.Fatalf("wrote %d", n)
	}
}

func TestConnCloseEndsCalls(t *testing.T) {
	client, server := connPair(t, small)
	defer later(func() { client.Close() })()
	_, err := client.Read(make([]byte, 1))
	mustBe(t, err, net.ErrClosed)
	_, err = server.Read(make([]byte, 1))
	mustBe(t, err, io.EOF)
}

func TestConnCloseWrite(t *testing.T) {
	client, server := connPair(t, small)
	_, err := client.Write([]byte("question"))
	must(t, err)
	must(t, client.CloseWrite())
	mustBe(t, client.CloseWrite(), net.ErrClosed)
	_, err = client.Write([]byte("more"))
	mustBe(t, err, net.ErrClosed)
	question, err := io.ReadAll(server)
	must(t, err)
	_, err = server.Write(append(question, '!'))
	must(t, err)
	must(t, server.Close())
	answer, err := io.ReadAll(client)
	must(t, err)
	if string(answer) != "question!" {
		t.Fatalf("%q", answer)
	}
	must(t, client.Close())
}

// Empty records without end leave a read to its deadline, and to Close.
func TestConnWithEmptyRecords(t *testing.T) {
	client, server := connPair(t, small)
	p := server.producer
	words := unsafe.Slice((*uint32)(p.data), p.capacity/4)
	for state := 1; state < len(words); state += 2 {
		atomic.StoreUint32(&words[state], ringRecordReady) // of a record of length 0
	}
	must(t, client.SetReadDeadline(time.Now().Add(5*time.Millisecond)))
	_, err := client.Read(make([]byte, 1))
	mustBe(t, err, os.ErrDeadlineExceeded)
	must(t, client.SetReadDeadline(time.Time{}))
	defer later(func() { client.Close() })()
	_, err = client.Read(make([]byte, 1))
	mustBe(t, err, net.ErrClosed)
}
