# SPDX-License-Identifier: GPL-2.0
stub := stub.o
