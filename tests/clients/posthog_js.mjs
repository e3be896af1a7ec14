// posthog_js.mjs: unmodified posthog-js in headless Chromium, its page on another origin than the server.
//
// Success is 200 alone. Every 4xx loses the batch, 429 too; 5xx is tried again after 3 s and more, with the Retry-After
// that CORS exposes; a network error is tried three times more. Bodies are gzip sent as text/plain, plain JSON behind a
// preflight, and forms of base64.
import assert from 'node:assert/strict'
import { inBrowser } from './browser.mjs'
import { sleep, until } from './server.mjs'
import { seven } from './values.mjs'

export const source = `import posthog from 'posthog-js'; window.posthog = posthog`
export const QUIET = {
  autocapture: false, capture_pageview: false, capture_pageleave: false, advanced_disable_flags: true,
}

export const init = (options) => (t) => `new Promise((done) => posthog.init('${t.token}', {
  opt_out_useragent_filter: true, api_host: '${t.url}',
  on_request_error: (r) => (window.failed ??= []).push(r.statusCode),
  loaded: () => done(), ...${JSON.stringify(options)} }))`

const capture = (names) => `${JSON.stringify(names)}.forEach((x) => posthog.capture(x))`

const ODD = `{ unicode: 'naïve café 日本語 😀 \\u2028 \\u0000 end', lone: '\\ud800x', big: 9007199254740993,
  beyond: 1e25, nan: NaN, inf: Infinity, undef: undefined, nul: null, bigint: 12345678901234567890n,
  nested: {a:{b:[1,undefined,{c:1}]}}, long: 'y'.repeat(100) }`

const CALLS = `posthog.capture('plain'); posthog.capture('odd', ${ODD});
  posthog.identify('user-1', { email: 'a@example.com' }, { first: 1 }); posthog.alias('other-1');
  posthog.group('company', 'acme', { size: 10 }); posthog.setPersonProperties({ a: 1 });
  posthog.captureException(new Error('boom')); posthog.capture('instant', { a: 1 }, { send_instantly: true });
  posthog.capture('by beacon', {}, { transport: 'sendBeacon' });
  posthog.capture('stamped', {}, { timestamp: new Date('2020-01-01T00:00:00Z') });`
const CALLED = ['plain', 'odd', '$identify', '$create_alias', '$groupidentify', '$set', '$exception', 'instant',
  'by beacon', 'stamped']
const type = (r) => r.headers['content-type']?.split(';')[0]
const gzip = (r) => r.body[0] === 0x1f && r.body[1] === 0x8b

// Every call, then a burst; the page is left at once, and what is queued then goes by beacon, or after it has arrived.
// Chromium carries 64 KiB of a page's beacons: what is more is lost by the SDK.
async function shapes(t, page, { burst, pad, atOnce, judge }) {
  const names = Array.from({ length: burst }, (_, i) => `burst ${i}`)
  await until('the first page view', () => t.acknowledged().size >= 1, 40)
  await page.evaluate(CALLS)
  await page.click('#b')
  const before = CALLED.length + 2
  await until('the calls', () => t.acknowledged().size >= before, 40)
  await page.evaluate(`${JSON.stringify(names)}.forEach((x) => posthog.capture(x, { pad: 'z'.repeat(${pad}) }))`)
  if (!atOnce) {
    await t.untilAcknowledged(before + burst)
  }
  await page.click('#b')
  if (!atOnce) {
    await t.untilAcknowledged(before + burst + 1)
  }
  await page.goto('about:blank')
  const all = ['$pageview', ...CALLED, '$autocapture', ...names, '$autocapture', '$pageleave']
  await t.untilAcknowledged(all.length)
  t.wants(all)
  assert.ok(t.requests.every((r) => r.headers.origin), 'all of it from another origin')
  const config = t.proxy.requests.filter((r) => r.path === `/array/${t.token}/config.js`)
  assert.ok(config.length > 0 && config.every((r) => r.status === 200), 'its configuration is ours')
  judge(t.requests)
}

const beacon = (r) => r.query.get('beacon') === '1' || r.headers['sec-fetch-mode'] === 'no-cors'
const AGENT = { capture_pageview: true, capture_pageleave: true, autocapture: true }
const shape = (what, options, how) =>
  inBrowser(`posthog-js: ${what}`, { source, init: init({ ...AGENT, ...options }), run: (t, p) => shapes(t, p, how) })

shape('gzip as text/plain, the rest by beacon on leaving', {}, {
  burst: 60, pad: 200, atOnce: true, judge(all) {
    assert.ok(all.some((r) => gzip(r) && type(r) === 'text/plain' && !r.headers['content-encoding']))
    assert.ok(all.some(beacon))
  },
})
shape('no compression: JSON behind a preflight, base64 beacons', { disable_compression: true }, {
  burst: 8, pad: 20, atOnce: true, judge(all) {
    assert.ok(all.some((r) => !gzip(r) && type(r) === 'application/json'))
    const form = all.find((r) => type(r) === 'application/x-www-form-urlencoded')
    assert.ok(form && beacon(form) && form.body.toString().startsWith('data='))
  },
})
shape('one request an event, by XMLHttpRequest', { request_batching: false, api_transport: 'XHR' }, {
  burst: 30, pad: 200, atOnce: false, judge: (all) => assert.ok(all.length > 40),
})

const fault = (what, rules, run) =>
  inBrowser(`posthog-js: ${what}`, {
    source, init: init(QUIET),
    run: async (t, page) => {
      t.rules(...rules)
      await page.evaluate(capture(seven))
      await run(t, page)
      await page.evaluate(capture(['later']))
      await t.untilAcknowledged(t.wanted.length)
    },
  })

const tried = (t) => t.requests.map((r) => r.answered ?? r.fault ?? r.status)

const kept = (what, rules, judge = () => {}) =>
  fault(what, rules, async (t) => {
    await t.untilAcknowledged(7, 60)
    judge(t)
    t.wants(seven, 'later')
  })

const lost = (what, rules, status) =>
  fault(what, rules, async (t, page) => {
    await until('the answer', () => t.requests.some((r) => r.answered), 20)
    await sleep(8000) // longer than its first pause
    assert.deepEqual(tried(t), [status], 'it does not try again')
    assert.deepEqual(await page.evaluate('window.failed'), [status])
    t.wants('later')
  })

kept('503 with Retry-After twice', [{ times: 2, answer: 503, headers: { 'Retry-After': '7' } }], (t) => {
  assert.deepEqual(tried(t), [503, 503, 200])
  assert.ok(t.requests[1].at - t.requests[0].at >= 6500, 'it saw the Retry-After')
})
lost('429 with Retry-After', [{ times: 1, answer: 429, headers: { 'Retry-After': '1' } }], 429)
lost('413', [{ times: 1, answer: 413 }], 413)
kept('the reply is dropped', [{ times: 1, drop: true }])
kept('the reply is cut in its body', [{ times: 1, cut: true }])
kept('the connection is reset before the body', [{ times: 1, resetEarly: true }])
kept('the connection is reset after the body', [{ times: 2, reset: true }])
