// shared_drivers.mjs: the drivers that the specification of the wire was made with, against our server.
//
// They lie beside the repository where it is developed, and nowhere else: without them this says so and does nothing.
// They are copied with the keys of our project in place of theirs, and send through their own recorder. What it saw
// acknowledged must be in the store and in ClickHouse once, or be kept as rejected.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { createClient } from '@clickhouse/client'
import { intakeOf } from './harness.mjs'
import { standalone } from './standalone.mjs'
import { sleep } from './server.mjs'

const SHARED = path.resolve(process.env.ROOT ?? '.', '../shared/clients')
// For the suite's report.
export const notes = []
const there = fs.existsSync(path.join(SHARED, 'acked.mjs'))

// Copies the drivers into a directory of the suite, where they find the packages.
function copy(world, name, change) {
  const to = path.join(world.dir, 'shared', name)
  fs.mkdirSync(to, { recursive: true })
  fs.symlinkSync(path.resolve('node_modules'), path.join(to, 'node_modules'))
  for (const file of fs.readdirSync(SHARED).filter((x) => x.endsWith('.mjs'))) {
    fs.writeFileSync(path.join(to, file), change(fs.readFileSync(path.join(SHARED, file), 'utf8')))
  }
  return to
}

// Runs a driver; its output goes to a file. Rejects when it does not end well, or within the time.
async function drive(world, dir, [program, ...args], env, seconds) {
  const out = path.join(dir, `${program}.out`)
  const fd = fs.openSync(out, 'w')
  const child = spawn(process.execPath, [path.join(dir, program), ...args], {
    cwd: dir, env: { ...process.env, ...env }, stdio: ['ignore', fd, fd],
  })
  world.closing.push(() => child.kill('SIGKILL'))
  fs.closeSync(fd)
  const late = setTimeout(() => child.kill('SIGKILL'), seconds * 1000)
  const how = await new Promise((done) => child.on('exit', (code, signal) => done(code ?? signal)))
  clearTimeout(late)
  const text = fs.readFileSync(out, 'utf8')
  assert.equal(how, 0, `${program} ended with ${how}:\n${text.slice(-2000)}`)
  return text
}

// acked.mjs prints "acked|unacked ID PATH NAME [sent N times]".
async function acknowledged(world, dir, logs) {
  const text = await drive(world, dir, ['acked.mjs', ...logs], {}, 60)
  return text.split('\n').map((line) => /^acked +(\S+) (\S+) (.*)$/.exec(line)).filter(Boolean)
    .map(([, id, where, what]) => ({ id, where, what }))
}

const id16 = (hex) => hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5')

function drivers(what, least, runs, heavy) {
  let ids
  intakeOf({
    name: `../shared/clients: ${what}`, heavy, seconds: 240, direct: true,
    async run(t) {
      const { world } = t
      const keys = (text) => text.replaceAll('phc_test', t.token).replaceAll('wk_test', t.token)
      const dir = copy(world, t.project, keys)
      const logs = path.join(dir, 'logs')
      for (const [driver, env] of runs) {
        await drive(world, dir, [driver, 'shapes'], { TARGET: t.server.url, OUT: logs, ...env }, 200)
      }
      await sleep(200)
      const seen = fs.readdirSync(logs).filter((x) => x.endsWith('.jsonl'))
      ids = await acknowledged(world, dir, seen.map((x) => path.join(logs, x)))
      assert.ok(ids.length >= least, `only ${ids.length} events were acknowledged`)
    },
    checkStore(db) {
      const { id } = db.prepare('SELECT id FROM projects WHERE name = ?').get(this.project)
      const rows = db.prepare('SELECT lower(hex(uuid)) AS uuid, message_id FROM events WHERE project = ?').all(id)
      const rejected = db.prepare('SELECT text FROM rejected WHERE project = ?').all(id)
        .map((row) => Buffer.from(row.text).toString())
      const have = new Set(rows.map((row) => row.message_id || id16(row.uuid)))
      assert.equal(have.size, rows.length, 'doubled')
      const missing = ids.filter((x) => !have.has(x.id) && !rejected.some((text) => text.includes(x.id)))
      assert.deepEqual(missing, [], 'acknowledged, never stored')
      this.stored = rows
    },
    async checkColumns() {
      const got = await this.server.query('select uuid from events', this.project)
      const want = this.stored.map((row) => id16(row.uuid))
      assert.deepEqual(got.map((row) => row.uuid).sort(), want.sort(), 'logical rows')
    },
  })
}

if (there) {
  drivers('posthog-node.mjs shapes', 500,
    [['posthog-node.mjs', {}], ['posthog-node.mjs', { POSTHOG_CAPTURE_MODE: 'v1' }]])
  drivers('segment-node.mjs and rudder-node.mjs shapes', 60, [['segment-node.mjs', {}], ['rudder-node.mjs', {}]])
  drivers('posthog-browser.mjs shapes', 300,
    [['posthog-browser.mjs', { ONLY: '^(default|no-compression|xhr|no-batch|beacon|own-endpoint|recording)$' }]], true)
  drivers('browser-others.mjs shapes, Segment', 20, [['browser-others.mjs', { ONLY: 'segment' }]], true)
  standalone('../shared/clients: clickhouse.mjs shapes', async (world) => {
    const { secret, url } = world.engine
    const dir = copy(world, 'clickhouse', (text) => text
      .replaceAll("username: 'u', password: 'p', database: 'db'", `username: 'owner', password: '${secret}'`)
      .replaceAll('CREATE TABLE x', 'CREATE OR REPLACE TABLE x'))
    const client = createClient({ url, username: 'owner', password: secret })
    try {
      await client.command({ query: `CREATE TABLE events (a Int32, s String, d String, n Nullable(Float64))
        ENGINE = MergeTree ORDER BY a` })
      const text = await drive(world, dir, ['clickhouse.mjs', 'shapes'], { TARGET: url, OUT: path.join(dir, 'logs') }, 60)
      assert.doesNotMatch(text, /ClickHouseError/)
      assert.equal(text.match(/^#\d+ .* (GET|POST) \//gm).length, 8, 'its requests')
      const count = await client.query({ query: "SELECT countIf(s = 'ü😀') AS n FROM events", format: 'JSONEachRow' })
      assert.deepEqual(await count.json(), [{ n: 2 }])
    } finally {
      await client.close()
    }
  })
} else {
  notes.push(`NOT RUN: the drivers of ../shared/clients (there is no ${SHARED})`)
}
