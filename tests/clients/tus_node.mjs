// tus_node.mjs: unmodified tus-js-client in Node.js.
//
// It tries again on 409, 423, 5xx and lost connections (a HEAD first, unless it has no URL yet); every other 4xx ends
// it. A HEAD that is refused, or finds a broken connection, sends it back to the first byte.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import { Readable } from 'node:stream'
import * as tus from 'tus-js-client'
import { request, sleep, until } from './server.mjs'
import { standalone } from './standalone.mjs'
import {
  OFFSETS, POOL, TUS, arrived, create, idOf, metadata, newFile, notAccepted, throughProxy, tusServer,
} from './tus_kit.mjs'

const name = (what) => `tus-js-client in Node: ${what}`
const ANSWERED = ['Location', 'Upload-Offset', 'Upload-Length', 'Upload-Metadata', 'Upload-Expires', 'Artifact-Receipt',
  'Tus-Resumable', 'Cache-Control']

// An upload under way: { done, upload }. done: { url, log, error, status, text }; log has for each request its method,
// offset, other headers by `sent`, and of the answer status and headers.
export function begin(data, options) {
  const log = []
  let upload
  const done = new Promise((resolve) => {
    const end = (error) => resolve({
      url: upload.url, log, error, status: error?.originalResponse?.getStatus(),
      text: error?.originalResponse?.getBody() ?? '',
    })
    upload = new tus.Upload(data, {
      ...options,
      async onBeforeRequest(req) {
        log.push({ req, method: req.getMethod(), url: req.getURL(), sent: (x) => req.getHeader(x) })
        await options.onBeforeRequest?.(req)
      },
      onAfterResponse(req, res) {
        const entry = log.findLast((x) => x.req === req)
        entry.status = res.getStatus()
        entry.headers = Object.fromEntries(ANSWERED.map((x) => [x, res.getHeader(x)]))
      },
      onError: end,
      onSuccess: () => end(),
    })
    upload.start()
  })
  return { done, upload }
}

const put = (data, options) => begin(data, options).done

const steps = (log) => log.map((x) => `${x.method}${x.status === undefined ? '' : ` ${x.status}`}`)
const offsets = (log) => log.filter((x) => x.sent('Upload-Offset')).map((x) => Number(x.sent('Upload-Offset')))

async function whole(t, r, file, options) {
  assert.equal(r.error, undefined)
  const last = r.log.at(-1).headers
  assert.ok(last['Artifact-Receipt'], 'the last answer has the receipt')
  await arrived(t, r.url, file, { header: last['Artifact-Receipt'], ...options })
}

// A test straight at the server.
function direct(what, run) {
  standalone(name(what), async (world) => run(await tusServer(world)), { pool: POOL })
}

function faulty(what, rules, run) {
  standalone(name(what), (world) => throughProxy(world, rules, run), { pool: POOL })
}

direct('create, one PATCH', async (t) => {
  const file = await newFile(t, 300000)
  const extra = { filename: 'naïve 日本.txt', filetype: 'text/plain', empty: '' }
  const r = await put(file.bytes, {
    endpoint: t.endpoint, metadata: metadata(file, extra), headers: { Authorization: 'Bearer tok' },
  })
  assert.deepEqual(steps(r.log), ['POST 201', 'PATCH 204'])
  const [post, patch] = r.log.map((x) => x.headers)
  assert.match(post.Location, /^\/files\/[0-9a-f]{32}$/)
  assert.ok(Date.parse(post['Upload-Expires']) > Date.now(), 'it says when it expires')
  assert.equal(patch['Upload-Offset'], '300000')
  await whole(t, r, file, { name: 'na__ve_______.txt' })
  const head = await request(r.url, { method: 'HEAD', headers: TUS })
  assert.equal(head.status, 200)
  assert.equal(head.headers['upload-metadata'], r.log[0].sent('Upload-Metadata').trimEnd())
  assert.deepEqual([head.headers['upload-offset'], head.headers['upload-length']], ['300000', '300000'])
  assert.equal(head.headers['artifact-receipt'], patch['Artifact-Receipt'])
  assert.equal(head.headers['cache-control'], 'no-store')
})

direct('chunks', async (t) => {
  const file = await newFile(t, 300001)
  const r = await put(file.bytes, { endpoint: `${t.endpoint}/`, metadata: metadata(file), chunkSize: 100000 })
  assert.deepEqual(steps(r.log), ['POST 201', 'PATCH 204', 'PATCH 204', 'PATCH 204', 'PATCH 204'])
  assert.deepEqual(offsets(r.log), [0, 100000, 200000, 300000])
  const before = r.log.slice(1, -1).map((x) => x.headers)
  assert.ok(before.every((x) => Date.parse(x['Upload-Expires']) > Date.now() && !x['Artifact-Receipt']))
  await whole(t, r, file)
})

direct('creation with upload', async (t) => {
  const file = await newFile(t, 300000)
  const r = await put(file.bytes, {
    endpoint: t.endpoint, metadata: metadata(file, { filename: 'a.bin' }), uploadDataDuringCreation: true,
  })
  assert.deepEqual(steps(r.log), ['POST 201'])
  assert.equal(r.log[0].headers['Upload-Offset'], '300000')
  await whole(t, r, file, { name: 'a.bin' })
})

direct('creation with upload, chunks', async (t) => {
  const file = await newFile(t, 250000)
  const r = await put(file.bytes, {
    endpoint: t.endpoint, metadata: metadata(file), uploadDataDuringCreation: true, chunkSize: 100000,
  })
  assert.deepEqual(steps(r.log), ['POST 201', 'PATCH 204', 'PATCH 204'])
  assert.equal(r.log[0].headers['Upload-Offset'], '100000')
  await whole(t, r, file)
})

direct('a file from disk', async (t) => {
  const file = await newFile(t, 3000000)
  const r = await put(fs.createReadStream(file.path), { endpoint: t.endpoint, metadata: metadata(file) })
  assert.deepEqual(steps(r.log), ['POST 201', 'PATCH 204'])
  await whole(t, r, file)
})

direct('a stream of known size', async (t) => {
  const file = await newFile(t, 140000)
  const r = await put(Readable.from([file.bytes.subarray(0, 70000), file.bytes.subarray(70000)]), {
    endpoint: t.endpoint, metadata: metadata(file), chunkSize: 64 * 1024, uploadSize: 140000,
  })
  assert.equal(steps(r.log)[0], 'POST 201')
  assert.ok(r.log.length >= 3)
  await whole(t, r, file)
})

direct('many small files, eight at a time', async (t) => {
  const all = await Promise.all(Array.from({ length: 24 }, (_, i) => newFile(t, 1 + i * 97)))
  const todo = [...all]
  const urls = new Map()
  await Promise.all(Array.from({ length: 8 }, async () => {
    for (let file = todo.shift(); file; file = todo.shift()) {
      const options = { endpoint: t.endpoint, metadata: metadata(file), uploadDataDuringCreation: true }
      const r = await put(file.bytes, options)
      assert.equal(r.error, undefined)
      urls.set(r.url, file)
    }
  }))
  assert.equal(urls.size, all.length, 'each has an id of its own')
  for (const [url, file] of urls) await arrived(t, url, file)
})

direct('POST in place of PATCH, request ids', async (t) => {
  const file = await newFile(t, 300000)
  const r = await put(file.bytes, {
    endpoint: t.endpoint, metadata: metadata(file), overridePatchMethod: true, addRequestId: true, chunkSize: 200000,
  })
  assert.deepEqual(steps(r.log), ['POST 201', 'POST 204', 'POST 204'])
  assert.ok(r.log.slice(1).every((x) => x.sent('X-HTTP-Method-Override') === 'PATCH' && x.sent('X-Request-ID')))
  await whole(t, r, file)
})

const PATCH = (r) => r.method === 'PATCH'
const POST = (r) => r.method === 'POST'

faulty('aborted in a PATCH, resumed by its URL', [{ match: PATCH, times: 1, stall: 2000000 }], async (t) => {
  const file = await newFile(t, 6000000)
  const options = { endpoint: t.endpoint, metadata: metadata(file) }
  const first = begin(file.bytes, options)
  await t.proxy.stalled
  await first.upload.abort()
  await until('the server has let go of it', async () => {
    const head = await request(first.upload.url, { method: 'HEAD', headers: TUS })
    return Number(head.headers['upload-offset']) === 2000000
  })
  const r = await put(file.bytes, { ...options, uploadUrl: first.upload.url })
  assert.deepEqual([steps(r.log)[0], steps(r.log).at(-1)], ['HEAD 200', 'PATCH 204'])
  assert.ok(offsets(r.log).every((x) => x === 2000000), `it went on at ${offsets(r.log)}`)
  await whole(t, r, file)
})

// abort(true): it closes the PATCH and deletes at once, on another connection.
faulty('aborted in a PATCH, and terminated', [{ match: PATCH, times: 1, stall: 2000000 }], async (t) => {
  const file = await newFile(t, 6000000)
  const { upload } = begin(file.bytes, { endpoint: t.endpoint, metadata: metadata(file), retryDelays: null })
  await t.proxy.stalled
  await upload.abort(true) // rejects unless DELETE is 204
  const methods = t.proxy.requests.map((r) => r.method)
  assert.deepEqual(methods, ['POST', 'PATCH', 'DELETE'])
  for (const method of ['HEAD', 'DELETE']) {
    assert.equal((await request(upload.url, { method, headers: TUS })).status, 404)
  }
})

// The server may still be busy with the old PATCH when the next request comes.
const pauses = { match: PATCH, times: 12, stall: 200000 }
faulty('paused and resumed twelve times', [pauses], async (t) => {
  const file = await newFile(t, 3000000)
  const { upload, done } = begin(file.bytes, { endpoint: t.endpoint, metadata: metadata(file) })
  pauses.onStall = async () => {
    await upload.abort()
    await sleep(10) // the client takes the end of its old request for that of a new one
    upload.start()
  }
  const r = await done
  const all = offsets(r.log)
  assert.ok(all.length >= 13 && all.every((x, i) => i === 0 || x >= all[i - 1]), `no offset goes back: ${all}`)
  assert.ok(all.at(-1) >= 200000)
  await whole(t, r, file)
})

direct('two clients send one upload', async (t) => {
  const file = await newFile(t, 2000000)
  const uploadUrl = await create(t, file)
  const options = { endpoint: t.endpoint, metadata: metadata(file), uploadUrl, chunkSize: 400000 }
  const both = await Promise.all([put(file.bytes, options), put(file.bytes, options)])
  assert.equal(both[0].url, both[1].url)
  for (const r of both) await whole(t, r, file)
  assert.ok(both.flatMap((r) => r.log).every((x) => x.status < 500 && x.method !== 'POST'), 'no 5xx, no new upload')
})

// What was passed on before the fault is kept: the last PATCH goes on behind it.
function resumed(what, rule, size, least) {
  faulty(what, [{ match: PATCH, times: 1, ...rule }], async (t) => {
    const file = await newFile(t, size)
    const r = await put(file.bytes, { endpoint: t.endpoint, metadata: metadata(file) })
    assert.deepEqual(steps(r.log).slice(0, 3), ['POST 201', 'PATCH', 'HEAD 200'])
    assert.ok(offsets(r.log).at(-1) >= least, `it went on at ${offsets(r.log).at(-1)}`)
    await whole(t, r, file)
  })
}

resumed('the connection ends after 100 kB', { cut: 100000 }, 1000000, 100000)
resumed('the connection is reset after 100 kB', { cut: 100000, rst: true }, 1000000, 0)
resumed('the client is lost without a word', { silent: 1000000 }, 3000000, 1000000)

faulty('503 with Retry-After to a PATCH', [{ match: PATCH, times: 1, answer: 503, headers: { 'Retry-After': '1' } }],
  async (t) => {
    const file = await newFile(t, 300000)
    const r = await put(file.bytes, { endpoint: t.endpoint, metadata: metadata(file) })
    assert.deepEqual(steps(r.log), ['POST 201', 'PATCH 503', 'HEAD 200', 'PATCH 204'])
    await whole(t, r, file)
  })

faulty('a PATCH is committed, its answer is lost', [{ match: PATCH, times: 1, drop: true }], async (t) => {
  const file = await newFile(t, 300000)
  const r = await put(file.bytes, { endpoint: t.endpoint, metadata: metadata(file) })
  assert.deepEqual(steps(r.log), ['POST 201', 'PATCH', 'HEAD 200'])
  assert.equal(t.proxy.requests[1].status, 204)
  await whole(t, r, file)
})

const SECOND = (r) => r.headers['upload-offset'] === '100000'
faulty('the answer to one of its chunks is lost', [{ match: SECOND, times: 1, drop: true }], async (t) => {
  const file = await newFile(t, 250000)
  const r = await put(file.bytes, { endpoint: t.endpoint, metadata: metadata(file), chunkSize: 100000 })
  assert.deepEqual(steps(r.log), ['POST 201', 'PATCH 204', 'PATCH', 'HEAD 200', 'PATCH 204'])
  assert.deepEqual(offsets(r.log), [0, 100000, 200000])
  await whole(t, r, file)
})

faulty('the answer to POST is lost: an orphan', [{ match: POST, times: 1, drop: true }], async (t) => {
  const file = await newFile(t, 300000)
  const r = await put(file.bytes, { endpoint: t.endpoint, metadata: metadata(file) })
  assert.deepEqual(steps(r.log), ['POST', 'POST 201', 'PATCH 204'])
  const orphan = new URL(t.proxy.requests[0].answer.location, t.endpoint).href
  assert.notEqual(idOf(orphan), idOf(r.url))
  await whole(t, r, file)
  await notAccepted(t, orphan, 409, 'not_accepted')
})

faulty('the answer to a creation with upload is lost: two', [{ match: POST, times: 1, drop: true }], async (t) => {
  const file = await newFile(t, 300000)
  const r = await put(file.bytes, { endpoint: t.endpoint, metadata: metadata(file), uploadDataDuringCreation: true })
  assert.deepEqual(steps(r.log), ['POST', 'POST 201'])
  await whole(t, r, file)
  const { answer } = t.proxy.requests[0]
  await arrived(t, new URL(answer.location, t.endpoint).href, file, { header: answer['artifact-receipt'] })
})

const LARGE = 50000000

// It goes on behind the bytes that somebody else has sent; another checksum in the end spares us the delivery of 50 MB.
direct('409 while 50 MB are being sent', async (t) => {
  const file = await newFile(t, LARGE)
  const other = await newFile(t, 1)
  let meddled = false
  const r = await put(file.bytes, {
    endpoint: t.endpoint, metadata: metadata(other),
    async onBeforeRequest(req) {
      if (req.getMethod() !== 'PATCH' || meddled) return
      meddled = true
      const headers = { ...TUS, 'Content-Type': OFFSETS, 'Upload-Offset': '0' }
      const answer = await request(req.getURL(), { method: 'PATCH', headers, body: file.bytes.subarray(0, 1000) })
      assert.equal(answer.status, 204)
    },
  })
  assert.deepEqual(steps(r.log), ['POST 201', 'PATCH 409', 'HEAD 200', 'PATCH 422'])
  assert.equal(r.log[1].headers['Upload-Offset'], '1000')
  assert.deepEqual(offsets(r.log), [0, 1000])
  assert.ok(r.text.includes(file.checksum.slice('blake3:'.length)), `every byte came: ${r.text}`)
})

direct('413 while 50 MB are being sent', async (t) => {
  const file = await newFile(t, LARGE)
  const url = await create(t, file, 1000)
  const r = await put(file.bytes, { endpoint: t.endpoint, metadata: metadata(file), uploadUrl: url })
  assert.deepEqual(steps(r.log), ['HEAD 200', 'PATCH 413'])
  assert.equal(r.status, 413)
  assert.match(r.text, /^ERR_UPLOAD_SIZE_EXCEEDED: /)
  const head = await request(url, { method: 'HEAD', headers: TUS })
  assert.deepEqual([head.status, head.headers['upload-offset']], [200, '0'])
  await notAccepted(t, url, 409, 'not_accepted')
})

direct('415 while 50 MB are being sent', async (t) => {
  const file = await newFile(t, LARGE)
  const r = await put(file.bytes, {
    endpoint: t.endpoint, metadata: metadata(file),
    onBeforeRequest: (req) => req.getMethod() === 'PATCH' && req.setHeader('Content-Type', 'text/plain'),
  })
  assert.deepEqual(steps(r.log), ['POST 201', 'PATCH 415'])
  assert.match(r.text, /^ERR_INVALID_CONTENT_TYPE: /)
  await notAccepted(t, r.url, 409, 'not_accepted')
})

// What the contract refuses at creation: the client gives up, and its error has the reason.
function refused(what, status, text, options, data) {
  direct(`refused: ${what}`, async (t) => {
    const file = await newFile(t, 200000)
    const r = await put(data?.(file) ?? file.bytes, {
      endpoint: t.endpoint, metadata: metadata(file), ...options(file),
    })
    assert.ok(r.error, 'the client sees an error')
    assert.equal(r.status, status)
    assert.match(r.text, new RegExp(`^${text}: .*\\n$`))
    assert.ok(r.log.every((x) => x.method === 'POST'))
    for (const x of r.log.filter((x) => x.status !== undefined)) { // parts of one upload end with the first error
      assert.equal(x.status, status)
      const { Location, 'Tus-Resumable': version, 'Cache-Control': cache } = x.headers
      assert.deepEqual([Location ?? null, version, cache], [null, '1.0.0', 'no-store'])
    }
  })
}

const none = () => ({})
refused('zero bytes', 400, 'ERR_INVALID_SIZE', none, () => Buffer.alloc(0))
refused('a length that is not known yet', 400, 'ERR_INVALID_SIZE',
  () => ({ uploadLengthDeferred: true, chunkSize: 64 * 1024 }), (file) => Readable.from([file.bytes]))
refused('two parts at the same time', 400, 'ERR_CONCATENATION_UNSUPPORTED', () => ({ parallelUploads: 2 }))
refused('no project', 400, 'ERR_INVALID_PROJECT', (file) => ({ metadata: { checksum: file.checksum } }))
refused('a project that does not exist', 400, 'ERR_INVALID_PROJECT',
  (file) => ({ metadata: { ...metadata(file), project: 'nowhere' } }))
refused('no checksum', 400, 'ERR_INVALID_CHECKSUM', (file) => ({ metadata: { ...metadata(file), checksum: '' } }))
refused('a checksum in capitals', 400, 'ERR_INVALID_CHECKSUM',
  (file) => ({ metadata: { ...metadata(file), checksum: `blake3:${'AB'.repeat(32)}` } }))
refused('more than the server takes', 413, 'ERR_MAX_SIZE_EXCEEDED',
  () => ({ uploadSize: 2 ** 52, chunkSize: 1 << 20 }), (file) => Readable.from([file.bytes]))
refused('more than the server takes, with the first bytes', 413, 'ERR_MAX_SIZE_EXCEEDED',
  () => ({ uploadSize: 2 ** 52, chunkSize: 1 << 20, uploadDataDuringCreation: true }),
  () => Readable.from([Buffer.alloc(8 << 20), Buffer.alloc(1)]))

direct('another checksum: 422, then gone; a new upload arrives', async (t) => {
  const file = await newFile(t, 300000)
  const other = await newFile(t, 300000)
  const wrong = await put(file.bytes, { endpoint: t.endpoint, metadata: metadata(other) })
  assert.deepEqual(steps(wrong.log), ['POST 201', 'PATCH 422'])
  assert.match(wrong.text, /^ERR_CHECKSUM_MISMATCH: /)
  for (const x of [file, other]) assert.ok(wrong.text.includes(x.checksum.slice('blake3:'.length)), wrong.text)
  await notAccepted(t, wrong.url, 410, 'gone')
  const r = await put(file.bytes, { endpoint: t.endpoint, metadata: metadata(file), uploadUrl: wrong.url })
  assert.deepEqual(steps(r.log), ['HEAD 410', 'POST 201', 'PATCH 204'])
  await whole(t, r, file)
})

direct('a URL that nobody knows: it begins anew', async (t) => {
  const file = await newFile(t, 300000)
  const uploadUrl = `${t.endpoint}/${'0'.repeat(32)}`
  const r = await put(file.bytes, { endpoint: t.endpoint, metadata: metadata(file), uploadUrl })
  assert.deepEqual(steps(r.log), ['HEAD 404', 'POST 201', 'PATCH 204'])
  await whole(t, r, file)
  const alone = await put(file.bytes, { uploadUrl })
  assert.deepEqual([alone.status, steps(alone.log)], [404, ['HEAD 404']])
})

direct('a URL of what is accepted: nothing is sent', async (t) => {
  const file = await newFile(t, 300000)
  const first = await put(file.bytes, { endpoint: t.endpoint, metadata: metadata(file) })
  const r = await put(file.bytes, { endpoint: t.endpoint, metadata: metadata(file), uploadUrl: first.url })
  assert.deepEqual(steps(r.log), ['HEAD 200'])
  await whole(t, r, file)
})
