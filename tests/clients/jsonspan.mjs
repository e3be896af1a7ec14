// jsonspan.mjs: where the values of a JSON text lie, in bytes.
//
// What a server stored is compared to what was sent byte by byte, so the pieces of a body are cut out of it and never
// written anew. The text must be JSON; only its brackets, quotes and commas are looked at.

const QUOTE = 0x22
const BACKSLASH = 0x5c
const isSpace = (c) => c === 0x20 || c === 0x09 || c === 0x0a || c === 0x0d

function skipSpace(text, at) {
  while (at < text.length && isSpace(text[at])) at++
  return at
}

// Behind the string that begins at `at`.
function endOfString(text, at) {
  for (let i = at + 1; i < text.length; i++) {
    if (text[i] === BACKSLASH) i++
    else if (text[i] === QUOTE) return i + 1
  }
  throw new Error('a string has no end')
}

// Behind the value that begins at `at`.
function endOfValue(text, at) {
  if (text[at] === QUOTE) return endOfString(text, at)
  let depth = 0
  for (let i = at; i < text.length; i++) {
    const c = String.fromCharCode(text[i])
    if (c === '"') {
      i = endOfString(text, i) - 1
    } else if (c === '{' || c === '[') {
      depth++
    } else if (c === '}' || c === ']') {
      if (depth === 0) return i
      depth--
      if (depth === 0) return i + 1
    } else if (depth === 0 && (c === ',' || isSpace(text[i]))) {
      return i
    }
  }
  return text.length
}

// The values of an array, as pieces of the text.
export function elements(text) {
  const out = []
  let at = skipSpace(text, 0)
  if (text[at] !== 0x5b) throw new Error('no array')
  at = skipSpace(text, at + 1)
  while (text[at] !== 0x5d) {
    const end = endOfValue(text, at)
    out.push(text.subarray(at, end))
    at = skipSpace(text, end)
    if (text[at] === 0x2c) at = skipSpace(text, at + 1)
  }
  return out
}

// The members of an object, name to piece of the text; of a repeated name the last. undefined: no object.
export function members(text) {
  const out = new Map()
  let at = skipSpace(text, 0)
  if (text[at] !== 0x7b) return undefined
  at = skipSpace(text, at + 1)
  while (text[at] !== 0x7d) {
    const endOfName = endOfString(text, at)
    const name = JSON.parse(text.subarray(at, endOfName).toString())
    at = skipSpace(text, skipSpace(text, endOfName) + 1)
    const end = endOfValue(text, at)
    out.set(name, text.subarray(at, end))
    at = skipSpace(text, end)
    if (text[at] === 0x2c) at = skipSpace(text, at + 1)
  }
  return out
}
