/* token: small comparisons of RFC 9110 that heads, bodies and routes share. ASCII only, whatever
 * the locale says. */
#include "http/head.h"

/* Token characters in lower case, 0 for all others. */
const char http_token_lower[256] = {
    ['!'] = '!', ['#'] = '#', ['$'] = '$', ['%'] = '%', ['&'] = '&', ['\''] = '\'', ['*'] = '*',
    ['+'] = '+', ['-'] = '-', ['.'] = '.', ['^'] = '^', ['_'] = '_', ['`'] = '`',   ['|'] = '|',
    ['~'] = '~', ['0'] = '0', ['1'] = '1', ['2'] = '2', ['3'] = '3', ['4'] = '4',   ['5'] = '5',
    ['6'] = '6', ['7'] = '7', ['8'] = '8', ['9'] = '9', ['A'] = 'a', ['B'] = 'b',   ['C'] = 'c',
    ['D'] = 'd', ['E'] = 'e', ['F'] = 'f', ['G'] = 'g', ['H'] = 'h', ['I'] = 'i',   ['J'] = 'j',
    ['K'] = 'k', ['L'] = 'l', ['M'] = 'm', ['N'] = 'n', ['O'] = 'o', ['P'] = 'p',   ['Q'] = 'q',
    ['R'] = 'r', ['S'] = 's', ['T'] = 't', ['U'] = 'u', ['V'] = 'v', ['W'] = 'w',   ['X'] = 'x',
    ['Y'] = 'y', ['Z'] = 'z', ['a'] = 'a', ['b'] = 'b', ['c'] = 'c', ['d'] = 'd',   ['e'] = 'e',
    ['f'] = 'f', ['g'] = 'g', ['h'] = 'h', ['i'] = 'i', ['j'] = 'j', ['k'] = 'k',   ['l'] = 'l',
    ['m'] = 'm', ['n'] = 'n', ['o'] = 'o', ['p'] = 'p', ['q'] = 'q', ['r'] = 'r',   ['s'] = 's',
    ['t'] = 't', ['u'] = 'u', ['v'] = 'v', ['w'] = 'w', ['x'] = 'x', ['y'] = 'y',   ['z'] = 'z',
};

bool http_is_token(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (http_token_lower[(unsigned char)s.ptr[i]] == 0) {
            return false;
        }
    }
    return s.len != 0;
}

bool http_equal_fold(struct slice s, const char *lower)
{
    size_t i = 0;

    for (; i < s.len; i++) {
        char c = s.ptr[i];

        if (c >= 'A' && c <= 'Z') {
            c = (char)(c - 'A' + 'a');
        }
        if (lower[i] == '\0' || c != lower[i]) {
            return false;
        }
    }
    return lower[i] == '\0';
}

bool http_head_find(const struct http_head *h, struct slice name, struct slice *value,
                    unsigned *count)
{
    unsigned found = 0;

    for (unsigned i = 0; i < h->field_count; i++) {
        if (slice_eq(h->fields[i].name, name)) {
            if (found == 0 && value != NULL) {
                *value = h->fields[i].value;
            }
            found++;
            if (count == NULL) {
                break;
            }
        }
    }
    if (count != NULL) {
        *count = found;
    }
    return found != 0;
}
