/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the files of the peer have in common. */
#ifndef PEER_H
#define PEER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "sluice.h"

/* A command: its words. */
struct command {
	char *words[64];
	int count;
};

const char *word_of(const struct command *command, int place);
uint64_t number_of(const struct command *command, int place);
/* In milliseconds. Without the word the call waits. */
int time_of(const struct command *command, int place);
int has_setting(const struct command *command, const char *name);
/* The text after NAME=, or NULL. */
const char *setting(const struct command *command, const char *name);
uint64_t setting_number(const struct command *command, const char *name);
struct sluice_channel channel_of(const struct command *command);

/* The bytes of a word, to be freed. */
unsigned char *bytes_of(const char *word, size_t *length);
void write_word(FILE *out, const void *bytes, size_t length);
void print_word(const void *bytes, size_t length);
/* The first bytes of a record, or NULL if the table has not so many. */
const unsigned char *content(uint64_t number, size_t length);

/* The result of a call that has failed; `again` stands for EAGAIN. */
void print_failure(int returned, const char *again);
/* The same without words of its own for some errors. */
void print_refusal(int returned);

/* Each opens an endpoint, or returns a negative errno; 1: it is no side of the kind. */
int ring_open(const char *name, const char *side, const struct command *command);
int bus_open(const char *name, const char *side, const struct command *command);
int map_open(const char *name, const char *side, const struct command *command);
int pipe_open(const char *name, const char *side, const struct command *command);
int feed_open(const char *name, const char *side);

/* Each returns 0 if it is no command of the kind, or if there is no endpoint of it. */
int ring_execute(const struct command *command);
int bus_execute(const struct command *command);
int map_execute(const struct command *command);
int pipe_execute(const struct command *command);
int feed_execute(const struct command *command);

void ring_close(int aborts);
void bus_close(void);
void map_close(void);
void pipe_close(void);
void feed_close(void);

#endif
