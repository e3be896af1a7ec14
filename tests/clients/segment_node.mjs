// segment_node.mjs: unmodified @segment/analytics-node.
//
// It tries 10 times more with growing pauses, waits a Retry-After of a 429 out, and gives a batch up on other 4xx.
// What it tells the application about each event is compared with what the far end has.
import assert from 'node:assert/strict'
import { Analytics } from '@segment/analytics-node'
import { intake } from './harness.mjs'
import { odd, seven } from './values.mjs'

function client(t, options = {}) {
  const analytics = new Analytics({ writeKey: t.token, host: t.url, flushAt: 100, flushInterval: 60000, ...options })
  t.told = { good: 0, bad: 0 }
  t.errors = []
  analytics.on('error', (error) => t.errors.push(error))
  t.heard = (error) => (error ? t.told.bad++ : t.told.good++)
  return analytics
}

async function shapes(t) {
  const a = client(t)
  const userId = 'u1'
  a.track({ userId, event: 'plain' }, t.heard)
  a.track({
    userId, event: 'odd', properties: odd(), timestamp: new Date('2020-01-01'), messageId: 'my-own-id',
    context: { ip: '1.2.3.4', traits: { a: 1 }, sessionId: 'sess' }, integrations: { All: false, Slack: true },
  }, t.heard)
  a.track({ userId, event: 'with a uuid', messageId: '0190A3C4-0000-7000-8000-00000000000A' }, t.heard)
  a.track({ anonymousId: 'anon-1', event: '日本 😀' }, t.heard)
  a.identify({ userId, traits: { email: 'a@example.com', createdAt: new Date(0) } }, t.heard)
  a.page({ userId, category: 'Docs', name: 'Home', properties: { url: 'http://e.example/', nan: NaN } }, t.heard)
  a.screen({ anonymousId: 'anon-1', name: 'Main' }, t.heard)
  a.group({ userId, groupId: 'g1', traits: { plan: 'x' } }, t.heard)
  a.alias({ userId, previousId: 'anon-1' }, t.heard)
  a.track({ userId, event: 'large', properties: { s: 'x'.repeat(31 * 1024) } }, t.heard)
  await a.closeAndFlush({ timeout: 10000 })
  assert.deepEqual(t.told, { good: 10, bad: 0 })
  assert.equal(t.requests[0].path, '/v1/batch')
  t.wants('plain', 'odd', 'with a uuid', '日本 😀', 'identify', 'page', 'screen', 'group', 'alias', 'large')
}

async function bulk(t) {
  const a = client(t, { flushAt: 15 })
  for (let i = 0; i < 40; i++) a.track({ userId: 'bulk', event: `b${i}` }, t.heard)
  await a.closeAndFlush({ timeout: 10000 })
  assert.equal(t.told.good, 40)
  assert.ok(t.requests.length >= 3)
  t.wants(Array.from({ length: 40 }, (_, i) => `b${i}`))
}

// Seven events into a fault, then one more by another instance.
async function through(t, options) {
  const a = client(t, options)
  seven.forEach((event) => a.track({ userId: 'u', event }, t.heard))
  await a.closeAndFlush({ timeout: 45000 })
  const statuses = t.requests.map((r) => r.answered ?? r.fault ?? r.status)
  const { told } = t
  assert.equal(told.good, t.acknowledged().size, 'events it believes delivered')
  const b = client(t)
  b.track({ userId: 'u', event: 'later' })
  await b.closeAndFlush({ timeout: 10000 })
  return [statuses, told]
}

const good = { good: 7, bad: 0 }
const bad = { good: 0, bad: 7 }
const name = (what) => `@segment/analytics-node: ${what}`
const fault = (what, rule, want, options, kept = true) =>
  intake(name(what), async (t) => {
    t.rules(rule)
    assert.deepEqual(await through(t, options), [want, kept ? good : bad])
    t.wants(kept ? seven : [], 'later')
  })

intake(name('every kind of event'), shapes)
intake(name('40 events in batches of 15'), bulk)
fault('503 with Retry-After twice', { times: 2, answer: 503, headers: { 'Retry-After': '1' } }, [503, 503, 200])
fault('429 with Retry-After twice', { times: 2, answer: 429, headers: { 'Retry-After': '1' } }, [429, 429, 200])
fault('429 without', { times: 1, answer: 429 }, [429, 200])
fault('413', { times: 1, answer: 413 }, [413], {}, false)
fault('the reply is dropped', { times: 1, drop: true }, ['drop', 200])
fault('the connection is reset before the body', { times: 1, resetEarly: true }, ['resetEarly', 200])
fault('the connection is reset after the body', { times: 2, reset: true }, ['reset', 'reset', 200])
fault('the reply comes later than it waits', { times: 1, delay: 7000 }, ['delay', 200], { httpRequestTimeout: 3000 })
