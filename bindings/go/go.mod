// SPDX-License-Identifier: MIT OR Apache-2.0

module sluice

go 1.23.0

require golang.org/x/sys v0.30.0
