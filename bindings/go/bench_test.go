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

func BenchmarkRing64B(b *testing.B)           { benchmarkRing(b, 64) }
func BenchmarkRing1MiB(b *testing.B)          { benchmarkRing(b, 1<<20) }
func BenchmarkRingInPlace64B(b *testing.B)    { benchmarkInPlace(b, 64) }
func BenchmarkConn64B(b *testing.B)           { benchmarkStream(b, 64, connsOfRings) }
func BenchmarkConn1MiB(b *testing.B)          { benchmarkStream(b, 1<<20, connsOfRings) }
func BenchmarkNetPipe64B(b *testing.B)        { benchmarkStream(b, 64, netPipe) }
func BenchmarkNetPipe1MiB(b *testing.B)       { benchmarkStream(b, 1<<20, netPipe) }
func BenchmarkUnixSocket64B(b *testing.B)     { benchmarkStream(b, 64, unixSockets) }
func BenchmarkUnixSocket1MiB(b *testing.B)    { benchmarkStream(b, 1<<20, unixSockets) }
func BenchmarkRingRoundTrip8B(b *testing.B)   { benchmarkRoundTrips(b, connsOfRings) }
func BenchmarkSocketRoundTrip8B(b *testing.B) { benchmarkRoundTrips(b, unixSockets) }

// BenchmarkRingOneGoroutine64B is the cost of both sides without a transfer between processors.
func BenchmarkRingOneGoroutine64B(b *testing.B) {
	p, c := memfdRing(b, SocketOptions{})
	record, ctx := make([]byte, 64), context.Background()
	b.SetBytes(64)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if err := p.Send(ctx, record); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Recv(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkRing(b *testing.B, length int) {
	p, c := memfdRing(b, SocketOptions{})
	record, ctx := make([]byte, length), context.Background()
	receiveInBench(b, c, length, func() {
		for range b.N {
			if err := p.Send(ctx, record); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func benchmarkInPlace(b *testing.B, length int) {
	p, c := memfdRing(b, SocketOptions{})
	ctx := context.Background()
	receiveInBench(b, c, length, func() {
		for range b.N {
			room, err := p.Reserve(ctx, length)
			if err != nil {
				b.Fatal(err)
			}
			room.Bytes[0] = 1
			room.Publish(length)
		}
	})
}

// receiveInBench measures a producer, until the consumer has received all records.
func receiveInBench(b *testing.B, c *Consumer, length int, produce func()) {
	done := make(chan error, 1)
	b.SetBytes(int64(length))
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		for range b.N {
			if _, err := c.Recv(context.Background()); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	produce()
	must(b, <-done)
	b.StopTimer()
}

func benchmarkStream(b *testing.B, length int, connect func(b *testing.B) (net.Conn, net.Conn)) {
	first, second := connect(b)
	done := make(chan error, 1)
	b.SetBytes(int64(length))
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		received := make([]byte, length)
		for range b.N {
			if _, err := io.ReadFull(second, received); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	sent := make([]byte, length)
	for range b.N {
		if _, err := first.Write(sent); err != nil {
			b.Fatal(err)
		}
	}
	must(b, <-done)
	b.StopTimer()
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

func unixSockets(b *testing.B) (net.Conn, net.Conn) {
	listener, err := net.Listen("unix", filepath.Join(b.TempDir(), "socket"))
	must(b, err)
	defer listener.Close()
	first, err := net.Dial("unix", listener.Addr().String())
	must(b, err)
	second, err := listener.Accept()
	must(b, err)
	b.Cleanup(func() {
		first.Close()
		second.Close()
	})
	return first, second
}
