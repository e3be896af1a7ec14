// main.mjs: the clients suite, started by scripts/test-clients.
//
// Prints a line for each test and "N passed, N failed"; status 1 when one failed. ONLY=REGEX picks tests by their line;
// KEEP=1 keeps the data. WORK is its directory, made and removed here.
import fs from 'node:fs'
import { Intake } from './harness.mjs'
import { Engine, Process, Tallyman, leftBehind, until } from './server.mjs'
import { Standalone } from './standalone.mjs'
import { closeBrowser } from './browser.mjs'

import './posthog_node.mjs'
import './posthog_js.mjs'
import './segment_node.mjs'
import './segment_next.mjs'
import './rudder_node.mjs'
import './raw_http.mjs'
import './full_queue.mjs'
import './clickhouse.mjs'
import './tus_node.mjs'
import './tus_browser.mjs'
import { notes } from './shared_drivers.mjs'

const dir = process.env.WORK
const started = Date.now()
const world = { dir, closing: [], notes }
const trouble = [] // what belongs to no single test
const FAILURE_MAX = 4000 // characters shown of one

const stage = (what) => console.log(`clients: ${((Date.now() - started) / 1000).toFixed(1)} s: ${what}`)

async function careful(what, fn) {
  try {
    await fn()
  } catch (error) {
    trouble.push(`${what}: ${error.stack ?? error}`)
  }
}

// Everything the suite started, in the end of all, whatever has happened.
async function close() {
  for (const fn of world.closing.splice(0).reverse()) await careful('closing', fn)
  await careful('the browser', closeBrowser)
  await careful('processes', () => until('nothing is left behind', () => leftBehind(dir).length === 0, 10))
  for (const line of leftBehind(dir)) trouble.push(`left behind: ${line}`)
}

async function run() {
  const { server } = world
  const alone = new Standalone(world)
  const intake = new Intake(world)
  world.all = [...intake.tests, ...alone.tests]
  await server.start('--engine', 'off')
  world.closing.push(() => server.stop())
  if (alone.tests.length > 0) {
    world.engine = new Engine(dir, 'alone')
    await world.engine.start()
    world.closing.push(() => world.engine.stop())
  }
  stage('the SDKs send')
  await Promise.all([alone.run(intake.calm), careful('the intake', () => throughIntake(intake))])
}

async function throughIntake(intake) {
  const { server } = world
  await intake.send(30, 10)
  stage('the store is compared')
  await server.stop()
  await intake.store()
  await server.start('--engine', 'on')
  await server.drained()
  stage('all is delivered, the columns are compared')
  await intake.columns()
}

function report() {
  const all = world.all ?? []
  for (const t of all.filter((x) => !x.done)) t.failures.push('not run to its end')
  if (all.length === 0) trouble.push('no test was chosen')
  const failed = all.filter((t) => t.failures.length > 0)
  for (const t of all) {
    console.log(`${t.failures.length > 0 ? 'FAIL' : 'ok  '} ${t.name} (${((t.took ?? 0) / 1000).toFixed(1)} s)`)
    for (const text of t.failures) console.log(text.slice(0, FAILURE_MAX).replace(/^/gm, '     '))
  }
  for (const text of trouble) console.log(`FAIL ${text}`)
  if (failed.length + trouble.length > 0) {
    for (const log of fs.readdirSync(dir).filter((x) => x.endsWith('.log'))) {
      const text = fs.readFileSync(`${dir}/${log}`, 'utf8').trimEnd().split('\n').slice(-25)
      console.log(`${log}:\n${text.join('\n').replace(/^/gm, '     ')}`)
    }
  }
  for (const text of world.notes) console.log(`clients: ${text}`)
  const bad = failed.length + trouble.length
  console.log(`${all.length - failed.length} passed, ${bad} failed`)
  return bad
}

process.on('unhandledRejection', (error) => trouble.push(`nobody awaited: ${error?.stack ?? error}`))
for (const signal of ['SIGINT', 'SIGTERM']) {
  process.on(signal, () => {
    Process.over = true
    close().then(() => {
      fs.rmSync(dir, { recursive: true, force: true })
      process.exit(1)
    })
  })
}

fs.rmSync(dir, { recursive: true, force: true })
fs.mkdirSync(dir, { recursive: true })
world.server = new Tallyman(dir, 'intake')
await careful('the suite', run)
await close()
const bad = report()
if (!process.env.KEEP) fs.rmSync(dir, { recursive: true, force: true })
await new Promise((done) => process.stdout.write('', done))
process.exit(bad > 0 ? 1 : 0)
