// rudder_node.mjs: unmodified @rudderstack/rudder-sdk-node.
//
// gzip with a Content-Type that says it is a form. It has 4 tries at 5xx, 429 and network errors and honours
// Retry-After; other 4xx end a batch. Its first event goes alone.
import assert from 'node:assert/strict'
import Rudder from '@rudderstack/rudder-sdk-node'
import { intake } from './harness.mjs'
import { until } from './server.mjs'
import { odd, seven } from './values.mjs'

const Analytics = Rudder.default ?? Rudder

function client(t, options = {}) {
  t.told = { good: 0, bad: 0 }
  t.heard = (error) => (error ? t.told.bad++ : t.told.good++)
  return new Analytics(t.token, {
    dataPlaneUrl: t.url, flushAt: 50, flushInterval: 300, logLevel: 'none', errorHandler: () => {}, ...options,
  })
}

const heard = (t, count) => until(`${count} events are answered for`, () => t.told.good + t.told.bad === count, 40)

async function shapes(t, gzip) {
  const a = client(t, { gzip })
  const userId = 'u1'
  a.track({ userId, event: 'odd', properties: odd(), timestamp: new Date('2020-01-01') }, t.heard)
  a.track({ anonymousId: 'anon-1', event: '日本 😀' }, t.heard)
  a.identify({ userId, traits: { email: 'a@example.com' } }, t.heard)
  a.page({ userId, name: 'Home' }, t.heard)
  a.screen({ userId, name: 'Main' }, t.heard)
  a.group({ userId, groupId: 'g', traits: { plan: 'x' } }, t.heard)
  a.alias({ userId, previousId: 'p' }, t.heard)
  await heard(t, 7)
  assert.deepEqual(t.told, { good: 7, bad: 0 })
  const [first] = t.requests
  assert.equal(first.headers['content-encoding'], gzip ? 'gzip' : undefined)
  assert.equal(first.headers['content-type'], gzip ? 'application/x-www-form-urlencoded' : 'application/json')
  t.wants('odd', '日本 😀', 'identify', 'page', 'screen', 'group', 'alias')
}

async function bulk(t) {
  const a = client(t, { flushAt: 20, dataPlaneUrl: `${t.url}/v1/batch` })
  for (let i = 0; i < 45; i++) a.track({ userId: 'bulk', event: `b${i}` }, t.heard)
  await heard(t, 45)
  assert.equal(t.told.good, 45)
  t.wants(Array.from({ length: 45 }, (_, i) => `b${i}`))
}

async function through(t, options) {
  const a = client(t, options)
  seven.forEach((event) => a.track({ userId: 'u', event }, t.heard))
  await heard(t, 7)
  const { told } = t
  assert.equal(told.good, t.acknowledged().size, 'events it believes delivered')
  t.rules()
  const b = client(t)
  b.track({ userId: 'u', event: 'later' }, t.heard)
  await heard(t, 1)
  return told
}

const name = (what) => `@rudderstack/rudder-sdk-node: ${what}`
const good = { good: 7, bad: 0 }
const fault = (what, rule, told = good, options = {}) =>
  intake(name(what), async (t) => {
    t.rules(rule)
    assert.deepEqual(await through(t, options), told)
    if (rule.times) assert.equal(t.requests.filter((r) => r.fault).length, rule.times, 'faults met')
    t.wants(rule.answer === 413 ? [] : seven, 'later')
  })

intake(name('every kind of event, gzip'), (t) => shapes(t, true))
intake(name('every kind of event, plain'), (t) => shapes(t, false))
intake(name('45 events, with the path in the URL'), bulk)
fault('503 with Retry-After twice', { times: 2, answer: 503, headers: { 'Retry-After': '1' } })
fault('429 with Retry-After', { times: 1, answer: 429, headers: { 'Retry-After': '1' } })
fault('413', { answer: 413 }, { good: 0, bad: 7 })
fault('the reply is dropped', { times: 1, drop: true })
fault('the connection is reset before the body', { times: 1, resetEarly: true })
fault('the connection is reset after the body', { times: 2, reset: true })
// A timeout is no failure that it tries again after: it calls the first event lost, which the server has.
fault('the reply comes later than it waits', { times: 1, delay: 7000 }, { good: 6, bad: 1 }, { timeout: 3000 })
