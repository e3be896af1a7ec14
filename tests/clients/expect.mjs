// expect.mjs: what must become of a request that the proxy has seen: the bytes of each event, its identity and its
// columns, worked out here from the SDK's protocol (docs/PROTOCOL.md) and not with any code of the server's.
import zlib from 'node:zlib'
import crypto from 'node:crypto'
import { elements, members } from './jsonspan.mjs'

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i
const isObject = (v) => typeof v === 'object' && v !== null && !Array.isArray(v)

// The JSON text of a body: plain, gzip with a header or without, or a form with base64 in it.
export function decode(r) {
  let body = r.body
  if (body[0] === 0x1f && body[1] === 0x8b) body = zlib.gunzipSync(body)
  if (body.subarray(0, 5).toString() === 'data=') {
    body = Buffer.from(decodeURIComponent(body.subarray(5).toString()), 'base64')
  }
  return body
}

// As JSON.parse, and control characters may stand in strings as they are.
function parse(text) {
  const escaped = (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`
  try {
    return JSON.parse(text.toString())
  } catch {
    return JSON.parse(text.toString().replace(/"(?:[^"\\]|\\.)*"/gs, (x) => x.replace(/[\0-\x1f]/g, escaped)))
  }
}

// U+FFFD for each lone surrogate, in names too.
function mended(v) {
  if (typeof v === 'string') return v.toWellFormed()
  if (Array.isArray(v)) return v.map(mended)
  if (!isObject(v)) return v
  return Object.fromEntries(Object.entries(v).map(([k, x]) => [k.toWellFormed(), mended(x)]))
}

const column = (v) => {
  if (v === undefined || v === null) return ''
  const text = typeof v === 'string' ? v : JSON.stringify(v)
  return text.toWellFormed().replaceAll('\0', '\ufffd')
}

// As ClickHouse writes a DateTime64 of 3 or 6 digits.
const time = (text, digits) => {
  if (text === undefined) return null
  return new Date(text).toISOString().replace('T', ' ').replace('Z', '') + '0'.repeat(digits - 3)
}

// UUIDv8 out of SHA-256 of project, source and message id (docs/PROTOCOL.md, identity).
function derived(project, source, messageId) {
  const b = crypto.createHash('sha256').update(`${project}\0${source}\0${messageId}`).digest().subarray(0, 16)
  b[6] = (b[6] & 0x0f) | 0x80
  b[8] = (b[8] & 0x3f) | 0x80
  return b.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5')
}

function posthog(e, outer, r) {
  const p = e.properties ?? {}
  const v1 = r.path.includes('/i/v1/')
  const [library, version] = v1 ? r.headers['posthog-sdk-info'].split('/') : [p.$lib, p.$lib_version]
  const extra = Object.fromEntries(['$set', '$set_once', '$unset'].filter((k) => e[k] !== undefined && !(k in p))
    .map((k) => [k, e[k]]))
  if (e.window_id !== undefined && !('$window_id' in p)) extra.$window_id = e.window_id
  const sentAt = v1 ? r.headers['posthog-request-timestamp'] : outer.sent_at ?? e.sent_at
  return {
    uuid: e.uuid.toLowerCase(),
    extra: Object.keys(extra).length > 0,
    properties: 'properties',
    columns: {
      type: 'capture', event: column(e.event), distinct_id: column(e.distinct_id ?? p.distinct_id), anonymous_id: '',
      session_id: column(e.session_id ?? p.$session_id), message_id: '', library: column(library),
      library_version: column(version), timestamp: time(e.timestamp, 6), timestamp_sent: time(e.timestamp, 6),
      sent_at: time(sentAt, 3), time_note: '', properties: { ...p, ...extra }, context: e.context ?? {},
    },
  }
}

const CALLS = { t: 'track', i: 'identify', p: 'page', s: 'screen', g: 'group', a: 'alias' }

function segment(e, outer, r, project, source) {
  const call = r.path.split('/').pop()
  const type = e.type ?? CALLS[call] ?? call
  const traits = (type === 'identify' || type === 'group') && e.traits !== undefined
  const base = (traits ? e.traits : e.properties) ?? {}
  const extra = {}
  if (type === 'group' && !('groupId' in base)) extra.groupId = e.groupId
  if (type === 'alias' && !('previousId' in base)) extra.previousId = e.previousId
  if ((type === 'page' || type === 'screen') && e.category && !('category' in base)) extra.category = e.category
  const context = { ...outer.context, ...e.context }
  const stamp = e.originalTimestamp ?? e.timestamp
  const named = type === 'track' ? e.event : type === 'page' || type === 'screen' ? e.name : ''
  return {
    uuid: UUID.test(e.messageId) ? e.messageId.toLowerCase() : derived(project, source, e.messageId),
    extra: Object.keys(extra).length > 0,
    properties: traits ? 'traits' : 'properties',
    columns: {
      type, event: column(named), distinct_id: column(e.userId || e.anonymousId), anonymous_id: column(e.anonymousId),
      session_id: column(e.context?.sessionId ?? outer.context?.sessionId), message_id: column(e.messageId),
      library: column(context.library?.name), library_version: column(context.library?.version),
      timestamp: time(stamp, 6), timestamp_sent: time(stamp, 6), sent_at: time(e.sentAt ?? outer.sentAt, 3),
      time_note: '', properties: { ...base, ...extra }, context,
    },
  }
}

// The events of a request, in order: { index, text, id, uuid, columns, raw, exact }. text is what the store must hold;
// raw what ClickHouse's column `raw` must (nothing, unless the text had to be mended); exact the very text of the
// column `properties`, where nothing was added to what came and nothing had to be mended.
export function eventsOf(r, project, source = 'default') {
  const body = decode(r)
  const whole = parse(body)
  const single = !Array.isArray(whole) && !Array.isArray(whole.batch)
  const texts = single ? [body] : elements(Array.isArray(whole) ? body : members(body).get('batch'))
  const outer = single || Array.isArray(whole) ? {} : whole
  return texts.map((text, index) => {
    const e = parse(text)
    const isSegment = /\/v1\//.test(r.path) && !r.path.includes('/i/v1/')
    const made = isSegment ? segment(e, outer, r, project, source) : posthog(e, outer, r)
    const sound = JSON.stringify(mended(e)) === JSON.stringify(e)
    const span = members(text).get(made.properties)
    const columns = { ...made.columns, project, source, revision: 0 }
    columns.properties = mended(columns.properties)
    columns.context = mended(columns.context)
    return {
      index, text, name: e.event ?? e.type ?? columns.type, id: e.uuid ?? e.messageId, uuid: made.uuid, columns,
      raw: sound ? Buffer.alloc(0) : text,
      exact: sound && !made.extra && span ? span.toString() : undefined,
    }
  })
}

// The places of a request's events that the server has refused, from its own answer.
export function refusedOf(r, events) {
  const answer = JSON.parse(r.answer.toString() || '{}')
  if (answer.results) return events.filter((e) => answer.results[e.id]?.result === 'drop').map((e) => e.index)
  return (answer.errors ?? []).map((x) => x.index)
}
