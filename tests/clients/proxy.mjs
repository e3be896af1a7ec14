// proxy.mjs: a proxy with faults between an SDK and the server, which keeps what went through.
//
// A request is read whole and then forwarded, unless a rule says otherwise. A rule has `times` (how many requests it
// is for), `match` (a function of the kept request; without: those that carry events) and one deed:
//
//   answer: STATUS, headers: {}   answers that, and the server never sees the request
//   resetEarly: true              resets the connection on the head, before the body is read
//   reset: true                   resets it when the body has been read
//   drop: true                    the server commits and answers, the client gets a reset connection
//   cut: true                     the same, in the middle of the answer's body
//   delay: MS                     the answer is held back
//   hold: PROMISE                 the request is, before it is forwarded
//
// Answers made here carry CORS headers as the server's own do. `requests` has, in order, for each request: method,
// path (without query), query, headers, body, conn; fault (the rule that was used), status (the server's), answer (its
// body), and acknowledged: whether the client was given a 2xx to the end.
import http from 'node:http'

const HOP = new Set(['connection', 'keep-alive', 'transfer-encoding', 'content-length', 'proxy-connection', 'upgrade'])
const POSTHOG = /^\/(e|batch|capture|track|engage|i\/v0\/e|i\/v0\/ai\/batch|i\/v1\/analytics\/events)\/?$/
const SEGMENT = /^\/v1\/(batch\/v1\/batch|\w+)$/

export const carriesEvents = (r) => r.method === 'POST' && (POSTHOG.test(r.path) || SEGMENT.test(r.path))

function kept(headers) {
  const out = []
  for (let i = 0; i < headers.length; i += 2) {
    if (!HOP.has(headers[i].toLowerCase())) out.push(headers[i], headers[i + 1])
  }
  return out
}

function cors(r) {
  const origin = r.headers.origin
  if (!origin) return {}
  return {
    'Access-Control-Allow-Origin': origin,
    'Access-Control-Allow-Credentials': 'true',
    'Access-Control-Expose-Headers': 'Retry-After',
    Vary: 'Origin',
  }
}

const sleep = (ms) => new Promise((done) => setTimeout(done, ms))

export class Proxy {
  static async start(target, rules = []) {
    const proxy = new Proxy()
    proxy.target = new URL(target)
    proxy.rules = rules
    proxy.requests = []
    proxy.agent = new http.Agent({ keepAlive: true })
    proxy.connections = 0
    proxy.server = http.createServer({ keepAliveTimeout: 60000 }, (req, res) => proxy.#take(req, res))
    proxy.server.on('connection', (socket) => {
      socket.number = ++proxy.connections
      socket.setNoDelay(true)
    })
    await new Promise((done) => proxy.server.listen(0, '127.0.0.1', done))
    proxy.url = `http://127.0.0.1:${proxy.server.address().port}`
    return proxy
  }

  get host() {
    return this.url.slice('http://'.length)
  }

  // Those that carry events, in the order in which they came.
  get events() {
    return this.requests.filter(carriesEvents)
  }

  #rule(r) {
    const rule = this.rules.find((x) => x.times !== 0 && (x.match ? x.match(r) : carriesEvents(r)))
    if (rule && rule.times !== undefined) rule.times--
    return rule ?? {}
  }

  async #take(req, res) {
    const url = new URL(req.url, this.url)
    const r = {
      at: Date.now(), conn: req.socket.number, method: req.method, path: url.pathname, query: url.searchParams,
      target: req.url, headers: req.headers, body: Buffer.alloc(0), acknowledged: false,
    }
    this.requests.push(r)
    const rule = this.#rule(r)
    r.fault = Object.keys(rule).find((k) => !['times', 'match', 'headers'].includes(k))
    if (rule.resetEarly) {
      req.socket.resetAndDestroy()
      return
    }
    try {
      const parts = []
      for await (const part of req) parts.push(part)
      r.body = Buffer.concat(parts)
    } catch {
      r.fault = 'the client went away'
      return
    }
    if (rule.reset) {
      req.socket.resetAndDestroy()
    } else if (rule.answer) {
      this.#answer(r, res, rule)
    } else {
      await this.#forward(r, req, res, rule)
    }
  }

  #answer(r, res, rule) {
    r.answered = rule.answer
    res.writeHead(rule.answer, { 'Content-Type': 'text/plain', ...cors(r), ...rule.headers })
    res.end(`a fault: ${rule.answer}`)
  }

  async #forward(r, req, res, rule) {
    let answer
    try {
      await rule.hold
      answer = await this.#ask(r, req)
    } catch (error) {
      r.fault = `the server: ${error.message}`
      res.destroy()
      return
    }
    if (rule.delay) await sleep(rule.delay)
    if (rule.drop) {
      req.socket.resetAndDestroy()
      return
    }
    const headers = [...kept(answer.rawHeaders), 'Content-Length', String(r.answer.length)]
    if (answer.statusCode === 204) headers.splice(-2)
    res.on('finish', () => (r.acknowledged = answer.statusCode >= 200 && answer.statusCode < 300 && !rule.cut))
    res.writeHead(answer.statusCode, headers)
    if (rule.cut) {
      res.write(r.answer.subarray(0, r.answer.length >> 1), () => req.socket.resetAndDestroy())
    } else {
      res.end(r.answer)
    }
  }

  #ask(r, req) {
    return new Promise((resolve, reject) => {
      const headers = kept(req.rawHeaders)
      if (r.method !== 'GET' && r.method !== 'HEAD') headers.push('Content-Length', String(r.body.length))
      const up = http.request({
        host: this.target.hostname, port: this.target.port, method: r.method, path: r.target, headers,
        agent: this.agent, setHost: false,
      })
      up.on('error', reject)
      up.on('response', async (answer) => {
        try {
          const parts = []
          for await (const part of answer) parts.push(part)
          r.answer = Buffer.concat(parts)
          r.answerHeaders = answer.headers
          r.status = answer.statusCode
          resolve(answer)
        } catch (error) {
          reject(error)
        }
      })
      up.end(r.body)
    })
  }

  async close() {
    this.agent.destroy()
    this.server.closeAllConnections()
    await new Promise((done) => this.server.close(done))
  }
}
