// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"context"
	"io/fs"
	"runtime"
	"syscall"
	"unsafe"
)

// ChannelInfo is the state that is common to all kinds of channels.
type ChannelInfo struct {
	Kind        Kind
	Name        string
	Persistent  bool
	Permissions fs.FileMode
	UID, GID    uint32
	// Readers and Writers are the endpoints open for reading and for writing.
	Readers, Writers uint32
	// Capacity is in bytes. Bytes is what is written and not yet read.
	Capacity, Bytes uint64
	// Messages, TotalBytes and Lost are counts since the creation of the channel.
	Messages, TotalBytes, Lost uint64
	// Lag is the number of messages not received, or of changes not stored.
	Lag uint64
	// Waiting is the number of calls that sleep on the channel.
	Waiting uint32
}

func channelInfoOf(i *channelInfoABI) ChannelInfo {
	return ChannelInfo{
		Kind(i.kind), nameOf(&i.name), i.flags&channelPersistent != 0, fs.FileMode(i.mode), i.uid, i.gid, i.readers, i.writers, i.capacity,
		i.bytes, i.messages, i.totalBytes, i.lost, i.lag, i.waiting,
	}
}

// List returns the channels of a scope in the order of kind and name.
func List(scope Scope) (channels []ChannelInfo, err error) {
	defer runtime.KeepAlive(scope.directory)
	var last channelInfoABI
	for {
		var entries [listMax]channelInfoABI
		call := listABI{
			size: sizeOf[listABI](), kind: last.kind, scopeFd: scope.fd(), name: last.name, entries: unsafe.Pointer(&entries), count: listMax,
			entrySize: sizeOf[channelInfoABI](),
		}
		if _, err := onCtl("list channels", ctlList, unsafe.Pointer(&call)); err != nil {
			return nil, err
		}
		for i := range entries[:call.count] {
			channels = append(channels, channelInfoOf(&entries[i]))
		}
		if call.count < listMax {
			return channels, nil
		}
		last = entries[listMax-1]
	}
}

// Info returns the state of a channel.
func Info(kind Kind, name string, scope Scope) (ChannelInfo, error) {
	defer runtime.KeepAlive(scope.directory)
	info := channelInfoABI{size: sizeOf[channelInfoABI]()}
	call := infoABI{size: sizeOf[infoABI](), kind: uint32(kind), scopeFd: scope.fd(), info: unsafe.Pointer(&info)}
	op := "get the state of " + kind.String() + " " + name
	if err := setName(&call.name, op, name); err != nil {
		return ChannelInfo{}, err
	}
	_, err := onCtl(op, ctlInfo, unsafe.Pointer(&call))
	return channelInfoOf(&info), err
}

// Remove removes the name of a channel. Endpoints stay connected. A persistent channel without endpoints is freed. Of a durable map it
// deletes what is stored, and waits for sluiced to do so: if the context ends first, sluiced does so later.
func Remove(ctx context.Context, kind Kind, name string, scope Scope) error {
	return remove(ctx, "remove ", ctlUnlink, kind, name, scope)
}

// Destroy removes the name of a channel, and ends the channel: calls on its endpoints fail. Of a durable map it waits as [Remove] does.
func Destroy(ctx context.Context, kind Kind, name string, scope Scope) error {
	return remove(ctx, "destroy ", ctlDestroy, kind, name, scope)
}

func remove(ctx context.Context, verb string, command uint32, kind Kind, name string, scope Scope) error {
	if kind != KindMap {
		ctx = context.Background() // the call does not wait
	}
	call := func() (struct{}, error) { return struct{}{}, removeNow(verb, command, kind, name, scope) }
	_, err := detached(ctx, call, func(struct{}) {})
	return err
}

func removeNow(verb string, command uint32, kind Kind, name string, scope Scope) error {
	defer runtime.KeepAlive(scope.directory)
	call := unlinkABI{size: sizeOf[unlinkABI](), kind: uint32(kind), scopeFd: scope.fd()}
	op := verb + kind.String() + " " + name
	if err := setName(&call.name, op, name); err != nil {
		return err
	}
	_, err := onCtl(op, command, unsafe.Pointer(&call))
	if isErrno(err, syscall.ENOENT) {
		return &Error{op, syscall.ENOENT, "the name is free"}
	}
	return err
}

// Features is what the module supports.
type Features struct {
	ABI   uint32
	kinds uint64
}

// SupportedABI is the ABI for which this package is written. Do not use a module with another one.
const SupportedABI = abiVersion

// Has returns whether channels of a kind can be opened.
func (f Features) Has(kind Kind) bool { return f.kinds>>kind&1 != 0 }

// GetFeatures returns what the module supports. It fails if the module is not loaded.
func GetFeatures() (Features, error) {
	call := featuresABI{size: sizeOf[featuresABI]()}
	_, err := onCtl("get the features of the module", ctlFeatures, unsafe.Pointer(&call))
	return Features{call.abi, call.kinds}, err
}

// Usage is what the limits of channels count. A limit of 1<<64 - 1 is none.
type Usage struct {
	ScopeChannels, ScopeMaxChannels, ScopeBytes, ScopeMaxBytes uint64
	UserChannels, UserMaxChannels, UserBytes, UserMaxBytes     uint64
}

// GetUsage returns what the limits count in a scope, and of the caller.
func GetUsage(scope Scope) (Usage, error) {
	defer runtime.KeepAlive(scope.directory)
	u := usageABI{size: sizeOf[usageABI](), scopeFd: scope.fd()}
	_, err := onCtl("get the usage", ctlUsage, unsafe.Pointer(&u))
	return Usage{
		u.scopeChannels, u.scopeChannelsMax, u.scopeBytes, u.scopeBytesMax, u.userChannels, u.userChannelsMax, u.userBytes, u.userBytesMax,
	}, err
}
