// harness.mjs: tests of the intake, what each has sent, and what is demanded of the far end.
//
// A test has a project of its own, a fault proxy before the server, and runs in three parts. All tests send, at the
// same time; then the server is stopped and the store of each is read; then the server is started with its engine,
// and the columns of each are asked. What is demanded of every test:
//
//   store     exactly the events that the server has answered 2xx for, each once; so none that a client believes
//             delivered is missing, and none is doubled; the text of each is that of the first request with it that
//             was stored, byte for byte
//   columns   the same events, each once, and every column as expect.mjs derives it from the request
//   names     both are exactly the events that the test says it has handed to the SDK (t.wants)
import assert from 'node:assert/strict'
import { DatabaseSync } from 'node:sqlite'
import path from 'node:path'
import { Proxy } from './proxy.mjs'
import { eventsOf, refusedOf } from './expect.mjs'
import { until } from './server.mjs'

const tests = []

// Registers a test: run(t) sends. t: project, token, proxy, url (of the proxy), server. heavy: few of its kind at once.
export function intake(name, run, heavy = false) {
  intakeOf({ name, run, heavy })
}

// The same with more of a test's own: checkStore, checkColumns, seconds for a part, direct (no proxy of ours).
export function intakeOf(entry) {
  tests.push({ seconds: 120, ...entry, wanted: [], refused: 0, later: [] })
}

class Test {
  constructor(entry, n, world) {
    Object.assign(this, entry, { world, server: world.server, project: `t${n}`, failures: [], oddities: new Map() })
  }

  async open() {
    this.token = await this.server.project(this.project)
    if (!this.direct) {
      this.proxy = await Proxy.start(this.server.url)
      this.url = this.proxy.url
    }
  }

  rules(...rules) {
    this.proxy.rules = rules
  }

  // The events that must be there in the end, by name.
  wants(...names) {
    this.wanted.push(...names.flat())
  }

  // Events which the server must have refused, alone.
  refuses(count) {
    this.refused += count
  }

  // What the columns must hold of an odd event, by its name: the text of its properties, and whether `raw` keeps all of
  // the event as it came.
  odd(name, properties, mended) {
    this.oddities.set(name, { properties, mended })
  }

  // A check of the test's own beside the columns: fn(rows of the view, events that were expected).
  onColumns(fn) {
    this.later.push(fn)
  }

  get requests() {
    return this.proxy.events
  }

  // How many events each request had.
  sizes() {
    return this.requests.map((r) => eventsOf(r, this.project).length)
  }

  // Events that the client was given a 2xx for so far, by id.
  acknowledged() {
    const ids = new Set()
    for (const r of this.requests.filter((x) => x.acknowledged)) {
      for (const e of eventsOf(r, this.project)) ids.add(e.id)
    }
    return ids
  }

  async untilAcknowledged(count, seconds = 40) {
    await until(`${count} events are acknowledged (${this.acknowledged().size} are)`,
      () => this.acknowledged().size >= count, seconds)
    assert.equal(this.acknowledged().size, count, 'acknowledged events')
  }

  // posthog-node builds its events in the background.
  async untilQueued(posthog, count) {
    const queued = () => (posthog.getPersistedProperty('queue') ?? []).length
    await until(`${count} events are queued`, () => queued() >= count, 10, 5)
  }

  async guard(part, fn) {
    let timer
    const limit = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`not done after ${this.seconds} s`)), this.seconds * 1000)
    })
    try {
      await Promise.race([fn(), limit])
    } catch (error) {
      this.failures.push(`${part}: ${error.stack ?? error}`)
    } finally {
      clearTimeout(timer)
    }
  }

  // What the server has said it stored: id to event, of the first request that was; and how many it refused.
  expected() {
    const events = new Map()
    const refused = new Set()
    for (const r of this.requests.filter((x) => x.status >= 200 && x.status < 300)) {
      const all = eventsOf(r, this.project)
      const bad = new Set(refusedOf(r, all))
      for (const e of all) {
        if (bad.has(e.index)) refused.add(e.id)
        else if (!events.has(e.uuid)) events.set(e.uuid, { ...this.#adjusted(e), at: r.at })
      }
    }
    return { events, refused }
  }

  #adjusted(e) {
    const odd = this.oddities.get(e.name)
    if (!odd) return e
    return {
      ...e, exact: odd.properties, raw: odd.mended ? e.text : Buffer.alloc(0),
      columns: { ...e.columns, properties: JSON.parse(odd.properties) },
    }
  }

  checkStore(db) {
    const { id } = db.prepare('SELECT id FROM projects WHERE name = ?').get(this.project)
    const rows = db.prepare('SELECT id, lower(hex(uuid)) AS uuid, event, text FROM events WHERE project = ?').all(id)
    // Receipts are young in one table and old in the other.
    const receipts = db.prepare(`SELECT count(*) AS n FROM (SELECT uuid FROM receipts WHERE project = ?1
      UNION ALL SELECT uuid FROM receipts_recent WHERE project = ?1)`).get(id).n
    const rejected = db.prepare('SELECT count(*) AS n FROM rejected WHERE project = ?').get(id).n
    const { events, refused } = this.expected()
    const acknowledged = this.acknowledged()
    const ids = new Set([...events.values()].map((e) => e.id))
    assert.deepEqual([...acknowledged].filter((x) => !ids.has(x) && !refused.has(x)), [], 'acknowledged, never stored')
    const names = [...events.values()].map((e) => e.name)
    assert.deepEqual(names.sort(), this.wanted.sort(), 'events the server answered for')
    assert.equal(refused.size, this.refused, 'events refused by the answer')
    assert.equal(rejected, this.refused, 'events kept as rejected')
    assert.equal(rows.length, events.size, 'rows in the store')
    assert.equal(receipts, events.size, 'receipts in the store')
    for (const row of rows) {
      const e = events.get(row.uuid.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5'))
      assert.ok(e, `nobody sent ${row.uuid} (${row.event})`)
      assert.ok(Buffer.from(row.text).equals(e.text), `text of ${e.name}:\n${Buffer.from(row.text)}\n${e.text}`)
      e.eventId = row.id
    }
    this.stored = events
  }

  async checkColumns(hidden) {
    const rows = await this.server.query('select * from events', this.project)
    const events = this.stored
    assert.equal(rows.length, events.size, 'logical rows')
    assert.equal(new Set(rows.map((row) => row.uuid)).size, rows.length, 'uuids of the rows')
    for (const row of rows) {
      const e = events.get(row.uuid)
      assert.ok(e, `nobody sent ${row.uuid} (${row.event})`)
      this.compare(row, e)
      const { raw, valid } = hidden.get(this.project + row.uuid)
      assert.ok(raw.equals(e.raw), `raw of ${e.name}: ${raw}`)
      assert.equal(valid, 1, `properties and context of ${e.name} are valid to ClickHouse`)
    }
    for (const fn of this.later) fn(rows, events)
  }

  compare(row, e) {
    const { uuid, event_id: eventId, received_at: received, corrected_at: corrected, ...got } = row
    if (e.exact !== undefined) assert.equal(got.properties, e.exact, `text of the properties of ${e.name}`)
    got.properties = JSON.parse(got.properties)
    got.context = JSON.parse(got.context)
    assert.deepEqual(got, e.columns, `columns of ${e.name}`)
    assert.equal(String(eventId), String(e.eventId), `event id of ${e.name}`)
    assert.equal(corrected, null)
    const at = Date.parse(`${received.replace(' ', 'T')}Z`)
    assert.ok(Math.abs(at - e.at) < 15000, `${e.name} was received at ${received}`)
  }
}

export class Intake {
  constructor(world) {
    const only = process.env.ONLY && new RegExp(process.env.ONLY)
    this.world = world
    this.tests = tests.filter((x) => !only || only.test(x.name)).map((x, i) => new Test(x, i + 1, world))
    const { promise, resolve } = Promise.withResolvers()
    Object.assign(this, { calm: promise, isCalm: resolve }) // the light ones have been sent
  }

  // Sends all, so many at the same time.
  async send(light, heavy) {
    const queues = [true, false].map((x) => this.tests.filter((t) => Boolean(t.heavy) === x))
    await Promise.all([this.#pool(queues[0], heavy), this.#pool(queues[1], light).finally(this.isCalm)])
  }

  async #pool(todo, at) {
    const worker = async () => {
      for (let t = todo.shift(); t; t = todo.shift()) {
        t.begun = Date.now()
        await t.guard('sending', async () => {
          await t.open()
          await t.run(t)
        })
        t.took = Date.now() - t.begun
        await t.proxy?.close()
      }
    }
    await Promise.all(Array.from({ length: at }, worker))
  }

  async store() {
    const db = new DatabaseSync(path.join(this.world.server.data, 'tallyman.sqlite'), { readOnly: true })
    for (const t of this.tests) {
      if (t.failures.length === 0) await t.guard('store', async () => t.checkStore(db))
    }
    db.close()
  }

  async columns() {
    // What the view does not show.
    const rows = await this.world.server.owner(`SELECT concat(project, toString(uuid)) AS id, base64Encode(raw) AS raw,
      isValidJSON(properties) AND isValidJSON(context) AND isValidUTF8(properties) AND isValidUTF8(context) AS valid
      FROM tallyman.events_v2 FINAL`)
    const hidden = new Map(rows.map((x) => [x.id, { raw: Buffer.from(x.raw, 'base64'), valid: x.valid }]))
    for (const t of this.tests) {
      if (t.stored) await t.guard('columns', () => t.checkColumns(hidden))
      t.done = t.stored !== undefined || t.failures.length > 0
    }
  }
}
