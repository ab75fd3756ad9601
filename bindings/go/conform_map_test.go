// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// conformMap is an endpoint of a map, with its watcher.
type conformMap struct {
	*Map
	watcher *Watcher
}

func openConformMap(name, side string, settings conformSettings) (conformEndpoint, error) {
	access := map[string]Access{"reader": Read, "writer": Write, "map": Read | Write}[side]
	m, err := OpenMap(context.Background(), name, access, MapOptions{
		Options: settings.options(), MaxEntries: settings.number("entries"), Events: uint32(settings.number("events")),
		Durable: settings.has("durable"), Interval: settings.time("interval"), Deadline: settings.time("deadline"),
	})
	return &conformMap{Map: m}, err
}

func (m *conformMap) execute(words []string, numbers []int) string {
	ctx := context.Background()
	switch words[0] {
	case "get":
		return conformGot(m.Get(conformBytes(words[1])))
	case "set":
		settings := conformSettings(words[3:])
		change, err := m.Set(ctx, conformBytes(words[1]), conformBytes(words[2]), SetOptions{
			IfVersion: settings.version(), TTL: settings.time("ttl"), NoWait: settings.has("nowait"),
		})
		return conformSet(change, err)
	case "delete":
		settings := conformSettings(words[2:])
		options := DeleteOptions{IfVersion: settings.version(), NoWait: settings.has("nowait")}
		change, err := m.Delete(ctx, conformBytes(words[1]), options)
		switch {
		case err == nil:
			return fmt.Sprint("deleted ", change.Version)
		case errors.Is(err, fs.ErrNotExist):
			return "none"
		}
		return conformSet(change, err)
	case "fill":
		for number := range numbers[1] {
			if change, err := m.Set(ctx, []byte(strconv.Itoa(number)), conformBytes(words[2]), SetOptions{}); err != nil {
				return fmt.Sprint("set ", number, " ", conformSet(change, err))
			}
		}
		return fmt.Sprint("set ", numbers[1])
	case "dump":
		return conformDump(m.Entries())
	case "count":
		return m.count()
	case "sync":
		return m.sync(words[1], numbers[1])
	case "watch":
		return m.watch(words[1], numbers[1])
	case "event":
		return m.event(numbers)
	}
	return "unsupported"
}

func conformGot(entry Entry, err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "none"
	case err != nil:
		return conformDone(err)
	case entry.TTL != 0:
		return fmt.Sprint("value ", conformWord(entry.Value), " ", entry.Version, " expires")
	}
	return fmt.Sprint("value ", conformWord(entry.Value), " ", entry.Version)
}

func conformSet(change Change, err error) string {
	switch {
	case errors.Is(err, syscall.ESTALE):
		return fmt.Sprint("refused ESTALE ", change.Version)
	case err != nil:
		return conformDone(err)
	case change.Created:
		return fmt.Sprint("created ", change.Version)
	}
	return fmt.Sprint("updated ", change.Version)
}

func conformDump(entries iter.Seq2[Entry, error]) string {
	var words []string
	for entry, err := range entries {
		if err != nil {
			return conformDone(err)
		}
		words = append(words, conformWord(entry.Key)+"="+conformWord(entry.Value))
	}
	slices.Sort(words)
	return strings.Join(append([]string{"entries"}, words...), " ")
}

func (m *conformMap) count() string {
	count := 0
	for _, err := range m.Keys() {
		if err != nil {
			return conformDone(err)
		}
		count++
	}
	return fmt.Sprint("entries ", count)
}

func (m *conformMap) sync(word string, number int) string {
	upTo := uint64(number)
	if word == "now" {
		upTo = Now
	}
	stored, err := m.Sync(context.Background(), upTo)
	if err != nil {
		return conformDone(err)
	}
	return fmt.Sprint("stored ", stored)
}

func (m *conformMap) watch(word string, number int) string {
	after := uint64(number)
	if word == "now" {
		after = Now
	}
	watcher, err := m.Watch(after)
	if err != nil {
		return conformDone(err)
	}
	m.watcher = watcher
	return fmt.Sprint("watching ", watcher.Position())
}

func (m *conformMap) event(numbers []int) string {
	ctx, cancel := contextOf(numbers, 1)
	defer cancel()
	event, err := m.watcher.Recv(ctx)
	if err != nil {
		return conformWithin(err, numbers, 1, "empty")
	}
	result := fmt.Sprint(event.Kind, " ", conformWord(event.Key), " ", event.Sequence, " ", event.Version)
	if event.Missed > 0 {
		result += fmt.Sprint(" missed ", event.Missed)
	}
	return result
}
