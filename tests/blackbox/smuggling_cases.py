"""Requests that two implementations could read differently, and what Tallyman's front must make of each.

A case is a name, the raw bytes, the statuses that come back in order, and what becomes of the connection: `close`
(nothing more is read as a request, the connection ends) or `keep` (a further request on it is served). SMUGGLED
is a complete request that must never be served when it hides in what another request leaves behind; the suite
reads the count of its servings after every case.
"""

HOST = b"Host: localhost\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
GET = b"GET /open HTTP/1.1\r\n"
POST = b"POST /echo HTTP/1.1\r\n"
CHUNKED = POST + HOST + b"Transfer-Encoding: chunked\r\n\r\n"


class Case:
    def __init__(self, name, raw, statuses, end="close", holds=None, lacks=None):
        self.name = name
        self.raw = raw
        self.statuses = statuses if isinstance(statuses, list) else [statuses]
        self.end = end
        self.holds = holds  # bytes that must be in the answers
        self.lacks = lacks


CASES = []


def case(name, raw, statuses, end="close", holds=None, lacks=None):
    CASES.append(Case(name, raw, statuses, end, holds, lacks))


def bad_head(name, raw):
    """A head that is refused; what follows it must not be served."""
    case(name, raw + SMUGGLED, 400)


def bad_field(name, line):
    bad_head(name, GET + HOST + line + b"\r\n\r\n")


def good(name, raw, statuses=200, holds=None, lacks=None):
    case(name, raw, statuses, "keep", holds, lacks)


# ---- ends of lines, folds, control bytes ----
bad_head("bare LF everywhere", b"GET /open HTTP/1.1\nHost: localhost\n\n")
bad_head("bare LF behind the request line", b"GET /open HTTP/1.1\nHost: localhost\r\n\r\n")
bad_head("bare LF behind a field", GET + b"Host: localhost\nX: y\r\n\r\n")
bad_head("bare LF ends the head", GET + HOST + b"\n")
bad_head("CR CR LF", GET + b"Host: localhost\r\r\n\r\n")
bad_head("LF CR", GET + b"Host: localhost\n\r\n\r")
bad_head("bare CR in the request line", b"GET /open\r HTTP/1.1\r\nHost: localhost\r\n\r\n")
bad_head("bare CR for the end of the request line", b"GET /open HTTP/1.1\rHost: localhost\r\n\r\n")
bad_field("bare CR in a value", b"X: a\rb")
bad_field("bare CR before a hidden length", b"X: a\rContent-Length: 44")
bad_field("bare LF before a hidden length", b"X: a\nContent-Length: 44")
bad_field("fold with a space", b"X: a\r\n b")
bad_field("fold with a tab", b"X: a\r\n\tb")
bad_head("fold behind the request line", GET + b" Host: localhost\r\n\r\n")
bad_field("folded transfer coding", b"Transfer-Encoding:\r\n chunked")
bad_field("folded length", b"X: y\r\n Content-Length: 44")
bad_head("a line of one space ends nothing", GET + HOST + b" \r\n\r\n")
bad_head("NUL in the method", b"GE\0T /open HTTP/1.1\r\n" + HOST + b"\r\n")
bad_head("NUL in the target", b"GET /op\0en HTTP/1.1\r\n" + HOST + b"\r\n")
bad_field("NUL in a field name", b"X\0: a")
bad_field("NUL in a value", b"X: a\0b")
bad_field("NUL behind a name", b"Content-Length\0: 5")
bad_field("control byte in a value", b"X: a\x01b")
bad_field("DEL in a value", b"X: a\x7fb")
bad_field("escape in a value", b"X: \x1b[31m")
bad_field("vertical tab before a value", b"Transfer-Encoding: \x0bchunked")
bad_field("form feed before a value", b"Transfer-Encoding: \x0cchunked")
bad_head("three empty lines first", b"\r\n\r\n\r\n" + GET + HOST + b"\r\n")
bad_head("LF first", b"\n" + GET + HOST + b"\r\n")
bad_head("space first", b" " + GET + HOST + b"\r\n")
bad_head("CR first", b"\r" + GET + HOST + b"\r\n")
good("one empty line first", b"\r\n" + GET + HOST + b"\r\n")
good("two empty lines first", b"\r\n\r\n" + GET + HOST + b"\r\n")
good("empty line between requests", GET + HOST + b"\r\n\r\n" + GET + HOST + b"\r\n", [200, 200])
good("tab inside a value", GET + HOST + b"X: a\tb\r\n\r\n")
good("bytes over 127 in a value", GET + HOST + b"X: \xc3\xa9\xff\r\n\r\n")
good("empty value", GET + HOST + b"X:\r\nY: \t \r\n\r\n")

# ---- the request line ----
bad_head("two spaces before the target", b"GET  /open HTTP/1.1\r\n" + HOST + b"\r\n")
bad_head("two spaces before the version", b"GET /open  HTTP/1.1\r\n" + HOST + b"\r\n")
bad_head("tab before the target", b"GET\t/open HTTP/1.1\r\n" + HOST + b"\r\n")
bad_head("tab before the version", b"GET /open\tHTTP/1.1\r\n" + HOST + b"\r\n")
bad_head("space behind the version", b"GET /open HTTP/1.1 \r\n" + HOST + b"\r\n")
bad_head("no version", b"GET /open\r\n" + HOST + b"\r\n")
bad_head("no target", b"GET HTTP/1.1\r\n" + HOST + b"\r\n")
bad_head("no method", b"/open HTTP/1.1\r\n" + HOST + b"\r\n")
bad_head("method alone", b"GET\r\n" + HOST + b"\r\n")
bad_head("four words", b"GET /open yes HTTP/1.1\r\n" + HOST + b"\r\n")
bad_head("space in the target", b"GET /open /smuggled HTTP/1.1\r\n" + HOST + b"\r\n")
bad_head("method with a parenthesis", b"GE(T /open HTTP/1.1\r\n" + HOST + b"\r\n")
bad_head("method with a colon", b"GET: /open HTTP/1.1\r\n" + HOST + b"\r\n")
bad_head("method of 33 letters", b"M" * 33 + b" /open HTTP/1.1\r\n" + HOST + b"\r\n")
bad_head("method not ASCII", b"G\xc3\x8bT /open HTTP/1.1\r\n" + HOST + b"\r\n")
for version, status in [(b"HTTP/2.0", 505), (b"HTTP/1.2", 505), (b"HTTP/0.9", 505), (b"HTTP/3.0", 505),
                        (b"HTTP/1.10", 400), (b"HTTP/01.1", 400), (b"http/1.1", 400), (b"HTTPS/1.1", 400),
                        (b"HTTP /1.1", 400), (b"HTTP/1,1", 400), (b"HTTP/1.1x", 400), (b"HTTP/+1.1", 400),
                        (b"HTTP/1", 400), (b"HTTP/1.", 400), (b"ICE/1.0", 400), (b"HTTP/\xd9\xa1.1", 400)]:
    case(f"version {version!r}", b"GET /open " + version + b"\r\n" + HOST + b"\r\n" + SMUGGLED, status)
case("SOURCE speaks no ICE", b"SOURCE /open ICE/1.0\r\n" + HOST + b"\r\n" + SMUGGLED, 400)
case("preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SMUGGLED, 505)
good("method in lower case is another method", b"get /open HTTP/1.1\r\n" + HOST + b"\r\n", 405)
good("unknown method", b"BREW /open HTTP/1.1\r\n" + HOST + b"\r\n", 405)
good("unknown method at a path that takes it", b"BREW /inspect HTTP/1.1\r\n" + HOST + b"\r\n",
     holds=b"method=128")
good("TRACE", b"TRACE /open HTTP/1.1\r\n" + HOST + b"\r\n", 405)
case("CONNECT to an authority", b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n" + SMUGGLED, 501)
case("CONNECT to a path", b"CONNECT /open HTTP/1.1\r\n" + HOST + b"\r\n" + SMUGGLED, 501)

# ---- targets ----
for name, target in [("not ASCII", b"/\xc3\xa9"), ("high byte", b"/\xff"), ("fragment", b"/open#x"),
                     ("no slash", b"open"), ("star for GET", b"*"), ("control byte", b"/op\x01en"),
                     ("DEL", b"/op\x7fen"), ("backslash first", b"\\open"), ("question mark first", b"?x"),
                     ("scheme of its own", b"file:///open"), ("https", b"https://localhost/open"),
                     ("another authority", b"http://evil/open"), ("user", b"http://a@localhost/open"),
                     ("no authority", b"http:///open"), ("authority with a port that Host lacks",
                                                        b"http://localhost:1/open"),
                     ("authority alone", b"localhost:80"), ("scheme alone", b"http:")]:
    bad_head(f"target: {name}", b"GET " + target + b" HTTP/1.1\r\n" + HOST + b"\r\n")
good("target: absolute", b"GET http://localhost/open HTTP/1.1\r\n" + HOST + b"\r\n", holds=b"open")
good("target: absolute, mixed case", b"GET HTTP://LOCALhost/open HTTP/1.1\r\n" + HOST + b"\r\n", holds=b"open")
good("target: absolute without a path", b"GET http://localhost HTTP/1.1\r\n" + HOST + b"\r\n", holds=b"root")
good("target: absolute with a query only", b"GET http://localhost?a HTTP/1.1\r\n" + HOST + b"\r\n", holds=b"root")
case("target: absolute without Host", b"GET http://localhost/open HTTP/1.0\r\n\r\n" + SMUGGLED, 400)
good("target: star for OPTIONS", b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", 404)
good("target: two slashes", b"GET //open HTTP/1.1\r\n" + HOST + b"\r\n", 404)
good("target: encoded path is another path", b"GET /%6fpen HTTP/1.1\r\n" + HOST + b"\r\n", 404)
good("target: dots are not resolved", b"GET /x/../open HTTP/1.1\r\n" + HOST + b"\r\n", 404)
good("target: query", b"GET /inspect?a=1?b&c HTTP/1.1\r\n" + HOST + b"\r\n", holds=b"path=/inspect query=1:a=1?b&c ")
good("target: empty query", b"GET /inspect? HTTP/1.1\r\n" + HOST + b"\r\n", holds=b"path=/inspect query=1: ")
case("target: too long", b"GET /" + b"a" * 16384 + b" HTTP/1.1\r\n" + HOST + b"\r\n" + SMUGGLED, 414)
case("target: endless", b"GET /" + b"a" * 20000, 414)
good("target: as long as can be", b"GET /" + b"a" * 16383 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 404)

# ---- Host ----
bad_head("Host missing", GET + b"\r\n")
bad_head("Host twice, equal", GET + HOST + HOST + b"\r\n")
bad_head("Host twice, different", GET + HOST + b"Host: evil\r\n\r\n")
bad_head("Host twice, other case", GET + HOST + b"hOST: evil\r\n\r\n")
for value in [b"local host", b"localhost, evil", b"localhost/", b"a@localhost", b"local\xc3\xa9", b"localhost?x",
              b"localhost#", b"<localhost>", b"\"localhost\"", b"local\\host"]:
    bad_head(f"Host {value!r}", GET + b"Host: " + value + b"\r\n\r\n")
good("Host empty, open path", GET + b"Host:\r\n\r\n")
good("Host with a port", GET + b"Host: localhost:8080\r\n\r\n")
case("Host missing in 1.0", b"GET /open HTTP/1.0\r\n\r\n" + SMUGGLED, 200)

# ---- field names ----
for name, line in [("space before the colon", b"X : y"), ("tab before the colon", b"X\t: y"),
                   ("space in the name", b"X Y: z"), ("empty name", b": y"), ("no colon", b"X"),
                   ("at sign", b"X@Y: z"), ("parentheses", b"X(Y): z"), ("quotes", b"\"X\": z"),
                   ("not ASCII", b"X\xc3\xa9: z"), ("bracket", b"[X]: z"), ("slash", b"X/Y: z"),
                   ("Host with a space", b"Host : evil"), ("semicolon", b"X;a: z"), ("equals", b"X=a: z"),
                   ("a request line for a field", b"GET /smuggled HTTP/1.1")]:
    bad_field(f"field name: {name}", line)
good("field name: all of a token", GET + HOST + b"!#$%&'*+-.^_`|~09azAZ: x\r\n\r\n")

# ---- Content-Length ----
HELLO = b"\r\n\r\nhello"
for value in [b"5, 5", b"5,6", b"5,", b",5", b"+5", b"-5", b"-0", b"0x5", b"5 5", b"5a", b"a5", b"", b"5.0", b"5;a",
              b"\"5\"", b"99999999999999999999", b"18446744073709551621", b"9223372036854775808", b"5\xa0",
              b"\xd9\xa5", b"1e1", b"5_0", b"five", b"05h"]:
    bad_head(f"length {value!r}", POST + HOST + b"Content-Length: " + value + HELLO)
bad_head("length twice, equal", POST + HOST + b"Content-Length: 5\r\nContent-Length: 5" + HELLO)
bad_head("length twice, different", POST + HOST + b"Content-Length: 5\r\nContent-Length: 49" + HELLO)
bad_head("length twice, other case", POST + HOST + b"Content-Length: 0\r\ncontent-length: 5" + HELLO)
bad_head("length with a space before its colon", POST + HOST + b"Content-Length : 5" + HELLO)
bad_head("length behind a vertical tab", POST + HOST + b"\x0bContent-Length: 5" + HELLO)
good("length with space around", POST + HOST + b"Content-Length: \t 5 \t" + HELLO, holds=b"hello")
good("length with zeros in front", POST + HOST + b"Content-Length: 0005" + HELLO, holds=b"hello")
good("length 0", POST + HOST + b"Content-Length: 0\r\n\r\n")
good("no length is no body", POST + HOST + b"\r\n")
good("a name with an underscore is another name", POST + HOST + b"Content_Length: 5\r\n\r\n" + GET + HOST + b"\r\n",
     [200, 200])
case("length larger than the route's", POST + HOST + b"Content-Length: 65537\r\n\r\n" + SMUGGLED, 413)
case("length at the limit of 63 bits", POST + HOST + b"Content-Length: 999999999999999999\r\n\r\n" + SMUGGLED, 413)
case("body where there is none", GET + HOST + b"Content-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED, 413)
good("body that looks like a request", POST + HOST + b"Content-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED,
     holds=b"GET /smuggled")

# ---- Transfer-Encoding ----
BODY = b"5\r\nhello\r\n0\r\n\r\n"
for value in [b"chunked, chunked", b"gzip, chunked", b"chunked, gzip", b"identity", b"xchunked", b"chunkedx",
              b"chunked;q=1", b"\"chunked\"", b"", b"chunked,", b", chunked", b"chunked chunked", b"chunk ed",
              b"deflate", b"chunked, identity", b"CHUNKED, identity"]:
    case(f"transfer coding {value!r}", POST + HOST + b"Transfer-Encoding: " + value + b"\r\n\r\n" + BODY + SMUGGLED,
         501)
for name, lines in [("with a length", b"Content-Length: 5\r\nTransfer-Encoding: chunked"),
                    ("before a length", b"Transfer-Encoding: chunked\r\nContent-Length: 49"),
                    ("with length 0", b"Content-Length: 0\r\nTransfer-Encoding: chunked"),
                    ("twice", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
                    ("twice, identity first", b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked"),
                    ("with a space before its colon", b"Transfer-Encoding : chunked"),
                    ("with a tab before its colon", b"Transfer-Encoding\t: chunked"),
                    ("with a NUL", b"Transfer-Encoding: chunked\0"),
                    ("behind a vertical tab", b"Transfer-Encoding: \x0bchunked"),
                    ("folded", b"Transfer-Encoding: chunked\r\n , identity"),
                    ("hidden behind a bare LF", b"X: y\nTransfer-Encoding: chunked")]:
    bad_head(f"transfer coding {name}", POST + HOST + lines + b"\r\n\r\n" + BODY)
bad_head("transfer coding in 1.0", b"POST /echo HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + BODY)
bad_head("other coding with a length", POST + HOST + b"Transfer-Encoding: gzip\r\nContent-Length: 5" + HELLO)
good("transfer coding in capitals", POST + HOST + b"TRANSFER-ENCODING: \t CHUNKED\t \r\n\r\n" + BODY, holds=b"hello")
good("TE is no transfer coding", POST + HOST + b"TE: chunked\r\nContent-Length: 5" + HELLO, holds=b"hello")
good("Transfer_Encoding is another name", POST + HOST + b"Transfer_Encoding: chunked\r\nContent-Length: 5" + HELLO,
     holds=b"hello")

# ---- chunks ----
good("chunks", CHUNKED + b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", holds=b"hello")
good("chunks: capital digits", CHUNKED + b"0000A\r\n0123456789\r\n0\r\n\r\n", holds=b"0123456789")
good("chunks: extension", CHUNKED + b"5;a=b;c=\"d e\"\r\nhello\r\n0;z\r\n\r\n", holds=b"hello")
good("chunks: long zero", CHUNKED + b"5\r\nhello\r\n0000000000000000\r\n\r\n", holds=b"hello")
good("chunks: none", CHUNKED + b"0\r\n\r\n")
good("chunks: trailer is dropped", b"POST /inspect HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
     b"1\r\nx\r\n0\r\nX-Trailer: yes\r\nContent-Length: 50\r\n\r\n", holds=b"body=1 host", lacks=b"x-trailer")
good("chunks: trailer that names a Host", b"POST /inspect HTTP/1.1\r\n" + HOST +
     b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nHost: evil\r\n\r\n", holds=b"host*1=[localhost]")
good("chunks: the body is a request", CHUNKED + b"%x\r\n" % len(SMUGGLED) + SMUGGLED + b"\r\n0\r\n\r\n",
     holds=b"GET /smuggled")
good("chunks: then the next request", CHUNKED + BODY + GET + HOST + b"\r\n", [200, 200])
for name, body in [("letter", b"g\r\nhello\r\n0\r\n\r\n"), ("0x", b"0x5\r\nhello\r\n0\r\n\r\n"),
                   ("plus", b"+5\r\nhello\r\n0\r\n\r\n"), ("minus", b"-5\r\nhello\r\n0\r\n\r\n"),
                   ("space before", b" 5\r\nhello\r\n0\r\n\r\n"), ("space behind", b"5 \r\nhello\r\n0\r\n\r\n"),
                   ("tab behind", b"5\t\r\nhello\r\n0\r\n\r\n"),
                   ("space before an extension", b"5 ;a\r\nhello\r\n0\r\n\r\n"),
                   ("no size", b"\r\nhello\r\n0\r\n\r\n"), ("extension alone", b";a\r\nhello\r\n0\r\n\r\n"),
                   ("17 digits", b"00000000000000005\r\nhello\r\n0\r\n\r\n"),
                   ("LF behind the size", b"5\nhello\r\n0\r\n\r\n"), ("CR behind the size", b"5\rhello\r\n0\r\n\r\n"),
                   ("CR CR LF behind the size", b"5\r\r\nhello\r\n0\r\n\r\n"),
                   ("LF in an extension", b"5;a\nhello\r\n0\r\n\r\n"),
                   ("CR in an extension", b"5;a\rb\r\nhello\r\n0\r\n\r\n"),
                   ("NUL in an extension", b"5;a\0\r\nhello\r\n0\r\n\r\n"),
                   ("data too long", b"5\r\nhello!\r\n0\r\n\r\n"), ("data too short", b"6\r\nhello\r\n0\r\n\r\n"),
                   ("LF behind the data", b"5\r\nhello\n0\r\n\r\n"), ("CR behind the data", b"5\r\nhello\r0\r\n\r\n"),
                   ("nothing behind the data", b"5\r\nhello0\r\n\r\n"),
                   ("LF behind the last size", b"5\r\nhello\r\n0\n\n"),
                   ("LF at the end", b"5\r\nhello\r\n0\r\n\n"), ("CR at the end", b"5\r\nhello\r\n0\r\n\rX"),
                   ("trailer without a colon", b"5\r\nhello\r\n0\r\nX\r\n\r\n"),
                   ("trailer with a space", b"5\r\nhello\r\n0\r\nX : y\r\n\r\n"),
                   ("trailer folded", b"5\r\nhello\r\n0\r\nX: y\r\n z\r\n\r\n"),
                   ("trailer with a NUL", b"5\r\nhello\r\n0\r\nX: \0\r\n\r\n"),
                   ("trailer without a name", b"5\r\nhello\r\n0\r\n: y\r\n\r\n"),
                   ("trailer with a bare LF", b"5\r\nhello\r\n0\r\nX: y\n\r\n"),
                   ("a request for a trailer", b"5\r\nhello\r\n0\r\n"),
                   ("long extension", b"5;" + b"a" * 4097 + b"\r\nhello\r\n0\r\n\r\n"),
                   ("many extensions", b"1;aaaaaaaaaaaaaaaa\r\nx\r\n" * 300 + b"0\r\n\r\n"),
                   ("long trailer", b"5\r\nhello\r\n0\r\nX: " + b"a" * 8192 + b"\r\n\r\n"),
                   ("many trailers", b"5\r\nhello\r\n0\r\n" + b"X: y\r\n" * 2000 + b"\r\n")]:
    case(f"chunks: {name}", CHUNKED + body + SMUGGLED, 400)
case("chunks: larger than the route's", CHUNKED + b"10001\r\n" + SMUGGLED, 413)
case("chunks: together larger than the route's", CHUNKED + b"ffff\r\n" + b"x" * 65535 + b"\r\n2\r\n" + SMUGGLED, 413)
case("chunks: size of 64 bits", CHUNKED + b"ffffffffffffffff\r\n" + SMUGGLED, 413)
case("chunks: sizes that overflow together", CHUNKED + b"1\r\nx\r\nffffffffffffffff\r\n" + SMUGGLED, 413)
case("chunks: where there is no body", GET + HOST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" +
     SMUGGLED, 413)

# ---- limits ----
case("head too large", GET + HOST + b"X: " + b"a" * 33000 + b"\r\n\r\n" + SMUGGLED, 431)
case("head endless", GET + HOST + b"X: " + b"a" * 40000, 431)
case("too many fields", GET + HOST + b"X: y\r\n" * 100 + b"\r\n" + SMUGGLED, 431)
good("as many fields as can be", GET + HOST + b"X: y\r\n" * 99 + b"\r\n")

# ---- the end of a connection ----
case("close", GET + HOST + b"Connection: close\r\n\r\n" + SMUGGLED, 200)
case("close in capitals", GET + HOST + b"Connection: CLOSE\r\n\r\n" + SMUGGLED, 200)
case("close among others", GET + HOST + b"Connection: x, keep-alive,\tclose , y\r\n\r\n" + SMUGGLED, 200)
case("close in a second field", GET + HOST + b"Connection: keep-alive\r\nConnection: close\r\n\r\n" + SMUGGLED, 200)
case("1.0 closes", b"GET /open HTTP/1.0\r\n" + HOST + b"\r\n" + SMUGGLED, 200)
good("1.0 keeps when asked", b"GET /open HTTP/1.0\r\n" + HOST + b"Connection: Keep-Alive\r\n\r\n",
     holds=b"Connection: keep-alive")
bad_field("connection option that is no token", b"Connection: clo se")
good("upgrade is ignored", GET + HOST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: "
     b"AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n", holds=b"200 OK")
good("upgrade to websocket is ignored", GET + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")

# ---- refusals with the body still to come: the body must not become a request ----
LENGTH = b"Content-Length: %d\r\n" % len(SMUGGLED)
case("refused: no such path", b"POST /nope HTTP/1.1\r\n" + HOST + LENGTH + b"\r\n" + SMUGGLED, 404)
case("refused: no such method", b"DELETE /echo HTTP/1.1\r\n" + HOST + LENGTH + b"\r\n" + SMUGGLED, 405)
case("refused: media type", b"POST /text HTTP/1.1\r\n" + HOST + b"Content-Type: a/b\r\n" + LENGTH + b"\r\n" +
     SMUGGLED, 415)
case("refused: expectation", POST + HOST + b"Expect: tea\r\n" + LENGTH + b"\r\n" + SMUGGLED, 417)
case("refused: two expectations", POST + HOST + b"Expect: 100-continue\r\nExpect: 100-continue\r\n" + LENGTH +
     b"\r\n" + SMUGGLED, 417)
case("refused: origin", POST + HOST + b"Origin: http://localhost\r\n" + LENGTH + b"\r\n" + SMUGGLED, 401)
case("refused: host of another machine", POST + b"Host: example.org\r\n" + LENGTH + b"\r\n" + SMUGGLED, 401)
case("refused: host that begins like one", POST + b"Host: 127.0.0.1.example.org\r\n" + LENGTH + b"\r\n" + SMUGGLED,
     401)
case("refused: chunked body at no path", b"POST /nope HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" +
     BODY + SMUGGLED, 404)
case("refused: body for a local path", b"GET /local HTTP/1.1\r\n" + HOST + LENGTH + b"\r\n" + SMUGGLED, 404)
good("1.0 expects nothing", b"POST /echo HTTP/1.0\r\n" + HOST + b"Connection: keep-alive\r\nExpect: tea\r\n"
     b"Content-Length: 5" + HELLO, holds=b"hello")

# ---- several requests, then a bad one: the good ones are answered first ----
case("bad behind good", GET + HOST + b"\r\n" + GET + b"\r\n" + SMUGGLED, [200, 400])
case("bad behind deferred and worker", b"POST /deferred HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\n\r\na"
     b"POST /worker?ms=30 HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\n\r\nb" + GET + b"\r\n" + SMUGGLED,
     [200, 200, 400])
case("garbage behind good", GET + HOST + b"\r\n" + b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", [200, 400])
case("TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + SMUGGLED, 400)
case("left-over bytes of a short length", POST + HOST + b"Content-Length: 3" + HELLO + b" GET /smuggled HTTP/1.1\r\n\r\n",
     [200, 400])
