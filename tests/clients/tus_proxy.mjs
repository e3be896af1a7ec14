// tus_proxy.mjs: a proxy with faults between a tus client and the server. It passes bodies on as they come, so that a
// fault can strike in the middle of one.
//
// A rule has `match` (a function of the kept request), `times` (how many requests it is for) and one deed:
//
//   answer: STATUS, headers: {}   reads the body, answers that, and the server never sees the request
//   drop: true                    the server commits and answers, the client gets a reset connection
//   cut: N                        N bytes of the body are passed on; then the server sees the end of its connection
//                                 and, when it has closed it, the client's is reset (`rst: true`: both are, at once)
//   silent: N                     N bytes are passed on; then the client's connection is reset, and the server's is
//                                 left as it is: it waits for more
//   stall: N                      N bytes are passed on, the rest is dropped, until the client goes; then so does
//                                 the server's connection. `await proxy.stalled` is the first such moment,
//                                 `onStall` of the rule is called each time
//
// Answers made here carry CORS headers as the server's own do. `requests` has, in order, for each request: method,
// path, headers, passed (bytes of its body), fault (the deed), status and answer (the server's status and headers).
import { once } from 'node:events'
import http from 'node:http'

const HOP = new Set(['connection', 'keep-alive', 'proxy-connection', 'upgrade'])
const DEEDS = ['answer', 'drop', 'cut', 'silent', 'stall']

function kept(headers) {
  const out = []
  for (let i = 0; i < headers.length; i += 2) {
    if (!HOP.has(headers[i].toLowerCase())) out.push(headers[i], headers[i + 1])
  }
  return out
}

const written = (stream, part) => new Promise((done) => stream.write(part, done))

export class TusProxy {
  static async start(target, ...rules) {
    const proxy = new TusProxy()
    Object.assign(proxy, { target: new URL(target), rules, requests: [], left: new Set() })
    proxy.stalled = new Promise((done) => (proxy.firstStall = done))
    proxy.server = http.createServer((req, res) => proxy.#take(req, res))
    await new Promise((done) => proxy.server.listen(0, '127.0.0.1', done))
    proxy.url = `http://127.0.0.1:${proxy.server.address().port}`
    return proxy
  }

  async #take(req, res) {
    const { method, headers, url: path } = req
    const r = { method, path, headers, passed: 0 }
    this.requests.push(r)
    const rule = this.rules.find((x) => x.times !== 0 && x.match(r)) ?? {}
    if (rule.times !== undefined) rule.times--
    r.fault = DEEDS.find((x) => x in rule)
    try {
      if (rule.answer) await this.#answer(req, res, rule)
      else await this.#forward(r, req, res, rule)
    } catch (error) {
      r.error = error.message
      res.destroy()
    }
  }

  async #answer(req, res, rule) {
    for await (const part of req) void part
    const cors = { 'Access-Control-Allow-Origin': req.headers.origin ?? '*', Vary: 'Origin' }
    res.writeHead(rule.answer, { 'Tus-Resumable': '1.0.0', ...cors, ...rule.headers })
    res.end()
  }

  async #forward(r, req, res, rule) {
    const up = http.request({
      host: this.target.hostname, port: this.target.port, method: r.method, path: r.path, agent: false,
      headers: [...kept(req.rawHeaders), 'Connection', 'close'], setHost: false,
    })
    const answered = new Promise((done, fail) => {
      up.on('response', done)
      up.on('error', fail)
    })
    answered.catch(() => {}) // whoever awaits it hears of it
    res.on('close', () => res.writableEnded || rule.silent !== undefined || up.destroy())
    const most = rule.cut ?? rule.silent ?? rule.stall ?? Infinity
    const whole = await this.#pass(r, req, up, most, answered)
    if (!whole) {
      await this.#strike(req, up, rule)
      return
    }
    const answer = await answered
    r.status = answer.statusCode
    r.answer = answer.headers
    if (rule.drop) {
      req.socket.resetAndDestroy()
      up.destroy()
      return
    }
    res.writeHead(answer.statusCode, kept(answer.rawHeaders))
    for await (const part of answer) res.write(part)
    res.end()
    req.resume()
  }

  // Passes the body on, at most so many bytes: false when there was more. An answer that comes before its end ends it.
  async #pass(r, req, up, most, answered) {
    let early = false
    answered.then(() => (early = true), () => (early = true))
    for await (const part of req.iterator({ destroyOnReturn: false })) {
      const piece = part.subarray(0, most - r.passed)
      await Promise.race([written(up, piece), answered])
      r.passed += piece.length
      if (piece.length < part.length) return false
      if (early) return true
    }
    up.end()
    return true
  }

  async #strike(req, up, rule) {
    if (rule.stall !== undefined) {
      req.resume() // a connection that is not read does not tell of its end
      this.firstStall()
      rule.onStall?.()
      return
    }
    if (rule.silent !== undefined) {
      this.left.add(up)
    } else if (rule.rst) {
      up.socket.resetAndDestroy()
    } else {
      up.socket.end()
      await once(up.socket, 'close')
    }
    req.socket.resetAndDestroy()
  }

  async close() {
    for (const up of this.left) up.destroy()
    this.server.closeAllConnections()
    await new Promise((done) => this.server.close(done))
  }
}
