// tus_browser.mjs: unmodified tus-js-client in headless Chromium, its page on another origin than the server.
//
// Everything it reads of an answer, it reads because CORS exposes it. URLs of uploads are kept in localStorage, by the
// file's name, type, size and time and the endpoint.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import { withPage } from './browser.mjs'
import { request, until } from './server.mjs'
import { standalone } from './standalone.mjs'
import {
  OFFSETS, POOL, TUS, api, arrived, create, decoded, idOf, metadata, newFile, notAccepted, throughProxy,
} from './tus_kit.mjs'

const name = (what) => `tus-js-client in Chromium: ${what}`

// What the page has: put(options) sends the file that was chosen, and resolves to { url, log, error, status, text };
// with `resume` it looks for an earlier upload of the file first.
const source = `import * as tus from 'tus-js-client'
const NAMES = ['Location', 'Upload-Offset', 'Upload-Length', 'Upload-Metadata', 'Upload-Expires', 'Artifact-Receipt',
  'Tus-Resumable']
window.tus = tus
window.chosen = () => document.querySelector('#file').files[0]
window.put = ({ resume, ...options }) => new Promise((done) => {
  const log = []
  const end = (error) => done({
    url: upload.url, log: log.map(({ req, ...rest }) => rest), error: error && String(error),
    status: error?.originalResponse?.getStatus(), text: error?.originalResponse?.getBody(),
  })
  const upload = new tus.Upload(chosen(), {
    ...options,
    onBeforeRequest(req) {
      log.push({ req, method: req.getMethod(), offset: req.getHeader('Upload-Offset') })
    },
    onAfterResponse(req, res) {
      const entry = log.findLast((x) => x.req === req)
      entry.status = res.getStatus()
      entry.headers = Object.fromEntries(NAMES.map((x) => [x, res.getHeader(x)]))
    },
    onError: end,
    onSuccess: () => end(),
  })
  if (!resume) return upload.start()
  upload.findPreviousUploads().then((all) => {
    if (all.length !== 1) return done({ log: [], error: all.length + ' earlier uploads' })
    upload.resumeFromPreviousUpload(all[0])
    upload.start()
  })
})
const input = document.createElement('input')
input.type = 'file'
input.id = 'file'
document.body.append(input)`

function inPage(what, rules, run) {
  standalone(name(what), (world) => throughProxy(world, rules, async (t) => {
    const { page, leave } = await withPage(source)
    try {
      await run({ ...t, page })
      assert.deepEqual(page.errors, [])
    } finally {
      await leave()
    }
  }), { pool: POOL })
}

// Chooses a new file in the page.
async function choose(t, size) {
  const file = await newFile(t, size)
  await t.page.setInputFiles('#file', file.path)
  return file
}

const put = (t, options) => t.page.evaluate(`put(${JSON.stringify({ endpoint: t.endpoint, ...options })})`)

const steps = (log) => log.map((x) => `${x.method}${x.status === undefined ? '' : ` ${x.status}`}`)
const wire = (t) => t.proxy.requests.map((r) => r.method)

async function whole(t, r, file, options) {
  assert.equal(r.error, undefined)
  const header = r.log.at(-1).headers['Artifact-Receipt']
  assert.ok(header, 'the page can read the receipt of the last answer')
  await arrived(t, r.url, file, { header, ...options })
}

inPage('create, one PATCH, and the receipt by fetch', [], async (t) => {
  const file = await choose(t, 300000)
  const r = await put(t, { metadata: metadata(file, { filename: 'ü.bin' }) })
  assert.deepEqual(steps(r.log), ['POST 201', 'PATCH 204'])
  assert.deepEqual(wire(t), ['OPTIONS', 'POST', 'OPTIONS', 'PATCH'])
  const [post, patch] = r.log.map((x) => x.headers)
  assert.match(post.Location, /^\/files\/[0-9a-f]{32}$/)
  assert.ok(Date.parse(post['Upload-Expires']) > Date.now())
  assert.deepEqual([patch['Upload-Offset'], patch['Tus-Resumable']], ['300000', '1.0.0'])
  await whole(t, r, file, { name: '__.bin' })
  const id = idOf(r.url)
  for (const what of ['receipts', 'artifacts']) {
    const got = await t.page.evaluate(`fetch('${t.proxy.url}/api/v1/${what}/${id}').then((x) => x.text())`)
    assert.equal(got, (await api(t, what, id)).text)
  }
  const receipt = await t.page.evaluate(`fetch('${t.proxy.url}/api/v1/receipts/${id}').then((x) => x.json())`)
  assert.deepEqual(receipt, JSON.parse(decoded(patch['Artifact-Receipt'])))
})

inPage('aborted in a PATCH, and terminated', [{ match: (r) => r.method === 'PATCH', times: 1, stall: 2000000 }], async (t) => {
  const file = await choose(t, 6000000)
  const options = { endpoint: t.endpoint, metadata: metadata(file), retryDelays: null }
  await t.page.evaluate(`window.upload = new tus.Upload(chosen(), ${JSON.stringify(options)}); upload.start()`)
  await t.proxy.stalled
  await t.page.evaluate('upload.abort(true)')
  const url = await t.page.evaluate('upload.url')
  assert.deepEqual(wire(t).filter((x) => x !== 'OPTIONS'), ['POST', 'PATCH', 'DELETE'])
  assert.equal((await request(url, { method: 'HEAD', headers: TUS })).status, 404)
})

inPage('preflights name what it may send and read', [], async (t) => {
  const file = await choose(t, 300000)
  const headers = { Authorization: 'Bearer x', 'X-Own': '1' }
  const r = await put(t, { metadata: metadata(file), chunkSize: 200000, addRequestId: true, headers })
  assert.deepEqual(steps(r.log), ['POST 201', 'PATCH 204', 'PATCH 204'])
  const preflights = t.proxy.requests.filter((x) => x.method === 'OPTIONS')
  assert.ok(preflights.length >= 2)
  for (const { headers, status, answer } of preflights) {
    assert.equal(status, 204)
    assert.equal(answer['access-control-allow-origin'], headers.origin)
    const method = headers['access-control-request-method']
    assert.ok(answer['access-control-allow-methods'].split(/ *, */).includes(method), method)
    const allowed = answer['access-control-allow-headers'].toLowerCase().split(/ *, */)
    const asked = headers['access-control-request-headers'].split(',')
    assert.ok(asked.length >= 4 && asked.every((x) => allowed.includes(x)), `${asked}`)
    assert.equal(answer['tus-version'], '1.0.0')
    assert.equal(answer['tus-extension'], 'creation,creation-with-upload,expiration,checksum,termination')
  }
  await whole(t, r, file)
})

inPage('POST in place of PATCH', [], async (t) => {
  const file = await choose(t, 300000)
  const r = await put(t, { metadata: metadata(file), overridePatchMethod: true })
  assert.deepEqual(steps(r.log), ['POST 201', 'POST 204'])
  await whole(t, r, file)
})

inPage('creation with upload, chunks', [], async (t) => {
  const file = await choose(t, 250000)
  const r = await put(t, { metadata: metadata(file), uploadDataDuringCreation: true, chunkSize: 100000 })
  assert.deepEqual(steps(r.log), ['POST 201', 'PATCH 204', 'PATCH 204'])
  await whole(t, r, file)
})

const PATCH = (r) => r.method === 'PATCH'

inPage('the page is loaded anew in a PATCH, it resumes from localStorage', [{ match: PATCH, times: 1, stall: 2000000 }],
  async (t) => {
    const file = await choose(t, 6000000)
    const options = { metadata: metadata(file) }
    t.page.evaluate(`void put(${JSON.stringify({ endpoint: t.endpoint, ...options })})`)
    await t.proxy.stalled
    await t.page.reload()
    const url = new URL(t.proxy.requests.find(PATCH).path, t.endpoint).href
    await until('the server has let go of it', async () =>
      (await request(url, { method: 'HEAD', headers: TUS })).headers['upload-offset'] === '2000000')
    await t.page.setInputFiles('#file', file.path)
    const r = await put(t, { ...options, resume: true, removeFingerprintOnSuccess: true })
    assert.equal(r.error, undefined)
    assert.equal(r.url, url)
    assert.deepEqual([steps(r.log)[0], steps(r.log).at(-1)], ['HEAD 200', 'PATCH 204'])
    assert.equal(r.log.at(-1).offset, '2000000')
    await whole(t, r, file)
    assert.equal(await t.page.evaluate('Object.keys(localStorage).filter((x) => x.startsWith("tus::")).length'), 0)
  })

inPage('a PATCH is committed, its answer is lost', [{ match: PATCH, times: 1, drop: true }], async (t) => {
  const file = await choose(t, 300000)
  const r = await put(t, { metadata: metadata(file) })
  // Chromium itself may repeat the PATCH, when it had used the connection before; that is one at a wrong offset then.
  assert.deepEqual(steps(r.log).map((x) => x.replace('PATCH 409', 'PATCH')), ['POST 201', 'PATCH', 'HEAD 200'])
  assert.equal(t.proxy.requests.find(PATCH).status, 204)
  await whole(t, r, file)
})

inPage('the connection ends after 100 kB', [{ match: PATCH, times: 1, cut: 100000 }], async (t) => {
  const file = await choose(t, 1000000)
  const r = await put(t, { metadata: metadata(file) })
  assert.deepEqual([steps(r.log)[0], steps(r.log).at(-1)], ['POST 201', 'PATCH 204'])
  assert.ok(Number(r.log.at(-1).offset) >= 100000, `it went on at ${r.log.at(-1).offset}`)
  await whole(t, r, file)
})

inPage('503 with Retry-After to a PATCH', [{ match: PATCH, times: 1, answer: 503, headers: { 'Retry-After': '1' } }],
  async (t) => {
    const file = await choose(t, 300000)
    const r = await put(t, { metadata: metadata(file) })
    assert.deepEqual(steps(r.log), ['POST 201', 'PATCH 503', 'HEAD 200', 'PATCH 204'])
    await whole(t, r, file)
  })

inPage('refused: the page reads why', [], async (t) => {
  const file = await choose(t, 300000)
  const refused = async (status, text, options) => {
    const r = await put(t, { metadata: metadata(file), ...options })
    assert.deepEqual([r.status, r.text?.split(':')[0]], [status, text], r.error)
  }
  await refused(400, 'ERR_CONCATENATION_UNSUPPORTED', { parallelUploads: 2 })
  await refused(400, 'ERR_INVALID_PROJECT', { metadata: metadata(file, { project: 'nowhere' }) })
  await refused(400, 'ERR_INVALID_CHECKSUM', { metadata: metadata(file, { checksum: 'sha256:00' }) })
  await refused(422, 'ERR_CHECKSUM_MISMATCH', { metadata: metadata(file, { checksum: `blake3:${'0'.repeat(64)}` }) })
  fs.writeFileSync(file.path, '')
  await t.page.setInputFiles('#file', file.path)
  await refused(400, 'ERR_INVALID_SIZE', {})
})

// While the page sends 50 MB, straight to the server: the status arrives, and can be read.
inPage('409, 413 and 415 while 50 MB are being sent', [], async (t) => {
  const file = await newFile(t, 1000)
  const url = await create({ endpoint: `${t.server.url}/files` }, file)
  const send = (headers, target = url, method = 'PATCH') => t.page.evaluate(`fetch('${target}', {
    method: '${method}', headers: ${JSON.stringify({ ...TUS, ...headers })}, body: new Blob([new Uint8Array(50000000)]),
  }).then(async (x) => [x.status, (await x.text()).split(':')[0]], String)`)
  const patch = { 'Content-Type': OFFSETS, 'Upload-Offset': '0' }
  assert.deepEqual(await send({ ...patch, 'Upload-Offset': '7' }), [409, 'ERR_MISMATCHED_OFFSET'])
  assert.deepEqual(await send(patch), [413, 'ERR_UPLOAD_SIZE_EXCEEDED'])
  assert.deepEqual(await send({ ...patch, 'Content-Type': 'text/plain' }), [415, 'ERR_INVALID_CONTENT_TYPE'])
  const large = { 'Content-Type': OFFSETS, 'Upload-Length': String(2 ** 52) }
  assert.deepEqual(await send(large, `${t.server.url}/files`, 'POST'), [413, 'ERR_MAX_SIZE_EXCEEDED'])
  await notAccepted(t, url, 409, 'not_accepted')
})
