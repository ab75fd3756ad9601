// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// conformPipe is an endpoint of a pipe.
type conformPipe struct{ *Pipe }

func openConformPipe(name, side string, settings conformSettings) (conformEndpoint, error) {
	access := map[string]Access{"pipe-reader": Read, "pipe-writer": Write}[side]
	p, err := OpenPipe(context.Background(), name, access, PipeOptions{Options: settings.options(), NoWait: settings.has("nowait")})
	return conformPipe{p}, err
}

func (p conformPipe) execute(words []string, numbers []int) string {
	deadline := time.Time{}
	if len(numbers) > 2 {
		deadline = time.Now().Add(time.Duration(numbers[2]) * time.Millisecond)
	}
	p.SetDeadline(deadline)
	switch words[0] {
	case "read":
		buffer := make([]byte, numbers[1])
		n, err := p.Read(buffer)
		if err != nil {
			return p.failed(err)
		}
		return "bytes " + conformWord(buffer[:n])
	case "write":
		if _, err := p.Write(conformBytes(words[1])); err != nil {
			return p.failed(err)
		}
		return "ok"
	}
	return "unsupported"
}

func (p conformPipe) failed(err error) string {
	switch {
	case errors.Is(err, io.EOF):
		return "end"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	}
	return conformDone(err)
}
