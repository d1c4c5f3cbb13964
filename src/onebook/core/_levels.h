/* Parses level text: the rows of a JSON text, by a `types.LevelShape`.
 *
 * A text is trimmed and must end with its `]`, the sentinel of `_scan.h`. Rows keep their order;
 * ignored rows and removals do not count for the decimals of amounts.
 */
#ifndef ONEBOOK_LEVELS_H
#define ONEBOOK_LEVELS_H

#include "_scan.h"

enum { /* values of `types.LevelForm` */
    ROW = 0,
    OBJECT = 1,
    MESSAGE = 2,
    GROUP = 3,
    PAIR = 4,      /* a row of price, amount and ignored cells: the usual row, with a fast path */
    SIDED_PAIR = 5, /* the same after the name of the side */
    LED_PAIR = 6    /* the same after one ignored cell */
};

enum {
    COLUMNS_MAX = 16,
    NAME_BYTES_MAX = 32,
    MEMBERS = 4,   /* of an object that a shape can name */
    HEAD_BYTES = 8,  /* of a name, compared at once */
    QUOTED_ROOM = 10 /* bytes that skipping a quoted number may access */
};

typedef struct { /* of a member, in its quotes */
    uint8_t text[NAME_BYTES_MAX + 2];
    int length;
    uint64_t head; /* its first bytes, and a mask of those in use */
    uint64_t head_mask;
    int role;
} Member;

typedef struct { /* a `types.LevelShape` */
    int form;
    bool is_signed;
    bool single;
    bool skip_zero_price;
    bool one_text;
    bool lossy;     /* some rows are ignored, or remove their level regardless of its amount */
    int amount_cut; /* decimals of an amount; UNCUT for all */
    int moved[2];   /* decimals that the points of price and amount are moved to the left */
    int wanted;     /* a bit for each role that a level must have */
    int columns;    /* of a row, up to the last that is wanted */
    uint8_t roles[COLUMNS_MAX];
    int members;
    Member names[MEMBERS];
    uint32_t fields[2]; /* of price and amount: field numbers, or offsets in an entry of a group */
    uint32_t sides[2];  /* of bids and asks */
} Shape;

typedef struct { /* a level while it is read */
    int64_t numbers[NUMBERS];
    int side;
} Scanned;

/* Skip a cell, usually a quoted number, whose first eight digits are read at once. */
static inline const uint8_t *ignored_cell(Scan *scan, const uint8_t *at) {
    int count;
    if (at[0] == '"' && scan->end - at >= QUOTED_ROOM) {
        digit_values(at + 1, &count);
        if (at[1 + count] == '"') return at + 2 + count;
    }
    return ignored(scan, at, NESTING_MAX);
}

/* Skip the cells after the amount, up to the closing bracket of the row. */
static inline const uint8_t *ignored_rest(Scan *scan, const uint8_t *at) {
    while (at[0] == ',') {
        at = ignored_cell(scan, blanks(at + 1));
        if (at == NULL) return NULL;
        at = blanks(at);
    }
    return at[0] == ']' ? at : fail(scan, BAD_ROW);
}

/* The side that the string of `length` bytes names, quotes included, or -1. */
static inline int side_named(const uint8_t *at, ptrdiff_t length) {
    if (length == 5) {
        if (memcmp(at, "\"buy\"", 5) == 0 || memcmp(at, "\"bid\"", 5) == 0) return 0;
        return memcmp(at, "\"ask\"", 5) == 0 ? 1 : -1;
    }
    if (length == 6) return memcmp(at, "\"sell\"", 6) == 0 ? 1 : -1;
    return length == 7 && memcmp(at, "\"offer\"", 7) == 0 ? 1 : -1;
}

static inline const uint8_t *side_name(Scan *scan, const uint8_t *at, int *side) {
    const uint8_t *start = at;
    at = string(scan, at);
    if (at == NULL) return NULL;
    *side = side_named(start, at - start);
    return *side >= 0 ? at : fail(scan, BAD_ROW);
}

/* Read an amount whose sign is the side; zero is rejected. */
static inline const uint8_t *signed_number(Scan *scan, const uint8_t *at, Scanned *level) {
    bool quoted = at[0] == '"';
    at += quoted;
    level->side = at[0] == '-';
    at = number_bare(scan, &scan->columns[AMOUNT], at + level->side, &level->numbers[AMOUNT]);
    if (at == NULL) return NULL;
    if (quoted && at[0] != '"') return fail(scan, BAD_NUMBER);
    return level->numbers[AMOUNT] ? at + quoted : fail(scan, BAD_ROW);
}

/* Read the value of a column or member. */
static inline const uint8_t *cell(
    Scan *scan, const Shape *shape, int role, const uint8_t *at, Scanned *level
) {
    if (role < NUMBERS) {
        if (shape->is_signed && role == AMOUNT) return signed_number(scan, at, level);
        return number(scan, &scan->columns[role], at, &level->numbers[role]);
    }
    if (role == SIDE) return side_name(scan, at, &level->side);
    return ignored_cell(scan, at);
}

/* Continue after a comma. */
static inline const uint8_t *next_cell(Scan *scan, const uint8_t *at) {
    at = blanks(at);
    return at[0] == ',' ? blanks(at + 1) : fail(scan, BAD_ROW);
}

/* As `array_row`, for a PAIR, a SIDED_PAIR or a LED_PAIR. */
static inline const uint8_t *pair(Scan *scan, const uint8_t *at, Scanned *level, int form) {
    if (at[0] != '[') return fail(scan, BAD_ROW);
    at = blanks(at + 1);
    if (form != PAIR) {
        at = form == SIDED_PAIR ? side_name(scan, at, &level->side)
                                : ignored(scan, at, NESTING_MAX);
        if (at == NULL) return NULL;
        at = next_cell(scan, at);
        if (at == NULL) return NULL;
    }
    at = number(scan, &scan->columns[PRICE], at, &level->numbers[PRICE]);
    if (at == NULL) return NULL;
    at = next_cell(scan, at);
    if (at == NULL) return NULL;
    at = number(scan, &scan->columns[AMOUNT], at, &level->numbers[AMOUNT]);
    return at == NULL ? NULL : ignored_rest(scan, blanks(at));
}

/* Read an array, up to its closing bracket. */
static inline const uint8_t *array_row(
    Scan *scan, const Shape *shape, const uint8_t *at, Scanned *level
) {
    int column = 0;
    if (at[0] != '[') return fail(scan, BAD_ROW);
    at = blanks(at + 1);
    for (;;) {
        at = cell(scan, shape, shape->roles[column], at, level);
        if (at == NULL) return NULL;
        if (++column == shape->columns) return ignored_rest(scan, blanks(at));
        at = next_cell(scan, at);
        if (at == NULL) return NULL;
    }
}

/* The role of the member with this name, quotes included. */
static inline int role_of(const Shape *shape, const uint8_t *name, ptrdiff_t length) {
    for (int at = 0; at < shape->members; at++) {
        const Member *member = &shape->names[at];
        if (length == member->length && memcmp(name, member->text, length) == 0)
            return member->role;
    }
    return IGNORED;
}

/* Skip the name of a member and find its role. */
static inline const uint8_t *member_name(
    Scan *scan, const Shape *shape, const uint8_t *at, int *role
) {
    const uint8_t *start = at;
    if (scan->end - at >= HEAD_BYTES) {
        uint64_t head;
        memcpy(&head, at, HEAD_BYTES);
        for (int index = 0; index < shape->members; index++) {
            const Member *name = &shape->names[index];
            if (((head ^ name->head) & name->head_mask) == 0 && name->length <= HEAD_BYTES) {
                *role = name->role;
                return at + name->length;
            }
        }
    }
    at = string(scan, at);
    if (at != NULL) *role = role_of(shape, start, at - start);
    return at;
}

/* Read an object that has each required member exactly once. */
static inline const uint8_t *object_row(
    Scan *scan, const Shape *shape, const uint8_t *at, Scanned *level
) {
    int role, missing = shape->wanted;
    if (at[0] != '{') return fail(scan, BAD_ROW);
    for (;;) {
        at = member_name(scan, shape, blanks(at + 1), &role);
        if (at == NULL) return NULL;
        at = blanks(at);
        if (at[0] != ':') return fail(scan, BAD_JSON);
        if (role != IGNORED) {
            if (!(missing >> role & 1)) return fail(scan, BAD_ROW);
            missing ^= 1 << role;
        }
        at = cell(scan, shape, role, blanks(at + 1), level);
        if (at == NULL) return NULL;
        at = blanks(at);
        if (at[0] == '}') return missing == 0 ? blanks(at + 1) : fail(scan, BAD_ROW);
        if (at[0] != ',') return fail(scan, BAD_JSON);
    }
}

/* Append a level to its side. */
static inline bool keep(Scan *scan, const Scanned *level) {
    Rows *into = &scan->sides[level->side];
    Row *row;
    if (!room_for_row(scan, into)) return false;
    row = &into->rows[into->count++];
    row->price = level->numbers[PRICE];
    row->amount = level->numbers[AMOUNT];
    return true;
}

/* As `keep`, for lossy shapes; `amounts` is the column before the row. */
static inline bool keep_lossy(
    Scan *scan, const Shape *shape, Scanned *level, const Column *amounts
) {
    bool removed = (shape->wanted >> COUNT & 1) && level->numbers[COUNT] == 0;
    bool priced = level->numbers[PRICE] != 0;
    if (!priced && !shape->skip_zero_price) return fail(scan, ZERO_PRICE) != NULL;
    if (removed || !priced) {
        scan->columns[AMOUNT] = *amounts;
        level->numbers[AMOUNT] = 0;
    }
    return !priced || keep(scan, level);
}

/* Read and keep a row, up to the closing bracket of an array or the end of an object. */
static inline const uint8_t *level_row(
    Scan *scan, const Shape *shape, const uint8_t *at, Scanned *level, int form
) {
    bool plain = form == PAIR || form == SIDED_PAIR || form == LED_PAIR;
    Column amounts;
    if (!plain && shape->lossy) amounts = scan->columns[AMOUNT];
    if (plain)
        at = pair(scan, at, level, form);
    else if (form == ROW)
        at = array_row(scan, shape, at, level);
    else
        at = object_row(scan, shape, at, level);
    if (at == NULL) return NULL;
    if (!plain && shape->lossy) return keep_lossy(scan, shape, level, &amounts) ? at : NULL;
    if (level->numbers[PRICE] == 0) return fail(scan, ZERO_PRICE);
    return keep(scan, level) ? at : NULL;
}

/* Whether the bracket here is the end of the text. */
static inline bool ended(Scan *scan, const uint8_t *at) {
    return at + 1 == scan->end || fail(scan, BAD_JSON) != NULL;
}

/* Read all rows of a text, from its `[` to its end; `form` is a constant to the C compiler. */
static inline bool rows_of(
    Scan *scan, const Shape *shape, const uint8_t *at, int side, int form
) {
    const uint8_t *start = at;
    ptrdiff_t left = FRAME_LEVELS_MAX;
    Scanned level;
    level.side = side;
    at = blanks(at + 1);
    if (at[0] == ']') return ended(scan, at);
    if (form == ROW && shape->single && at[0] != '[') {
        at = level_row(scan, shape, start, &level, form);
        return at != NULL && ended(scan, at);
    }
    for (;; at = blanks(at + 1)) {
        at = level_row(scan, shape, at, &level, form);
        if (at == NULL) return false;
        if (form != OBJECT) {
            at = closed(scan, at + 1);
            if (at == NULL) return false;
        }
        if (left-- == 0) return fail(scan, TOO_MANY) != NULL;
        if (at[0] == ']') return ended(scan, at);
        if (at[0] != ',') return fail(scan, BAD_JSON) != NULL;
    }
}

/* Read one JSON text; an empty text, `[]` and `null` have no rows. */
static inline bool text_rows(
    Scan *scan, const Shape *shape, const uint8_t *text, ptrdiff_t length, int side
) {
    const uint8_t *end = text + length;
    while (text < end && is_blank(text[0])) text++;
    while (text < end && is_blank(end[-1])) end--;
    if (text == end || (end - text == 4 && memcmp(text, "null", 4) == 0)) return true;
    scan->end = end;
    if (end - text < 2 || text[0] != '[' || end[-1] != ']') return fail(scan, BAD_JSON) != NULL;
    switch (shape->form) {
    case PAIR: return rows_of(scan, shape, text, side, PAIR);
    case SIDED_PAIR: return rows_of(scan, shape, text, side, SIDED_PAIR);
    case LED_PAIR: return rows_of(scan, shape, text, side, LED_PAIR);
    case ROW: return rows_of(scan, shape, text, side, ROW);
    default: return rows_of(scan, shape, text, side, OBJECT);
    }
}

#endif
