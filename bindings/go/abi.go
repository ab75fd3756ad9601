// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import "unsafe"

// The numbers and structures of docs/abi/. abi_test.go compares them with spec/abi.json by their C names.

const (
	kindPipe = 1
	kindRing = 2
	kindFeed = 3
	kindBus  = 4
	kindMap  = 5

	abiVersion = 1

	nameSize  = 64
	scopeSelf = -1
	scopeRoot = -2
	listMax   = 64

	openRead     = 0x01
	openWrite    = 0x02
	openCreate   = 0x04
	openExcl     = 0x08
	openPersist  = 0x10
	openNonblock = 0x20
	openAnyOwner = 0x40

	channelPersistent = 0x01
)

const (
	ringVersion     = 1
	ringCapacityMin = 0x1000
	ringCapacityMax = 0x10000000
	ringRecordReady = 1

	ringWakeFutex = 0x01
	ringWakeFD    = 0x02
	ringNeedFence = 0x04
	waitSeqShift  = 3

	ringClosed    = 1
	ringDied      = 2
	ringDestroyed = 3

	ringProducer = 1
	ringConsumer = 2

	ringFMembarrier = 0x01
	ringFUnsealed   = 0x02

	ringMagic = 0x474e5253

	ringMmapProducer = 0x000000
	ringMmapConsumer = 0x100000
	ringMmapData     = 0x200000

	ringNodeAny = -1
)

const (
	feedPacketMax     = 4096
	feedCPUAny        = -1
	feedConsumerReads = 1
)

const (
	busBroadcast = 0
	busMulticast = 1
	busUnicast   = 2

	busDrop  = 0x01
	busBlock = 0x02
	busEvict = 0x04

	busMonitor   = 0x04
	busAddressed = 0x08

	busFramed  = 1
	busBatched = 2

	busSubscribersMax = 64
)

const (
	mapKeyMax   = 4096
	mapValueMax = 0x100000

	mapDurable  = 0x01
	mapInterval = 0x02
	mapRefuse   = 0x04

	mapIfVersion = 0x01
	mapNowait    = 0x02

	mapKeys = 0x01
	mapNow  = 0xffffffffffffffff

	mapCreated = 1
	mapUpdated = 2
	mapDeleted = 3
	mapExpired = 4
)

// The kernel compares only the lower 16 bits of a command, so these values work on every machine.
const (
	ctlOpen         = 0x4068C710
	ctlUnlink       = 0x4050C711
	ctlInfo         = 0x4060C712
	ctlList         = 0xC060C713
	ctlFeatures     = 0xC018C714
	ctlDestroy      = 0x4050C715
	endpointInfo    = 0xC098C717
	ctlUsage        = 0xC050C718
	pipeSetCapacity = 0xC010C700
	pipeInfo        = 0xC040C702
	ringWake        = 0x0000C720
	ringInfo        = 0xC030C723
	feedStart       = 0x4020C730
	feedStop        = 0x0000C731
	feedClaim       = 0x4010C734
	busSetFormat    = 0xC010C740
	busInfo         = 0xC078C742
	busSubscribers  = 0xC020C744
	busTurn         = 0xC010C745
	mapGet          = 0xC030C750
	mapSet          = 0xC030C751
	mapDelete       = 0xC030C752
	mapDump         = 0xC030C754
	mapWatch        = 0xC010C755
	mapInfo         = 0xC078C756
	mapSync         = 0xC010C757
)

// Addresses are fields of type unsafe.Pointer, so that the garbage collector sees them. They have the 64 bits of the ABI: this array has
// a valid length on 64-bit machines only.
var _ [unsafe.Sizeof(uintptr(0)) - 8]struct{}

type settingABI struct {
	size, flags uint32
	value       uint64
}

type pipeInfoABI struct {
	size, readers, writers, reserved                uint32
	capacity, bytes, spinLimitNs                    uint64
	pagesAllocated, pagesSplicedIn, pagesSplicedOut uint64
}

type openABI struct {
	size, kind, flags uint32
	scopeFd           int32
	name              [nameSize]byte
	mode, reserved    uint32
	capacity          uint64
	params            unsafe.Pointer
}

type unlinkABI struct {
	size, kind, flags uint32
	scopeFd           int32
	name              [nameSize]byte
}

type channelInfoABI struct {
	size, kind, flags, mode                          uint32
	name                                             [nameSize]byte
	uid, gid, readers, writers                       uint32
	capacity, bytes, messages, totalBytes, lost, lag uint64
	waiting, reserved                                uint32
}

type infoABI struct {
	size, kind, flags uint32
	scopeFd           int32
	name              [nameSize]byte
	info, state       unsafe.Pointer
}

type listABI struct {
	size, kind, flags uint32
	scopeFd           int32
	name              [nameSize]byte
	entries           unsafe.Pointer
	count, entrySize  uint32
}

type featuresABI struct {
	size, abi        uint32
	kinds, openFlags uint64
}

type usageABI struct {
	size, flags                                                uint32
	scopeFd                                                    int32
	reserved                                                   uint32
	scopeChannels, scopeChannelsMax, scopeBytes, scopeBytesMax uint64
	userChannels, userChannelsMax, userBytes, userBytesMax     uint64
}

type ringHeaderABI struct {
	length, state uint32
}

type ringCtrlABI struct {
	pos                                           uint64
	reserved0                                     [15]uint64
	waitFlags, wakeSeq, closed, wakeAck, features uint32
	reserved1                                     [27]uint32
}

type ringHelloABI struct {
	magic, size, version, role, flags, data uint32
	capacity                                uint64
}

type ringReplyABI struct {
	magic, error uint32
}

type ringParamsABI struct {
	size, flags uint32
	node        int32
	reserved    uint32
}

type ringInfoABI struct {
	size, role, producer, consumer uint32
	node                           int32
	reserved                       uint32
	capacity, published, released  uint64
}

type feedPacketABI struct {
	sequence, lost, timeNs, cycles uint64
}

type feedStartABI struct {
	size, flags       uint32
	intervalNs, count uint64
	length            uint32
	cpu               int32
}

type busParamsABI struct {
	size, flags, mode, policies, policy, format uint32
	limit                                       uint64
}

type busFrameABI struct {
	size, length                   uint32
	target, sender, sequence, lost uint64
	pid, uid, gid, reserved        uint32
	tag                            uint64
}

type busInfoABI struct {
	size, flags, mode, policies            uint32
	capacity, messageMax                   uint64
	subscribers, senders                   uint32
	sent, unsubscribed, lost, evicted, lag uint64
	id                                     uint64
	policy, format                         uint32
	ownLost, ownLag, spinLimitNs           uint64
}

type busSubscriberInfoABI struct {
	id            uint64
	policy, flags uint32
	lag, lost     uint64
	pid, uid      uint32
}

type busSubscribersABI struct {
	size, count         uint32
	after               uint64
	entries             unsafe.Pointer
	entrySize, reserved uint32
}

type mapParamsABI struct {
	size, flags                          uint32
	entries                              uint64
	events, deadlineMs, intervalMs, cell uint32
	table                                uint64
}

type mapOpABI struct {
	size, flags            uint32
	key, value             unsafe.Pointer
	keyLength, valueLength uint32
	version, ttlNs         uint64
}

type mapCursorABI struct {
	since, id       uint64
	shard, reserved uint32
}

type mapRecordABI struct {
	size, valueLength uint32
	version, ttlNs    uint64
	keyLength, header uint16
	reserved          uint32
}

type mapDumpABI struct {
	size, flags   uint32
	records       unsafe.Pointer
	length, count uint32
	cursor        mapCursorABI
}

type mapEventABI struct {
	size                      uint32
	change, keyLength         uint16
	sequence, version, missed uint64
}

type mapInfoABI struct {
	size, flags                                                     uint32
	capacity, bytes, entriesMax, entries, sequence, expired, missed uint64
	events, watchers                                                uint32
	watched, stored, pending                                        uint64
	deadlineMs, intervalMs, error, cell                             uint32
	table                                                           uint64
}
