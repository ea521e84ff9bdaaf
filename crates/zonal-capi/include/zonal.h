/*
 * zonal: a physical page-frame allocator. The C interface.
 *
 * In a kernel the library has no standard library, and calls the functions zonal_host_... that the kernel
 * defines; it begins with zonal_boot(). In user space on Linux it begins with zonal_open(). Everything
 * else is the same.
 *
 * A function that returns an int returns a zonal_code: 0, or why nothing was done. zonal_error_text() has its text.
 * Frames have 4096 bytes and are named by number: a physical address divided by 4096.
 * All functions may be called by several CPUs at once.
 */

#ifndef ZONAL_H
#define ZONAL_H

/* Written by cbindgen from the library's source; C11 and C++17. A test compares it. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __GNUC__
#define ZONAL_NORETURN __attribute__((noreturn))
#else
#define ZONAL_NORETURN
#endif


/*
 Why nothing was done. The numbers do not change.
 */
enum zonal_code
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /*
     All went well.
     */
    ZONAL_CODE_OK = 0,
    /*
     A pointer is null.
     */
    ZONAL_CODE_NULL = 1,
    /*
     An argument, or a field of a struct, has a value that cannot be.
     */
    ZONAL_CODE_ARGUMENT = 2,
    /*
     The memory map cannot be.
     */
    ZONAL_CODE_MAP = 3,
    /*
     No allocator can be planned for the map and the settings.
     */
    ZONAL_CODE_PLAN = 4,
    /*
     There is no room for the tables.
     */
    ZONAL_CODE_TABLES = 5,
    /*
     The allocator is there already.
     */
    ZONAL_CODE_BOOTED = 6,
    /*
     No zone has such a block above the watermark.
     */
    ZONAL_CODE_EXHAUSTED = 7,
    /*
     No zone fits the request's nodes and zone limit.
     */
    ZONAL_CODE_NO_ZONE = 8,
    /*
     The host cannot fill frames with zero bytes.
     */
    ZONAL_CODE_CANNOT_ZERO = 9,
    /*
     Frames that are not the allocator's.
     */
    ZONAL_CODE_FOREIGN = 10,
    /*
     The frames are free already.
     */
    ZONAL_CODE_DOUBLE_FREE = 11,
    /*
     Allocated with another order, inside a block, or (`zonal_free_pages`) not allocated.
     */
    ZONAL_CODE_WRONG_ORDER = 12,
    /*
     The frames are isolated, for another caller.
     */
    ZONAL_CODE_ISOLATED = 13,
    /*
     Some of the frames are in use.
     */
    ZONAL_CODE_IN_USE = 14,
    /*
     The memory is being changed at this moment: try again.
     */
    ZONAL_CODE_BUSY = 15,
    /*
     The frames are the allocator's already.
     */
    ZONAL_CODE_ONLINE = 16,
    /*
     Empty, not aligned, or of more than one zone.
     */
    ZONAL_CODE_RANGE = 17,
    /*
     The buffer is too small.
     */
    ZONAL_CODE_BUFFER = 18,
    /*
     The operating system has refused memory.
     */
    ZONAL_CODE_MEMORY = 19,
    /*
     The allocator's tables are damaged.
     */
    ZONAL_CODE_DAMAGED = 20,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zonal_code zonal_code;
#else
typedef int32_t zonal_code;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 What a part of the address space is.
 */
enum zonal_memory
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /*
     Memory that is free.
     */
    ZONAL_MEMORY_USABLE = 0,
    /*
     In use for good.
     */
    ZONAL_MEMORY_RESERVED = 1,
    /*
     In use until `zonal_release`.
     */
    ZONAL_MEMORY_RECLAIM_LATER = 2,
    /*
     Lent to movable requests until a device wants it.
     */
    ZONAL_MEMORY_CMA = 3,
    /*
     Not there; may come by `zonal_online`.
     */
    ZONAL_MEMORY_OFFLINE = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zonal_memory zonal_memory;
#else
typedef uint32_t zonal_memory;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 Whether the owner of a block lets it be moved, or gives it back.
 */
enum zonal_migrate
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint8_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /*
     Neither.
     */
    ZONAL_MIGRATE_UNMOVABLE = 0,
    /*
     It may be moved.
     */
    ZONAL_MIGRATE_MOVABLE = 1,
    /*
     It can be given back.
     */
    ZONAL_MIGRATE_RECLAIMABLE = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zonal_migrate zonal_migrate;
#else
typedef uint8_t zonal_migrate;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 The highest zone type that a request may have.
 */
enum zonal_limit
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint8_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /*
     Below 16 MiB.
     */
    ZONAL_LIMIT_DMA = 1,
    /*
     Below 4 GiB.
     */
    ZONAL_LIMIT_DMA32 = 2,
    /*
     Anywhere, but for what is set aside for movable requests.
     */
    ZONAL_LIMIT_NORMAL = 3,
    /*
     Anywhere; movable requests only.
     */
    ZONAL_LIMIT_MOVABLE = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zonal_limit zonal_limit;
#else
typedef uint8_t zonal_limit;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 What a request's `nodes` is.
 */
enum zonal_nodes
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint8_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /*
     Nothing: the CPU's node first.
     */
    ZONAL_NODES_ANY = 0,
    /*
     The number of the node that is tried first.
     */
    ZONAL_NODES_PREFERRED = 1,
    /*
     A mask of the only nodes.
     */
    ZONAL_NODES_ONLY = 2,
    /*
     A mask of nodes in turn.
     */
    ZONAL_NODES_IN_TURN = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zonal_nodes zonal_nodes;
#else
typedef uint8_t zonal_nodes;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 A bit of a request's `flags`.
 */
enum zonal_flag
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /*
     Cannot wait at all: from a handler of interrupts.
     */
    ZONAL_FLAG_ATOMIC = 1,
    /*
     Important.
     */
    ZONAL_FLAG_HIGH = 2,
    /*
     Neither compaction nor reclaim.
     */
    ZONAL_FLAG_NO_WAIT = 4,
    /*
     Only the preferred or local node.
     */
    ZONAL_FLAG_THIS_NODE = 8,
    /*
     Filled with zero bytes.
     */
    ZONAL_FLAG_ZERO = 16,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zonal_flag zonal_flag;
#else
typedef uint32_t zonal_flag;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 A report, in the format of a file of Linux.
 */
enum zonal_file
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /*
     `/proc/buddyinfo`.
     */
    ZONAL_FILE_BUDDY_INFO = 0,
    /*
     `/proc/pagetypeinfo`.
     */
    ZONAL_FILE_PAGE_TYPE_INFO = 1,
    /*
     `/proc/zoneinfo`.
     */
    ZONAL_FILE_ZONE_INFO = 2,
    /*
     `/proc/vmstat`.
     */
    ZONAL_FILE_VM_STAT = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zonal_file zonal_file;
#else
typedef uint32_t zonal_file;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 The allocator: what a `zonal *` points at.
 */
typedef struct zonal zonal;

/*
 A part of the address space, in bytes. Regions come in any order and may overlap: what is reserved wins.
 */
typedef struct zonal_region {
    /*
     Its first byte.
     */
    uint64_t start;
    /*
     How many.
     */
    uint64_t bytes;
    /*
     A `zonal_memory`.
     */
    uint32_t kind;
    /*
     Its node.
     */
    uint32_t node;
} zonal_region;

/*
 How the allocator is to be. A field that is 0 says nothing, so clear the struct, set `size` to its size, then what you want. A
 field that the library does not know, and that is not 0, is refused.
 */
typedef struct zonal_config {
    /*
     The struct's own size.
     */
    uint32_t size;
    /*
     CPUs with caches of their own; in user space 0 is all of the machine.
     */
    uint32_t cpus;
    /*
     Bytes of the pool. User space only, as the next.
     */
    uint64_t bytes;
    /*
     Bytes of address space that are backed on touch, if more.
     */
    uint64_t reserve;
    /*
     Order of a pageblock; 0: 9. Kernels only, as all from here on.
     */
    uint32_t pageblock_order;
    /*
     Reserved: 0.
     */
    uint32_t reserved;
    /*
     Frames set aside for movable requests.
     */
    uint64_t movable_frames;
    /*
     Frames that are kept free for urgent requests; 0: as Linux does, by the memory's size.
     */
    uint64_t min_free_frames;
    /*
     The address below which the tables are to lie.
     */
    uint64_t tables_below;
} zonal_config;

/*
 What is asked for. All zero: one unmovable frame.
 */
typedef struct zonal_request {
    /*
     0 to 10: 2^order frames.
     */
    uint8_t order;
    /*
     A `zonal_migrate`.
     */
    uint8_t migrate;
    /*
     A `zonal_limit`, the highest zone type; 0: Normal.
     */
    uint8_t zone_limit;
    /*
     A `zonal_nodes`: what `nodes` is.
     */
    uint8_t node_policy;
    /*
     Bits of `zonal_flag`.
     */
    uint32_t flags;
    /*
     A node, or a mask of them.
     */
    uint64_t nodes;
} zonal_request;

/*
 A zone as it is now, in frames. Set `size` before the call: no more is written.
 */
typedef struct zonal_zone {
    /*
     The struct's own size.
     */
    uint32_t size;
    /*
     Its node.
     */
    uint32_t node;
    /*
     Its type: 0 DMA, 1 DMA32, 2 Normal, 3 Movable.
     */
    uint32_t zone_type;
    /*
     Which of the instances of the type on the node.
     */
    uint32_t instance;
    /*
     The first frame.
     */
    uint64_t start;
    /*
     Frames from the first to the last.
     */
    uint64_t spanned;
    /*
     Frames that are there.
     */
    uint64_t present;
    /*
     Frames that are the allocator's.
     */
    uint64_t managed;
    /*
     Frames that are free.
     */
    uint64_t free;
    /*
     Frames that CPUs keep.
     */
    uint64_t cached;
    /*
     Free frames withdrawn from requests.
     */
    uint64_t isolated;
    /*
     The watermarks.
     */
    uint64_t min;
    /*
     The watermarks.
     */
    uint64_t low;
    /*
     The watermarks.
     */
    uint64_t high;
} zonal_zone;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The text of a code: a string that stays. Never null.
 */
const char *zonal_error_text(int code);

/*
 A kernel defines the functions `zonal_host_...`. They are called from handlers of interrupts too, if those allocate; none may call
 the library, but the two about reclaim. This one: the CPU that this is, 0 to `cpus` - 1. A hint.
 */
extern uint32_t zonal_host_cpu(void);

/*
 The node of a CPU. Asked for all of them when the allocator is built.
 */
extern uint32_t zonal_host_node(uint32_t cpu);

/*
 Keeps interrupts from this CPU; whether they could come before.
 */
extern bool zonal_host_interrupts_off(void);

/*
 Lets them come again if they could.
 */
extern void zonal_host_interrupts_restore(bool were_on);

/*
 Where a frame can be read and written: aligned to 4096, not null. Frames that follow each other in a region follow each
 other there too: tables, and blocks that are to be zero, are written from their first frame on.
 */
extern void *zonal_host_address(uint64_t physical);

/*
 A zone is short: wake who reclaims. Must not block.
 */
extern void zonal_host_wake_reclaim(uint32_t zone);

/*
 Gives frames back, and says how many; 0: none.
 */
extern uint64_t zonal_host_reclaim(uint32_t order, uint32_t attempt);

/*
 A mistake in the library. Does not return.
 */
extern void zonal_host_panic(const char *text) ZONAL_NORETURN;

/*
 In a kernel: builds the allocator over the memory of the map, with its tables at the top of it, and writes the pointer to it to
 `allocator`. Once. Takes up to 8 KiB of stack. All memory that is not reserved is in use by no other code, and `zonal_host_address`
 says where it can be read and written. A refusal leaves all as it was.

 Contract:
 `count` regions can be read at `regions`; `config` is null or has as many bytes as its `size` says; `allocator` is null or
 writable. And all memory that the map does not call reserved is memory that no other code uses, and
 `zonal_host_address` says where it can be read and written.
 */
int zonal_boot(const struct zonal_region *regions,
               size_t count,
               const struct zonal_config *config,
               zonal **allocator);

/*
 In user space: opens a pool of pages and writes the pointer to it to `allocator`.

 Contract:
 `config` is null or has as many bytes as its `size` says; `allocator` is null or writable.
 */
int zonal_open(const struct zonal_config *config, struct zonal **allocator);

/*
 Gives the pool's memory back. Null is nothing.

 Contract:
 `allocator` is null, or from `zonal_open` and not closed yet, and not used any more, nor any memory of it.
 */
void zonal_close(struct zonal *allocator);

/*
 Allocates a block and writes the number of its first frame to `pfn`. A null `request` is one unmovable frame.

 Contract:
 `allocator` is from `zonal_open` or `zonal_boot` and not closed meanwhile; `request` is null or readable; `pfn` is null
 or writable.
 */
int zonal_alloc(const zonal *allocator, const struct zonal_request *request, uint64_t *pfn);

/*
 Frees the block of `order` that begins with frame `pfn`.

 Contract:
 As `zonal_alloc`; and the block is the caller's, and in use no more, if it is allocated with that order.
 */
int zonal_free(const zonal *allocator, uint64_t pfn, uint32_t order);

/*
 Fills `pfns` with `count` blocks of the request's order; all or none.

 Contract:
 As `zonal_alloc`; `count` numbers can be written at `pfns`.
 */
int zonal_alloc_bulk(const zonal *allocator, const struct zonal_request *request, uint64_t *pfns, size_t count);

/*
 Frees `count` single frames. Those that may not be freed are left out; the code is that of the first. How many
 were freed is written to `freed`, if that is not null.

 Contract:
 As `zonal_free`, for each; `count` numbers can be read at `pfns`.
 */
int zonal_free_bulk(const zonal *allocator, const uint64_t *pfns, size_t count, size_t *freed);

/*
 Gives what all CPUs cache back to the zones; returns the frames.

 Contract:
 As `zonal_alloc`.
 */
uint64_t zonal_drain(const zonal *allocator);

/*
 Where a frame can be read and written by who holds it; null for one that is not the allocator's.

 Contract:
 As `zonal_alloc`.
 */
void *zonal_address(const zonal *allocator, uint64_t pfn);

/*
 Allocates `frames` frames in a row; the request's order does not matter. The first is a multiple of `align` (0: any), the last
 below `limit` (0: anywhere). Any part is freed by `zonal_free_pages`.

 Contract:
 As `zonal_alloc`.
 */
int zonal_alloc_pages(const zonal *allocator,
                      const struct zonal_request *request,
                      uint64_t frames,
                      uint64_t align,
                      uint64_t limit,
                      uint64_t *pfn);

/*
 Frees `frames` frames from `pfn` on, any part of what `zonal_alloc_pages` and `zonal_alloc_at` gave; all or none.

 Contract:
 As `zonal_free`, for each.
 */
int zonal_free_pages(const zonal *allocator, uint64_t pfn, uint64_t frames);

/*
 Allocates exactly the frames from `pfn` on, if all are free.

 Contract:
 As `zonal_alloc`.
 */
int zonal_alloc_at(const zonal *allocator, uint64_t pfn, uint64_t frames);

/*
 Makes memory usable that has come: whole pageblocks that the map calls offline. Of other memory, as all of a pool in user
 space is, the code is ZONAL_CODE_ARGUMENT.

 Contract:
 As `zonal_alloc`; and it is memory, and in use by no other code.
 */
int zonal_online(const zonal *allocator,
                 uint64_t pfn,
                 uint64_t frames);

/*
 Takes memory away again that came by `zonal_online`: whole pageblocks of which no frame is in use, or whose pages move. Of
 other memory, as all of a pool in user space is, the code is ZONAL_CODE_ARGUMENT.

 Contract:
 As `zonal_alloc`.
 */
int zonal_offline(const zonal *allocator,
                  uint64_t pfn,
                  uint64_t frames);

/*
 In a kernel: makes frames the allocator's that were reserved, or lie in a hole of the map, and are in use no more. They lie between
 a zone's first and last usable frame, or are to be reclaimed later by the map; others are ZONAL_CODE_FOREIGN.
 In user space a pool has no such memory: the code is ZONAL_CODE_ARGUMENT.

 Contract:
 As `zonal_online`.
 */
int zonal_release(const zonal *allocator,
                  uint64_t pfn,
                  uint64_t frames);

/*
 Writes what zone `zone` has to `info`, whose `size` the caller has set. Zones are numbered from 0; beyond the last the code is
 ZONAL_CODE_NO_ZONE.

 Contract:
 As `zonal_alloc`; `info` is null, or as many bytes can be written there as its `size` says.
 */
int zonal_zone_info(const zonal *allocator,
                    uint32_t zone,
                    struct zonal_zone *info);

/*
 Writes a report to `buffer`, as a string with a 0 at its end, and to `needed`, if that is not null, how many bytes it takes with
 that 0. If `room` is less, the text is cut and the code is ZONAL_CODE_BUFFER.

 Contract:
 As `zonal_alloc`; `room` bytes can be written at `buffer`; `needed` is null or writable.
 */
int zonal_report(const zonal *allocator,
                 uint32_t report,
                 char *buffer,
                 size_t room,
                 size_t *needed);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ZONAL_H */
