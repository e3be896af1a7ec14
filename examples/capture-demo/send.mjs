#!/usr/bin/env node
// send.mjs URL TOKEN: a small shop's evening, sent with the unmodified posthog-node SDK.
//
// Each event has its uuid from the SDK; the SDK counts a batch as delivered when the server answers 200, which
// Tallyman does when the batch is on disk. Prints how many events were handed over; exit status 1 when the SDK
// reported an error or kept events back.
import { PostHog } from 'posthog-node'

const [url, token] = process.argv.slice(2)
if (!url || !token) {
  console.error('usage: node send.mjs http://HOST:PORT TOKEN')
  process.exit(2)
}

let failed = 0
const posthog = new PostHog(token, { host: url, flushAt: 20, flushInterval: 1000 })
posthog.on('error', (error) => {
  failed += 1
  console.error(`posthog-node: ${error.message}`)
})

const people = ['ada', 'grace', 'edsger', 'barbara']
const pages = ['/', '/tea', '/coffee', '/basket']
let sent = 0
const capture = (distinctId, event, properties) => {
  posthog.capture({ distinctId, event, properties })
  sent += 1
}

for (const [i, person] of people.entries()) {
  posthog.identify({ distinctId: person, properties: { name: person, visits: i + 1 } })
  sent += 1
  for (const path of pages.slice(0, i + 1)) {
    capture(person, '$pageview', { $current_url: `https://shop.example${path}`, unit: '日本茶 250 g ☕' })
  }
  if (i % 2 === 1) {
    capture(person, 'order placed', { total: 19.9 * i, items: i, coupon: null })
  }
}
await posthog.shutdown(15000)
console.log(`${sent} events handed over`)
process.exit(failed === 0 ? 0 : 1)
