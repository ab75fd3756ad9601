// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"testing"
)

// The benchmarks send b.N records of 64 B or 1 MiB from one goroutine to another. In one run:
//
//	go test -run '^$' -bench . -benchmem
//
// The ring has the defaults, as in the benchmark of the library in Rust: 4 MiB, and 50 µs of spinning. Copied, both sides copy each record,
// as those of sockets do; in place, the producer writes it and the consumer reads it in the ring. The library in Rust is measured between
// two processes, in records per second, by
//
//	sluice-bench --suite throughput --mechanism sluice-ring-memfd --size 64 --placement two-cpus

func BenchmarkRing64B(b *testing.B)           { benchmarkRing(b, 64) }
func BenchmarkRing1MiB(b *testing.B)          { benchmarkRing(b, 1<<20) }
func BenchmarkRingInPlace64B(b *testing.B)    { benchmarkInPlace(b, 64) }
func BenchmarkRingInPlace1MiB(b *testing.B)   { benchmarkInPlace(b, 1<<20) }
func BenchmarkConn64B(b *testing.B)           { benchmarkStream(b, 64, connsOfRings) }
func BenchmarkConn1MiB(b *testing.B)          { benchmarkStream(b, 1<<20, connsOfRings) }
func BenchmarkNetPipe64B(b *testing.B)        { benchmarkStream(b, 64, netPipe) }
func BenchmarkNetPipe1MiB(b *testing.B)       { benchmarkStream(b, 1<<20, netPipe) }
func BenchmarkUnixSocket64B(b *testing.B)     { benchmarkStream(b, 64, unixSockets) }
func BenchmarkUnixSocket1MiB(b *testing.B)    { benchmarkStream(b, 1<<20, unixSockets) }
func BenchmarkUnixPacket64B(b *testing.B)     { benchmarkStream(b, 64, unixPackets) }
func BenchmarkRingRoundTrip8B(b *testing.B)   { benchmarkRoundTrips(b, connsOfRings) }
func BenchmarkSocketRoundTrip8B(b *testing.B) { benchmarkRoundTrips(b, unixSockets) }

// BenchmarkRingOneGoroutine64B is the cost of both sides without a transfer between processors.
func BenchmarkRingOneGoroutine64B(b *testing.B) {
	p, c := memfdRing(b, SocketOptions{})
	record, ctx := make([]byte, 64), context.Background()
	b.SetBytes(64)
	b.ReportAllocs()
	b.ResetTimer()
	must(b, repeat(b.N, func() error {
		if err := p.Send(ctx, record); err != nil {
			return err
		}
		_, err := c.Recv(ctx)
		return err
	}))
}

func benchmarkRing(b *testing.B, length int) {
	p, c := memfdRing(b, SocketOptions{})
	record, received, ctx := make([]byte, length), make([]byte, 0, length), context.Background()
	receive := func() error {
		_, err := c.RecvAppend(ctx, received)
		return err
	}
	measure(b, length, receive, func() error { return p.Send(ctx, record) })
}

func benchmarkInPlace(b *testing.B, length int) {
	p, c := memfdRing(b, SocketOptions{})
	ctx, sum := context.Background(), byte(0)
	receive := func() error {
		record, err := c.Recv(ctx)
		for position := 0; position < len(record); position += 64 {
			sum += record[position]
		}
		return err
	}
	measure(b, length, receive, func() error {
		room, err := p.Reserve(ctx, length)
		if err != nil {
			return err
		}
		for position := 0; position < length; position += 64 {
			room.Bytes[position] = 1
		}
		return room.Publish(length)
	})
	if sum != byte(b.N*length/64) {
		b.Fatal("other bytes")
	}
}

// measure measures b.N calls of each function, in two goroutines, until both have ended.
func measure(b *testing.B, length int, receive, send func() error) {
	done := make(chan error, 1)
	b.SetBytes(int64(length))
	b.ReportAllocs()
	b.ResetTimer()
	go func() { done <- repeat(b.N, receive) }()
	must(b, repeat(b.N, send))
	must(b, <-done)
	b.StopTimer()
}

func repeat(count int, call func() error) error {
	for range count {
		if err := call(); err != nil {
			return err
		}
	}
	return nil
}

func benchmarkStream(b *testing.B, length int, connect func(b *testing.B) (net.Conn, net.Conn)) {
	first, second := connect(b)
	sent, received := make([]byte, length), make([]byte, length)
	receive := func() error {
		_, err := io.ReadFull(second, received)
		return err
	}
	measure(b, length, receive, func() error {
		_, err := first.Write(sent)
		return err
	})
}

func benchmarkRoundTrips(b *testing.B, connect func(b *testing.B) (net.Conn, net.Conn)) {
	first, second := connect(b)
	go io.CopyBuffer(struct{ io.Writer }{second}, struct{ io.Reader }{second}, make([]byte, 8))
	buffer := make([]byte, 8)
	b.ResetTimer()
	for range b.N {
		if _, err := first.Write(buffer); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(first, buffer); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
}

func connsOfRings(b *testing.B) (net.Conn, net.Conn) {
	first, second := connPair(b, SocketOptions{})
	return first, second
}

func netPipe(b *testing.B) (net.Conn, net.Conn) {
	first, second := net.Pipe()
	b.Cleanup(func() { first.Close() })
	return first, second
}

func unixSockets(b *testing.B) (net.Conn, net.Conn) { return dialed(b, "unix") }

// unixPackets preserve the lengths of records, as a ring does.
func unixPackets(b *testing.B) (net.Conn, net.Conn) { return dialed(b, "unixpacket") }

func dialed(b *testing.B, network string) (net.Conn, net.Conn) {
	listener, err := net.Listen(network, filepath.Join(b.TempDir(), "socket"))
	must(b, err)
	defer listener.Close()
	first, err := net.Dial(network, listener.Addr().String())
	must(b, err)
	second, err := listener.Accept()
	must(b, err)
	b.Cleanup(func() {
		first.Close()
		second.Close()
	})
	return first, second
}
