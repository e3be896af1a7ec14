// posthog_node.mjs: unmodified posthog-node, both of its protocols.
//
// On a failure it tries 4 times in all; only the pause between is set here, by its option. Retry-After means something
// to the second protocol alone. A 413 makes it halve its batches (first protocol), or give the batch up (second).
import assert from 'node:assert/strict'
import { PostHog } from 'posthog-node'
import { intake } from './harness.mjs'
import { odd, seven } from './values.mjs'

const MODES = ['v0', 'v1']

function client(t, mode, options = {}) {
  process.env.POSTHOG_CAPTURE_MODE = mode
  const posthog = new PostHog(t.token, {
    host: t.url, flushAt: 100, flushInterval: 600000, fetchRetryDelay: 500, ...options,
  })
  delete process.env.POSTHOG_CAPTURE_MODE
  t.errors = []
  posthog.on('error', (error) => t.errors.push(error))
  return posthog
}

const path = (mode) => (mode === 'v1' ? '/i/v1/analytics/events' : '/batch/')

async function shapes(t, mode) {
  const posthog = client(t, mode)
  const distinctId = 'user-1'
  posthog.capture({ distinctId, event: 'plain' })
  posthog.capture({
    distinctId, event: 'odd values', properties: odd(), timestamp: new Date('2020-01-01T00:00:00Z'),
    groups: { company: 'acme' }, uuid: '0190a3c4-0000-7000-8000-000000000001',
  })
  posthog.capture({ distinctId: '🙂', event: '日本 😀', properties: {} })
  posthog.capture({
    distinctId, event: 'no person',
    properties: { $process_person_profile: false, $session_id: 'sess', $window_id: 'win' },
  })
  posthog.identify({ distinctId, properties: { email: 'a@example.com', $set_once: { first: 1 } } })
  posthog.alias({ distinctId, alias: 'anon-9' })
  posthog.groupIdentify({ groupType: 'company', groupKey: 'acme', properties: { size: 10 }, distinctId })
  posthog.captureException(new Error('boom'), distinctId, { extra: 1 })
  posthog.capture({ distinctId, event: '$ai_generation', properties: { $ai_model: 'm' } })
  posthog.capture({ distinctId, event: 'bigint', properties: { n: 123456789012345678901234567890n } })
  await t.untilQueued(posthog, mode === 'v1' ? 9 : 10) // AI events have a queue of their own then
  await posthog.flush()
  await posthog.captureImmediate({ distinctId, event: 'immediate' })
  posthog.capture({ distinctId, event: 'at shutdown' })
  await posthog.shutdown(10000)
  t.wants('plain', 'odd values', '日本 😀', 'no person', '$identify', '$create_alias', '$groupidentify', '$exception',
    '$ai_generation', 'bigint', 'immediate', 'at shutdown')
  assert.deepEqual(t.errors, [])
  assert.ok(t.requests.some((r) => r.path === path(mode) && r.headers['content-encoding'] === 'gzip'))
}

async function otherOptions(t) {
  const plain = client(t, 'v0', { flushAt: 1, disableCompression: true, historicalMigration: true })
  plain.capture({ distinctId: 'user-2', event: 'historical', timestamp: new Date('2019-05-05') })
  await plain.shutdown(10000)
  assert.equal(t.requests[0].headers['content-encoding'], undefined)
  const many = client(t, 'v0')
  for (let i = 0; i < 250; i++) many.capture({ distinctId: 'bulk', event: `e${i}` })
  await many.shutdown(10000)
  assert.ok(t.requests.length >= 4, 'batches of 100')
  t.wants('historical', Array.from({ length: 250 }, (_, i) => `e${i}`))
}

// Seven events into a fault, then one more.
async function through(t, mode, options) {
  const posthog = client(t, mode, options)
  seven.forEach((event) => posthog.capture({ distinctId: 'u', event }))
  await t.untilQueued(posthog, 7)
  await posthog.flush().catch(() => {})
  const statuses = t.requests.map((r) => r.answered ?? r.fault ?? r.status)
  posthog.capture({ distinctId: 'u', event: 'later' })
  await posthog.shutdown(20000)
  return statuses
}

const after = (t) => t.requests.slice(1).map((r, i) => r.at - t.requests[i].at)

for (const mode of MODES) {
  const name = (what) => `posthog-node ${mode}: ${what}`
  intake(name('every kind of event'), (t) => shapes(t, mode))
  intake(name('503 with Retry-After twice'), async (t) => {
    t.rules({ times: 2, answer: 503, headers: { 'Retry-After': '5' } })
    assert.deepEqual(await through(t, mode), [503, 503, 200])
    const [first] = after(t)
    assert.ok(mode === 'v1' ? first >= 4900 : first < 4900, `tried again after ${first} ms`)
    t.wants(seven, 'later')
  })
  intake(name('429 with Retry-After'), async (t) => {
    t.rules({ times: 1, answer: 429, headers: { 'Retry-After': '1' } })
    assert.deepEqual(await through(t, mode), [429, 200])
    t.wants(seven, 'later')
  })
  intake(name('413'), async (t) => {
    t.rules({ times: 1, answer: 413 })
    const statuses = await through(t, mode)
    assert.deepEqual(statuses, mode === 'v1' ? [413] : [413, 200, 200, 200])
    assert.deepEqual(t.sizes(), mode === 'v1' ? [7, 1] : [7, 3, 3, 1, 1], 'events of each batch')
    t.wants(mode === 'v1' ? [] : seven, 'later')
  })
  intake(name('the reply is dropped'), async (t) => {
    t.rules({ times: 1, drop: true })
    assert.deepEqual(await through(t, mode), ['drop', 200])
    t.wants(seven, 'later')
  })
  intake(name('the connection is reset before the body'), async (t) => {
    t.rules({ times: 1, resetEarly: true })
    assert.deepEqual(await through(t, mode), ['resetEarly', 200])
    t.wants(seven, 'later')
  })
  intake(name('the connection is reset after the body'), async (t) => {
    t.rules({ times: 2, reset: true })
    assert.deepEqual(await through(t, mode), ['reset', 'reset', 200])
    t.wants(seven, 'later')
  })
  intake(name('the reply comes later than it waits'), async (t) => {
    t.rules({ times: 1, delay: 7000 })
    assert.deepEqual(await through(t, mode, { requestTimeout: 3000 }), ['delay', 200])
    t.wants(seven, 'later')
  })
  intake(name('the reply is cut in its body'), async (t) => {
    t.rules({ times: 1, cut: true })
    await through(t, mode)
    t.wants(seven, 'later')
  })
}

intake('posthog-node v0: uncompressed, historical, batches of 100', otherOptions)

intake('posthog-node v0: down for longer than its tries', async (t) => {
  t.rules({ times: 4, reset: true })
  const statuses = await through(t, 'v0')
  assert.deepEqual(statuses, ['reset', 'reset', 'reset', 'reset'], 'it keeps what met a network error')
  t.wants(seven, 'later')
})

intake('posthog-node v1: down for longer than its tries', async (t) => {
  t.rules({ times: 4, answer: 503 })
  const statuses = await through(t, 'v1')
  assert.deepEqual(statuses, [503, 503, 503, 503])
  assert.ok(t.errors.length > 0, 'the SDK says that it lost them')
  t.wants('later')
})
