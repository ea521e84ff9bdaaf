/*
 * A kernel's side of zonal: its functions, its memory map, and its first requests. Here it runs in user space, and
 * memory of malloc stands for the machine's: what a kernel does otherwise is in the functions zonal_host_...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zonal.h>

#define MIB ((uint64_t)1 << 20)
#define BASE (16 * MIB)
#define MEMORY (64 * MIB)

static unsigned char *memory;
static bool interrupts = true;

uint32_t zonal_host_cpu(void) { return 0; }
uint32_t zonal_host_node(uint32_t cpu) { (void)cpu; return 0; }
bool zonal_host_interrupts_off(void) { bool were_on = interrupts; interrupts = false; return were_on; }
void zonal_host_interrupts_restore(bool were_on) { interrupts = were_on; }
void *zonal_host_address(uint64_t physical) { return memory + (physical - BASE); }
void zonal_host_wake_reclaim(uint32_t zone) { (void)zone; }
uint64_t zonal_host_reclaim(uint32_t order, uint32_t attempt) { (void)order; (void)attempt; return 0; }
_Noreturn void zonal_host_panic(const char *text) { fprintf(stderr, "zonal: %s\n", text); abort(); }

#define CHECK(holds) \
    do { if (!(holds)) { fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #holds); exit(1); } } while (0)

static void is(int code, int wanted, int line)
{
    if (code != wanted) {
        fprintf(stderr, "line %d: %d (%s), not %d\n", line, code, zonal_error_text(code), wanted);
        exit(1);
    }
}
#define IS(code, wanted) is((code), (wanted), __LINE__)

static uint64_t free_frames(const zonal *frames)
{
    uint64_t sum = 0;
    zonal_zone zone = {.size = sizeof zone};
    for (uint32_t at = 0; zonal_zone_info(frames, at, &zone) == ZONAL_CODE_OK; at++)
        sum += zone.free + zone.cached;
    return sum;
}

int main(void)
{
    memory = aligned_alloc(4096, MEMORY);
    CHECK(memory != NULL);
    memset(memory, 0x5a, MEMORY);

    /* 64 MiB at 16 MiB: the first 2 MiB are the kernel's image, 4 MiB in the middle an initial ramdisk. */
    const zonal_region map[] = {
        {BASE, MEMORY, ZONAL_MEMORY_USABLE, 0},
        {BASE, 2 * MIB, ZONAL_MEMORY_RESERVED, 0},
        {BASE + 16 * MIB, 4 * MIB, ZONAL_MEMORY_RECLAIM_LATER, 0},
    };
    zonal_config config = {.size = sizeof config, .cpus = 1};
    zonal *frames = NULL;
    IS(zonal_boot(map, 0, &config, &frames), ZONAL_CODE_MAP);
    IS(zonal_boot(map, 3, NULL, &frames), ZONAL_CODE_NULL);
    IS(zonal_boot(map, 3, &config, &frames), ZONAL_CODE_OK);
    IS(zonal_boot(map, 3, &config, &frames), ZONAL_CODE_BOOTED);
    const uint64_t at_first = free_frames(frames);

    /* A frame, filled with zero bytes, and a huge page. */
    const zonal_request zeroed = {.flags = ZONAL_FLAG_ZERO};
    const zonal_request huge = {.order = 9, .migrate = ZONAL_MIGRATE_MOVABLE};
    uint64_t frame, block;
    IS(zonal_alloc(frames, &zeroed, &frame), ZONAL_CODE_OK);
    const unsigned char *bytes = zonal_address(frames, frame);
    for (int at = 0; at < 4096; at++)
        CHECK(bytes[at] == 0);
    IS(zonal_alloc(frames, &huge, &block), ZONAL_CODE_OK);
    CHECK(block % 512 == 0);
    IS(zonal_free(frames, block, 8), ZONAL_CODE_WRONG_ORDER);
    IS(zonal_free(frames, block, 9), ZONAL_CODE_OK);
    IS(zonal_free(frames, block, 9), ZONAL_CODE_DOUBLE_FREE);
    IS(zonal_free(frames, frame, 0), ZONAL_CODE_OK);

    /* From a handler of interrupts. */
    interrupts = false;
    const zonal_request atomic = {.flags = ZONAL_FLAG_ATOMIC};
    IS(zonal_alloc(frames, &atomic, &frame), ZONAL_CODE_OK);
    IS(zonal_free(frames, frame, 0), ZONAL_CODE_OK);
    CHECK(!interrupts);
    interrupts = true;

    /* A stack of 12 frames, its lowest given up; a page below 20 MiB; just these frames. */
    IS(zonal_alloc_pages(frames, NULL, 12, 4, 0, &frame), ZONAL_CODE_OK);
    CHECK(frame % 4 == 0);
    IS(zonal_free_pages(frames, frame, 1), ZONAL_CODE_OK);
    IS(zonal_free_pages(frames, frame, 12), ZONAL_CODE_WRONG_ORDER);
    IS(zonal_free_pages(frames, frame + 1, 11), ZONAL_CODE_OK);
    IS(zonal_alloc_pages(frames, NULL, 3, 1, 20 * MIB / 4096, &frame), ZONAL_CODE_OK);
    CHECK(frame + 3 <= 20 * MIB / 4096);
    IS(zonal_alloc_at(frames, frame, 1), ZONAL_CODE_IN_USE);
    IS(zonal_free_pages(frames, frame, 3), ZONAL_CODE_OK);
    IS(zonal_alloc_at(frames, frame, 2), ZONAL_CODE_OK);
    IS(zonal_free_pages(frames, frame, 2), ZONAL_CODE_OK);

    /* The initial ramdisk comes back in two parts. */
    const uint64_t ramdisk = (BASE + 16 * MIB) / 4096;
    IS(zonal_release(frames, ramdisk, 100), ZONAL_CODE_OK);
    IS(zonal_release(frames, ramdisk, 1024), ZONAL_CODE_ONLINE);
    IS(zonal_release(frames, ramdisk + 100, 924), ZONAL_CODE_OK);

    /* Everything can be had and written, and comes back. */
    zonal_drain(frames);
    const uint64_t all = free_frames(frames);
    CHECK(all == at_first + 1024);
    uint64_t *held = calloc(all, sizeof *held), count = 0;
    CHECK(held != NULL);
    while (zonal_alloc(frames, &atomic, &held[count]) == ZONAL_CODE_OK) {
        memset(zonal_address(frames, held[count]), (int)count & 0xff, 4096);
        count++;
    }
    CHECK(count > all / 2 && count <= all);
    size_t freed = 0;
    IS(zonal_free_bulk(frames, held, count, &freed), ZONAL_CODE_OK);
    CHECK(freed == count);
    free(held);
    zonal_drain(frames);
    CHECK(free_frames(frames) == all);

    char text[4096];
    size_t needed = 0;
    IS(zonal_report(frames, ZONAL_FILE_BUDDY_INFO, text, sizeof text, &needed), ZONAL_CODE_OK);
    CHECK(needed == strlen(text) + 1);
    fputs(text, stdout);
    IS(zonal_report(frames, ZONAL_FILE_VM_STAT, text, 16, &needed), ZONAL_CODE_BUFFER);
    CHECK(strlen(text) == 15 && needed > 16);
    CHECK(interrupts);
    free(memory);
    return 0;
}
