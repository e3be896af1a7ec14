// full_queue.mjs: a server whose queue is really full, and every SDK at its door.
//
// The queue holds 200 events. Its ClickHouse (the engine alone, over TCP) is behind a proxy that holds inserts back, so
// nothing leaves. Two projects fill it to the last place; then every SDK sends seven events and is refused: 503 on
// PostHog's routes, 429 on Segment's, with a Retry-After that pages may read. When all have been, the inserts go on,
// and what each SDK was told was delivered must be in ClickHouse, once.
import assert from 'node:assert/strict'
import { createClient } from '@clickhouse/client'
import { Analytics } from '@segment/analytics-node'
import Rudder from '@rudderstack/rudder-sdk-node'
import { PostHog } from 'posthog-node'
import { Proxy } from './proxy.mjs'
import { withPage } from './browser.mjs'
import { eventsOf } from './expect.mjs'
import { source as posthogSource, init as posthogInit, QUIET } from './posthog_js.mjs'
import { source as segmentSource, init as segmentInit } from './segment_next.mjs'
import { Tallyman, request, until } from './server.mjs'
import { standalone } from './standalone.mjs'
import { seven } from './values.mjs'

const PLACES = 200
const name = (sdk) => `full queue: ${sdk}`

// Every SDK that takes part says first that it is ready, then that it was refused.
class Meeting {
  constructor(count) {
    this.count = count
    this.here = 0
    this.all = new Promise((done) => (this.open = done))
  }

  arrive() {
    if (++this.here >= this.count) this.open()
    return this.all
  }
}

async function fill(server) {
  for (const project of ['filler-1', 'filler-2']) {
    const token = await server.project(project)
    const batch = Array.from({ length: PLACES / 2 }, (_, i) => ({ event: `fill ${i}`, distinct_id: 'f' }))
    const send = (events) =>
      request(`${server.url}/batch/`, { method: 'POST', body: JSON.stringify({ api_key: token, batch: events }) })
    const answer = await send(batch)
    assert.equal(answer.status, 200, answer.body.toString())
    const more = await send(batch.slice(0, 1))
    assert.equal(more.status, 503, 'a project may hold half of the queue')
    assert.equal(more.headers['retry-after'], '30')
  }
}

async function open(world) {
  const gate = Promise.withResolvers()
  const inserts = await Proxy.start(world.engine.url, [
    { match: (r) => /INSERT/i.test(`${r.query.get('query')}`), hold: gate.promise },
  ])
  const server = new Tallyman(world.dir, 'full')
  await server.start('--queue-events-max', String(PLACES), '--clickhouse-url', inserts.url, '--clickhouse-user',
    'owner', '--clickhouse-password-file', world.engine.secretFile)
  const count = SDKS.filter(([sdk]) => world.chosen.has(name(sdk))).length
  const full = { server, inserts, ready: new Meeting(count), refused: new Meeting(count) }
  full.filled = full.ready.all.then(() => fill(server))
  full.filled.catch(() => {}) // every test that awaits it hears of it
  full.refused.all.then(() => {
    inserts.rules = []
    gate.resolve()
  })
  world.closing.push(async () => {
    gate.resolve()
    await server.stop()
    await inserts.close()
  })
  return full
}

// The rows of the project, by a client of the engine.
async function rows(world, project) {
  const client = createClient({ url: world.engine.url, username: 'owner', password: world.engine.secret })
  const query = `SELECT toString(uuid) AS uuid, event FROM tallyman.events_v2 FINAL WHERE project = {p:String}`
  const result = await client.query({ query, query_params: { p: project }, format: 'JSONEachRow' })
  const all = await result.json()
  await client.close()
  return all
}

// prepare(t) makes the client, and gives send(): hands over seven events, resolves when the SDK is content.
function meets(sdk, status, prepare) {
  standalone(name(sdk), async (world) => {
    world.full ??= open(world)
    const full = await world.full
    const project = sdk.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-/, '')
    const token = await full.server.project(project)
    const proxy = await Proxy.start(full.server.url)
    const t = { token, proxy, url: proxy.url }
    const close = []
    try {
      const send = await prepare(t, close)
      full.ready.arrive()
      await full.filled
      const content = send()
      content.catch(() => {})
      await until('it is refused', () => proxy.events.some((r) => r.status !== undefined), 30)
      const [first] = proxy.events
      full.refused.arrive()
      assert.equal(first.status, status)
      assert.equal(first.answerHeaders['retry-after'], '30')
      if (first.headers.origin) {
        assert.equal(first.answerHeaders['access-control-expose-headers'], 'Retry-After')
        assert.equal(first.answerHeaders['access-control-allow-origin'], first.headers.origin)
      }
      await content
      const given = proxy.events.filter((r) => r.acknowledged).flatMap((r) => eventsOf(r, project))
      assert.deepEqual(given.map((e) => e.name).sort(), [...seven].sort(), 'acknowledged events')
      await until('they are in ClickHouse', async () => (await rows(world, project)).length >= 7, 40, 200)
      const there = await rows(world, project)
      assert.deepEqual(there.map((row) => row.uuid).sort(), given.map((e) => e.uuid).sort())
    } finally {
      full.ready.arrive()
      full.refused.arrive()
      for (const fn of close.reverse()) await fn()
      await proxy.close()
    }
  })
}

const acknowledged = (t, count = 7) =>
  until(`${count} events are acknowledged`, () =>
    t.proxy.events.filter((r) => r.acknowledged).flatMap((r) => eventsOf(r, '')).length >= count, 80)

function posthogNode(mode) {
  return (t) => {
    process.env.POSTHOG_CAPTURE_MODE = mode
    // It has four tries; by default 3 s apart, which is soon over on a busy machine.
    const posthog = new PostHog(t.token, { host: t.url, flushAt: 100, flushInterval: 600000, fetchRetryDelay: 8000 })
    delete process.env.POSTHOG_CAPTURE_MODE
    return async () => {
      seven.forEach((event) => posthog.capture({ distinctId: 'u', event }))
      await posthog.shutdown(80000)
    }
  }
}

const segmentNode = (t) => {
  const analytics = new Analytics({ writeKey: t.token, host: t.url })
  return async () => {
    seven.forEach((event) => analytics.track({ userId: 'u', event }))
    await analytics.closeAndFlush({ timeout: 80000 })
  }
}

const rudderNode = (t) => {
  const analytics = new (Rudder.default ?? Rudder)(t.token, {
    dataPlaneUrl: t.url, flushInterval: 300, logLevel: 'none', errorHandler: () => {},
  })
  return () => {
    seven.forEach((event) => analytics.track({ userId: 'u', event }))
    return acknowledged(t)
  }
}

const inPage = (source, init, statement) => async (t, close) => {
  const { page, leave } = await withPage(source)
  close.push(leave)
  await page.evaluate(init(t))
  return async () => {
    await page.evaluate(statement)
    await acknowledged(t)
  }
}

const each = (call) => `${JSON.stringify(seven)}.forEach((x) => ${call})`

const SDKS = [
  ['posthog-node v0', 503, posthogNode('v0')],
  ['posthog-node v1', 503, posthogNode('v1')],
  ['posthog-js', 503, inPage(posthogSource, posthogInit(QUIET), each('posthog.capture(x)'))],
  ['@segment/analytics-node', 429, segmentNode],
  ['@segment/analytics-next', 429, inPage(segmentSource, segmentInit({}), each('a.track(x)'))],
  ['@rudderstack/rudder-sdk-node', 429, rudderNode],
]
for (const sdk of SDKS) meets(...sdk)
