/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Inline functions. GCC inlines the six functions below if it optimizes. The inlined code sends or receives while that needs no
 * wait, no wake-up of the peer and no error; otherwise it calls the function of the library, which has the same name and does the same.
 * With SLUICE_NO_INLINE defined, each is a call. The address of such a function is the address of the library's function.
 *
 * These structures are the beginnings of struct sluice_producer and struct sluice_consumer. Inlined code and library change the same
 * positions. The layout is part of the ABI; programs use the fields through the functions only.
 */
struct sluice_ring_head {
    /* The ring, mapped twice in a row, so that no record is split. */
    unsigned char *data;
    /* The capacity in bytes - 1. */
    uint64_t mask;
    /* The word *process is equal to `mark` in the process that has set up the side, and in no child of it. */
    const uint64_t *process;
    uint64_t mark;
    /* Where the peer loads the position of this side. */
    uint64_t *pos;
    /*
     * While the word *attention is not 0, the library has to be called. Of a producer it says whether the consumer has ended, of a
     * consumer how to wake the producer. It is a word of the peer; or of the library, which is never 0, if that one is not enough.
     */
    const uint32_t *attention;
    /* The number of records of inlined code that the library has not counted yet. */
    uint64_t records;
};

struct sluice_consumer_head {
    struct sluice_ring_head ring;
    /* The stride of the last record that inlined code has received, from it to the next one; and how many before it had the same stride. */
    uint64_t stride;
    uint64_t alike;
    /* The position of the next record. */
    uint64_t position;
    /* The position up to which records are released: another one while records are held. */
    uint64_t released;
    /* The length limit; negative after a protocol violation. */
    int64_t length_max;
};

struct sluice_producer_head {
    struct sluice_ring_head ring;
    /* The length limit. */
    size_t length_max;
    /* The length of the reservation, or (size_t)-1. */
    size_t reserved;
    /* While the word *waiting is not 0, the library has to be called after a publication, to wake the consumer. As `attention`. */
    const uint32_t *waiting;
    /* Whether records are published by sluice_producer_publish() only: 1 or 0. */
    uint64_t is_batching;
    /* The position up to which records are published. */
    uint64_t published;
    /* The position of the next record: another one in a batch that has records. */
    uint64_t written;
    /* The position up to which bytes may be written; 0 after a protocol violation. */
    uint64_t limit;
    /* The position after the bytes that were reserved since the last record; or 0. */
    uint64_t reserved_end;
    /* The number of bytes to zero after the publication. */
    uint64_t window;
    /* The position up to which the bytes after the records are zero. */
    uint64_t zeroed_to;
};

/* Clang takes a function that calls its own symbol for a recursion, and ignores the body. */
#if defined(__GNUC__) && !defined(__clang__) && !defined(SLUICE_NO_INLINE)

/* The library copies longer records, and chooses how. */
#define __SLUICE_COPY_MAX 256
/* The header before each record: its length and its state, of 32 bits each. */
#define __SLUICE_HEADER 8
/* The length of a cache line, and the number of bytes that are zeroed ahead of a stream. */
#define __SLUICE_LINE 64
#define __SLUICE_WINDOW 256
/* How many records have to be alike before the next one is expected to be. */
#define __SLUICE_ALIKE 8

/* The body of a function is for inlining only: what is not inlined calls the library. A part is inlined wherever its function is. */
#define __sluice_inline extern __inline __attribute__((__gnu_inline__))
#define __sluice_part extern __inline __attribute__((__gnu_inline__, __always_inline__))
#define __sluice_likely(condition) __builtin_expect(!!(condition), 1)

/* The functions of the library, by names that have no body here. */
extern int __sluice_producer_send(struct sluice_producer *producer, const void *record, size_t length, int timeout_ms)
    __asm__("sluice_producer_send");
extern int __sluice_producer_reserve(struct sluice_producer *producer, size_t length, void **room, int timeout_ms)
    __asm__("sluice_producer_reserve");
extern int __sluice_producer_commit(struct sluice_producer *producer, size_t length) __asm__("sluice_producer_commit");
extern int __sluice_producer_publish(struct sluice_producer *producer) __asm__("sluice_producer_publish");
extern ssize_t __sluice_consumer_recv(struct sluice_consumer *consumer, const void **record, int timeout_ms)
    __asm__("sluice_consumer_recv");
extern ssize_t __sluice_consumer_recv_batch(struct sluice_consumer *consumer, struct iovec *records, size_t count, int timeout_ms)
    __asm__("sluice_consumer_recv_batch");
extern int __sluice_consumer_release(struct sluice_consumer *consumer) __asm__("sluice_consumer_release");

/* Whether this process has set up the side. */
__sluice_part int __sluice_is_owned(const struct sluice_ring_head *ring)
{
    return __atomic_load_n(ring->process, __ATOMIC_RELAXED) == ring->mark;
}

/* The header of the record at a position. Its bytes follow, also at the end of the ring, which is mapped twice. */
__sluice_part uint32_t *__sluice_header(const struct sluice_ring_head *ring, uint64_t position)
{
    return (uint32_t *)(void *)(ring->data + (position & ring->mask));
}

__sluice_part void *__sluice_bytes(const uint32_t *header)
{
    return (unsigned char *)(uintptr_t)header + __SLUICE_HEADER;
}

/* From a record to the next one: header, bytes, and padding to a multiple of 8. */
__sluice_part uint64_t __sluice_stride(uint64_t length)
{
    return (__SLUICE_HEADER + length + 7) & ~(uint64_t)7;
}

/* Whether a record of this length can be written now at this position. The header after it is zeroed when it is published. */
__sluice_part int __sluice_has_room(const struct sluice_producer_head *head, uint64_t at, size_t length)
{
    return head->reserved_end == 0 && length <= head->length_max && at + __sluice_stride(length) + __SLUICE_HEADER <= head->limit && __sluice_is_owned(&head->ring) && __atomic_load_n(head->ring.attention, __ATOMIC_RELAXED) == 0;
}

/*
 * As Producer::write(), publish() and prezero() in the crate sluice-ring: makes a record of the bytes after the header at a position. Unless it is of a batch, it becomes
 * visible, then the bytes ahead are zeroed. Each field is loaded once, because a store to the ring could change it, as far as the compiler
 * knows.
 */
__sluice_part int __sluice_write(struct sluice_producer *producer, struct sluice_producer_head *head, uint64_t at, uint32_t *header, size_t length)
{
    uint64_t stride = __sluice_stride(length), next = at + stride, zeroed_to = head->zeroed_to, goal;
    unsigned char *data = head->ring.data;
    uint64_t mask = head->ring.mask;
    int is_first = at == head->published;

    /* More bytes were filled than the record has. */
    if (head->reserved_end > next)
        zeroed_to = next;
    head->reserved_end = 0;
    head->written = next;
    head->window = is_first && stride > __SLUICE_WINDOW ? 0 : __SLUICE_WINDOW;
    __atomic_store_n(&header[0], (uint32_t)length, __ATOMIC_RELAXED);
    if (!__sluice_likely(is_first && !head->is_batching)) {
        head->zeroed_to = zeroed_to;
        /* The release that publishes the first record of a batch covers this store, too. */
        if (!is_first)
            __atomic_store_n(&header[1], 1, __ATOMIC_RELAXED);
        return 0;
    }
    if (zeroed_to < next + __SLUICE_HEADER) {
        __atomic_store_n((uint32_t *)(void *)(data + (next & mask)) + 1, 0, __ATOMIC_RELAXED);
        zeroed_to = next + __SLUICE_HEADER;
    }
    /* Pairs with the acquire of the consumer. */
    __atomic_store_n(&header[1], 1, __ATOMIC_RELEASE);
    head->published = next;
    __atomic_store_n(head->ring.pos, next, __ATOMIC_RELAXED);
    /* As in sluice_consumer_release(). */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (!__sluice_likely(__atomic_load_n(head->waiting, __ATOMIC_RELAXED) == 0)) {
        head->zeroed_to = zeroed_to;
        return __sluice_producer_publish(producer);
    }
    goal = (next + head->window) & ~(uint64_t)(__SLUICE_LINE - 1);
    if (goal > head->limit)
        goal = head->limit;
    for (; zeroed_to + __SLUICE_LINE <= goal; zeroed_to += __SLUICE_LINE)
        __builtin_memset(data + (zeroed_to & mask), 0, __SLUICE_LINE);
    for (; zeroed_to < goal; zeroed_to += sizeof(uint64_t))
        __builtin_memset(data + (zeroed_to & mask), 0, sizeof(uint64_t));
    head->zeroed_to = zeroed_to;
    return 0;
}

__sluice_inline int sluice_producer_reserve(struct sluice_producer *producer, size_t length, void **room, int timeout_ms)
{
    struct sluice_producer_head *head = (struct sluice_producer_head *)(void *)producer;

    if (__sluice_likely(head && room)) {
        uint64_t at = head->written;

        if (__sluice_likely(__sluice_has_room(head, at, length))) {
            *room = __sluice_bytes(__sluice_header(&head->ring, at));
            head->reserved = length;
            head->reserved_end = at + __SLUICE_HEADER + length;
            head->ring.records++;
            return 0;
        }
    }
    return __sluice_producer_reserve(producer, length, room, timeout_ms);
}

__sluice_inline int sluice_producer_commit(struct sluice_producer *producer, size_t length)
{
    struct sluice_producer_head *head = (struct sluice_producer_head *)(void *)producer;

    if (__sluice_likely(head && length <= head->length_max && length == head->reserved && __sluice_is_owned(&head->ring))) {
        uint64_t at = head->written;

        head->reserved = (size_t)-1;
        return __sluice_write(producer, head, at, __sluice_header(&head->ring, at), length);
    }
    return __sluice_producer_commit(producer, length);
}

/* Whether a record is a short structure, as the compiler knows. */
#define __sluice_is_structure(length) (__builtin_constant_p(length) && (length) % 8 == 0 && (length) <= 128)

/*
 * Copies a record. A short structure is copied by its words, because a program often stores these directly before: a load of several would
 * wait for the stores.
 */
__sluice_part void __sluice_copy(void *into, const void *from, size_t length)
{
    unsigned char *to = (unsigned char *)into;
    const unsigned char *record = (const unsigned char *)from;

    if (!__sluice_is_structure(length)) {
        __builtin_memcpy(into, from, length);
        return;
    }
#pragma GCC unroll 16
    for (size_t at = 0; at < length; at += 8)
        __builtin_memcpy(to + at, record + at, 8);
}

__sluice_inline int sluice_producer_send(struct sluice_producer *producer, const void *record, size_t length, int timeout_ms)
{
    struct sluice_producer_head *head = (struct sluice_producer_head *)(void *)producer;

    if (__sluice_likely(head && record && length <= __SLUICE_COPY_MAX)) {
        uint64_t at = head->written;

        if (__sluice_likely(__sluice_has_room(head, at, length))) {
            uint32_t *header = __sluice_header(&head->ring, at);

            __sluice_copy(__sluice_bytes(header), record, length);
            head->ring.records++;
            return __sluice_write(producer, head, at, header, length);
        }
    }
    /* The library gets a copy of a short structure, so that the compiler can keep the structure itself in registers. */
    if (__sluice_is_structure(length) && record) {
        uint64_t copy[16];

        __sluice_copy(copy, record, length);
        return __sluice_producer_send(producer, copy, length, timeout_ms);
    }
    return __sluice_producer_send(producer, record, length, timeout_ms);
}

/* The length of the next record; or -1 if there is none, or an invalid one. The producer may be malicious: each word is loaded once. */
__sluice_part int64_t __sluice_length(const struct sluice_consumer_head *head, const uint32_t *header)
{
    /* Pairs with the release of the producer that publishes the record. */
    if (__atomic_load_n(&header[1], __ATOMIC_ACQUIRE) == 1) {
        int64_t length = __atomic_load_n(&header[0], __ATOMIC_RELAXED);

        if (__sluice_likely(length <= head->length_max))
            return length;
    }
    return -1;
}

/*
 * Steps over a record. After some records of the same stride the processor predicts the branch: it goes on with the last stride, and does
 * not wait for the length. They are counted without a branch, so that other lengths cause no wrong predictions.
 */
__sluice_part void __sluice_advance(struct sluice_consumer_head *head, uint64_t length)
{
    uint64_t found = __sluice_stride(length), last = head->stride, alike = (head->alike + 1) & -(uint64_t)(found == last);

    head->alike = alike;
    head->stride = found;
    if (alike < __SLUICE_ALIKE) {
        head->position += found;
    } else {
        /* Equal, but not the same for the compiler. */
        __asm__("" : "+r"(last));
        head->position += last;
    }
}

__sluice_inline ssize_t sluice_consumer_recv(struct sluice_consumer *consumer, const void **record, int timeout_ms)
{
    struct sluice_consumer_head *head = (struct sluice_consumer_head *)(void *)consumer;

    if (__sluice_likely(head && record && head->position == head->released && __sluice_is_owned(&head->ring))) {
        const uint32_t *header = __sluice_header(&head->ring, head->position);
        int64_t length = __sluice_length(head, header);

        if (__sluice_likely(length >= 0)) {
            *record = __sluice_bytes(header);
            __sluice_advance(head, (uint64_t)length);
            head->ring.records++;
            return length;
        }
    }
    return __sluice_consumer_recv(consumer, record, timeout_ms);
}

__sluice_inline ssize_t sluice_consumer_recv_batch(struct sluice_consumer *consumer, struct iovec *records, size_t count, int timeout_ms)
{
    struct sluice_consumer_head *head = (struct sluice_consumer_head *)(void *)consumer;

    if (head && records && head->position == head->released && __sluice_is_owned(&head->ring)) {
        /* A copy, which the compiler keeps in registers. */
        struct sluice_consumer_head next = *head;
        /* Records and the header after them are within the ring, so that the loop ends whatever the producer writes. */
        uint64_t last = next.released + next.ring.mask + 1 - __SLUICE_HEADER;
        struct iovec *record = records, *end = records + count;
        size_t received;

        for (; record < end; record++) {
            uint64_t at = next.position;
            const uint32_t *header = __sluice_header(&next.ring, at);
            int64_t length = __sluice_length(&next, header);

            if (length < 0)
                break;
            __sluice_advance(&next, (uint64_t)length);
            if (next.position > last) {
                next.position = at;
                break;
            }
            record->iov_base = __sluice_bytes(header);
            record->iov_len = (size_t)length;
        }
        received = (size_t)(record - records);
        if (__sluice_likely(received > 0)) {
            head->position = next.position;
            head->stride = next.stride;
            head->alike = next.alike;
            head->ring.records += received;
            return (ssize_t)received;
        }
    }
    return __sluice_consumer_recv_batch(consumer, records, count, timeout_ms);
}

__sluice_inline int sluice_consumer_release(struct sluice_consumer *consumer)
{
    struct sluice_consumer_head *head = (struct sluice_consumer_head *)(void *)consumer;

    if (__sluice_likely(head && head->position != head->released && __sluice_is_owned(&head->ring))) {
        /* Pairs with the acquire of the producer: the bytes are not overwritten before they were read. */
        __atomic_store_n(head->ring.pos, head->position, __ATOMIC_RELEASE);
        /*
         * The compiler keeps the order of store and load. A producer that is about to sleep keeps that of the processor, by membarrier(2);
         * if it cannot, *attention is never 0.
         */
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        if (__sluice_likely(__atomic_load_n(head->ring.attention, __ATOMIC_RELAXED) == 0)) {
            head->released = head->position;
            return 0;
        }
        /* The library repeats the release, and wakes the producer. */
    }
    return __sluice_consumer_release(consumer);
}

#undef __sluice_inline
#undef __sluice_part
#undef __sluice_likely
#undef __SLUICE_COPY_MAX
#undef __SLUICE_HEADER
#undef __SLUICE_LINE
#undef __SLUICE_WINDOW
#undef __SLUICE_ALIKE

#endif
