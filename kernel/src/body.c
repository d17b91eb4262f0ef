/* A stored body taken apart: a JSON object, or a MessagePack map of raw bytes. docs/reference/format.md says what they
 * are. Both were checked before they were stored; here they are walked, which no bytes can lead beyond their end.
 */
#include "kernel.h"

/* -- JSON ---------------------------------------------------------------------------------------------------------- */

static size_t behind_spaces(Piece text, size_t at)
{
    while (at < text.size && (text.at[at] == ' ' || text.at[at] == '\t' || text.at[at] == '\r' || text.at[at] == '\n')) at++;
    return at;
}

/* Where the string that begins at `at` ends; 0: it has no end. */
static size_t string_end(Piece text, size_t at)
{
    if (at >= text.size || text.at[at] != '"') return 0;
    for (at++; at < text.size; at++) {
        if (text.at[at] == '"') return at + 1;
        if (text.at[at] == '\\') at++;
    }
    return 0;
}

static bool ends_scalar(uint8_t byte)
{
    return memchr(",}] \t\r\n\"{[:", byte, 11) != NULL;
}

/* Where the value that begins at `at` ends; 0: there is no value. */
static size_t value_end(Piece text, size_t at)
{
    if (at >= text.size) return 0;
    if (text.at[at] == '"') return string_end(text, at);
    if (text.at[at] != '{' && text.at[at] != '[') {
        size_t begin = at;
        while (at < text.size && !ends_scalar(text.at[at])) at++;
        return at == begin ? 0 : at;
    }
    for (size_t depth = 0; at < text.size;) {
        uint8_t byte = text.at[at];
        if (byte == '"') {
            at = string_end(text, at);
            if (at == 0) return 0;
            continue;
        }
        at++;
        if (byte == '{' || byte == '[') depth++;
        if ((byte == '}' || byte == ']') && --depth == 0) return at;
    }
    return 0;
}

bool split_object(Piece body, Parts *parts)
{
    memset(parts, 0, sizeof *parts);
    size_t at = behind_spaces(body, 0);
    if (at >= body.size || body.at[at] != '{') return false;
    do {
        size_t begin = behind_spaces(body, at + 1), end = string_end(body, begin);
        if (end == 0) return false;
        Piece key = piece_of(body.at + begin + 1, end - begin - 2);
        at = behind_spaces(body, end);
        if (at >= body.size || body.at[at] != ':') return false;
        begin = behind_spaces(body, at + 1);
        end = value_end(body, begin);
        if (end == 0) return false;
        Piece value = piece_of(body.at + begin, end - begin);
        if (equals(key, "data", 4)) parts->data = value;
        if (equals(key, "meta", 4)) parts->meta = value;
        if (equals(key, "ct", 2)) parts->ct = value;
        if (equals(key, "h", 1)) parts->h = value;
        at = behind_spaces(body, end);
    } while (at < body.size && body.at[at] == ',');
    return at < body.size && body.at[at] == '}' && behind_spaces(body, at + 1) == body.size && parts->data.at != NULL;
}

/* -- MessagePack --------------------------------------------------------------------------------------------------- */

/* The rest of a body. */
typedef struct {
    const uint8_t *at, *end;
} Walk;

static bool walk_bytes(Walk *walk, uint64_t size, Piece *piece)
{
    if (size > (uint64_t)(walk->end - walk->at)) return false;
    if (piece) *piece = piece_of(walk->at, (size_t)size);
    walk->at += size;
    return true;
}

/* A big-endian number of `width` bytes. */
static bool walk_number(Walk *walk, size_t width, uint64_t *number)
{
    Piece piece;
    if (!walk_bytes(walk, width, &piece)) return false;
    *number = 0;
    for (size_t byte = 0; byte < width; byte++) *number = *number << 8 | piece.at[byte];
    return true;
}

enum { NOTHING, STRING, BYTES, ELSE };

/* One value with everything in it: its kind, and the bytes of a string or of bytes. */
static bool walk_value(Walk *walk, int *kind, Piece *piece)
{
    *kind = ELSE;
    *piece = piece_of(NULL, 0);
    for (uint64_t pending = 1, top = 1; pending; top = 0) {
        uint64_t first, size = 0;
        pending--;
        if (!walk_number(walk, 1, &first)) return false;
        int found = ELSE;
        if (first >= 0xa0 && first <= 0xbf) { size = first & 31; found = STRING; }
        else if (first >= 0xd9 && first <= 0xdb) { if (!walk_number(walk, (size_t)1 << (first - 0xd9), &size)) return false; found = STRING; }
        else if (first >= 0xc4 && first <= 0xc6) { if (!walk_number(walk, (size_t)1 << (first - 0xc4), &size)) return false; found = BYTES; }
        else if (first == 0xc0) found = NOTHING;
        else if (first == 0xc1) return false;
        else if (first >= 0xc7 && first <= 0xc9) { if (!walk_number(walk, (size_t)1 << (first - 0xc7), &size)) return false; size++; }
        else if (first == 0xca || first == 0xcb) size = first == 0xca ? 4 : 8;
        else if (first >= 0xcc && first <= 0xd3) size = (uint64_t)1 << (first & 3);
        else if (first >= 0xd4 && first <= 0xd8) size = ((uint64_t)1 << (first - 0xd4)) + 1;
        else if ((first & 0xf0) == 0x90) pending += first & 15;
        else if ((first & 0xf0) == 0x80) pending += 2 * (first & 15);
        else if (first >= 0xdc && first <= 0xdf) {
            uint64_t items;
            if (!walk_number(walk, first & 1 ? 4 : 2, &items)) return false;
            pending += first >= 0xde ? 2 * items : items;
        }
        /* Each value has at least one byte, so this many cannot follow. It also limits what is counted. */
        if (pending > (uint64_t)(walk->end - walk->at)) return false;
        if (!walk_bytes(walk, size, top ? piece : NULL)) return false;
        if (top) *kind = found;
    }
    return true;
}

bool split_map(Piece body, Piece *value, Piece *meta)
{
    Walk walk = {body.at, body.at + body.size};
    uint64_t first, keys;
    *value = *meta = piece_of(NULL, 0);
    if (body.size == 0 || !walk_number(&walk, 1, &first)) return false;
    if ((first & 0xf0) == 0x80) keys = first & 15;
    else if (first != 0xde && first != 0xdf) return false;
    else if (!walk_number(&walk, first == 0xde ? 2 : 4, &keys)) return false;
    for (; keys; keys--) {
        int kind;
        Piece key, found;
        if (!walk_value(&walk, &kind, &key) || kind != STRING) return false;
        if (!walk_value(&walk, &kind, &found)) return false;
        if (equals(key, "v", 1)) {
            if (kind != BYTES && kind != NOTHING) return false;
            *value = found;
        } else if (equals(key, "meta", 4)) {
            if (kind != STRING || !utf8_valid(found)) return false;
            *meta = found;
        }
    }
    return walk.at == walk.end;
}

/* -- either -------------------------------------------------------------------------------------------------------- */

bool data_of(Piece body, Piece *data)
{
    Piece meta;
    Parts parts;
    if (body.size == 0 || body.at[0] != '{') return split_map(body, data, &meta);
    if (!begins_with(body, "{\"data\":", 8) || !ends_surely(body) || has_key(body, ",\"meta\":")) {
        bool sound = split_object(body, &parts);
        *data = parts.data;
        return sound;
    }
    size_t begin = behind_spaces(body, 8), end = body.size - 1;
    *data = piece_of(body.at + begin, end > begin ? end - begin : 0);
    return data->size && body.at[end] == '}';
}
