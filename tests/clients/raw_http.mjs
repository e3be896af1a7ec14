// raw_http.mjs: what SDKs can send and JavaScript cannot write, by plain HTTP: 64-bit integers, repeated names, lone
// surrogates, bytes that are no UTF-8, control characters.
//
// The store keeps every byte; ClickHouse gets properties that any JSON reader takes, and `raw` has the event as it came
// where they had to be mended.
import assert from 'node:assert/strict'
import crypto from 'node:crypto'
import zlib from 'node:zlib'
import { intake } from './harness.mjs'
import { request } from './server.mjs'

const REPLACED = '\ufffd'

// name, properties as sent (latin1: its characters are bytes), as they must arrive, whether that is mended.
const CASES = [
  ['64-bit integers', '{"max":9223372036854775807,"min":-9223372036854775808,"unsigned":18446744073709551615}', null,
    false],
  ['integers beyond', '{"n":18446744073709551616,"f":1.00000000000000000001,"z":-0}',
    '{"n":"18446744073709551616","f":1.00000000000000000001,"z":-0}', true],
  ['a number beyond double', '{"n":1e400,"m":-1E999}', '{"n":"1e400","m":"-1E999"}', true],
  ['repeated names', '{"a":1,"b":{"c":1,"c":2},"a":3}', '{"b":{"c":2},"a":3}', true],
  ['repeated names, one escaped', '{"ab":1,"\\u0061b":2}', '{"\\u0061b":2}', true],
  ['unicode', utf8('{"u":"naïve café 日本語 😀 \u2028","ключ":"\\u00e9"}'), null, false],
  ['lone surrogates', '{"high":"\\ud800x","low":"\\udfff","pair":"\\ud83d\\ude00","\\udc00":1}',
    utf8(`{"high":"${REPLACED}x","low":"${REPLACED}","pair":"\\ud83d\\ude00","${REPLACED}":1}`), true],
  ['bytes that are no UTF-8', '{"s":"a\xff\xfeb"}', utf8(`{"s":"a${REPLACED}${REPLACED}b"}`), true],
  ['control characters as they are', '{"s":"a\tb\nc"}', '{"s":"a\\tb\\nc"}', true],
  ['NUL', '{"s":"a\\u0000b"}', null, false],
  ['white space', '{ "a" :\t1 ,\r\n "b" : [ ] }', null, false],
]

function utf8(text) {
  return Buffer.from(text).toString('latin1')
}

const fromLatin = (text) => Buffer.from(text, 'latin1').toString()

function wanted(t) {
  for (const [name, properties, arrives, mended] of CASES) {
    t.odd(name, fromLatin(arrives ?? properties), mended)
    t.wants(name)
  }
}

const post = (t, target, body, headers = {}) =>
  request(t.url + target, { method: 'POST', headers: { 'Content-Type': 'application/json', ...headers }, body })

const NOW = () => new Date().toISOString()

const posthogEvent = ([name, properties], id = crypto.randomUUID()) =>
  `{"event":"${name}","uuid":"${id}","distinct_id":"u","timestamp":"${NOW()}","properties":${properties}}`

async function batch(t, target, headers, join) {
  wanted(t)
  const body = Buffer.from(join(CASES.map((x) => posthogEvent(x))), 'latin1')
  const answer = await post(t, target, body, headers)
  assert.equal(answer.status, 200, answer.body.toString())
  return JSON.parse(answer.body)
}

intake('raw HTTP: odd JSON to /batch/', async (t) => {
  const join = (all) => `{"batch":[${all}],"sent_at":"${NOW()}","api_key":"${t.token}"}`
  const answer = await batch(t, '/batch/', {}, join)
  assert.deepEqual(answer, { status: 'Ok' })
})

intake('raw HTTP: odd JSON to /i/v1/analytics/events', async (t) => {
  const headers = {
    Authorization: `Bearer ${t.token}`, 'PostHog-Sdk-Info': 'raw/1.0', 'PostHog-Attempt': '1',
    'PostHog-Request-Id': crypto.randomUUID(), 'PostHog-Request-Timestamp': NOW(),
  }
  const join = (all) => `{"created_at":"${NOW()}","batch":[${all}]}`
  const answer = await batch(t, '/i/v1/analytics/events', headers, join)
  assert.equal(Object.keys(answer.results).length, CASES.length)
  assert.ok(Object.values(answer.results).every((x) => x.result === 'ok'))
})

intake('raw HTTP: odd JSON to /v1/batch', async (t) => {
  wanted(t)
  const events = CASES.map(([name, properties], i) =>
    `{"type":"track","event":"${name}","messageId":"m-${i}","userId":"u","timestamp":"${NOW()}",` +
    `"properties":${properties},"context":{"own":true}}`)
  const body = Buffer.from(`{"batch":[${events}],"context":{"library":{"name":"raw","version":"1"},"own":false},` +
    `"sentAt":"${NOW()}","writeKey":"${t.token}"}`, 'latin1')
  const answer = await post(t, '/v1/batch', body)
  assert.equal(answer.status, 200, answer.body.toString())
  assert.deepEqual(JSON.parse(answer.body), { success: true })
})

intake('raw HTTP: odd JSON one by one to /e/, in each of its encodings', async (t) => {
  wanted(t)
  const form = (x) => `data=${encodeURIComponent(x.toString('base64'))}`
  const encodings = [
    (x) => [x, 'application/json', ''],
    (x) => [zlib.gzipSync(x), 'text/plain', ''],
    (x) => [zlib.gzipSync(x), 'text/plain', '?compression=gzip-js'],
    (x) => [form(x), 'application/x-www-form-urlencoded', '?compression=base64'],
  ]
  for (const [i, x] of CASES.entries()) {
    const event = posthogEvent(x).replace(/}$/, `,"api_key":"${t.token}"}`)
    const [body, type, query] = encodings[i % encodings.length](Buffer.from(event, 'latin1'))
    const answer = await post(t, `/e/${query}`, body, { 'Content-Type': type })
    assert.equal(answer.status, 200, `${x[0]}: ${answer.body}`)
  }
})

intake('raw HTTP: a repeat with another payload', async (t) => {
  const id = crypto.randomUUID()
  const send = (name) => post(t, '/batch/', `{"api_key":"${t.token}","batch":[${posthogEvent([name, '{}'], id)}]}`)
  assert.deepEqual(JSON.parse((await send('first')).body), { status: 'Ok' })
  assert.deepEqual(JSON.parse((await send('second')).body), { status: 'Ok', accepted: 0, duplicates: 1, rejected: 0 })
  t.wants('first')
})

intake('raw HTTP: a bad event in a batch', async (t) => {
  const all = [posthogEvent(['good', '{}']), `{"event":"","uuid":"${crypto.randomUUID()}","distinct_id":"u"}`]
  const answer = await post(t, '/batch/', `{"api_key":"${t.token}","batch":[${all}]}`)
  assert.equal(answer.status, 200)
  const { accepted, rejected, errors } = JSON.parse(answer.body)
  assert.deepEqual([accepted, rejected, errors.map((x) => x.index)], [1, 1, [1]])
  t.wants('good')
  t.refuses(1)
})
