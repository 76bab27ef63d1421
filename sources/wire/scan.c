/* Cuts lines of flat JSON into columns: one pass over the bytes, nothing allocated, nothing guessed.
 *
 * A line is read when it is one object of keys with strings, integers and booleans, every known key at most once
 * and with a value of its kind. Anything else (escapes, control characters, nested values, nulls, fractions, signs,
 * numbers of more than 16 digits, text around the object) leaves the line unread: other code looks at it.
 * The caller has made sure that the lines are UTF-8, and that every array is as long as is said here.
 *
 * Plain C99 without Python's headers; called through ctypes (`sources/wire/scan.py`).
 */

#include <stdint.h>
#include <string.h>

enum kind { STRING = 0, INTEGER = 1, BOOLEAN = 2, OTHER = 3 };

/* Raised with every change of what the functions take or give, here and in scan.py: a library of another version is
 * not called. */
int32_t scan_version(void) { return 2; }

/* The keys that are known: `names` holds them one after another, key k ending before `ends[k]`. `most` is the
 * largest number that key may have. At most MOST_KEYS of them. */
struct keys {
    const uint8_t *names;
    const int32_t *ends;
    const uint8_t *kinds;
    const int64_t *most;
    int64_t count;
};

enum { MOST_KEYS = 32, MOST_DIGITS = 16, UNKNOWN = -1 };

static const uint64_t ONES = 0x0101010101010101u;
static const uint64_t HIGHS = 0x8080808080808080u;

static uint64_t word_at(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

/* Whether one of eight bytes is a quote, a backslash or a control character. */
static int has_special(uint64_t word) {
    uint64_t quote = word ^ (ONES * '"');
    uint64_t backslash = word ^ (ONES * '\\');
    return (((quote - ONES) & ~quote) | ((backslash - ONES) & ~backslash) | ((word - ONES * 0x20) & ~word)) & HIGHS ? 1 : 0;
}

/* Where the string that begins at p ends, at a byte that no string contains as it is; `stop` at the latest. */
static const uint8_t *end_of_text(const uint8_t *p, const uint8_t *stop) {
    while (stop - p >= 8 && !has_special(word_at(p))) p += 8;
    while (p < stop && *p != '"' && *p != '\\' && *p >= 0x20) p++;
    return p;
}

static const uint8_t *after_blanks(const uint8_t *p, const uint8_t *stop) {
    while (p < stop && (*p == ' ' || *p == '\t')) p++;
    return p;
}

static int64_t length_of(const struct keys *keys, int64_t key) {
    return keys->ends[key] - (key ? keys->ends[key - 1] : 0);
}

static int is_key(const struct keys *keys, int64_t key, const uint8_t *p, int64_t length) {
    return length_of(keys, key) == length && memcmp(p, keys->names + (key ? keys->ends[key - 1] : 0), (size_t)length) == 0;
}

static int64_t find_key(const struct keys *keys, const uint8_t *p, int64_t length) {
    for (int64_t key = 0; key < keys->count; key++)
        if (is_key(keys, key, p, length)) return key;
    return UNKNOWN;
}

/* What stands after a colon. `end` is NULL when it is none of the three kinds; `number` is the integer, the boolean
 * (0 or 1), or the bytes of the string that begins at `text`. */
struct value {
    enum kind kind;
    const uint8_t *end;
    const uint8_t *text;
    int64_t number;
};

static struct value read_value(const uint8_t *p, const uint8_t *stop) {
    struct value value = {OTHER, NULL, NULL, 0};
    if (p == stop) return value;
    if (*p == '"') {
        const uint8_t *end = end_of_text(p + 1, stop);
        if (end == stop || *end != '"') return value;
        value.kind = STRING;
        value.text = p + 1;
        value.number = end - value.text;
        value.end = end + 1;
    } else if (*p >= '0' && *p <= '9') {
        const uint8_t *first = p;
        while (p < stop && *p >= '0' && *p <= '9' && p - first <= MOST_DIGITS) value.number = value.number * 10 + (*p++ - '0');
        if (p - first > MOST_DIGITS || (*first == '0' && p - first > 1)) return value;
        value.kind = INTEGER;
        value.end = p;
    } else if (stop - p >= 4 && memcmp(p, "true", 4) == 0) {
        value.kind = BOOLEAN;
        value.number = 1;
        value.end = p + 4;
    } else if (stop - p >= 5 && memcmp(p, "false", 5) == 0) {
        value.kind = BOOLEAN;
        value.end = p + 5;
    }
    return value;
}

/* Reads the line from p to before `stop`; returns the keys it has as bits, 0 when it was not read. Key k's value goes to
 * [k * stride]. Senders write the same keys in the same order: `next` remembers which key came after which (its last
 * entry: which came first). */
static uint32_t scan_line(const struct keys *keys, int64_t *next, const uint8_t *data, const uint8_t *p,
                          const uint8_t *stop, int64_t stride, int64_t *values, int32_t *lengths) {
    uint32_t found = 0;
    int64_t previous = MOST_KEYS;
    if (p == stop || *p++ != '{') return 0;
    for (;;) {
        p = after_blanks(p, stop);
        if (p == stop || *p++ != '"') return 0;
        int64_t key = next[previous];
        const int64_t length = length_of(keys, key);
        if (stop - p > length && p[length] == '"' && is_key(keys, key, p, length)) {
            p += length + 1;
        } else {
            const uint8_t *quote = end_of_text(p, stop);
            if (quote == stop || *quote != '"') return 0;
            key = find_key(keys, p, quote - p);
            p = quote + 1;
            if (key != UNKNOWN) next[previous] = key;
        }
        p = after_blanks(p, stop);
        if (p == stop || *p++ != ':') return 0;
        const struct value value = read_value(after_blanks(p, stop), stop);
        if (value.end == NULL) return 0;
        p = after_blanks(value.end, stop);
        if (key != UNKNOWN) {
            const uint32_t bit = (uint32_t)1 << key;
            if (found & bit || value.kind != keys->kinds[key]) return 0;
            if (value.kind == INTEGER && value.number > keys->most[key]) return 0;
            found |= bit;
            previous = key;
            values[key * stride] = value.kind == STRING ? value.text - data : value.number;
            lengths[key * stride] = value.kind == STRING ? (int32_t)value.number : 0;
        }
        if (p == stop) return 0;
        if (*p == '}') return p + 1 == stop ? found : 0;
        if (*p++ != ',') return 0;
    }
}

/* Reads `lines` lines of `data`, line i from `start[i]` to before `end[i]`; returns how many were read, the rows.
 *
 * read[i] says whether line i is a row. Of row r, present[r] has bit k for each key k it has; at [k * lines + r]
 * `values` gets that key's integer, boolean (0 or 1) or where its string begins in `data`, and `lengths` the bytes
 * of the string. What belongs to keys a row lacks is undefined. counts[k] is how many rows have key k. */
int64_t scan(const uint8_t *data, int64_t lines, const int64_t *start, const int64_t *end, const uint8_t *key_names,
             const int32_t *key_ends, const uint8_t *key_kinds, const int64_t *key_most, int64_t key_count,
             uint8_t *read, uint32_t *present, int64_t *values, int32_t *lengths, int64_t *counts) {
    const struct keys keys = {key_names, key_ends, key_kinds, key_most, key_count};
    int64_t next[MOST_KEYS + 1] = {0};
    int64_t row = 0;
    for (int64_t i = 0; i < lines; i++) {
        const uint32_t found = scan_line(&keys, next, data, data + start[i], data + end[i], lines, values + row, lengths + row);
        read[i] = found != 0;
        if (!found) continue;
        present[row++] = found;
        for (uint32_t left = found; left; left &= left - 1) counts[__builtin_ctz(left)]++;
    }
    return row;
}

/* Copies `count` strings one after another, as Arrow lays them out: string i, which begins at begins[i] in `data`, to
 * offsets[i] up to offsets[i + 1]. */
void copy_texts(const uint8_t *data, int64_t count, const int64_t *begins, const int32_t *offsets, uint8_t *texts) {
    for (int64_t i = 0; i < count; i++) {
        const int32_t length = offsets[i + 1] - offsets[i];
        if (length) memcpy(texts + offsets[i], data + begins[i], (size_t)length);
    }
}

static uint64_t rotated(uint64_t word, int bits) { return word << bits | word >> (64 - bits); }

static void sip_round(uint64_t v[4]) {
    v[0] += v[1]; v[1] = rotated(v[1], 13) ^ v[0]; v[0] = rotated(v[0], 32);
    v[2] += v[3]; v[3] = rotated(v[3], 16) ^ v[2];
    v[0] += v[3]; v[3] = rotated(v[3], 21) ^ v[0];
    v[2] += v[1]; v[1] = rotated(v[1], 17) ^ v[2]; v[2] = rotated(v[2], 32);
}

/* SipHash-1-3 (Aumasson and Bernstein, 2012), which Python uses for strings, too. Who does not know the key cannot choose
 * strings that all have one hash: each of them would be compared with all before it. */
uint64_t hash_of(const uint8_t *p, int32_t length, const uint64_t *key) {
    uint64_t v[4] = {key[0] ^ 0x736F6D6570736575u, key[1] ^ 0x646F72616E646F6Du, key[0] ^ 0x6C7967656E657261u,
                     key[1] ^ 0x7465646279746573u};
    uint64_t last = (uint64_t)length << 56;
    for (; length >= 8; p += 8, length -= 8) {
        const uint64_t word = word_at(p);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    uint64_t rest = 0;
    memcpy(&rest, p, (size_t)length);
    last |= rest;
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xFF;
    for (int i = 0; i < 3; i++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Numbers the distinct strings of one key in the order they come: `codes` gets each row's (0 where the row lacks `bit`),
 * `firsts` the row in which each was met first. Returns how many there are. `slots` are a power of two above twice the
 * rows, `mask` + 1, and hold -1 everywhere. `key` is 16 random bytes. */
int64_t encode(const uint8_t *data, int64_t rows, const uint32_t *present, uint32_t bit, const int64_t *begins,
               const int32_t *lengths, int32_t *codes, int64_t *firsts, int32_t *slots, uint64_t mask, const uint64_t *key) {
    int32_t distinct = 0;
    for (int64_t r = 0; r < rows; r++) {
        codes[r] = 0;
        if (!(present[r] & bit)) continue;
        const uint8_t *text = data + begins[r];
        /* Often the same as in the row before. */
        if (r && present[r - 1] & bit && lengths[r - 1] == lengths[r] &&
            memcmp(data + begins[r - 1], text, (size_t)lengths[r]) == 0) {
            codes[r] = codes[r - 1];
            continue;
        }
        uint64_t slot = hash_of(text, lengths[r], key) & mask;
        int32_t code;
        while ((code = slots[slot]) >= 0) {
            const int64_t first = firsts[code];
            if (lengths[first] == lengths[r] && memcmp(data + begins[first], text, (size_t)lengths[r]) == 0) break;
            slot = (slot + 1) & mask;
        }
        if (code < 0) {
            code = slots[slot] = distinct++;
            firsts[code] = r;
        }
        codes[r] = code;
    }
    return distinct;
}
