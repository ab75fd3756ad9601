// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"bufio"
	"context"
	"errors"
	"fmt"
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
// It does not support buffers that are too small, batches of a map, memory of buses and feeds, and children: a process of Go cannot fork.
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
	endpoint conformEndpoint
}

// A conformEndpoint is what the peer has open. Numbers are the words as numbers, or 0.
type conformEndpoint interface {
	execute(words []string, numbers []int) string
	Close() error
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
		return conformDone(err)
	case words[0] == "accept":
		conn, err := p.listener.Accept()
		return p.keep(conformRingOver(conn, err, words[1], numbers[2]))
	case words[0] == "connect":
		conn, err := net.Dial("unixpacket", words[1])
		return p.keep(conformRingOver(conn, err, words[2], numbers[3]))
	case words[0] == "open":
		return p.keep(conformOpen(words[1], words[2], words[3:]))
	case words[0] == "unlink":
		return conformDone(Remove(context.Background(), conformKinds[words[1]], words[2], Scope{}))
	case words[0] == "destroy":
		return conformDone(Destroy(context.Background(), conformKinds[words[1]], words[2], Scope{}))
	case p.endpoint == nil:
	case words[0] == "close":
		return conformDone(p.endpoint.Close())
	default:
		return p.endpoint.execute(words, numbers)
	}
	return "unsupported"
}

// errUnsupported is the result of a command that this peer does not know.
var errUnsupported = errors.New("unsupported")

var conformKinds = map[string]Kind{"pipe": KindPipe, "ring": KindRing, "bus": KindBus, "map": KindMap}

func conformOpen(name, side string, settings conformSettings) (conformEndpoint, error) {
	switch side {
	case "producer", "consumer":
		return openConformRing(name, side, settings)
	case "map", "reader", "writer":
		return openConformMap(name, side, settings)
	case "sender", "subscriber", "endpoint", "client", "server":
		return openConformBus(name, side, settings)
	case "pipe-reader", "pipe-writer":
		return openConformPipe(name, side, settings)
	case "feed-reader":
		return openConformFeed(name)
	}
	return nil, errUnsupported
}

func (p *conformPeer) keep(endpoint conformEndpoint, err error) string {
	if err == nil {
		p.endpoint = endpoint
	}
	return conformDone(err)
}

// conformSettings are options such as create and capacity=4096.
type conformSettings []string

func (s conformSettings) has(flag string) bool {
	for _, word := range s {
		if word == flag {
			return true
		}
	}
	return false
}

func (s conformSettings) text(key string) string {
	for _, word := range s {
		if text, found := strings.CutPrefix(word, key+"="); found {
			return text
		}
	}
	return ""
}

func (s conformSettings) number(key string) uint64 {
	number, _ := strconv.ParseUint(s.text(key), 10, 64)
	return number
}

func (s conformSettings) time(key string) time.Duration {
	return time.Duration(s.number(key)) * time.Millisecond
}

func (s conformSettings) version() *uint64 {
	if s.text("if") == "" {
		return nil
	}
	version := s.number("if")
	return &version
}

func (s conformSettings) options() Options {
	return Options{
		Create: s.has("create"), Exclusive: s.has("exclusive"), Persistent: s.has("persistent"), Capacity: s.number("capacity"),
	}
}

// conformBytes returns the bytes of a word.
func conformBytes(word string) []byte {
	digits, found := strings.CutPrefix(word, "#")
	length, err := strconv.Atoi(digits)
	if !found || err != nil {
		return []byte(word)
	}
	bytes := make([]byte, length)
	for done := 0; done < length; {
		done += copy(bytes[done:], table)
	}
	return bytes
}

func conformWord(bytes []byte) string {
	isText := len(bytes) > 0 && len(bytes) <= 64 && bytes[0] != '#'
	for _, b := range bytes {
		isText = isText && b > ' ' && b <= '~'
	}
	word := "#" + strconv.Itoa(len(bytes))
	switch {
	case isText:
		return string(bytes)
	case string(bytes) == string(conformBytes(word)):
		return word
	}
	return "wrong"
}

// contextOf returns the context of a call with a time in milliseconds as its last argument, if it has so many arguments.
func contextOf(numbers []int, arguments int) (context.Context, context.CancelFunc) {
	if len(numbers) <= arguments {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), time.Duration(numbers[arguments])*time.Millisecond)
}

// conformWithin returns the result of a call with such a context that has failed; again is that of a call that must not wait.
func conformWithin(err error, numbers []int, arguments int, again string) string {
	if errors.Is(err, context.DeadlineExceeded) && numbers[arguments] == 0 {
		return again
	}
	return conformDone(err)
}

func conformDone(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return "timeout"
	case errors.Is(err, syscall.EMSGSIZE):
		return "too-long"
	case errors.As(err, &errno):
		return "refused " + unix.ErrnoName(errno)
	}
	return err.Error()
}
