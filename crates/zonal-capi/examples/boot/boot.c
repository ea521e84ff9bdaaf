/*
 * A kernel in C on zonal, from the first instruction (start.S) to memory that is used up and given back: it takes the
 * boot loader's memory map, gives the initial ramdisk's memory back once that was read, and allocates in a handler of
 * interrupts while it allocates. `cargo xtask c-examples` boots it; with what `cargo xtask capi --prefix out --target
 * x86_64-unknown-none` installed:
 *
 *   gcc -O2 -ffreestanding -fno-pic -fno-stack-protector -mno-red-zone -mgeneral-regs-only -I out/include -c boot.c start.S
 *   ld -static -T boot.ld boot.o start.o out/lib/libzonal-kernel.a -o boot
 *   qemu-system-x86_64 -m 256M -cpu max -nodefaults -display none -serial stdio -no-reboot \
 *       -device isa-debug-exit,iobase=0xf4,iosize=0x04 -kernel boot -initrd boot.c
 */
#include <zonal.h>

#define PAGE 4096u
#define MIB ((uint64_t)1 << 20)

/* --- the machine ------------------------------------------------------------------------------------------------------ */

static inline void out8(uint16_t port, uint8_t value) { __asm__ volatile("outb %0, %1" ::"a"(value), "Nd"(port)); }
static inline uint8_t in8(uint16_t port)
{
    uint8_t value;
    __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

static void say(const char *text)
{
    for (; *text; text++) {
        while (!(in8(0x3f8 + 5) & 0x20)) /* until the line can take one more */
            ;
        out8(0x3f8, (uint8_t)*text);
    }
}

static void say_number(uint64_t number)
{
    char digits[21], *at = digits + sizeof digits - 1;
    *at = 0;
    do
        *--at = (char)('0' + number % 10);
    while (number /= 10);
    say(at);
}

/* Ends the emulator, which then exits with twice the code and 1. */
_Noreturn static void end(uint8_t code)
{
    out8(0xf4, code);
    for (;;)
        __asm__ volatile("cli; hlt");
}
enum { WELL = 0x10, WRONG = 0x11 };

#define CHECK(holds) \
    do { if (!(holds)) { say("WRONG, line "); say_number(__LINE__); say(": " #holds "\n"); end(WRONG); } } while (0)

static void is(int32_t code, int32_t wanted, uint64_t line)
{
    if (code != wanted) {
        say("WRONG, line ");
        say_number(line);
        say(": ");
        say(zonal_error_text(code));
        say("\n");
        end(WRONG);
    }
}
#define IS(code, wanted) is((code), (wanted), __LINE__)

/* --- what zonal asks of a kernel -------------------------------------------------------------------------------------- */

uint32_t zonal_host_cpu(void) { return 0; }
uint32_t zonal_host_node(uint32_t cpu) { (void)cpu; return 0; }

bool zonal_host_interrupts_off(void)
{
    uint64_t flags;
    __asm__ volatile("pushfq; popq %0; cli" : "=r"(flags)::"memory");
    return flags >> 9 & 1;
}
void zonal_host_interrupts_restore(bool were_on)
{
    if (were_on)
        __asm__ volatile("sti" ::: "memory");
}

void *zonal_host_address(uint64_t physical) { return (void *)physical; }
void zonal_host_wake_reclaim(uint32_t zone) { (void)zone; }
uint64_t zonal_host_reclaim(uint32_t order, uint32_t attempt) { (void)order; (void)attempt; return 0; }
_Noreturn void zonal_host_panic(const char *text)
{
    say("WRONG: zonal: ");
    say(text);
    say("\n");
    end(WRONG);
}

/* --- the memory map --------------------------------------------------------------------------------------------------- */

struct start_info {
    uint32_t magic, version, flags, modules;
    uint64_t module_list, command_line, rsdp, map;
    uint32_t entries, reserved;
};
struct module { uint64_t start, bytes, command_line, reserved; };
struct entry { uint64_t start, bytes; uint32_t kind, reserved; };

#define MAGIC 0x336ec578u
#define ENTRIES 64
#define MAPPED ((uint64_t)4 << 30)

extern const char image_start[], image_end[];

static uint64_t pages_of(uint64_t bytes) { return (bytes + PAGE - 1) / PAGE; }

/* What may be used, but for the image, the first page, and the ramdisk, which is given back later. How many ranges. */
static uint32_t ranges(const struct start_info *info, zonal_region *map)
{
    uint32_t count = 0;
    const struct entry *entries = zonal_host_address(info->map);
    CHECK(info->magic == MAGIC && info->version >= 1 && info->entries <= ENTRIES);
    for (uint32_t at = 0; at < info->entries; at++) {
        struct entry entry = entries[at];
        if (entry.start >= MAPPED)
            continue;
        if (entry.bytes > MAPPED - entry.start)
            entry.bytes = MAPPED - entry.start;
        map[count++] = (zonal_region){entry.start, entry.bytes,
            entry.kind == 1 ? ZONAL_MEMORY_USABLE : ZONAL_MEMORY_RESERVED, 0};
    }
    map[count++] = (zonal_region){0, PAGE, ZONAL_MEMORY_RESERVED, 0};
    map[count++] = (zonal_region){(uint64_t)image_start, (uint64_t)(image_end - image_start), ZONAL_MEMORY_RESERVED, 0};
    if (info->modules) {
        const struct module *ramdisk = zonal_host_address(info->module_list);
        map[count++] = (zonal_region){ramdisk->start, pages_of(ramdisk->bytes) * PAGE, ZONAL_MEMORY_RECLAIM_LATER, 0};
    }
    return count;
}

/* --- a handler of interrupts ------------------------------------------------------------------------------------------- */

static zonal *frames;
static volatile uint64_t ticks, ticks_with_a_frame;

struct interrupted;

/* A tick of the timer: it takes a frame, writes to it, and gives it back, whatever was interrupted. */
__attribute__((interrupt)) static void tick(struct interrupted *unused)
{
    const zonal_request atomic = {.flags = ZONAL_FLAG_ATOMIC};
    uint64_t frame;
    (void)unused;
    ticks++;
    if (zonal_alloc(frames, &atomic, &frame) == ZONAL_CODE_OK) {
        *(volatile uint64_t *)zonal_address(frames, frame) = ticks;
        IS(zonal_free(frames, frame, 0), ZONAL_CODE_OK);
        ticks_with_a_frame++;
    }
    out8(0x20, 0x20); /* done: the next may come */
}

enum { VECTOR = 32 };
static struct gate { uint16_t low, segment, kind, middle; uint32_t high, reserved; } gates[VECTOR + 1];

static void start_ticks(void)
{
    const uint64_t handler = (uint64_t)tick;
    const struct __attribute__((packed)) { uint16_t limit; uint64_t base; } pointer = {sizeof gates - 1, (uint64_t)gates};
    gates[VECTOR] = (struct gate){(uint16_t)handler, 8, 0x8e00, (uint16_t)(handler >> 16), (uint32_t)(handler >> 32), 0};
    __asm__ volatile("lidt %0" ::"m"(pointer));
    static const uint8_t controllers[][2] = { /* from VECTOR on; all but the timer are masked */
        {0x20, 0x11}, {0xa0, 0x11}, {0x21, VECTOR}, {0xa1, VECTOR + 8}, {0x21, 4}, {0xa1, 2}, {0x21, 1}, {0xa1, 1},
        {0x21, 0xfe}, {0xa1, 0xff},
    };
    for (unsigned at = 0; at < sizeof controllers / sizeof *controllers; at++)
        out8(controllers[at][0], controllers[at][1]);
    out8(0x43, 0x34); /* a tick in 1,193 of the timer's, which is a millisecond */
    out8(0x40, 1193 & 0xff);
    out8(0x40, 1193 >> 8);
    __asm__ volatile("sti");
}

/* --- use --------------------------------------------------------------------------------------------------------------- */

static uint64_t free_frames(void)
{
    uint64_t sum = 0;
    zonal_zone zone = {.size = sizeof zone};
    for (uint32_t at = 0; zonal_zone_info(frames, at, &zone) == ZONAL_CODE_OK; at++)
        sum += zone.free + zone.cached;
    return sum;
}

/* A frame of zeros, a huge page, and frees that are refused. */
static void use_some(void)
{
    const zonal_request zeroed = {.flags = ZONAL_FLAG_ZERO}, huge = {.order = 9, .migrate = ZONAL_MIGRATE_MOVABLE};
    uint64_t frame, block;
    IS(zonal_alloc(frames, &zeroed, &frame), ZONAL_CODE_OK);
    const unsigned char *bytes = zonal_address(frames, frame);
    for (unsigned at = 0; at < PAGE; at++)
        CHECK(bytes[at] == 0);
    IS(zonal_alloc(frames, &huge, &block), ZONAL_CODE_OK);
    CHECK(block % 512 == 0);
    IS(zonal_free(frames, block, 8), ZONAL_CODE_WRONG_ORDER);
    IS(zonal_free(frames, block, 9), ZONAL_CODE_OK);
    IS(zonal_free(frames, block, 9), ZONAL_CODE_DOUBLE_FREE);
#ifndef LOSE_A_FRAME /* the checks build it so as well, and then it must say that one is missing */
    IS(zonal_free(frames, frame, 0), ZONAL_CODE_OK);
#endif
}

/* Takes frames until there are none, the newest first in a chain through their first bytes; each has its number in its last.
 * Then all go back. How many there were. */
static uint64_t use_up(void)
{
    uint64_t *newest = NULL, count = 0, frame;
    while (zonal_alloc(frames, NULL, &frame) == ZONAL_CODE_OK) {
        uint64_t *words = zonal_address(frames, frame);
        CHECK((const char *)words >= image_end || (const char *)words < image_start);
        words[0] = (uint64_t)newest;
        words[1] = frame;
        words[PAGE / sizeof *words - 1] = count++;
        newest = words;
    }
    for (uint64_t left = count; newest; left--) {
        uint64_t *older = (uint64_t *)newest[0];
        CHECK(newest[PAGE / sizeof *newest - 1] == left - 1);
        IS(zonal_free(frames, newest[1], 0), ZONAL_CODE_OK);
        newest = older;
    }
    return count;
}

/* The ramdisk was read: its memory is free from now on. How many frames. */
static uint64_t give_ramdisk_back(const struct start_info *info)
{
    if (!info->modules)
        return 0;
    const struct module *ramdisk = zonal_host_address(info->module_list);
    const uint64_t first = ramdisk->start / PAGE, count = pages_of(ramdisk->bytes);
    uint64_t sum = 0;
    const unsigned char *bytes = zonal_host_address(ramdisk->start);
    for (uint64_t at = 0; at < ramdisk->bytes; at++)
        sum += bytes[at];
    say("ramdisk: ");
    say_number(ramdisk->bytes);
    say(" bytes, sum ");
    say_number(sum);
    say("\n");
    /* Just these frames can be had then; without the handler, which takes any. */
    const bool were_on = zonal_host_interrupts_off();
    IS(zonal_release(frames, first, count), ZONAL_CODE_OK);
    IS(zonal_release(frames, first, count), ZONAL_CODE_ONLINE);
    IS(zonal_alloc_at(frames, first, count), ZONAL_CODE_OK);
    IS(zonal_free_pages(frames, first, count), ZONAL_CODE_OK);
    zonal_host_interrupts_restore(were_on);
    return count;
}

void start(const struct start_info *info)
{
    static zonal_region map[ENTRIES + 3];
    const zonal_config config = {.size = sizeof config, .cpus = 1};
    IS(zonal_boot(map, ranges(info, map), &config, &frames), ZONAL_CODE_OK);
    const uint64_t at_boot = free_frames();
    start_ticks();
    use_some();
    const uint64_t before = use_up();
    const uint64_t came = give_ramdisk_back(info);
    const uint64_t after = use_up();
    while (ticks < 3) /* in case all of this took no time */
        __asm__ volatile("hlt");
    __asm__ volatile("cli");
    say("free at boot: ");
    say_number(at_boot);
    say(", with the ramdisk: ");
    say_number(free_frames());
    say(", taken at once: ");
    say_number(before);
    say(" and ");
    say_number(after);
    say("\nticks: ");
    say_number(ticks);
    say(", with a frame: ");
    say_number(ticks_with_a_frame);
    say("\n");
    CHECK(free_frames() == at_boot + came);
    /* All but a reserve, which is larger or smaller by what is cached when it is met. */
    CHECK(before > at_boot / 10 * 9 && after > at_boot / 10 * 9);
    CHECK(ticks_with_a_frame > 0);
    say("all frames are there\n");
    end(WELL);
}
