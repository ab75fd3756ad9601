// SPDX-License-Identifier: MIT OR Apache-2.0

package sluice

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Device rings: docs/abi/ring-device.md. A side sleeps with the poller of the Go runtime, and not in SLUICE_RING_WAIT, which would block
// a thread.

// RingOptions are the options of a ring with a name.
type RingOptions struct {
	Options
	// Node, if not nil, is the memory node of the pages of a ring that is created.
	Node *int
	// Spin is the time for which a call spins before it blocks. 0 means DefaultSpin; a negative time means not at all.
	Spin time.Duration
}

// OpenProducer opens a ring with a name as its producer, without waiting for a consumer. EBUSY: the ring has a producer, or had one in its
// present session.
func OpenProducer(name string, options RingOptions) (*Producer, error) {
	s, err := options.openSide(name, openWrite)
	if err != nil {
		return nil, err
	}
	return newProducer(s, options.Spin), nil
}

// OpenConsumer opens a ring with a name as its consumer, without waiting for a producer. EBUSY: the ring has a consumer, or had one in its
// present session.
func OpenConsumer(name string, options RingOptions) (*Consumer, error) {
	s, err := options.openSide(name, openRead)
	if err != nil {
		return nil, err
	}
	return newConsumer(s, options.Spin), nil
}

func (o RingOptions) openSide(name string, role uint32) (side, error) {
	params := ringParamsABI{size: sizeOf[ringParamsABI](), node: ringNodeAny}
	if o.Node != nil {
		params.node = int32(*o.Node)
	}
	endpoint, err := o.openPoller(KindRing, name, role, unsafe.Pointer(&params), hintsOfChannel)
	if err != nil {
		return side{}, err
	}
	s := side{poller: endpoint, isDevice: true}
	if err := s.mapDevice(role == openWrite); err != nil {
		unmap(s.mappings)
		endpoint.Close()
		return side{}, failure("map ring "+name, err, hintsOfChannel)
	}
	s.announce(s.own)
	return s, nil
}

// mapDevice maps the three regions of an endpoint.
func (s *side) mapDevice(isProducer bool) error {
	info := ringInfoABI{size: sizeOf[ringInfoABI]()}
	if _, err := s.poller.ioctl("get the state of ", ringInfo, unsafe.Pointer(&info)); err != nil {
		return err
	}
	if err := s.poller.control(func(fd uintptr) { s.fd = int(fd) }); err != nil {
		return err
	}
	s.capacity = info.capacity
	page := uintptr(os.Getpagesize())
	producer, err := s.mapRegion(ringMmapProducer, page, isProducer)
	if err != nil {
		return err
	}
	consumer, err := s.mapRegion(ringMmapConsumer, page, !isProducer)
	if err != nil {
		return err
	}
	s.own, s.peer = (*ringCtrlABI)(producer), (*ringCtrlABI)(consumer)
	if !isProducer {
		s.own, s.peer = s.peer, s.own
	}
	s.data, err = s.mapRegion(ringMmapData, uintptr(2*s.capacity), isProducer)
	return err
}

// mapRegion maps and populates a region: a fault that fails later would be a SIGBUS, which a peer can cause.
func (s *side) mapRegion(offset int64, length uintptr, isOwn bool) (unsafe.Pointer, error) {
	protection, populate := unix.PROT_READ, unix.MADV_POPULATE_READ
	if isOwn {
		protection, populate = unix.PROT_READ|unix.PROT_WRITE, unix.MADV_POPULATE_WRITE
	}
	start, err := s.addMapping(s.fd, offset, length, protection, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return start, unix.Madvise(unsafe.Slice((*byte)(start), length), populate)
}

// wakeOnDevice wakes the peer, and returns whether its wait_flags are answered.
func (s *side) wakeOnDevice(flags uint32) bool {
	if flags&ringWakeFD == 0 {
		return true // a device ring has no other method
	}
	_, errno := ioctl(uintptr(s.fd), ringWake, nil)
	return errno == 0 || errno == syscall.EPIPE
}
