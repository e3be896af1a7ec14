/* Lists of networks, and who a client is; what headers say of the scheme and the host is tested
 * with the door that asks (door/test_artifact). */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "http/conn.h"
#include "http/forwarded.h"
#include "os/os.h"

static bool has(const struct http_networks *networks, const char *address)
{
    uint8_t bytes[16] = {[10] = 0xff, [11] = 0xff};
    if (inet_pton(AF_INET, address, bytes + 12) != 1) {
        assert_int_equal(inet_pton(AF_INET6, address, bytes), 1);
    }
    return http_networks_have(networks, bytes);
}

static void test_lists(void **state)
{
    static const struct {
        const char *list, *in, *out;
    } rows[] = {
        {"127.0.0.1", "127.0.0.1", "127.0.0.2"},
        {"127.0.0.1", "::ffff:127.0.0.1", "::1"},
        {"10.0.0.0/8", "10.255.255.255", "11.0.0.0"},
        {"10.0.0.0/8", "10.0.0.0", "9.255.255.255"},
        {"192.168.4.0/22", "192.168.7.255", "192.168.8.0"},
        {"1.2.3.4/32", "1.2.3.4", "1.2.3.5"},
        {"1.2.3.4/31", "1.2.3.5", "1.2.3.6"},
        {"0.0.0.0/0", "255.255.255.255", "fd00::1"},
        {"::/0", "1.2.3.4", NULL},
        {"fd00::/8", "fdff::1", "fe00::1"},
        {"fd00::5/128", "fd00::5", "fd00::4"},
        {"fd00::5", "fd00::5", "fd00::4"},
        {"2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::1"},
        {" 127.0.0.1 ,\t::1 ", "::1", "::2"},
        {"1.1.1.1,2.2.2.2,3.3.3.3", "3.3.3.3", "4.4.4.4"},
        {"", NULL, "127.0.0.1"},
        {"  ", NULL, "127.0.0.1"},
    };
    struct http_networks networks;
    struct err e = {0};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (http_networks_parse(rows[i].list, &networks, &e) != 0) {
            fail_msg("%s: %s", rows[i].list, e.text);
        }
        if (rows[i].in != NULL && !has(&networks, rows[i].in)) {
            fail_msg("%s does not have %s", rows[i].list, rows[i].in);
        }
        if (rows[i].out != NULL && has(&networks, rows[i].out)) {
            fail_msg("%s has %s", rows[i].list, rows[i].out);
        }
    }
}

static void test_what_is_no_list(void **state)
{
    static const char *const texts[] = {",",
                                        "127.0.0.1,",
                                        ",127.0.0.1",
                                        "127.0.0.1 ::1",
                                        "localhost",
                                        "a.example",
                                        "127.0.0",
                                        "::ffff:10.0.0.0/8",
                                        "::ffff:0:0/95",
                                        "127.0.0.1/",
                                        "127.0.0.1/33",
                                        "127.0.0.1/-1",
                                        "::1/129",
                                        "::1/1000",
                                        "10.0.0.0/8x",
                                        "10.0.0.0/ 8",
                                        "256.0.0.1",
                                        "::g",
                                        "[::1]",
                                        "127.0.0.1:80",
                                        "/8",
                                        "fe80::1%eth0",
                                        "127.0.0.1/+8",
                                        "127.0.0.1//8"};
    struct http_networks networks;
    char many[1024] = "1.1.1.1";
    struct err e = {0};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (http_networks_parse(texts[i], &networks, &e) != ERR_USAGE) {
            fail_msg("\"%s\" is a list", texts[i]);
        }
    }
    for (unsigned i = 1; i < HTTP_NETWORKS_MAX; i++) {
        strcat(many, ",1.1.1.1");
    }
    assert_int_equal(http_networks_parse(many, &networks, &e), 0);
    assert_int_equal(networks.count, HTTP_NETWORKS_MAX);
    strcat(many, ",1.1.1.1");
    assert_int_equal(http_networks_parse(many, &networks, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "32"));
}

/* ---- who the client is ---- */

static const char *far_end; /* NULL: it cannot be told */

static int some_getpeername(int fd, struct sockaddr *a, unsigned *len)
{
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    (void)fd;
    if (far_end == NULL) {
        return -ENOTCONN;
    }
    if (inet_pton(AF_INET, far_end, &four.sin_addr) == 1) {
        memcpy(a, &four, sizeof four);
        *len = sizeof four;
        return 0;
    }
    assert_int_equal(inet_pton(AF_INET6, far_end, &six.sin6_addr), 1);
    memcpy(a, &six, sizeof six);
    *len = sizeof six;
    return 0;
}

static void check_client(const char *from, const char *headers, const char *want)
{
    static const struct http_head_limits limits = {
        .head_bytes_max = 1024, .target_bytes_max = 256, .fields_max = 16};
    struct http_field fields[16];
    struct http_networks proxies;
    struct http_conn conn = {.fd = 7};
    struct http_request req = {.conn = &conn};
    struct err e = {0};
    char text[1024];
    char out[HTTP_ADDRESS_MAX];
    int n = snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: a\r\n%s\r\n", headers);
    assert_int_equal(http_networks_parse("127.0.0.1, 10.0.0.0/8, fd00::/8", &proxies, &e), 0);
    assert_int_equal(http_head_parse(&req.head, fields, 16, &limits, text, (size_t)n), 0);
    far_end = from;
    memset(out, 'x', sizeof out);
    http_client_address(&req, &proxies, out);
    if (strcmp(out, want) != 0) {
        fail_msg("%s, %s: \"%s\", not \"%s\"", from != NULL ? from : "nobody", headers, out, want);
    }
}

static void test_clients(void **state)
{
    static const struct {
        const char *from, *headers, *want;
    } rows[] = {
        /* Nobody stands between, whatever it says of itself. */
        {"192.0.2.7", "", "192.0.2.7"},
        {"::ffff:192.0.2.7", "", "192.0.2.7"},
        {"2001:db8:1:2:3:4:5:6", "", "2001:db8:1:2::"},
        {"127.0.0.2", "", ""},
        {"::1", "", ""},
        {NULL, "X-Forwarded-For: 192.0.2.8\r\n", ""},
        {"192.0.2.7", "X-Forwarded-For: 192.0.2.8\r\n", "192.0.2.7"},
        {"192.0.2.7", "Forwarded: for=192.0.2.8\r\n", "192.0.2.7"},
        {"127.0.0.2", "X-Forwarded-For: 192.0.2.8\r\n", ""},
        /* A proxy of ours. */
        {"10.0.0.1", "", ""},
        {"10.0.0.1", "X-Forwarded-For: 192.0.2.8\r\n", "192.0.2.8"},
        {"127.0.0.1", "X-Forwarded-For: 192.0.2.8\r\n", "192.0.2.8"},
        {"::ffff:10.0.0.1", "X-Forwarded-For: 192.0.2.8\r\n", "192.0.2.8"},
        {"fd00::1", "X-Forwarded-For: 2001:db8:1:2:3::9\r\n", "2001:db8:1:2::"},
        {"10.0.0.1", "X-Forwarded-For: 192.0.2.8:4711\r\n", "192.0.2.8"},
        {"10.0.0.1", "X-Forwarded-For: [2001:db8::1]:4711\r\n", "2001:db8::"},
        {"10.0.0.1", "X-Forwarded-For: [2001:db8::1]\r\n", "2001:db8::"},
        {"10.0.0.1", "Forwarded: for=192.0.2.8\r\n", "192.0.2.8"},
        {"10.0.0.1", "Forwarded: proto=https; For=\"192.0.2.8:80\";by=x\r\n", "192.0.2.8"},
        {"10.0.0.1", "Forwarded: for=\"[2001:db8::1]:4711\"\r\n", "2001:db8::"},
        {"10.0.0.1", "Forwarded: proto=https\r\n", ""},
        {"10.0.0.1", "Forwarded: proto=https\r\nX-Forwarded-For: 192.0.2.8\r\n", "192.0.2.8"},
        /* What a stranger wrote stands before what a proxy saw. */
        {"10.0.0.1", "X-Forwarded-For: 203.0.113.1, 192.0.2.8\r\n", "192.0.2.8"},
        {"10.0.0.1", "X-Forwarded-For: x, 192.0.2.8\r\n", "192.0.2.8"},
        {"10.0.0.1", "X-Forwarded-For: 203.0.113.1\r\nX-Forwarded-For: 192.0.2.8\r\n", "192.0.2.8"},
        {"10.0.0.1", "X-Forwarded-For: 203.0.113.1, 192.0.2.8, 10.9.9.9, fd00::2\r\n", "192.0.2.8"},
        {"10.0.0.1", "Forwarded: for=203.0.113.1, for=192.0.2.8, for=10.0.0.9\r\n", "192.0.2.8"},
        {"10.0.0.1", "Forwarded: for=\"203.0.113.1, for=192.0.2.8\r\n", "192.0.2.8"},
        /* And it is his, too, when what the proxy appended names nobody. */
        {"10.0.0.1", "Forwarded: for=203.0.113.1, proto=https\r\n", "?"},
        {"10.0.0.1", "Forwarded: for=203.0.113.1\r\nForwarded: by=x;host=a\r\n", "?"},
        {"10.0.0.1", "Forwarded: for=203.0.113.1,\r\n", "?"},
        {"10.0.0.1", "Forwarded: proto=https, for=192.0.2.8\r\n", "192.0.2.8"},
        /* All are ours: the one farthest off. */
        {"10.0.0.1", "X-Forwarded-For: 10.0.0.7, 10.0.0.3\r\n", "10.0.0.7"},
        /* Both must agree: most proxies pass one of the two on as it came. */
        {"10.0.0.1", "Forwarded: for=192.0.2.8\r\nX-Forwarded-For: 192.0.2.8\r\n", "192.0.2.8"},
        {"10.0.0.1", "Forwarded: for=203.0.113.1\r\nX-Forwarded-For: 192.0.2.8\r\n", "?"},
        {"10.0.0.1", "Forwarded: for=_x\r\nX-Forwarded-For: 192.0.2.8\r\n", "?"},
        /* Nobody that can be told. */
        {"10.0.0.1", "Forwarded: for=unknown\r\n", "?"},
        {"10.0.0.1", "Forwarded: for=_hidden\r\n", "?"},
        {"10.0.0.1", "Forwarded: for=\r\n", "?"},
        {"10.0.0.1", "X-Forwarded-For: \r\n", "?"},
        {"10.0.0.1", "X-Forwarded-For: 192.0.2.8,\r\n", "?"},
        {"10.0.0.1", "X-Forwarded-For: 192.0.2.8, unknown\r\n", "?"},
        {"10.0.0.1", "X-Forwarded-For: unknown, 10.0.0.3\r\n", "?"},
        {"10.0.0.1", "X-Forwarded-For: 192.0.2.8:\r\n", "?"},
        {"10.0.0.1", "X-Forwarded-For: 192.0.2.8:123456\r\n", "?"},
        {"10.0.0.1", "X-Forwarded-For: 192.0.2.8:8x\r\n", "?"},
        {"10.0.0.1", "X-Forwarded-For: [192.0.2.8]\r\n", "?"},
        {"10.0.0.1", "X-Forwarded-For: [2001:db8::1\r\n", "?"},
        {"10.0.0.1", "X-Forwarded-For: [2001:db8::1]x\r\n", "?"},
        {"10.0.0.1", "X-Forwarded-For: 192.0.2.8/24\r\n", "?"},
        {"10.0.0.1", "X-Forwarded-For: []\r\n", "?"},
        {"10.0.0.1",
         "X-Forwarded-For: 1111111111111111111111111111111111111111111111111111111111111111\r\n",
         "?"},
        {"10.0.0.1", "X-Forwarded-For: 127.0.0.5\r\n", ""},
    };
    struct os_table table = *os_current();
    (void)state;
    table.getpeername = some_getpeername;
    os_install(&table);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        check_client(rows[i].from, rows[i].headers, rows[i].want);
    }
    os_install(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_what_is_no_list),
        cmocka_unit_test(test_clients),
    };
    return cmocka_run_group_tests_name("forwarded", tests, NULL, NULL);
}
