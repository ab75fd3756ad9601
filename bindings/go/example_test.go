// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"os"
	"path/filepath"
	"time"

	"sluice"
)

// A consumer listens, a producer connects. In practice these are two processes; no kernel module is needed.
func ExampleNewConsumer() {
	ctx := context.Background()
	directory, err := os.MkdirTemp("", "sluice")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(directory)
	path := filepath.Join(directory, "prices")
	listener, err := net.Listen("unixpacket", path)
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()

	go func() {
		producer, err := sluice.DialProducer(ctx, path, sluice.SocketOptions{})
		if err != nil {
			log.Fatal(err)
		}
		defer producer.Close()
		for _, price := range []string{"4711 99.50", "4712 7.25"} {
			if err := producer.Send(ctx, []byte(price)); err != nil {
				log.Fatal(err)
			}
		}
	}()

	connection, err := listener.Accept()
	if err != nil {
		log.Fatal(err)
	}
	consumer, err := sluice.NewConsumer(ctx, connection.(*net.UnixConn), sluice.SocketOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()
	for price, err := range consumer.Records(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", price)
	}
	// Output:
	// 4711 99.50
	// 4712 7.25
}

// A record is written in the memory of the ring, without a copy.
func ExampleProducer_Reserve() {
	ctx := context.Background()
	producer, err := sluice.OpenProducer("prices", sluice.RingOptions{Options: sluice.Options{Create: true}})
	if err != nil {
		log.Fatal(err)
	}
	defer producer.Close()
	room, err := producer.Reserve(ctx, 100)
	if err != nil {
		log.Fatal(err)
	}
	if err := room.Publish(copy(room.Bytes, "4711 99.50")); err != nil {
		log.Fatal(err)
	}
}

func ExampleOpenPipe() {
	reader, err := sluice.OpenPipe(context.Background(), "logs", sluice.Read, sluice.PipeOptions{Options: sluice.Options{Create: true}})
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Close()
	if _, err := io.Copy(os.Stdout, reader); err != nil {
		log.Fatal(err)
	}
}

func ExampleOpenBus() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	subscriber, err := sluice.OpenBus("events", sluice.Read, sluice.BusOptions{Options: sluice.Options{Create: true}})
	if err != nil {
		log.Fatal(err)
	}
	defer subscriber.Close()
	for message, err := range subscriber.Messages(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d lost, then: %s\n", message.Lost, message.Bytes)
	}
}

// A client and a server of a multicast bus.
func ExampleBus_Request() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	options := sluice.BusOptions{
		Options: sluice.Options{Create: true}, Mode: sluice.Multicast, Policies: sluice.Drop | sluice.Block,
	}
	serve := options
	serve.Policy = sluice.Block
	server, err := sluice.OpenBus("clock", sluice.Read|sluice.Write, serve)
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	go func() {
		for request, err := range server.Messages(context.Background()) {
			if err != nil {
				return
			}
			server.Reply(context.Background(), request, []byte(time.Now().String()))
		}
	}()

	ask := options
	ask.Policy, ask.Client = sluice.Drop, true
	client, err := sluice.OpenBus("clock", sluice.Read|sluice.Write, ask)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	reply, err := client.Request(ctx, []byte("now"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", reply.Bytes)
}

func ExampleMap_Set() {
	ctx := context.Background()
	config, err := sluice.OpenMap(ctx, "config", sluice.Read|sluice.Write, sluice.MapOptions{Options: sluice.Options{Create: true}})
	if err != nil {
		log.Fatal(err)
	}
	defer config.Close()
	entry, err := config.Get([]byte("color"))
	if errors.Is(err, fs.ErrNotExist) {
		_, err = config.Set(ctx, []byte("color"), []byte("green"), sluice.SetOptions{TTL: time.Hour})
	} else if err == nil {
		// Only if it was not set meanwhile.
		_, err = config.Set(ctx, []byte("color"), append(entry.Value, '!'), sluice.SetOptions{IfVersion: &entry.Version})
	}
	if err != nil {
		log.Fatal(err)
	}
}

// A watcher of a map learns of every change, or of the number of those that it has missed.
func ExampleMap_Watch() {
	ctx := context.Background()
	config, err := sluice.OpenMap(ctx, "config", sluice.Read, sluice.MapOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer config.Close()
	watcher, err := config.Watch(sluice.Now)
	if err != nil {
		log.Fatal(err)
	}
	for event, err := range watcher.Events(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		entry, err := config.Get(event.Key)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			log.Fatal(err)
		}
		fmt.Printf("%s %s: %s\n", event.Key, event.Kind, entry.Value)
	}
}

// Two rings make a connection, here over two paths.
func ExampleNewConn() {
	ctx := context.Background()
	producer, err := sluice.DialProducer(ctx, "/run/requests", sluice.SocketOptions{})
	if err != nil {
		log.Fatal(err)
	}
	consumer, err := sluice.DialConsumer(ctx, "/run/replies", sluice.SocketOptions{})
	if err != nil {
		log.Fatal(err)
	}
	var connection net.Conn = sluice.NewConn(consumer, producer)
	defer connection.Close()
	fmt.Fprintln(connection, "hello")
}

func ExampleOpenFeed() {
	feed, err := sluice.OpenFeed("")
	if err != nil {
		log.Fatal(err)
	}
	defer feed.Close()
	if err := feed.StartSimulator(time.Millisecond, 100, 64); err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for packet, err := range feed.Packets(ctx) {
		if err != nil {
			break
		}
		fmt.Println(packet.Sequence, packet.Lost, len(packet.Bytes))
	}
}

func ExampleList() {
	channels, err := sluice.List(sluice.Scope{})
	if err != nil {
		log.Fatal(err)
	}
	for _, channel := range channels {
		fmt.Println(channel.Kind, channel.Name, channel.Bytes)
	}
}
