/* Runs the scan over blocks from standard input, each its length (four bytes, little-endian) and one line, in memory of
 * exactly that size, so that a sanitizer sees a single byte too far. Prints how many blocks came and how many were
 * read. */

#include <stdio.h>
#include <stdlib.h>

#include "../../../sources/wire/scan.c"

enum { KEYS = 6 };

static const char NAMES[] = "vtypeatqueueorderedreceive_count";
static const int32_t ENDS[KEYS] = {1, 5, 7, 12, 19, 32};
static const uint8_t KINDS[KEYS] = {NUMBER, TEXT, NUMBER, TEXT, TRUTH, NUMBER};
static const int64_t MOST[KEYS] = {9999999999999999, 0, 9999999999999999, 0, 0, 2147483647};

static void check_texts(const uint8_t *data, const uint32_t *present, int64_t key, const int64_t *begins, const int32_t *lengths) {
    int32_t code, slots[4] = {-1, -1, -1, -1};
    int64_t first;
    const int32_t offsets[2] = {0, lengths[key]};
    uint8_t *texts = malloc(lengths[key] ? (size_t)lengths[key] : 1);
    copy_texts(data, 1, begins + key, offsets, texts);
    if (encode(data, 1, present, (uint32_t)1 << key, begins + key, lengths + key, &code, &first, slots, 3) > 1) abort();
    free(texts);
}

int main(void) {
    int64_t blocks = 0, read = 0;
    uint8_t size[4];
    while (fread(size, 1, sizeof size, stdin) == sizeof size) {
        const int64_t start = 0, end = size[0] | size[1] << 8 | size[2] << 16;
        uint8_t *data = malloc(end ? (size_t)end : 1);
        if (data == NULL || fread(data, 1, (size_t)end, stdin) != (size_t)end) abort();
        uint8_t is_row;
        uint32_t present = 0;
        int64_t values[KEYS], counts[KEYS] = {0};
        int32_t lengths[KEYS];
        const int64_t rows = scan(data, 1, &start, &end, (const uint8_t *)NAMES, ENDS, KINDS, MOST, KEYS, &is_row, &present,
                                  values, lengths, counts);
        for (int64_t key = 0; rows && key < KEYS; key++)
            if (KINDS[key] == TEXT && counts[key]) check_texts(data, &present, key, values, lengths);
        blocks++;
        read += rows;
        free(data);
    }
    printf("%lld %lld\n", (long long)blocks, (long long)read);
    return 0;
}
