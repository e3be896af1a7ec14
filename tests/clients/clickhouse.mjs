// clickhouse.mjs: the unmodified @clickhouse/client against tallyman-engine on TCP.
//
// It needs from the engine what it needs from a ClickHouse: ping, Basic authorization, statements in the body and in
// the URL, chunked and compressed inserts, parameters, settings, X-ClickHouse-Query-Id and -Summary, and exceptions
// with their code. It tries nothing again, so a lost reply is its caller's to repeat, which a table of events bears.
import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { ClickHouseError, ClickHouseLogLevel, createClient } from '@clickhouse/client'
import { Proxy } from './proxy.mjs'
import { standalone } from './standalone.mjs'

const log = { level: ClickHouseLogLevel.OFF }

const name = (what) => `@clickhouse/client: ${what}`

function test(what, run) {
  standalone(name(what), async (world) => {
    const { url, secret } = world.engine
    const clients = []
    const client = (options = {}) => {
      clients.push(createClient({ url, username: 'owner', password: secret, log, ...options }))
      return clients.at(-1)
    }
    const table = `t_${what.replace(/\W+/g, '_')}`
    try {
      await run({ client, table, engine: world.engine })
    } finally {
      for (const x of clients) await x.close()
    }
  })
}

const json = async (client, query, more = {}) => (await client.query({ query, format: 'JSONEachRow', ...more })).json()

const VALUES = [
  {
    id: '9223372036854775807', u: '18446744073709551615', s: 'naïve 日本語 😀 \u2028', d: '2024-02-29 23:59:59.999',
    n: null,
  },
  { id: '-9223372036854775808', u: '0', s: '\0\t"\\\n', d: '1970-01-01 00:00:00.000', n: 1.5 },
]
const COLUMNS = `(id Int64, u UInt64, s String, d DateTime64(3, 'UTC'), n Nullable(Float64))
  ENGINE = MergeTree ORDER BY id`

for (const [how, compression] of [['plain', undefined], ['gzip both ways', { request: true, response: true }]]) {
  test(`ping, create, insert, select; ${how}`, async ({ client, table }) => {
    const c = client({ compression })
    assert.deepEqual((await c.ping()).success, true)
    assert.equal((await c.ping({ select: true })).success, true)
    const made = await c.command({ query: `CREATE TABLE ${table} ${COLUMNS}` })
    assert.match(made.query_id, /^[0-9a-f-]{36}$/)
    const put = await c.insert({ table, values: VALUES, format: 'JSONEachRow' })
    assert.equal(put.executed, true)
    assert.equal(put.summary.written_rows, '2')
    const all = { output_format_json_quote_64bit_integers: 1 }
    const got = await json(c, `SELECT * FROM ${table} ORDER BY id DESC`, { clickhouse_settings: all })
    assert.deepEqual(got, VALUES)
    await c.command({ query: `DROP TABLE ${table}` })
  })
}

test('streams in, streams out', async ({ client, table }) => {
  const c = client({ compression: { request: true, response: true } })
  await c.command({ query: `CREATE TABLE ${table} (a UInt32, s String) ENGINE = MergeTree ORDER BY a` })
  const objects = Readable.from((function* objects() {
    for (let i = 0; i < 20000; i++) yield { a: i, s: `row ${i} ü` }
  })())
  const put = await c.insert({ table, values: objects, format: 'JSONEachRow' })
  assert.equal(put.summary.written_rows, '20000')
  let rows = 0
  let sum = 0
  const result = await c.query({ query: `SELECT a, s FROM ${table}`, format: 'JSONEachRow' })
  for await (const part of result.stream()) {
    for (const row of part) {
      const { a, s } = row.json()
      assert.equal(s, `row ${a} ü`)
      rows++
      sum += a
    }
  }
  assert.deepEqual([rows, sum], [20000, (19999 * 20000) / 2])
})

test('forms, parameters, settings, the id of a query', async ({ client }) => {
  const c = client()
  const query = 'SELECT {n:Int32} AS n, {s:String} AS s, {l:Array(UInt8)} AS l'
  const result = await c.query({
    query, query_params: { n: -5, s: "it's ü\t\\", l: [1, 2] }, format: 'JSON', query_id: 'mine-1',
  })
  assert.equal(result.query_id, 'mine-1')
  assert.equal(result.response_headers['x-clickhouse-format'], 'JSON')
  const answer = await result.json()
  assert.deepEqual(answer.data, [{ n: -5, s: "it's ü\t\\", l: [1, 2] }])
  assert.deepEqual(answer.meta.map((m) => m.type), ['Int32', 'String', 'Array(UInt8)'])
  const csv = await c.query({ query: "SELECT 1 AS a, 'x' AS b", format: 'CSVWithNames' })
  assert.equal(await csv.text(), '"a","b"\n1,"x"\n')
  const set = await json(c, "SELECT getSetting('max_threads') AS n", { clickhouse_settings: { max_threads: 3 } })
  assert.equal(Number(set[0].n), 3)
  const { stream } = await c.exec({ query: 'SELECT 7 FORMAT TabSeparated' })
  assert.equal(Buffer.concat(await stream.toArray()).toString(), '7\n')
})

test('exceptions have their codes', async ({ client, table }) => {
  const c = client()
  const refused = async (promise, code, type) => {
    const error = await promise.then(() => assert.fail('no exception'), (e) => e)
    assert.ok(error instanceof ClickHouseError, String(error))
    assert.deepEqual([error.code, error.type], [code, type])
  }
  await refused(c.query({ query: 'SELEC 1' }), '62', 'SYNTAX_ERROR')
  await refused(c.query({ query: 'SELECT * FROM none' }), '60', 'UNKNOWN_TABLE')
  await refused(c.query({ query: "SELECT throwIf(1, 'no')" }), '395', 'FUNCTION_THROW_IF_VALUE_IS_NON_ZERO')
  await c.command({ query: `CREATE TABLE ${table} (a UInt8, CONSTRAINT c CHECK a < 9) ENGINE = MergeTree ORDER BY a` })
  const put = (values) => c.insert({ table, values, format: 'JSONEachRow' })
  await refused(put([{ a: 1 }, { a: 9 }]), '469', 'VIOLATED_CONSTRAINT')
  await refused(put([{ a: 1 }, { a: 'x' }]), '27', 'CANNOT_PARSE_INPUT_ASSERTION_FAILED')
  assert.deepEqual(await json(c, `SELECT count() AS n FROM ${table}`), [{ n: 0 }], 'an insert that failed left rows')
  await refused(client({ password: 'wrong' }).query({ query: 'SELECT 1' }), '516', 'AUTHENTICATION_FAILED')
})

// The row of an event, as Tallyman delivers it.
const event = (uuid) => ({
  project: 'by-hand', uuid, revision: 0, is_deleted: 0, event_id: '1', received_at: '2026-01-01 00:00:00.000',
  timestamp: '2026-01-01 00:00:00.000000', type: 'capture', event: 'x', distinct_id: 'u', properties: '{}',
  context: '{}',
})

test('a lost reply, and the same insert again', async ({ client, engine }) => {
  const proxy = await Proxy.start(engine.url)
  try {
    const through = client({ url: proxy.url, request_timeout: 15000 })
    await client().command({ query: SCHEMA })
    const values = [event('0190a3c4-0000-7000-8000-0000000000aa'), event('0190a3c4-0000-7000-8000-0000000000bb')]
    const put = () => through.insert({ table: 'by_hand', values, format: 'JSONEachRow' })
    const inserts = (r) => r.method === 'POST'
    proxy.rules = [{ times: 1, match: inserts, drop: true }]
    await assert.rejects(put(), /ECONNRESET|socket hang up/)
    proxy.rules = [{ times: 1, match: inserts, resetEarly: true }]
    await assert.rejects(put(), /ECONNRESET|EPIPE|socket hang up/)
    proxy.rules = [{ times: 1, match: inserts, answer: 503, headers: { 'Retry-After': '1' } }]
    await assert.rejects(put())
    assert.equal(proxy.requests.length, 3, 'it tries nothing again')
    await put()
    const count = (final) => json(client(), `SELECT count() AS n FROM by_hand ${final}`)
    assert.deepEqual(await count(''), [{ n: 4 }], 'the lost reply was of an insert that was done')
    assert.deepEqual(await count('FINAL'), [{ n: 2 }], 'logical rows')
  } finally {
    await proxy.close()
  }
})

const SCHEMA = `CREATE TABLE by_hand (project String, uuid UUID, revision UInt64, is_deleted UInt8, event_id UInt64,
  received_at DateTime64(3, 'UTC'), timestamp DateTime64(6, 'UTC'), type String, event String, distinct_id String,
  properties String, context String) ENGINE = ReplacingMergeTree(revision, is_deleted)
  PARTITION BY toYYYYMM(received_at) ORDER BY (project, uuid)`
