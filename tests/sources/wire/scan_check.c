/* Runs the scan over blocks from standard input, each its length (four bytes, little-endian) and lines joined by line
 * breaks, in memory of exactly the size that is promised, so that a sanitizer sees a single byte too far. Prints how many
 * lines came and how many were read. */

#include <stdio.h>
#include <stdlib.h>

#include "../../../sources/wire/scan.c"

enum { KEYS = 6 };

static const char NAMES[] = "vtypeatqueueorderedreceive_count";
static const int32_t ENDS[KEYS] = {1, 5, 7, 12, 19, 32};
static const uint8_t KINDS[KEYS] = {INTEGER, STRING, INTEGER, STRING, BOOLEAN, INTEGER};
static const int64_t MOST[KEYS] = {9999999999999999, 0, 9999999999999999, 0, 0, 2147483647};
static const uint64_t KEY[2] = {0x0706050403020100u, 0x0F0E0D0C0B0A0908u};

static void *room(int64_t count, size_t size) {
    void *memory = malloc(count ? (size_t)count * size : 1);
    if (memory == NULL) abort();
    return memory;
}

static void check_texts(const uint8_t *data, int64_t rows, const uint32_t *present, uint32_t bit, const int64_t *begins,
                        const int32_t *lengths) {
    int32_t *offsets = room(rows + 1, sizeof *offsets), *codes = room(rows, sizeof *codes);
    offsets[0] = 0;
    for (int64_t r = 0; r < rows; r++) offsets[r + 1] = offsets[r] + (present[r] & bit ? lengths[r] : 0);
    uint8_t *texts = room(offsets[rows], 1);
    copy_texts(data, rows, begins, offsets, texts);
    int64_t size = 1, *firsts = room(rows, sizeof *firsts);
    while (size <= 2 * rows) size *= 2;
    int32_t *slots = room(size, sizeof *slots);
    memset(slots, -1, (size_t)size * sizeof *slots);
    const int64_t distinct = encode(data, rows, present, bit, begins, lengths, codes, firsts, slots, (uint64_t)size - 1, KEY);
    for (int64_t r = 0; r < rows; r++) {
        if (!(present[r] & bit)) continue;
        const int64_t first = codes[r] < distinct ? firsts[codes[r]] : -1;
        if (first < 0 || lengths[first] != lengths[r] || memcmp(data + begins[first], data + begins[r], (size_t)lengths[r])) abort();
    }
    free(offsets), free(codes), free(texts), free(firsts), free(slots);
}

static int64_t check_block(const uint8_t *data, int64_t size, int64_t *read) {
    int64_t lines = 1;
    for (int64_t i = 0; i < size; i++) lines += data[i] == '\n';
    int64_t *start = room(lines, sizeof *start), *end = room(lines, sizeof *end);
    for (int64_t line = 0, at = 0; line < lines; line++, at++) {
        start[line] = at;
        while (at < size && data[at] != '\n') at++;
        end[line] = at;
    }
    uint8_t *is_row = room(lines, sizeof *is_row);
    uint32_t *present = room(lines, sizeof *present);
    int64_t *values = room(KEYS * lines, sizeof *values), counts[KEYS] = {0};
    int32_t *lengths = room(KEYS * lines, sizeof *lengths);
    const int64_t rows = scan(data, lines, start, end, (const uint8_t *)NAMES, ENDS, KINDS, MOST, KEYS, is_row, present, values,
                              lengths, counts);
    for (int64_t key = 0; key < KEYS; key++)
        if (KINDS[key] == STRING && counts[key])
            check_texts(data, rows, present, (uint32_t)1 << key, values + key * lines, lengths + key * lines);
    *read += rows;
    free(start), free(end), free(is_row), free(present), free(values), free(lengths);
    return lines;
}

int main(void) {
    int64_t lines = 0, read = 0;
    uint8_t size[4];
    while (fread(size, 1, sizeof size, stdin) == sizeof size) {
        const int64_t length = size[0] | size[1] << 8 | size[2] << 16;
        uint8_t *data = room(length, 1);
        if (fread(data, 1, (size_t)length, stdin) != (size_t)length) abort();
        lines += check_block(data, length, &read);
        free(data);
    }
    printf("%lld %lld\n", (long long)lines, (long long)read);
    return 0;
}
