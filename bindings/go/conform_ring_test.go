// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"syscall"
)

// conformRing is a side of a ring, over memfd or on the device.
type conformRing struct {
	producer *Producer
	consumer *Consumer
	number   int // of the next record
}

func conformRingOver(conn net.Conn, err error, side string, capacity int) (conformEndpoint, error) {
	if err != nil {
		return nil, err
	}
	p := conformRing{}
	options := SocketOptions{Capacity: capacity}
	if side == "producer" {
		p.producer, err = NewProducer(context.Background(), conn.(*net.UnixConn), options)
	} else {
		p.consumer, err = NewConsumer(context.Background(), conn.(*net.UnixConn), options)
	}
	return &p, err
}

func openConformRing(name, side string, settings conformSettings) (conformEndpoint, error) {
	p, err := conformRing{}, error(nil)
	options := RingOptions{Options: settings.options()}
	if side == "producer" {
		p.producer, err = OpenProducer(name, options)
	} else {
		p.consumer, err = OpenConsumer(name, options)
	}
	return &p, err
}

func (p *conformRing) execute(words []string, numbers []int) string {
	if p.producer != nil {
		return p.produce(words, numbers)
	}
	return p.consume(words, numbers)
}

func (p *conformRing) Close() error {
	if p.producer != nil {
		return p.producer.Close()
	}
	return p.consumer.Close()
}

func (p *conformRing) produce(words []string, numbers []int) string {
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

func (p *conformRing) send(ctx context.Context, length int) error {
	err := p.producer.Send(ctx, contentFrom(p.number, length))
	if err == nil {
		p.number++
	}
	return err
}

func (p *conformRing) consume(words []string, numbers []int) string {
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
	case "abort":
		return p.result(p.consumer.Abort())
	}
	return "unsupported"
}

func (p *conformRing) recv(ctx context.Context) string {
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

func (p *conformRing) result(err error) string {
	for _, result := range []struct {
		err  error
		word string
	}{
		{nil, "ok"}, {context.DeadlineExceeded, "timeout"}, {syscall.EMSGSIZE, "too-long"}, {ErrPeerClosed, "closed"}, {io.EOF, "end"},
		{ErrPeerDied, "died"}, {ErrDestroyed, "destroyed"}, {ErrProtocol, "violation"},
	} {
		if errors.Is(err, result.err) {
			return result.word
		}
	}
	return err.Error()
}
