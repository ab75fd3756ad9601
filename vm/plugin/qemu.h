/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The part of QEMU's plugin interface that the plugin needs, declared after its documentation, because Debian packages no header of
 * it. All functions are weak: which of them QEMU exports depends on its version, and the plugin chooses when it is loaded.
 */
#ifndef QEMU_H
#define QEMU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define WEAK __attribute__((weak))

/* Handles of QEMU. A block is translated as a whole and has one entry. */
struct qemu_plugin_tb;
struct qemu_plugin_insn;

/* What QEMU tells of itself, up to the last field that the plugin reads. */
struct qemu_info {
	const char *target;
	struct {
		int min;
		int cur;
	} version;
};

enum qemu_operation { QEMU_ADD };
enum qemu_registers { QEMU_NO_REGISTERS };

typedef void qemu_translated(uint64_t id, struct qemu_plugin_tb *block);
typedef void qemu_executed(unsigned int cpu, void *data);

/* Versions 0 to 6 of the interface. */
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, qemu_translated *callback) WEAK;
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block) WEAK;
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index) WEAK;
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *instruction) WEAK;
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *instruction) WEAK;
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *instruction, qemu_executed *callback,
					    enum qemu_registers registers, void *data) WEAK;

/* Up to version 2 it has only the first argument and returns a pointer to the bytes. */
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *instruction, void *bytes, size_t size) WEAK;
typedef const void *qemu_insn_bytes(const struct qemu_plugin_insn *instruction);

/* Versions 0 and 1. The addition is not atomic. */
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *instruction, enum qemu_operation operation, void *word,
						uint64_t operand) WEAK;

/* From version 2. */
int qemu_plugin_num_vcpus(void) WEAK;

#endif
