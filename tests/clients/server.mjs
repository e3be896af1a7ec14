// server.mjs: a Tallyman server, or its analytics engine alone, as processes of this suite.
//
// TALLYMAN names the binary, its engine lies beside it; both work in directories that the suite made. Every process
// is ended by its own handle and awaited; `leftBehind` looks whether any process still names a directory.
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import path from 'node:path'

export const TALLYMAN = path.resolve(process.env.TALLYMAN ?? 'build/tallyman')
const ENGINE = path.join(path.dirname(TALLYMAN), 'tallyman-engine')

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms))

// Asks until the answer is true; an error counts as false.
export async function until(what, ask, seconds = 30, pause = 50) {
  const end = Date.now() + seconds * 1000
  let last
  for (;;) {
    try {
      const got = await ask()
      if (got) return got
      last = undefined
    } catch (error) {
      last = error
    }
    if (Date.now() > end) throw new Error(`after ${seconds} s, still not: ${what}${last ? ` (${last.message})` : ''}`)
    await sleep(pause)
  }
}

export async function freePort() {
  const server = net.createServer()
  await new Promise((done) => server.listen(0, '127.0.0.1', done))
  const { port } = server.address()
  await new Promise((done) => server.close(done))
  return port
}

// One request, its whole answer: { status, headers, body }. where is a URL, or { socketPath, path }.
export function request(where, { method = 'GET', headers = {}, body } = {}) {
  return new Promise((resolve, reject) => {
    const options = { method, headers, agent: false, timeout: 60000 }
    const req = typeof where === 'string' ? http.request(where, options) : http.request({ ...where, ...options })
    req.on('error', reject)
    req.on('timeout', () => req.destroy(new Error('no answer within a minute')))
    req.on('response', async (res) => {
      try {
        const parts = []
        for await (const part of res) parts.push(part)
        resolve({ status: res.statusCode, headers: res.headers, body: Buffer.concat(parts) })
      } catch (error) {
        reject(error)
      }
    })
    req.end(body)
  })
}

// A socket in a directory, by a path that is short however long the directory's is.
async function onSocket(file, target, options) {
  const fd = fs.openSync(path.dirname(file), fs.constants.O_DIRECTORY)
  try {
    return await request({ socketPath: `/proc/self/fd/${fd}/${path.basename(file)}`, path: target }, options)
  } finally {
    fs.closeSync(fd)
  }
}

export class Process {
  static over = false // nothing more is started then

  constructor(log) {
    this.logPath = log
  }

  get log() {
    return fs.existsSync(this.logPath) ? fs.readFileSync(this.logPath, 'utf8') : ''
  }

  logEnd(lines = 25) {
    return this.log.trimEnd().split('\n').slice(-lines).join('\n')
  }

  async launch(program, args, ready) {
    if (Process.over) throw new Error('the suite is ending')
    const fd = fs.openSync(this.logPath, 'a')
    this.child = spawn(program, args, { stdio: ['ignore', fd, fd] })
    fs.closeSync(fd)
    this.ended = new Promise((done) => {
      this.child.on('exit', (code, signal) => done(code ?? signal))
      this.child.on('error', (error) => done(error.message))
    })
    let gone
    this.ended.then((how) => (gone = how))
    await until(`${path.basename(program)} is ready`, async () => gone !== undefined || (await ready()), 60)
    if (gone !== undefined) throw new Error(`${path.basename(program)} ended with ${gone}:\n${this.logEnd()}`)
    return this
  }

  // SIGTERM; the exit code must be 0.
  async stop() {
    if (!this.child) return
    const { child } = this
    this.child = undefined
    child.kill('SIGTERM')
    const late = setTimeout(() => child.kill('SIGKILL'), 40000)
    const how = await this.ended
    clearTimeout(late)
    if (how !== 0) throw new Error(`${path.basename(child.spawnfile)} ended with ${how}:\n${this.logEnd()}`)
  }
}

export class Tallyman extends Process {
  constructor(dir, name) {
    super(path.join(dir, `${name}.log`))
    this.data = path.join(dir, name)
  }

  async start(...args) {
    const port = await freePort()
    this.url = `http://127.0.0.1:${port}`
    const serve = ['serve', '--data', this.data, '--listen', `127.0.0.1:${port}`, ...args]
    return this.launch(TALLYMAN, serve, async () => (await request(`${this.url}/readyz`)).status === 200)
  }

  // A verb of the command line; its standard output.
  async cli(...args) {
    const child = spawn(TALLYMAN, [...args, '--data', this.data], { stdio: ['ignore', 'pipe', 'pipe'] })
    const late = setTimeout(() => child.kill('SIGKILL'), 90000)
    let out = ''
    let err = ''
    child.stdout.setEncoding('utf8').on('data', (x) => (out += x))
    child.stderr.setEncoding('utf8').on('data', (x) => (err += x))
    const code = await new Promise((done) => child.on('close', done))
    clearTimeout(late)
    if (code !== 0) throw new Error(`tallyman ${args.join(' ')}: status ${code}: ${err}`)
    return out
  }

  // The project's capture token.
  async project(id) {
    return JSON.parse(await this.cli('project', 'create', id, '--json')).capture_token
  }

  // The rows of a statement by `tallyman query`.
  async query(sql, project) {
    const lines = await this.cli('query', sql, '--project', project, '--format', 'ndjson')
    return lines.split('\n').filter(Boolean).map((line) => JSON.parse(line))
  }

  // The administrator's answer, JSON.
  async api(target) {
    const answer = await onSocket(path.join(this.data, 'tallyman.sock'), target)
    if (answer.status !== 200) throw new Error(`${target}: ${answer.status} ${answer.body}`)
    return JSON.parse(answer.body)
  }

  // The engine is up, and nothing waits for it.
  async drained(seconds = 60) {
    await until('everything is delivered', async () => {
      await this.owner('SELECT 1')
      return (await this.api('/api/v1/status')).queue.pending === 0
    }, seconds)
  }

  // The rows of a statement by the embedded engine's owner.
  async owner(sql) {
    const socket = path.join(this.data, 'engine', 'engine.sock')
    const answer = await onSocket(socket, '/?default_format=JSONEachRow', { method: 'POST', body: sql })
    if (answer.status !== 200) throw new Error(`${sql}: ${answer.status} ${answer.body}`)
    return answer.body.toString().split('\n').filter(Boolean).map((line) => JSON.parse(line))
  }
}

// The engine alone, with its interface on TCP.
export class Engine extends Process {
  constructor(dir, name) {
    super(path.join(dir, `${name}.log`))
    this.data = path.join(dir, name)
    this.secret = `secret-of-${name}`
    this.secretFile = path.join(dir, `${name}.secret`)
    fs.writeFileSync(this.secretFile, this.secret, { mode: 0o600 })
  }

  async start() {
    const port = await freePort()
    this.url = `http://127.0.0.1:${port}`
    const args = ['--data', this.data, '--library', process.env.TALLYMAN_ENGINE_LIBRARY, '--listen',
      `127.0.0.1:${port}`, '--secret-file', this.secretFile]
    return this.launch(ENGINE, args, async () => (await request(`${this.url}/ping`)).status === 200)
  }
}

// Command lines of processes that name the directory, this one's aside.
export function leftBehind(dir) {
  const found = []
  for (const pid of fs.readdirSync('/proc').filter((x) => /^\d+$/.test(x) && Number(x) !== process.pid)) {
    try {
      const line = fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')
      if (line.includes(dir)) found.push(`${pid} ${line.slice(0, 120)}`)
    } catch {
      // It ended while we looked.
    }
  }
  return found
}
