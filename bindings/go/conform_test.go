// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// This binary is a peer for sluice-conform, which docs/abi/conformance.md describes:
//
//	go test -c
//	sluice-conform run --peer 'env SLUICE_TEST_ROLE=conform ./sluice.test'
//
// It does not support buffers that are too small, and children: a process of Go cannot fork.
func conform() error {
	var peer conformPeer
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(peer.answer(strings.Split(lines.Text(), " ")))
	}
	return lines.Err()
}

type conformPeer struct {
	listener net.Listener
	producer *Producer
	consumer *Consumer
	number   int
}

func (p *conformPeer) answer(words []string) string {
	numbers := make([]int, len(words))
	for i, word := range words {
		numbers[i], _ = strconv.Atoi(word)
	}
	switch {
	case words[0] == "listen":
		listener, err := net.Listen("unixpacket", words[1])
		p.listener = listener
		return p.result(err)
	case words[0] == "accept":
		conn, err := p.listener.Accept()
		if err != nil {
			return p.result(err)
		}
		return p.setUp(conn, words[1], numbers[2])
	case words[0] == "connect":
		conn, err := net.Dial("unixpacket", words[1])
		if err != nil {
			return p.result(err)
		}
		return p.setUp(conn, words[2], numbers[3])
	case words[0] == "die":
		unix.Kill(os.Getpid(), unix.SIGKILL)
	case p.producer != nil:
		return p.produce(words, numbers)
	case p.consumer != nil:
		return p.consume(words, numbers)
	}
	return "unsupported"
}

func (p *conformPeer) setUp(conn net.Conn, side string, capacity int) (result string) {
	var err error
	options := SocketOptions{Capacity: capacity}
	if side == "producer" {
		p.producer, err = NewProducer(context.Background(), conn.(*net.UnixConn), options)
	} else {
		p.consumer, err = NewConsumer(context.Background(), conn.(*net.UnixConn), options)
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return "refused " + unix.ErrnoName(errno)
	}
	return p.result(err)
}

// contextOf returns the context of a call with a time in milliseconds as its last argument, if it has so many arguments.
func contextOf(numbers []int, arguments int) (context.Context, context.CancelFunc) {
	if len(numbers) <= arguments {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), time.Duration(numbers[arguments])*time.Millisecond)
}

func (p *conformPeer) produce(words []string, numbers []int) string {
	switch words[0] {
	case "send":
		ctx, cancel := contextOf(numbers, 2)
		defer cancel()
		result := p.result(p.send(ctx, numbers[1]))
		if result == "timeout" && numbers[2] == 0 {
			return "full"
		}
		return result
	case "place":
		room, err := p.producer.Reserve(context.Background(), numbers[1])
		if err != nil {
			return p.result(err)
		}
		copy(room.Bytes, contentFrom(p.number, numbers[1]))
		p.number++
		return p.result(room.Publish(numbers[2]))
	case "cancel":
		_, err := p.producer.Reserve(context.Background(), numbers[1])
		return p.result(err)
	case "batch":
		var records [][]byte
		for range numbers[2] {
			records = append(records, contentFrom(p.number, numbers[1]))
			p.number++
		}
		_, err := p.producer.SendBatch(context.Background(), records)
		return p.result(err)
	case "stream":
		for sent := range numbers[1] {
			if err := p.send(context.Background(), lengthOf(p.number, p.producer.MaxRecord())); err != nil {
				return fmt.Sprint("sent ", sent, " ", p.result(err))
			}
		}
		return fmt.Sprint("sent ", numbers[1])
	case "pending":
		return strconv.Itoa(p.producer.Pending())
	case "close":
		return p.result(p.producer.Close())
	case "abort":
		return p.result(p.producer.Abort())
	}
	return "unsupported"
}

// contentFrom returns so many bytes of the content of a record.
func contentFrom(number, length int) []byte {
	start := number * 17 % 8191
	return table[start : start+length]
}

func (p *conformPeer) send(ctx context.Context, length int) error {
	err := p.producer.Send(ctx, contentFrom(p.number, length))
	if err == nil {
		p.number++
	}
	return err
}

func (p *conformPeer) consume(words []string, numbers []int) string {
	switch words[0] {
	case "recv":
		ctx, cancel := contextOf(numbers, 1)
		defer cancel()
		result := p.recv(ctx)
		if result == "timeout" && numbers[1] == 0 {
			return "empty"
		}
		return result
	case "stream":
		for received := range numbers[1] {
			expected := fmt.Sprint("record ", lengthOf(p.number, p.consumer.MaxRecord()))
			if result := p.recv(context.Background()); result != expected {
				return fmt.Sprint("received ", received, " ", result)
			}
		}
		return fmt.Sprint("received ", numbers[1])
	case "pending":
		return strconv.Itoa(p.consumer.Pending())
	case "close":
		return p.result(p.consumer.Close())
	case "abort":
		return p.result(p.consumer.Abort())
	}
	return "unsupported"
}

func (p *conformPeer) recv(ctx context.Context) string {
	record, err := p.consumer.RecvAppend(ctx, nil)
	if err != nil {
		return p.result(err)
	}
	if string(record) != string(contentFrom(p.number, len(record))) {
		return "wrong"
	}
	p.number++
	return fmt.Sprint("record ", len(record))
}

func (p *conformPeer) result(err error) string {
	for _, result := range []struct {
		err  error
		word string
	}{
		{nil, "ok"}, {context.DeadlineExceeded, "timeout"}, {syscall.EMSGSIZE, "too-long"}, {ErrPeerClosed, "closed"}, {io.EOF, "end"},
		{ErrPeerDied, "died"}, {ErrProtocol, "violation"},
	} {
		if errors.Is(err, result.err) {
			return result.word
		}
	}
	return err.Error()
}
