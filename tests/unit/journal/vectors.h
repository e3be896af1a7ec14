/* Made by tests/vectors/make_vectors.py; not edited by hand. */
#ifndef JOURNAL_VECTORS_H
#define JOURNAL_VECTORS_H

#include <stdint.h>

/* One event a row, in log order from the genesis head on. */
struct vector {
    const char *batch_id;
    const char *source;
    const char *stream;
    const char *record_key;
    const char *kind;
    const char *occurred_at;
    const char *payload;
    const char *content_hash;
    const char *event_id;
    const char *observed_at;
    const char *event_hash;
    const char *batch_digest;
    const char *head;
    const char *stored;
    const char *replayed;
    uint64_t ms, group;
    unsigned tag, index;
    uint32_t batch_len, in_batch;
};

static const struct vector vectors[] = {
    {"\"batch\"",
     "\"source\"",
     "\"stream\"",
     "\"key\"",
     "\"upserted\"",
     "",
     "1",
     "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b",
     "01a3185c-5000-7000-8000-000012340000",
     "2027-01-15T08:00:00.000Z",
     "b46addd5b493d5fb0718bfc7848922daf070f1fcd3f20c348410fcdce669e09f",
     "f2f766e2c9baa046927f9af5d77685f3e54be212175f40cbff12342d8e272ec4",
     "6cd787a8a0b92293d3d2186bccfe383c4eeadaa796756362d7f420af7ff4cba1",
     "{\"batch_digest\":\"f2f766e2c9baa046927f9af5d77685f3e54be212175f40cbff12342d8e272"
     "ec4\",\"batch_id\":\"batch\",\"batch_len\":1,\"content_hash\":\"6b86b273ff34fce19"
     "d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b\",\"event_hash\":\"b46addd5b493d5"
     "fb0718bfc7848922daf070f1fcd3f20c348410fcdce669e09f\",\"event_id\":\"01a3185c-5000"
     "-7000-8000-000012340000\",\"kind\":\"upserted\",\"observed_at\":\"2027-01-15T08:0"
     "0:00.000Z\",\"payload\":1,\"record_key\":\"key\",\"source\":\"source\",\"stream\""
     ":\"stream\"}",
     "{\"batch_id\":\"batch\",\"content_hash\":\"6b86b273ff34fce19d6b804eff5a3f5747ada4"
     "eaa22f1d49c01e52ddb7875b4b\",\"event_hash\":\"b46addd5b493d5fb0718bfc7848922daf07"
     "0f1fcd3f20c348410fcdce669e09f\",\"event_id\":\"01a3185c-5000-7000-8000-0000123400"
     "00\",\"kind\":\"upserted\",\"observed_at\":\"2027-01-15T08:00:00.000Z\",\"payload"
     "\":1,\"record_key\":\"key\",\"source\":\"source\",\"stream\":\"stream\"}",
     UINT64_C(1800000000000),
     UINT64_C(0),
     4660,
     0,
     1,
     0},
    {"\"run \\\"118\\\" \\\\ a/b\\n\303\251\177\342\200\250\"",
     "\"stripe\"",
     "\"customers\"",
     "\"cus_1\"",
     "\"upserted\"",
     "\"2026-11-30T09:00:00Z\"",
     "{\"balance\":12.5,\"email\":\"kim@example.com\",\"id\":\"cus_1\"}",
     "1f3bd02b1d38c4cb9fe4002da9c9f5e43ca05930b54b7e872b4e55dbdfb6baf6",
     "01a3185c-5001-7000-8000-000052340000",
     "2027-01-15T08:00:00.001Z",
     "e0cc4fe1b37f05c1ee23bc6b1ad84674a79f9ca7e724c5513cb989a1f2fb5650",
     "e6eba4b8552affb57477600e00213af15ff4e966dd0484045de0f6c8c13e4a3e",
     "7d50cd950fa1d682559ace737981b8af80f995ca03495a9e34b4168be08ca510",
     "{\"batch_digest\":\"e6eba4b8552affb57477600e00213af15ff4e966dd0484045de0f6c8c13e4"
     "a3e\",\"batch_id\":\"run \\\"118\\\" \\\\ a/b\\n\303\251\177\342\200\250\",\"batc"
     "h_len\":3,\"content_hash\":\"1f3bd02b1d38c4cb9fe4002da9c9f5e43ca05930b54b7e872b4e"
     "55dbdfb6baf6\",\"event_hash\":\"e0cc4fe1b37f05c1ee23bc6b1ad84674a79f9ca7e724c5513"
     "cb989a1f2fb5650\",\"event_id\":\"01a3185c-5001-7000-8000-000052340000\",\"kind\":"
     "\"upserted\",\"observed_at\":\"2027-01-15T08:00:00.001Z\",\"occurred_at\":\"2026-"
     "11-30T09:00:00Z\",\"payload\":{\"balance\":12.5,\"email\":\"kim@example.com\",\"i"
     "d\":\"cus_1\"},\"record_key\":\"cus_1\",\"source\":\"stripe\",\"stream\":\"custom"
     "ers\"}",
     "{\"batch_id\":\"run \\\"118\\\" \\\\ a/b\\n\303\251\177\342\200\250\",\"content_h"
     "ash\":\"1f3bd02b1d38c4cb9fe4002da9c9f5e43ca05930b54b7e872b4e55dbdfb6baf6\",\"even"
     "t_hash\":\"e0cc4fe1b37f05c1ee23bc6b1ad84674a79f9ca7e724c5513cb989a1f2fb5650\",\"e"
     "vent_id\":\"01a3185c-5001-7000-8000-000052340000\",\"kind\":\"upserted\",\"observ"
     "ed_at\":\"2027-01-15T08:00:00.001Z\",\"occurred_at\":\"2026-11-30T09:00:00Z\",\"p"
     "ayload\":{\"balance\":12.5,\"email\":\"kim@example.com\",\"id\":\"cus_1\"},\"reco"
     "rd_key\":\"cus_1\",\"source\":\"stripe\",\"stream\":\"customers\"}",
     UINT64_C(1800000000001),
     UINT64_C(1),
     4660,
     0,
     3,
     0},
    {"\"run \\\"118\\\" \\\\ a/b\\n\303\251\177\342\200\250\"",
     "\"stripe\"",
     "\"customers\"",
     "\"k\\\"\\\\\\t\"",
     "\"deleted\"",
     "",
     "null",
     "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b",
     "01a3185c-5001-7000-8000-000052340001",
     "2027-01-15T08:00:00.001Z",
     "07766f47224ee96bae7a29d5992ab0f56dd3810feaf1b5aa109c89ca217d6561",
     "e6eba4b8552affb57477600e00213af15ff4e966dd0484045de0f6c8c13e4a3e",
     "216399abb1b835492f52772a46db127f67498b08e91ba8868599febfe2b50fcf",
     "{\"batch_digest\":\"e6eba4b8552affb57477600e00213af15ff4e966dd0484045de0f6c8c13e4"
     "a3e\",\"batch_id\":\"run \\\"118\\\" \\\\ a/b\\n\303\251\177\342\200\250\",\"batc"
     "h_len\":3,\"content_hash\":\"74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c01"
     "9892f982b90b\",\"event_hash\":\"07766f47224ee96bae7a29d5992ab0f56dd3810feaf1b5aa1"
     "09c89ca217d6561\",\"event_id\":\"01a3185c-5001-7000-8000-000052340001\",\"kind\":"
     "\"deleted\",\"observed_at\":\"2027-01-15T08:00:00.001Z\",\"payload\":null,\"recor"
     "d_key\":\"k\\\"\\\\\\t\",\"source\":\"stripe\",\"stream\":\"customers\"}",
     "{\"batch_id\":\"run \\\"118\\\" \\\\ a/b\\n\303\251\177\342\200\250\",\"content_h"
     "ash\":\"74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b\",\"even"
     "t_hash\":\"07766f47224ee96bae7a29d5992ab0f56dd3810feaf1b5aa109c89ca217d6561\",\"e"
     "vent_id\":\"01a3185c-5001-7000-8000-000052340001\",\"kind\":\"deleted\",\"observe"
     "d_at\":\"2027-01-15T08:00:00.001Z\",\"payload\":null,\"record_key\":\"k\\\"\\\\\\"
     "t\",\"source\":\"stripe\",\"stream\":\"customers\"}",
     UINT64_C(1800000000001),
     UINT64_C(1),
     4660,
     1,
     3,
     1},
    {"\"run \\\"118\\\" \\\\ a/b\\n\303\251\177\342\200\250\"",
     "\"stripe\"",
     "\"in.voices_2-x\"",
     "\"k\"",
     "\"upserted\"",
     "\"2026-11-30T09:00:00.5Z\"",
     "{\"a\":[1,-2,0.25,true,false,null,{\"\":{}}],\"b\":\",\\\"record_key\\\":\\\"x\\\""
     ",\\\"source\\\":\\\"\"}",
     "b2a05fdebe121b7334bc3e873cd3c306346dd76a636382d1a1f150e15d8e563c",
     "01a3185c-5001-7000-8000-000052340002",
     "2027-01-15T08:00:00.001Z",
     "b252e3de92b79605d1ae45b34f3585bc5fe6615a648651ffd3e82ed47ae281bd",
     "e6eba4b8552affb57477600e00213af15ff4e966dd0484045de0f6c8c13e4a3e",
     "1ffb357401128e228753e5d2758ada1367336a216a199d601dbf26a45125d21e",
     "{\"batch_digest\":\"e6eba4b8552affb57477600e00213af15ff4e966dd0484045de0f6c8c13e4"
     "a3e\",\"batch_id\":\"run \\\"118\\\" \\\\ a/b\\n\303\251\177\342\200\250\",\"batc"
     "h_len\":3,\"content_hash\":\"b2a05fdebe121b7334bc3e873cd3c306346dd76a636382d1a1f1"
     "50e15d8e563c\",\"event_hash\":\"b252e3de92b79605d1ae45b34f3585bc5fe6615a648651ffd"
     "3e82ed47ae281bd\",\"event_id\":\"01a3185c-5001-7000-8000-000052340002\",\"kind\":"
     "\"upserted\",\"observed_at\":\"2027-01-15T08:00:00.001Z\",\"occurred_at\":\"2026-"
     "11-30T09:00:00.5Z\",\"payload\":{\"a\":[1,-2,0.25,true,false,null,{\"\":{}}],\"b\""
     ":\",\\\"record_key\\\":\\\"x\\\",\\\"source\\\":\\\"\"},\"record_key\":\"k\",\"so"
     "urce\":\"stripe\",\"stream\":\"in.voices_2-x\"}",
     "{\"batch_id\":\"run \\\"118\\\" \\\\ a/b\\n\303\251\177\342\200\250\",\"content_h"
     "ash\":\"b2a05fdebe121b7334bc3e873cd3c306346dd76a636382d1a1f150e15d8e563c\",\"even"
     "t_hash\":\"b252e3de92b79605d1ae45b34f3585bc5fe6615a648651ffd3e82ed47ae281bd\",\"e"
     "vent_id\":\"01a3185c-5001-7000-8000-000052340002\",\"kind\":\"upserted\",\"observ"
     "ed_at\":\"2027-01-15T08:00:00.001Z\",\"occurred_at\":\"2026-11-30T09:00:00.5Z\",\""
     "payload\":{\"a\":[1,-2,0.25,true,false,null,{\"\":{}}],\"b\":\",\\\"record_key\\\""
     ":\\\"x\\\",\\\"source\\\":\\\"\"},\"record_key\":\"k\",\"source\":\"stripe\",\"st"
     "ream\":\"in.voices_2-x\"}",
     UINT64_C(1800000000001),
     UINT64_C(1),
     4660,
     2,
     3,
     2},
    {"\"zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"
     "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"
     "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"
     "zzzzzzzzzzzzzzz\"",
     "\"stripe\"",
     "\"customers\"",
     "\"rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr\"",
     "\"upserted\"",
     "",
     "\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
     "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
     "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
     "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"",
     "d24923841d98dcd5a081ba3b99596483edeeca895b41ded64c8aa77a3c438fa7",
     "01a3185c-5001-7000-8000-000052340003",
     "2027-01-15T08:00:00.001Z",
     "2c9c5628d17a1dce1eb908a3972c4b4d701846a4e87e9843d1ebedf9fdccd973",
     "0769222321675a743d3e75e3e84939da97cc7d01f14ac5f1d1fa4d3f24d7f103",
     "a843494f6a8c80bb8cb9eb961e098fddfc9cc7fedfc7b420530f5f927ff6c16a",
     "{\"batch_digest\":\"0769222321675a743d3e75e3e84939da97cc7d01f14ac5f1d1fa4d3f24d7f"
     "103\",\"batch_id\":\"zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"
     "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"
     "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"
     "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz\",\"batch_len\":1,\"content_hash\":\"d24923841"
     "d98dcd5a081ba3b99596483edeeca895b41ded64c8aa77a3c438fa7\",\"event_hash\":\"2c9c56"
     "28d17a1dce1eb908a3972c4b4d701846a4e87e9843d1ebedf9fdccd973\",\"event_id\":\"01a31"
     "85c-5001-7000-8000-000052340003\",\"kind\":\"upserted\",\"observed_at\":\"2027-01"
     "-15T08:00:00.001Z\",\"payload\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
     "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
     "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
     "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
     "xxxxxxxxxx\",\"record_key\":\"rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "r\",\"source\":\"stripe\",\"stream\":\"customers\"}",
     "{\"batch_id\":\"zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"
     "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"
     "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"
     "zzzzzzzzzzzzzzzzzzzzzzzzzzzzz\",\"content_hash\":\"d24923841d98dcd5a081ba3b995964"
     "83edeeca895b41ded64c8aa77a3c438fa7\",\"event_hash\":\"2c9c5628d17a1dce1eb908a3972"
     "c4b4d701846a4e87e9843d1ebedf9fdccd973\",\"event_id\":\"01a3185c-5001-7000-8000-00"
     "0052340003\",\"kind\":\"upserted\",\"observed_at\":\"2027-01-15T08:00:00.001Z\",\""
     "payload\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
     "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
     "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
     "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\",\"record_"
     "key\":\"rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr\",\"source\":\"strip"
     "e\",\"stream\":\"customers\"}",
     UINT64_C(1800000000001),
     UINT64_C(1),
     4660,
     3,
     1,
     0},
    {"\"end\"",
     "\"last\"",
     "\"s\"",
     "\"\360\237\230\200\"",
     "\"upserted\"",
     "\"9999-12-31T23:59:59.999999999Z\"",
     "\"\\u0001\\u001f\\b\\f\\r\"",
     "d27cfc3182322bd77f6e209049c29008e2d5d8bdcc2f15ca2e5601c5da352477",
     "e677d21f-dbff-7fff-bfff-ffffffffffff",
     "9999-12-31T23:59:59.999Z",
     "f534c9e4ed7066589503323763ab2da6fa5f1b2cbcb71e6769519e5fa82052ea",
     "721f5798d6fb823525c26fa8aeb0903af439061893431f2d97e14c69ea8f9285",
     "00ca367275dca914a02c7743f2b9e4ae73387f68f80fbd174d47cb1fc52dd4cc",
     "{\"batch_digest\":\"721f5798d6fb823525c26fa8aeb0903af439061893431f2d97e14c69ea8f9"
     "285\",\"batch_id\":\"end\",\"batch_len\":1,\"content_hash\":\"d27cfc3182322bd77f6"
     "e209049c29008e2d5d8bdcc2f15ca2e5601c5da352477\",\"event_hash\":\"f534c9e4ed706658"
     "9503323763ab2da6fa5f1b2cbcb71e6769519e5fa82052ea\",\"event_id\":\"e677d21f-dbff-7"
     "fff-bfff-ffffffffffff\",\"kind\":\"upserted\",\"observed_at\":\"9999-12-31T23:59:"
     "59.999Z\",\"occurred_at\":\"9999-12-31T23:59:59.999999999Z\",\"payload\":\"\\u000"
     "1\\u001f\\b\\f\\r\",\"record_key\":\"\360\237\230\200\",\"source\":\"last\",\"str"
     "eam\":\"s\"}",
     "{\"batch_id\":\"end\",\"content_hash\":\"d27cfc3182322bd77f6e209049c29008e2d5d8bd"
     "cc2f15ca2e5601c5da352477\",\"event_hash\":\"f534c9e4ed7066589503323763ab2da6fa5f1"
     "b2cbcb71e6769519e5fa82052ea\",\"event_id\":\"e677d21f-dbff-7fff-bfff-ffffffffffff"
     "\",\"kind\":\"upserted\",\"observed_at\":\"9999-12-31T23:59:59.999Z\",\"occurred_"
     "at\":\"9999-12-31T23:59:59.999999999Z\",\"payload\":\"\\u0001\\u001f\\b\\f\\r\",\""
     "record_key\":\"\360\237\230\200\",\"source\":\"last\",\"stream\":\"s\"}",
     UINT64_C(253402300799999),
     UINT64_C(17592186044415),
     16383,
     65535,
     1,
     0},
};

#endif
