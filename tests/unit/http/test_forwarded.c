/* Lists of networks; what headers say is tested with the door that asks (door/test_artifact). */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "http/forwarded.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_what_is_no_list),
    };
    return cmocka_run_group_tests_name("forwarded", tests, NULL, NULL);
}
