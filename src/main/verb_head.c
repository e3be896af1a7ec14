/* tallyman head: asks the server for its signed head (docs/PROTOCOL.md, section 17), checks the
 * signature with the key in it, and prints it: for people, as the JSON to keep elsewhere, or its
 * public key as PEM. */
#include <inttypes.h>

#include "door/history/signed_head.h"
#include "main/api.h"
#include "main/args.h"
#include "main/output.h"
#include "main/verbs.h"

#define VERB "head"

static void print_lines(const struct signed_head *h)
{
    char hex[SHA256_HEX_LEN];
    char id[UUID_TEXT_LEN];

    uuid_text(id, &h->last_id);
    output_printf("last event  %.36s\n", h->empty ? "none" : id);
    output_printf("events      %" PRIu64 "\n", h->events);
    hex_encode(hex, h->head, SHA256_LEN);
    output_printf("chain head  %.64s\n", hex);
    output_printf("signed at   %s\n", h->signed_at);
    signed_head_key_id(h->public_key, hex);
    output_printf("key id      %.64s\n", hex);
}

static int show(const struct client_answer *answer, bool public_key, bool json)
{
    struct signed_head h;
    struct err e = {0};
    struct buf pem = {0};

    if (signed_head_read(buf_slice(&answer->body), &h, &e) != 0) {
        output_error(VERB, "the answer is no signed head: %s", e.text);
        return EXIT_FAILED;
    }
    if (!signed_head_check(&h, h.public_key)) {
        output_error(VERB, "the head's signature is not its key's");
        return EXIT_FAILED;
    }
    if (public_key) {
        ed25519_put_public_pem(&pem, h.public_key);
        output_put(buf_slice(&pem));
    } else if (json) {
        output_put(buf_slice(&answer->body));
        output_put(SLICE("\n"));
    } else {
        print_lines(&h);
    }
    buf_free(&pem);
    return EXIT_DONE;
}

int verb_head(int argc, char **argv)
{
    bool json = false;
    bool public_key = false;
    struct client_target target = {
        .verb = VERB, .timeout_s = CLIENT_TIMEOUT_S, .retry_s = CLIENT_RETRY_S};
    const struct arg_option options[] = {
        {.name = "public-key",
         .type = ARG_SWITCH,
         .target = &public_key,
         .help = "print only the public key that heads are signed with, as PEM"},
        CLIENT_OPTION_DATA(target),
        CLIENT_OPTIONS_URL(target),
        CLIENT_OPTION_TIMEOUT(target),
        CLIENT_OPTION_RETRY(target),
        {.name = "json",
         .type = ARG_SWITCH,
         .target = &json,
         .help = "print the signed object, to be kept elsewhere for `verify --head`"},
    };
    const struct arg_verb verb = {.name = VERB,
                                  .operands = "",
                                  .about = "Prints where the journal stands, signed by the server: "
                                           "last event, count, chain head, time.\n",
                                  .options = options,
                                  .option_count = sizeof options / sizeof *options};
    struct args args;
    int code = EXIT_USAGE;
    if (!args_begin(&verb, argc, argv, &args, &code)) {
        return code;
    }
    const struct client_request req = {.path = "/v1/head", .repeatable = true};
    struct client_answer answer = {0};
    if (api_call(&target, &req, &answer, &code)) {
        code = show(&answer, public_key, json);
    }
    client_answer_free(&answer);
    return output_close(VERB, code);
}
