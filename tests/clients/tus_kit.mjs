// tus_kit.mjs: the server that files are sent to, and what is demanded of each that has arrived.
//
// One server for all tests of tus, with a project `files` whose destination is a directory. The digests are b3sum's.
import assert from 'node:assert/strict'
import crypto from 'node:crypto'
import { execFile } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { Tallyman, request, until } from './server.mjs'
import { TusProxy } from './tus_proxy.mjs'

export const PROJECT = 'files'
export const POOL = 'tus'
export const TUS = { 'Tus-Resumable': '1.0.0' }
export const OFFSETS = 'application/offset+octet-stream'
const KEYS = ['id', 'issuer', 'object_id', 'checksum', 'size_bytes', 'accepted_at']

async function open(world) {
  const server = new Tallyman(world.dir, 'tus')
  await server.start('--engine', 'off')
  world.closing.push(() => server.stop())
  const directory = path.join(world.dir, 'tus-arrived')
  fs.mkdirSync(directory)
  await server.cli('project', 'create', PROJECT, '--sink', 'directory', '--directory', directory, '--json')
  return { server, directory, dir: world.dir, endpoint: `${server.url}/files` }
}

// The server's { server, directory, endpoint }, started by the first test that asks.
export function tusServer(world) {
  world.tus ??= open(world)
  return world.tus
}

// Runs a test with a proxy before the server, that has these faults.
export async function throughProxy(world, rules, run) {
  const tus = await tusServer(world)
  const proxy = await TusProxy.start(tus.server.url, ...rules)
  try {
    await run({ ...tus, proxy, endpoint: `${proxy.url}/files` })
  } finally {
    await proxy.close()
  }
}

let files = 0
// A new file of so many random bytes: { path, bytes, checksum }.
export async function newFile(tus, size) {
  const bytes = crypto.randomBytes(size)
  const file = path.join(tus.dir, `sent-${++files}.bin`)
  fs.writeFileSync(file, bytes)
  const { stdout } = await promisify(execFile)('b3sum', ['--no-names', file])
  return { path: file, bytes, checksum: `blake3:${stdout.trim()}` }
}

export const metadata = (file, more = {}) => ({ project: PROJECT, checksum: file.checksum, ...more })

export function metadataHeader(all) {
  return Object.entries(all).map(([k, v]) => `${k} ${Buffer.from(v).toString('base64')}`).join(',')
}

// An upload made by plain HTTP: its URL.
export async function create(tus, file, length = file.bytes.length) {
  const headers = { ...TUS, 'Upload-Length': String(length), 'Upload-Metadata': metadataHeader(metadata(file)) }
  const answer = await request(tus.endpoint, { method: 'POST', headers })
  assert.equal(answer.status, 201, answer.body.toString())
  return new URL(answer.headers.location, tus.endpoint).href
}

export const idOf = (url) => /\/files\/([0-9a-f]{32})$/.exec(url)[1]

export const decoded = (header) => Buffer.from(header, 'base64url').toString()

export async function api(tus, what, id) {
  const answer = await request(`${tus.server.url}/api/v1/${what}/${id}`)
  return { status: answer.status, text: answer.body.toString() }
}

function checkReceipt(tus, id, file, text) {
  const receipt = JSON.parse(text)
  assert.deepEqual(Object.keys(receipt), KEYS)
  const { accepted_at: at, ...rest } = receipt
  assert.deepEqual(rest, {
    id: `receipt:${id}`, issuer: tus.server.url, object_id: id, checksum: file.checksum,
    size_bytes: file.bytes.length,
  })
  assert.ok(Number.isInteger(at) && Math.abs(at - Date.now() / 1000) < 600, `accepted_at ${at}`)
}

// The file is accepted and delivered (at low priority, so files are small): the receipt in the last answer is that of
// the sent bytes, the same the server gives to whoever asks; the bytes are in uploads/, and at the destination, under
// `name`.
export async function arrived(tus, url, file, { header, name = idOf(url) } = {}) {
  const id = idOf(url)
  const { status, text } = await api(tus, 'receipts', id)
  assert.equal(status, 200, text)
  assert.ok(text.endsWith('}\n'))
  if (header !== undefined) assert.equal(decoded(header), text.trimEnd(), 'the receipt in the answer')
  checkReceipt(tus, id, file, text)
  assert.equal(fs.readFileSync(path.join(tus.server.data, 'receipts', `${id}.json`), 'utf8'), text.trimEnd())
  assert.ok(file.bytes.equals(fs.readFileSync(path.join(tus.server.data, 'uploads', id))), 'the bytes in uploads/')
  await until(`${id} is verified at its destination`, async () =>
    JSON.parse((await api(tus, 'artifacts', id)).text).delivery?.state === 'verified', 100)
  const there = fs.readdirSync(path.join(tus.directory, id)).sort()
  assert.deepEqual(there, [name, `${name}.manifest.jsonl`].sort())
  assert.ok(file.bytes.equals(fs.readFileSync(path.join(tus.directory, id, name))), 'the bytes at the destination')
}

// An upload that has no receipt, and says why.
export async function notAccepted(tus, url, status, what) {
  const answer = await api(tus, 'receipts', idOf(url))
  assert.equal(answer.status, status, answer.text)
  assert.equal(JSON.parse(answer.text).error, what)
}
