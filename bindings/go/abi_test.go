// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"unsafe"
)

// The constants of abi.go, by their C names.
var constants = map[string]uint64{
	"SLUICE_KIND_PIPE":           kindPipe,
	"SLUICE_KIND_RING":           kindRing,
	"SLUICE_KIND_FEED":           kindFeed,
	"SLUICE_KIND_BUS":            kindBus,
	"SLUICE_KIND_MAP":            kindMap,
	"SLUICE_ABI":                 abiVersion,
	"SLUICE_NAME_SIZE":           nameSize,
	"SLUICE_SCOPE_SELF":          bitsOf(scopeSelf),
	"SLUICE_SCOPE_ROOT":          bitsOf(scopeRoot),
	"SLUICE_LIST_MAX":            listMax,
	"SLUICE_OPEN_READ":           openRead,
	"SLUICE_OPEN_WRITE":          openWrite,
	"SLUICE_OPEN_CREATE":         openCreate,
	"SLUICE_OPEN_EXCL":           openExcl,
	"SLUICE_OPEN_PERSIST":        openPersist,
	"SLUICE_OPEN_NONBLOCK":       openNonblock,
	"SLUICE_OPEN_ANY_OWNER":      openAnyOwner,
	"SLUICE_CHANNEL_PERSISTENT":  channelPersistent,
	"SLUICE_RING_VERSION":        ringVersion,
	"SLUICE_RING_CAPACITY_MIN":   ringCapacityMin,
	"SLUICE_RING_CAPACITY_MAX":   ringCapacityMax,
	"SLUICE_RING_RECORD_READY":   ringRecordReady,
	"SLUICE_RING_WAKE_FUTEX":     ringWakeFutex,
	"SLUICE_RING_WAKE_FD":        ringWakeFD,
	"SLUICE_RING_NEED_FENCE":     ringNeedFence,
	"SLUICE_RING_WAIT_SEQ_SHIFT": waitSeqShift,
	"SLUICE_RING_CLOSED":         ringClosed,
	"SLUICE_RING_DIED":           ringDied,
	"SLUICE_RING_DESTROYED":      ringDestroyed,
	"SLUICE_RING_PRODUCER":       ringProducer,
	"SLUICE_RING_CONSUMER":       ringConsumer,
	"SLUICE_RING_F_MEMBARRIER":   ringFMembarrier,
	"SLUICE_RING_F_UNSEALED":     ringFUnsealed,
	"SLUICE_RING_MAGIC":          ringMagic,
	"SLUICE_RING_MMAP_PRODUCER":  ringMmapProducer,
	"SLUICE_RING_MMAP_CONSUMER":  ringMmapConsumer,
	"SLUICE_RING_MMAP_DATA":      ringMmapData,
	"SLUICE_RING_NODE_ANY":       bitsOf(ringNodeAny),
	"SLUICE_FEED_PACKET_MAX":     feedPacketMax,
	"SLUICE_FEED_CPU_ANY":        bitsOf(feedCPUAny),
	"SLUICE_FEED_CONSUMER_READS": feedConsumerReads,
	"SLUICE_BUS_BROADCAST":       busBroadcast,
	"SLUICE_BUS_MULTICAST":       busMulticast,
	"SLUICE_BUS_UNICAST":         busUnicast,
	"SLUICE_BUS_DROP":            busDrop,
	"SLUICE_BUS_BLOCK":           busBlock,
	"SLUICE_BUS_EVICT":           busEvict,
	"SLUICE_BUS_MONITOR":         busMonitor,
	"SLUICE_BUS_ADDRESSED":       busAddressed,
	"SLUICE_BUS_FRAMED":          busFramed,
	"SLUICE_BUS_BATCHED":         busBatched,
	"SLUICE_BUS_SUBSCRIBERS_MAX": busSubscribersMax,
	"SLUICE_MAP_KEY_MAX":         mapKeyMax,
	"SLUICE_MAP_VALUE_MAX":       mapValueMax,
	"SLUICE_MAP_DURABLE":         mapDurable,
	"SLUICE_MAP_INTERVAL":        mapInterval,
	"SLUICE_MAP_REFUSE":          mapRefuse,
	"SLUICE_MAP_IF_VERSION":      mapIfVersion,
	"SLUICE_MAP_NOWAIT":          mapNowait,
	"SLUICE_MAP_KEYS":            mapKeys,
	"SLUICE_MAP_NOW":             mapNow,
	"SLUICE_MAP_CREATED":         mapCreated,
	"SLUICE_MAP_UPDATED":         mapUpdated,
	"SLUICE_MAP_DELETED":         mapDeleted,
	"SLUICE_MAP_EXPIRED":         mapExpired,
}

func bitsOf(n int64) uint64 { return uint64(n) }

var ioctls = map[string]uint64{
	"SLUICE_CTL_OPEN":          ctlOpen,
	"SLUICE_CTL_UNLINK":        ctlUnlink,
	"SLUICE_CTL_INFO":          ctlInfo,
	"SLUICE_CTL_LIST":          ctlList,
	"SLUICE_CTL_FEATURES":      ctlFeatures,
	"SLUICE_CTL_DESTROY":       ctlDestroy,
	"SLUICE_ENDPOINT_INFO":     endpointInfo,
	"SLUICE_CTL_USAGE":         ctlUsage,
	"SLUICE_PIPE_SET_CAPACITY": pipeSetCapacity,
	"SLUICE_PIPE_INFO":         pipeInfo,
	"SLUICE_RING_WAKE":         ringWake,
	"SLUICE_RING_INFO":         ringInfo,
	"SLUICE_FEED_START":        feedStart,
	"SLUICE_FEED_STOP":         feedStop,
	"SLUICE_FEED_CLAIM":        feedClaim,
	"SLUICE_BUS_SET_FORMAT":    busSetFormat,
	"SLUICE_BUS_INFO":          busInfo,
	"SLUICE_BUS_SUBSCRIBERS":   busSubscribers,
	"SLUICE_BUS_TURN":          busTurn,
	"SLUICE_MAP_GET":           mapGet,
	"SLUICE_MAP_SET":           mapSet,
	"SLUICE_MAP_DELETE":        mapDelete,
	"SLUICE_MAP_DUMP":          mapDump,
	"SLUICE_MAP_WATCH":         mapWatch,
	"SLUICE_MAP_INFO":          mapInfo,
	"SLUICE_MAP_SYNC":          mapSync,
}

var structures = map[string]reflect.Type{
	"sluice_setting":             reflect.TypeOf(settingABI{}),
	"sluice_pipe_info":           reflect.TypeOf(pipeInfoABI{}),
	"sluice_open":                reflect.TypeOf(openABI{}),
	"sluice_unlink":              reflect.TypeOf(unlinkABI{}),
	"sluice_channel_info":        reflect.TypeOf(channelInfoABI{}),
	"sluice_info":                reflect.TypeOf(infoABI{}),
	"sluice_list":                reflect.TypeOf(listABI{}),
	"sluice_features":            reflect.TypeOf(featuresABI{}),
	"sluice_usage":               reflect.TypeOf(usageABI{}),
	"sluice_ring_header":         reflect.TypeOf(ringHeaderABI{}),
	"sluice_ring_ctrl":           reflect.TypeOf(ringCtrlABI{}),
	"sluice_ring_hello":          reflect.TypeOf(ringHelloABI{}),
	"sluice_ring_reply":          reflect.TypeOf(ringReplyABI{}),
	"sluice_ring_params":         reflect.TypeOf(ringParamsABI{}),
	"sluice_ring_info":           reflect.TypeOf(ringInfoABI{}),
	"sluice_feed_packet":         reflect.TypeOf(feedPacketABI{}),
	"sluice_feed_start":          reflect.TypeOf(feedStartABI{}),
	"sluice_bus_params":          reflect.TypeOf(busParamsABI{}),
	"sluice_bus_frame":           reflect.TypeOf(busFrameABI{}),
	"sluice_bus_info":            reflect.TypeOf(busInfoABI{}),
	"sluice_bus_subscriber_info": reflect.TypeOf(busSubscriberInfoABI{}),
	"sluice_bus_subscribers":     reflect.TypeOf(busSubscribersABI{}),
	"sluice_map_params":          reflect.TypeOf(mapParamsABI{}),
	"sluice_map_op":              reflect.TypeOf(mapOpABI{}),
	"sluice_map_cursor":          reflect.TypeOf(mapCursorABI{}),
	"sluice_map_record":          reflect.TypeOf(mapRecordABI{}),
	"sluice_map_dump":            reflect.TypeOf(mapDumpABI{}),
	"sluice_map_event":           reflect.TypeOf(mapEventABI{}),
	"sluice_map_info":            reflect.TypeOf(mapInfoABI{}),
}

// description is the part of spec/abi.json that this package uses.
type description struct {
	Constants map[string]json.Number `json:"constants"`
	Ioctls    map[string]struct {
		Code     json.Number `json:"code"`
		Argument string      `json:"argument"`
	} `json:"ioctls"`
	Structures map[string]struct {
		Size   uintptr `json:"size"`
		Fields []field `json:"fields"`
	} `json:"structures"`
}

type field struct {
	Name   string  `json:"name"`
	Offset uintptr `json:"offset"`
	Type   string  `json:"type"`
	Count  int     `json:"count"`
}

func readDescription(t *testing.T) (d description) {
	if runsAlone() {
		t.Skip("this binary runs without the sources")
	}
	text, err := os.ReadFile("../../spec/abi.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// runsAlone returns whether the binary of the tests was copied to a machine without the sources.
func runsAlone() bool {
	_, err := os.Stat("abi.go")
	return err != nil
}

func TestConstants(t *testing.T) {
	d := readDescription(t)
	for name, value := range constants {
		compareNumber(t, name, value, d.Constants[name])
	}
	for name, value := range ioctls {
		compareNumber(t, name, value, d.Ioctls[name].Code)
	}
}

func compareNumber(t *testing.T, name string, value uint64, number json.Number) {
	expected, err := parseNumber(number)
	if err != nil {
		t.Errorf("%s: spec/abi.json has %q", name, number)
	} else if value != expected {
		t.Errorf("%s is %#x, and %#x in spec/abi.json", name, value, expected)
	}
}

func parseNumber(number json.Number) (uint64, error) {
	var unsigned uint64
	if err := json.Unmarshal([]byte(number), &unsigned); err == nil {
		return unsigned, nil
	}
	signed, err := number.Int64()
	return uint64(signed), err
}

func TestStructures(t *testing.T) {
	d := readDescription(t)
	for name, structure := range structures {
		expected, ok := d.Structures[name]
		if !ok {
			t.Errorf("%s is not in spec/abi.json", name)
			continue
		}
		if structure.Size() != expected.Size || structure.NumField() != len(expected.Fields) {
			t.Errorf("%s has %d bytes and %d fields, and %d and %d in spec/abi.json", name, structure.Size(), structure.NumField(),
				expected.Size, len(expected.Fields))
			continue
		}
		for i, f := range expected.Fields {
			compareField(t, name, structure.Field(i), f)
		}
	}
}

func compareField(t *testing.T, structure string, f reflect.StructField, expected field) {
	got := field{f.Name, f.Offset, "", 1}
	element := f.Type
	if element.Kind() == reflect.Array {
		got.Count, element = element.Len(), element.Elem()
	}
	got.Type = typeName(element)
	expected.Name = strings.ReplaceAll(expected.Name, "_", "")
	if expected.Count == 0 {
		expected.Count = 1
	}
	if strings.HasPrefix(expected.Type, "struct ") {
		expected.Type = strings.TrimPrefix(expected.Type, "struct ")
	}
	if !strings.EqualFold(got.Name, expected.Name) || got.Offset != expected.Offset || got.Type != expected.Type || got.Count != expected.Count {
		t.Errorf("%s: %+v, and %+v in spec/abi.json", structure, got, expected)
	}
}

// typeName returns the name of a type in spec/abi.json. Addresses are u64.
func typeName(goType reflect.Type) string {
	for name, structure := range structures {
		if structure == goType {
			return name
		}
	}
	if goType == reflect.TypeOf(unsafe.Pointer(nil)) {
		return "u64"
	}
	return map[reflect.Kind]string{
		reflect.Uint8: "u8", reflect.Uint16: "u16", reflect.Uint32: "u32", reflect.Uint64: "u64", reflect.Int32: "s32",
	}[goType.Kind()]
}
