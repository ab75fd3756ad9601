// SPDX-License-Identifier: MIT OR Apache-2.0

// Package sluice has the channels of Sluice for Go, without cgo: pipes, rings, buses, maps and feeds between the processes of one cgroup,
// through the kernel module, and rings between any two processes, without it. It implements docs/abi/ for 64-bit machines.
//
// Each kind has a structure of options and a function that opens an endpoint:
//
//	| kind | carries                    | opened by                                      |
//	|------|----------------------------|------------------------------------------------|
//	| pipe | bytes                      | [OpenPipe]                                     |
//	| ring | records                    | [OpenProducer], [OpenConsumer]                 |
//	|      | the same, over a socket    | [DialProducer], [NewProducer], [DialConsumer]… |
//	| bus  | messages                   | [OpenBus]                                      |
//	| map  | keys and values            | [OpenMap]                                      |
//	| feed | packets of a kernel module | [OpenFeed]                                     |
//
// A call that waits has a context as its first parameter, whose end ends the wait at once. A call that need not wait does not check its
// context: with a context that has ended a call does what it can without waiting. A call that fails with the cause of its context has had
// no effect, unless its documentation names one. See [Error] for errors. Bytes that a call returns in place are valid until the next call on
// the same endpoint.
package sluice
