/*
 * A page pool in user space: threads that allocate, write and free.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zonal.h>

enum { THREADS = 4, ROUNDS = 2000, HELD = 64 };

static void must(int code, int line)
{
    if (code != ZONAL_CODE_OK) {
        fprintf(stderr, "line %d: %s\n", line, zonal_error_text(code));
        exit(1);
    }
}
#define MUST(code) must((code), __LINE__)

static void *work(void *given)
{
    zonal *pool = given;
    uint64_t held[HELD];
    for (int round = 0; round < ROUNDS; round++) {
        MUST(zonal_alloc_bulk(pool, NULL, held, HELD));
        for (int at = 0; at < HELD; at++) {
            uint64_t *page = zonal_address(pool, held[at]);
            page[0] = held[at];
            page[511] = ~held[at];
        }
        for (int at = 0; at < HELD; at++) {
            const uint64_t *page = zonal_address(pool, held[at]);
            if (page[0] != held[at] || page[511] != ~held[at]) {
                fprintf(stderr, "a page was in two hands\n");
                exit(1);
            }
        }
        MUST(zonal_free_bulk(pool, held, HELD, NULL));
    }
    return NULL;
}

int main(void)
{
    zonal_config config;
    memset(&config, 0, sizeof config);
    config.size = sizeof config;
    config.bytes = (uint64_t)64 << 20;
    zonal *pool;
    MUST(zonal_open(&config, &pool));

    /* A page of 2 MiB, and three in a row of 4 KiB. */
    const zonal_request huge = {.order = 9, .flags = ZONAL_FLAG_ZERO};
    uint64_t page, row;
    MUST(zonal_alloc(pool, &huge, &page));
    const unsigned char *bytes = zonal_address(pool, page);
    if (bytes[0] != 0 || bytes[(2 << 20) - 1] != 0)
        return 1;
    MUST(zonal_alloc_pages(pool, NULL, 3, 0, 0, &row));
    memset(zonal_address(pool, row), 7, 3 * 4096);
    MUST(zonal_free_pages(pool, row + 1, 2));
    MUST(zonal_free_pages(pool, row, 1));
    MUST(zonal_free(pool, page, 9));

    pthread_t threads[THREADS];
    for (int at = 0; at < THREADS; at++)
        if (pthread_create(&threads[at], NULL, work, pool) != 0)
            return 1;
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);

    zonal_drain(pool);
    zonal_zone zone;
    zone.size = sizeof zone;
    MUST(zonal_zone_info(pool, 0, &zone));
    printf("%llu of %llu frames are free\n", (unsigned long long)zone.free, (unsigned long long)zone.managed);
    const int all = zone.free == zone.managed;
    zonal_close(pool);
    return all ? 0 : 1;
}
