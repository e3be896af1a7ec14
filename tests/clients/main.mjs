// main.mjs: the clients suite. ONLY=REGEX picks tests; KEEP=1 keeps the data.
import fs from 'node:fs'
import path from 'node:path'
import { Intake } from './harness.mjs'
import { Tallyman, leftBehind } from './server.mjs'

import './posthog_node.mjs'
import './segment_node.mjs'
import './rudder_node.mjs'
import './posthog_js.mjs'
import './segment_next.mjs'
import './raw_http.mjs'
import { closeBrowser } from './browser.mjs'

const dir = process.env.WORK
const started = Date.now()
const say = (...text) => console.log(...text)
const seconds = () => ((Date.now() - started) / 1000).toFixed(1)

const server = new Tallyman(dir, 'intake')
await server.start('--engine', 'off')
const suite = new Intake({ server, dir })
await suite.send(30, 10)
await closeBrowser()
say(`  ${seconds()} s: sent`)
await server.stop()
await suite.store()
await server.start('--engine', 'on')
await server.drained()
say(`  ${seconds()} s: delivered`)
await suite.columns()
await server.stop()
say(`  ${seconds()} s: compared`)
let failed = 0
for (const t of suite.tests) {
  say(`${t.failures.length ? 'FAIL' : 'ok  '} ${t.name} (${t.took} ms)`)
  for (const f of t.failures) say(f.replace(/^/gm, '     '))
  failed += t.failures.length ? 1 : 0
}
if (failed) say(server.logEnd())
for (const x of leftBehind(dir)) say('left behind:', x)
say(`${suite.tests.length - failed} passed, ${failed} failed`)
process.exit(failed ? 1 : 0)
