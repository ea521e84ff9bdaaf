/*
 * zonal: a physical page-frame allocator. The C interface.
 *
 * In a kernel the library has no standard library, and calls the functions zonal_host_... that the kernel
 * defines; it begins with zonal_boot(). In user space on Linux it begins with zonal_open(). Everything
 * else is the same.
 *
 * A function that returns an int returns a code: 0, or why nothing was done. zonal_error_text() has its text.
 * Frames have 4096 bytes and are named by number: a physical address divided by 4096.
 * All functions may be called by several CPUs at once.
 *
 * Checked against the library by a test (tests/header.rs); C11 and C++17.
 */
#ifndef ZONAL_H
#define ZONAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Codes. The numbers do not change. */
enum {
    ZONAL_OK = 0,
    ZONAL_NULL = 1,         /* a pointer is null */
    ZONAL_ARGUMENT = 2,     /* an argument or a field has a value that cannot be */
    ZONAL_MAP = 3,          /* the memory map cannot be */
    ZONAL_PLAN = 4,         /* no allocator can be planned for the map and the settings */
    ZONAL_TABLES = 5,       /* no room for the tables */
    ZONAL_BOOTED = 6,       /* the allocator is there already */
    ZONAL_EXHAUSTED = 7,    /* no zone has such a block above the watermark */
    ZONAL_NO_ZONE = 8,      /* no zone fits the nodes and the zone limit */
    ZONAL_CANNOT_ZERO = 9,  /* the host cannot fill frames with zero bytes */
    ZONAL_FOREIGN = 10,     /* frames that are not the allocator's */
    ZONAL_DOUBLE_FREE = 11, /* the frames are free already */
    ZONAL_WRONG_ORDER = 12, /* allocated with another order, inside a block, or (zonal_free_pages) not allocated */
    ZONAL_ISOLATED = 13,    /* isolated, for another caller */
    ZONAL_IN_USE = 14,      /* some of the frames are in use */
    ZONAL_BUSY = 15,        /* the memory is being changed at this moment: try again */
    ZONAL_ONLINE = 16,      /* the frames are the allocator's already */
    ZONAL_RANGE = 17,       /* empty, not aligned, or of more than one zone */
    ZONAL_BUFFER = 18,      /* the buffer is too small */
    ZONAL_MEMORY = 19,      /* the operating system has refused memory */
    ZONAL_DAMAGED = 20      /* the tables are damaged */
};

/* The text of a code. Never null. */
const char *zonal_error_text(int code);

/* The allocator. */
typedef struct zonal zonal;

/* How it is to be. A field that is 0 says nothing, so clear the struct, set `size` to its size, then what
 * you want. A field that the library does not know, and that is not 0, is refused. */
typedef struct zonal_config {
    uint32_t size;
    uint32_t cpus;            /* CPUs with caches of their own; zonal_open: 0 is all of the machine */
    /* zonal_open only: */
    uint64_t bytes;           /* of the pool */
    uint64_t reserve;         /* address space backed on touch, if more */
    /* zonal_boot only: */
    uint32_t pageblock_order; /* 0: 9 */
    uint32_t reserved;        /* 0 */
    uint64_t movable_frames;  /* set aside for movable requests */
    uint64_t min_free_frames; /* kept free for urgent requests; 0: as Linux does */
    uint64_t tables_below;    /* the address below which the tables are to lie */
} zonal_config;

/* ---- Beginning, in a kernel ------------------------------------------------------------------------------ */

enum {
    ZONAL_USABLE = 0,
    ZONAL_RESERVED = 1,
    ZONAL_RECLAIM_LATER = 2, /* in use until zonal_release() */
    ZONAL_CMA = 3,           /* lent to movable requests until a device wants it */
    ZONAL_OFFLINE = 4        /* not there; may come by zonal_online() */
};

/* A part of the address space, in bytes. Regions come in any order and may overlap: what is reserved wins. */
typedef struct zonal_region {
    uint64_t start;
    uint64_t bytes;
    uint32_t kind;
    uint32_t node;
} zonal_region;

/* Builds the allocator over the memory of the map, with its tables at the top of it. Once. Takes up to 8 KiB of
 * stack. All memory that is not reserved is in use by no other code, and zonal_host_address() says where it can be
 * read and written. A refusal leaves all as it was. */
int zonal_boot(const zonal_region *regions, size_t count, const zonal_config *config, zonal **allocator);

/* What a kernel defines. Called from handlers of interrupts too, if those allocate; none may call the
 * library, but the two about reclaim. */
uint32_t zonal_host_cpu(void);                     /* 0 to cpus - 1; a hint */
uint32_t zonal_host_node(uint32_t cpu);
bool zonal_host_interrupts_off(void);              /* whether they could come before */
void zonal_host_interrupts_restore(bool were_on);
/* Where a frame can be read and written: aligned to 4096, not null. Frames that follow each other in a region follow
 * each other there too: tables, and blocks that are to be zero, are written from their first frame on. */
void *zonal_host_address(uint64_t physical);
void zonal_host_wake_reclaim(uint32_t zone);       /* a zone is short: wake who reclaims; must not block */
uint64_t zonal_host_reclaim(uint32_t order, uint32_t attempt); /* frames given back; 0: none */
#ifdef __cplusplus
[[noreturn]]
#else
_Noreturn
#endif
void zonal_host_panic(const char *text);           /* a mistake in the library */

/* ---- Beginning and end, in user space --------------------------------------------------------------------- */

int zonal_open(const zonal_config *config, zonal **allocator);
void zonal_close(zonal *allocator);

/* ---- Blocks ------------------------------------------------------------------------------------------------ */

enum { ZONAL_UNMOVABLE = 0, ZONAL_MOVABLE = 1, ZONAL_RECLAIMABLE = 2 };
/* Highest zone type. */
enum { ZONAL_LIMIT_DMA = 1, ZONAL_LIMIT_DMA32 = 2, ZONAL_LIMIT_NORMAL = 3, ZONAL_LIMIT_MOVABLE = 4 };
/* What `nodes` is. */
enum { ZONAL_NODES_ANY = 0, ZONAL_NODES_PREFERRED = 1, ZONAL_NODES_ONLY = 2, ZONAL_NODES_IN_TURN = 3 };
enum {
    ZONAL_ATOMIC = 1,    /* cannot wait at all: from a handler of interrupts */
    ZONAL_HIGH = 2,      /* important */
    ZONAL_NO_WAIT = 4,   /* neither compaction nor reclaim */
    ZONAL_THIS_NODE = 8, /* only the preferred or local node */
    ZONAL_ZERO = 16      /* filled with zero bytes */
};

/* All zero, or a null pointer: one unmovable frame. */
typedef struct zonal_request {
    uint8_t order; /* 0 to 10: 2^order frames */
    uint8_t migrate;
    uint8_t zone_limit;
    uint8_t node_policy;
    uint32_t flags;
    uint64_t nodes;
} zonal_request;

int zonal_alloc(const zonal *allocator, const zonal_request *request, uint64_t *pfn);
int zonal_free(const zonal *allocator, uint64_t pfn, uint32_t order);

/* Fills `pfns` with blocks of the request's order: all or none. */
int zonal_alloc_bulk(const zonal *allocator, const zonal_request *request, uint64_t *pfns, size_t count);
/* Frees single frames. Those that may not be freed are left out; the code is that of the first. `freed` may be null. */
int zonal_free_bulk(const zonal *allocator, const uint64_t *pfns, size_t count, size_t *freed);

/* Where a frame can be read and written by who holds it; null for a frame that is not the allocator's. */
void *zonal_address(const zonal *allocator, uint64_t pfn);

/* ---- Frames in a row --------------------------------------------------------------------------------------- */

/* `frames` frames, of which the first is a multiple of `align` (a power of two; 0: any) and the last is below
 * `limit` (0: anywhere). The request's order does not matter. */
int zonal_alloc_pages(const zonal *allocator, const zonal_request *request, uint64_t frames, uint64_t align,
                      uint64_t limit, uint64_t *pfn);
/* Any part of what zonal_alloc_pages() and zonal_alloc_at() gave: all of it, or none is freed. */
int zonal_free_pages(const zonal *allocator, uint64_t pfn, uint64_t frames);
/* Just these frames, if all are free. */
int zonal_alloc_at(const zonal *allocator, uint64_t pfn, uint64_t frames);

/* ---- Memory that comes and goes ---------------------------------------------------------------------------- */

int zonal_online(const zonal *allocator, uint64_t pfn, uint64_t frames);  /* whole pageblocks, offline in the map */
int zonal_offline(const zonal *allocator, uint64_t pfn, uint64_t frames);
/* Frames that were reserved, to be reclaimed later, or in a hole of the map, and are in use no more. */
int zonal_release(const zonal *allocator, uint64_t pfn, uint64_t frames);
/* Gives what all CPUs cache back to the zones; returns the frames. */
uint64_t zonal_drain(const zonal *allocator);

/* ---- What can be seen -------------------------------------------------------------------------------------- */

/* A zone, in frames. Set `size` before the call: no more is written. */
typedef struct zonal_zone {
    uint32_t size;
    uint32_t node;
    uint32_t zone_type; /* 0 DMA, 1 DMA32, 2 Normal, 3 Movable */
    uint32_t instance;
    uint64_t start;
    uint64_t spanned;
    uint64_t present;
    uint64_t managed;
    uint64_t free;
    uint64_t cached;
    uint64_t isolated;
    uint64_t min;
    uint64_t low;
    uint64_t high;
} zonal_zone;

/* Zones are numbered from 0; beyond the last: ZONAL_NO_ZONE. */
int zonal_zone_info(const zonal *allocator, uint32_t zone, zonal_zone *info);

enum { ZONAL_BUDDYINFO = 0, ZONAL_PAGETYPEINFO = 1, ZONAL_ZONEINFO = 2, ZONAL_VMSTAT = 3 };
/* A report in the format of Linux's file, as a string. `needed`, which may be null: bytes with the 0 at the end. */
int zonal_report(const zonal *allocator, uint32_t report, char *buffer, size_t room, size_t *needed);

#ifdef __cplusplus
}
#endif

#endif
