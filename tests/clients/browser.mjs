// browser.mjs: one headless Chromium for all browser tests, and pages on an origin of their own, so that every call of
// an SDK crosses origins.
//
// CHROMIUM names the program. Its profile lies in TMPDIR, which is the suite's directory.
import assert from 'node:assert/strict'
import http from 'node:http'
import path from 'node:path'
import { createRequire } from 'node:module'
import { chromium } from 'playwright-core'
import { build, stop } from 'esbuild'
import { intake } from './harness.mjs'

const MODULES = path.join(path.dirname(createRequire(import.meta.url).resolve('playwright-core/package.json')), '..')
const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync']

let running
const launched = () => {
  running ??= chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', headless: true, args: FLAGS,
    handleSIGINT: false, handleSIGTERM: false, handleSIGHUP: false,
  })
  return running
}

export async function closeBrowser() {
  const browser = running && (await running.catch(() => undefined))
  running = undefined
  await browser?.close()
  await stop()
}

const bundles = new Map()
function bundle(source) {
  if (!bundles.has(source)) {
    bundles.set(source, build({
      stdin: { contents: source, resolveDir: MODULES, loader: 'js' }, bundle: true, format: 'iife',
      platform: 'browser', write: false, logLevel: 'error', define: { 'process.env.NODE_ENV': '"production"' },
    }).then((r) => r.outputFiles[0].text))
  }
  return bundles.get(source)
}

const PAGE = `<!doctype html><meta charset=utf-8><title>t</title><body>
<button id=b>click</button><a id=a href="/next.html">next</a><input id=i><script src="/sdk.js"></script>`

async function pages(source) {
  const script = await bundle(source)
  const files = { '/x.html': PAGE, '/next.html': '<!doctype html><p>bye', '/sdk.js': script }
  const server = http.createServer((req, res) => {
    const name = req.url.split('?')[0]
    if (name in files) {
      res.setHeader('Content-Type', name.endsWith('.js') ? 'text/javascript' : 'text/html; charset=utf-8')
      res.end(files[name])
    } else {
      res.writeHead(404).end()
    }
  })
  await new Promise((done) => server.listen(0, '127.0.0.1', done))
  const close = async () => {
    server.closeAllConnections()
    await new Promise((done) => server.close(done))
  }
  return { url: `http://127.0.0.1:${server.address().port}`, close }
}

// A page that has loaded the source; leave() closes it and its site.
export async function withPage(source) {
  const site = await pages(source)
  const context = await (await launched()).newContext()
  const page = await context.newPage()
  page.errors = []
  page.on('pageerror', (error) => page.errors.push(error.message))
  page.setDefaultTimeout(40000)
  await page.goto(`${site.url}/x.html?utm_source=x`)
  const leave = async () => {
    await context.close()
    await site.close()
  }
  return { page, leave }
}

// A test of the intake with a page: source is what the page loads, init(t) its first statement, run(t, page) the rest.
export function inBrowser(name, { source, init, run }) {
  intake(name, async (t) => {
    const { page, leave } = await withPage(source)
    try {
      await page.evaluate(init(t))
      await run(t, page)
      assert.deepEqual(page.errors, [])
    } finally {
      await leave()
    }
  }, true)
}
