/*
 * A kernel's side of zonal, to be linked with link-time optimisation: the functions zonal_host_... then are part of the
 * library's. `cargo xtask c-inline` builds it, and looks that none of them is called.
 */
#include <zonal.h>

#define MEMORY ((uint64_t)64 << 20)

/* All memory is mapped from here on. */
static unsigned char *const mapped = (unsigned char *)0xffff800000000000;

uint32_t zonal_host_cpu(void)
{
    uint32_t number;
    __asm__ volatile("movl %%gs:0, %0" : "=r"(number));
    return number;
}

bool zonal_host_interrupts_off(void)
{
    uint64_t flags;
    __asm__ volatile("pushfq; popq %0; cli" : "=r"(flags) : : "memory");
    return flags >> 9 & 1;
}

void zonal_host_interrupts_restore(bool were_on)
{
    if (were_on)
        __asm__ volatile("sti" : : : "memory");
}

uint32_t zonal_host_node(uint32_t cpu) { return cpu & 1; }
void *zonal_host_address(uint64_t physical) { return mapped + physical; }
void zonal_host_wake_reclaim(uint32_t zone) { (void)zone; }
uint64_t zonal_host_reclaim(uint32_t order, uint32_t attempt) { return order & attempt & 0; }
_Noreturn void zonal_host_panic(const char *text)
{
    for (;;)
        __asm__ volatile("hlt" : : "r"(text));
}

uint64_t start(void)
{
    const zonal_region map[] = {{0, MEMORY, ZONAL_MEMORY_USABLE, 0}};
    const zonal_config config = {.size = sizeof config, .cpus = 2};
    const zonal_request zeroed = {.flags = ZONAL_FLAG_ZERO};
    zonal *frames;
    uint64_t frame = 0;
    if (zonal_boot(map, 1, &config, &frames) == ZONAL_CODE_OK
        && zonal_alloc(frames, &zeroed, &frame) == ZONAL_CODE_OK)
        zonal_free(frames, frame, 0);
    return frame;
}
