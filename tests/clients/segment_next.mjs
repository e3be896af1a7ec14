// segment_next.mjs: unmodified @segment/analytics-next in headless Chromium, settings and events from our server.
//
// It takes its key from the settings that the server answers with. One request an event (text/plain JSON, behind a
// preflight for Authorization), or batches. 5xx, 429 and network errors are tried again, other 4xx end an event.
import assert from 'node:assert/strict'
import { inBrowser } from './browser.mjs'
import { sleep, until } from './server.mjs'

export const source = `import { AnalyticsBrowser } from '@segment/analytics-next'
  window.AnalyticsBrowser = AnalyticsBrowser`
const BATCHING = { deliveryStrategy: { strategy: 'batching', config: { size: 4, timeout: 500 } } }

export const init = (more) => (t) => `(async () => {
  window.a = AnalyticsBrowser.load({ writeKey: '${t.token}', cdnURL: '${t.url}' },
    { integrations: { 'Segment.io': { apiHost: '${t.proxy.host}/v1', protocol: 'http', ...${JSON.stringify(more)} } } })
  await a })()`

const CALLS = `a.track('plain');
  a.track('odd', { u: '日本 😀 \\u2028', lone: '\\ud800x', big: 9007199254740993, nan: NaN, date: new Date(0),
    missing: undefined });
  a.identify('user-1', { email: 'a@e' }); a.page('cat', 'name', { x: 1 }); a.group('g1', { n: 1 }); a.alias('other')`
const CALLED = ['plain', 'odd', 'identify', 'page', 'group', 'alias']
const LATE = Array.from({ length: 5 }, (_, i) => `late ${i}`)
const track = (names) => `${JSON.stringify(names)}.forEach((x) => a.track(x))`

const shape = (what, more, judge) =>
  inBrowser(`@segment/analytics-next: ${what}`, {
    source, init: init(more),
    run: async (t, page) => {
      await page.evaluate(CALLS)
      await t.untilAcknowledged(CALLED.length)
      await page.evaluate(track(LATE))
      await page.click('#a') // what is left goes by keepalive fetch
      await t.untilAcknowledged(CALLED.length + LATE.length)
      t.wants(CALLED, LATE)
      assert.ok(t.proxy.requests.some((r) => /^\/v1\/projects\/[^/]+\/settings$/.test(r.path) && r.status === 200))
      assert.ok(t.requests.every((r) => r.headers.origin && r.headers['content-type'].startsWith('text/plain')))
      judge(t.requests.map((r) => r.path))
    },
  })

shape('one request an event', {}, (paths) => {
  assert.deepEqual([...new Set(paths)].sort(), ['/v1/a', '/v1/g', '/v1/i', '/v1/p', '/v1/t'])
})
shape('batches', BATCHING, (paths) => assert.deepEqual([...new Set(paths)], ['/v1/b']))

const THREE = ['e0', 'e1', 'e2']
const fault = (what, more, rule, kept = true) =>
  inBrowser(`@segment/analytics-next: ${what}`, {
    source, init: init(more),
    run: async (t, page) => {
      t.rules(rule)
      await page.evaluate(track(THREE))
      if (kept) {
        await t.untilAcknowledged(THREE.length)
      } else {
        await until('all are refused', () => rule.times === 0, 20)
        await sleep(4000) // longer than its first pause
        assert.ok(t.requests.every((r) => r.answered), 'it does not try again')
      }
      assert.ok(rule.times === 0, 'the fault was met')
      await page.evaluate(track(['later']))
      await t.untilAcknowledged((kept ? THREE.length : 0) + 1)
      t.wants(kept ? THREE : [], 'later')
    },
  })

for (const [mode, more, requests] of [['single', {}, 3], ['batches', BATCHING, 1]]) {
  fault(`${mode}, 503 with Retry-After`, more, { times: requests, answer: 503, headers: { 'Retry-After': '1' } })
  fault(`${mode}, 429 with Retry-After`, more, { times: requests, answer: 429, headers: { 'Retry-After': '1' } })
  fault(`${mode}, 413`, more, { times: requests, answer: 413 }, false)
  fault(`${mode}, the reply is dropped`, more, { times: requests, drop: true })
  fault(`${mode}, the connection is reset before the body`, more, { times: requests, resetEarly: true })
  fault(`${mode}, the connection is reset after the body`, more, { times: requests, reset: true })
}
