// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A plugin for qemu-system-x86_64 that counts the instructions which the guest executes, those of its programs and those of its
 * kernel: vm/run --count loads it. When the guest executes the mark, a no-operation instruction that no compiler generates, the
 * plugin appends a line with both counts to the file of its argument "out". sluice-bench executes the mark before and after a
 * section and subtracts; the mark itself is not counted.
 *
 * QEMU executes the processors of the guest in turn, in one thread (vm/run sees to it), so nothing here is atomic. QEMU before
 * version 9 adds inline. Newer ones call a function for each instruction: their inline additions are to counters of each processor,
 * and those crash QEMU 10.0 if one thread executes several processors.
 *
 * It is loaded into QEMU, whose licence is the GPL, and contains none of its code. The MIT licence, one of the two to choose from, is
 * compatible with the GPL.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "qemu.h"

#define LONGEST 15 /* bytes of an instruction */
#define KNOWN_VERSION 6

enum { USER, KERNEL, MODES };

/* nopl 0x69756c53(%rax,%rax,1): the displacement is "Slui". */
static const unsigned char mark[] = {0x0f, 0x1f, 0x84, 0x00, 'S', 'l', 'u', 'i'};

EXPORT int qemu_plugin_version;

static int qemu_version;
static uint64_t counts[MODES];
static int out = -1;

/* A string instruction with a repeat prefix, such as rep movsb, is executed once for each element in QEMU. */
static struct {
	uint64_t address;
	uint64_t total; /* of all modes, after it was executed last */
} repeat;

/* QEMU reads the version before it calls anything, and refuses one that it does not support. */
__attribute__((constructor)) static void choose_version(void)
{
	qemu_plugin_version = qemu_plugin_num_vcpus ? 2 : 1;
}

static void on_execution(unsigned int cpu, void *data)
{
	uint64_t *count = data;

	(void)cpu;
	++*count;
}

static void count_executions(struct qemu_plugin_insn *instruction, int mode)
{
	if (qemu_plugin_version == 1)
		qemu_plugin_register_vcpu_insn_exec_inline(instruction, QEMU_ADD, &counts[mode], 1);
	else
		qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_execution, QEMU_NO_REGISTERS, &counts[mode]);
}

static void on_mark(unsigned int cpu, void *data)
{
	char line[64];
	int length = snprintf(line, sizeof(line), "%" PRIu64 " %" PRIu64 "\n", counts[USER], counts[KERNEL]);

	(void)cpu;
	(void)data;
	/* The benchmark notices that the line is missing. */
	if (write(out, line, length) != length)
		perror("sluice: the plugin cannot write the counts");
}

static uint64_t address_of(const struct qemu_plugin_insn *instruction)
{
	return qemu_plugin_insn_vaddr(instruction);
}

/* The kernel has the upper half of the addresses. */
static int mode_of(uint64_t address)
{
	return address >> 63 ? KERNEL : USER;
}

/* Counts a repeated string instruction once, as a processor does: an execution after which nothing else was executed continues. */
static void on_repeat(unsigned int cpu, void *data)
{
	uint64_t address = (uint64_t)data;
	uint64_t total = counts[USER] + counts[KERNEL];

	(void)cpu;
	if (address == repeat.address && total == repeat.total)
		return;
	counts[mode_of(address)]++;
	repeat.address = address;
	repeat.total = total + 1;
}

static size_t copy_bytes(const struct qemu_plugin_insn *instruction, unsigned char *bytes)
{
	size_t size = qemu_plugin_insn_size(instruction);
	void *function = (void *)qemu_plugin_insn_data;

	if (size > LONGEST)
		size = LONGEST;
	if (qemu_version >= 3)
		return qemu_plugin_insn_data(instruction, bytes, size);
	memcpy(bytes, ((qemu_insn_bytes *)function)(instruction), size);
	return size;
}

static bool is_mark(const unsigned char *bytes, size_t size)
{
	return size == sizeof(mark) && !memcmp(bytes, mark, size);
}

static bool is_prefix(unsigned char byte)
{
	/* Segments, operand and address size, and REX. */
	return (byte & 0xe7) == 0x26 || (byte >= 0x64 && byte <= 0x67) || (byte & 0xf0) == 0x40;
}

static bool is_repeat_prefix(unsigned char byte)
{
	return byte == 0xf2 || byte == 0xf3;
}

/* ins, outs, movs, cmps, stos, lods and scas. */
static bool is_string_opcode(unsigned char byte)
{
	return (byte >= 0x6c && byte <= 0x6f) || (byte >= 0xa4 && byte <= 0xa7) || (byte >= 0xaa && byte <= 0xaf);
}

static bool is_repeated_string(const unsigned char *bytes, size_t size)
{
	bool repeated = false;
	size_t at = 0;

	for (; at < size && (is_prefix(bytes[at]) || is_repeat_prefix(bytes[at])); at++)
		repeated |= is_repeat_prefix(bytes[at]);
	return repeated && at < size && is_string_opcode(bytes[at]);
}

static void instrument(struct qemu_plugin_insn *instruction)
{
	unsigned char bytes[LONGEST];
	size_t size = copy_bytes(instruction, bytes);
	uint64_t address = address_of(instruction);

	if (is_mark(bytes, size))
		qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_mark, QEMU_NO_REGISTERS, NULL);
	else if (is_repeated_string(bytes, size))
		qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_repeat, QEMU_NO_REGISTERS, (void *)address);
	else
		count_executions(instruction, mode_of(address));
}

static void on_translation(uint64_t id, struct qemu_plugin_tb *block)
{
	size_t number;

	(void)id;
	for (number = 0; number < qemu_plugin_tb_n_insns(block); number++)
		instrument(qemu_plugin_tb_get_insn(block, number));
}

static int fail(const char *reason)
{
	fprintf(stderr, "sluice: the plugin that counts instructions %s\n", reason);
	return -1;
}

/* Opens the file of the argument "out=FILE". */
static int open_out(int count, char **arguments)
{
	static const char name[] = "out=";

	if (count != 1 || strncmp(arguments[0], name, strlen(name)))
		return fail("has one argument, out=FILE");
	out = open(arguments[0] + strlen(name), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	return out < 0 ? fail("cannot open its file") : 0;
}

EXPORT int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int count, char **arguments)
{
	qemu_version = info->version.cur;
	if (info->version.min > KNOWN_VERSION)
		return fail("does not know the interface of this QEMU, which is too new");
	if (strcmp(info->target, "x86_64"))
		return fail("knows only instructions of x86_64");
	if (open_out(count, arguments))
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return 0;
}
