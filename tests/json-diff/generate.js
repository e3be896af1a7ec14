// Makes documents and what must become of each: the canonical form by npm canonicalize, or `ERR`.
//
//   node generate.js COUNT FOLDER     writes FOLDER/documents (see canon_cli.c) and FOLDER/want; SEED is taken from
//                                     the environment, or from the clock, and printed
//
// About one document in five is damaged or breaks a rule of the I-JSON screen. The verdict never comes from how a
// document was made: `verdict` decodes its bytes strictly, lets JSON.parse judge the syntax, and applies the rules that
// JSON.parse does not know (duplicate names, lone surrogates, range, integers) to the tokens of the text.
import { createRequire } from 'node:module';
import { createWriteStream } from 'node:fs';
import { once } from 'node:events';
import { join } from 'node:path';

const canonicalize = createRequire(import.meta.url)('canonicalize');

const seed = Number(process.env.SEED ?? Date.now() % 2 ** 31) >>> 0;
let state = seed;

/** mulberry32: 32 random bits. */
function bits32() {
  state = (state + 0x6d2b79f5) >>> 0;
  let t = state;
  t = Math.imul(t ^ (t >>> 15), t | 1);
  t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
  return (t ^ (t >>> 14)) >>> 0;
}

const below = (n) => Math.floor((bits32() / 2 ** 32) * n);
const pick = (list) => list[below(list.length)];
const chance = (percent) => below(100) < percent;

// ---- numbers ----

const view = new DataView(new ArrayBuffer(8));

function fromBits(high, low) {
  view.setUint32(0, high >>> 0);
  view.setUint32(4, low >>> 0);
  return view.getFloat64(0);
}

/** A finite double of a kind that number code gets wrong. */
function double() {
  const sign = chance(30) ? -1 : 1;
  switch (below(10)) {
    case 0: // any bit pattern
    case 1: {
      const v = fromBits(bits32(), bits32());
      return Number.isFinite(v) ? v : 0;
    }
    case 2: // powers of two
      return sign * fromBits((1 + below(2046)) << 20, 0);
    case 3: // powers of ten and their neighbours
      return sign * neighbour(Number(`1e${below(632) - 323}`), below(5) - 2);
    case 4: // integers around 2^53
      return sign * (2 ** 53 + below(64) - 32);
    case 5: // subnormal
      return fromBits((bits32() & 0x800fffff) >>> below(21), bits32());
    case 6: // around the borders of the fixed notation
      return sign * neighbour(pick([1e21, 1e-6, 1e-7, 1e20, 999999999999999900000]), below(9) - 4);
    case 7: // money
      return sign * below(1e7) / pick([1, 10, 100, 1000]);
    case 8: // few bits set
      return sign * fromBits((((1 + below(2046)) << 20) | (bits32() & bits32() & 0xfffff)) >>> 0, 0);
    default:
      return sign * below(pick([10, 1000, 2 ** 31]));
  }
}

/** The double `steps` representable values away. */
function neighbour(v, steps) {
  view.setFloat64(0, v);
  view.setBigUint64(0, view.getBigUint64(0) + BigInt(steps));
  const moved = view.getFloat64(0);
  return v !== 0 && Number.isFinite(moved) ? moved : v;
}

/** A spelling of a number: usually of this double, always JSON. */
function numberText(v) {
  switch (below(9)) {
    case 0:
      return v.toExponential().replace('e', pick(['e', 'E']));
    case 1:
      return v.toExponential(below(30)).replace('e+', pick(['e+', 'E', 'e', 'e+00']));
    case 2:
      return Math.abs(v) < 1e21 ? v.toFixed(below(60)) : String(v);
    case 3:
      return v.toPrecision(15 + below(10)); // also 16 and 17 digits that name a neighbour
    case 4:
      return Number.isInteger(v) ? BigInt(v).toString() : `${v}`; // the integer rule decides
    case 5:
      return /[.e]/.test(String(v)) ? String(v).replace(/^(-?[\d.]+)/, (m) => (m.includes('.') ? `${m}000` : m)) : `${v}.0`;
    case 6:
      return Number.isInteger(v) && Math.abs(v) < 1e300 ? `${BigInt(v)}${'0'.repeat(below(20))}e-0` : String(v);
    default:
      return Object.is(v, -0) ? '-0' : String(v);
  }
}

// ---- strings ----

const ranges = [
  [0x20, 0x7e], [0x20, 0x7e], [0x20, 0x7e], [0x00, 0x1f], [0x7f, 0xff], [0x100, 0x7ff], [0x800, 0xd7ff],
  [0xe000, 0xffff], [0xfb00, 0xfb40], [0x10000, 0x10ffff], [0x1f600, 0x1f640], [0x2028, 0x2029],
];

function character() {
  const [low, high] = chance(8) ? pick([[0x22, 0x22], [0x5c, 0x5c], [0x2f, 0x2f]]) : pick(ranges);
  return String.fromCodePoint(low + below(high - low + 1));
}

const names = ['id', 'name', 'a', 'b', 'aa', 'ab', '', 'constructor', 'record_key', 'record_key2', 'toJSON', 'hasOwnProperty',
  '__proto__', '1', '10', '2', '\\', '"', '\u20ac', '\r', '\ufb33', '\u{1f600}', '\u0080', '\\u0001', '\u0001', 'long_member_name_of_a_table'];

function string() {
  if (chance(30)) {
    return pick(names);
  }
  if (chance(30)) {
    return Array.from({ length: below(60) }, () => String.fromCharCode(97 + below(26))).join('');
  }
  return Array.from({ length: below(pick([3, 12, 40])) }, character).join('');
}

const hex = (unit) => {
  const text = unit.toString(16).padStart(4, '0');
  return `\\u${chance(50) ? text : text.toUpperCase()}`;
};
const shorts = { '\b': '\\b', '\t': '\\t', '\n': '\\n', '\f': '\\f', '\r': '\\r', '"': '\\"', '\\': '\\\\', '/': '\\/' };

/** One of the many JSON spellings of a string. */
function stringText(s) {
  const escapes = pick([0, 0, 5, 50, 100]);
  let text = '"';
  for (const c of s) {
    const must = c < ' ' || c === '"' || c === '\\';
    if (shorts[c] !== undefined && (must || chance(30)) && chance(60)) {
      text += shorts[c];
    } else if (must || chance(escapes)) {
      for (let i = 0; i < c.length; i++) {
        text += hex(c.charCodeAt(i));
      }
    } else {
      text += c;
    }
  }
  return `${text}"`;
}

// ---- documents ----

const space = (loose) => (loose && chance(40) ? Array.from({ length: 1 + below(3) }, () => pick([' ', '\n', '\t', '\r'])).join('') : '');

function valueText(depth, loose) {
  const s = () => space(loose);
  const kind = below(depth > 0 ? 10 : 7);
  if (kind < 3) {
    return numberText(double());
  }
  if (kind < 6) {
    return stringText(string());
  }
  if (kind === 6) {
    return pick(['true', 'false', 'null', '{}', '[]', `[${s()}]`, `{${s()}}`]);
  }
  const count = chance(3) ? 20 + below(60) : below(7);
  if (kind === 7) {
    const elements = Array.from({ length: count }, () => `${s()}${valueText(depth - 1, loose)}${s()}`);
    return `[${elements.length === 0 ? s() : elements.join(',')}]`;
  }
  const seen = new Set();
  const members = [];
  for (let i = 0; i < count; i++) {
    const name = string();
    if (!seen.has(name) || chance(1)) {
      seen.add(name);
      members.push(`${s()}${stringText(name)}${s()}:${s()}${valueText(depth - 1, loose)}${s()}`);
    }
  }
  return `{${members.length === 0 ? s() : members.join(',')}}`;
}

const badStrings = ['"\\ud800"', '"\\udc00x"', '"\\ud83d\\u0041"', '"\\uD83D\\uD83D\\uDE00"', '"\\x41"', '"\\u12"', '"a\nb"', '"\\U0041"', '"\u0000"'];
const badNumbers = ['01', '-01', '1.', '.5', '+1', '-', '1e', '1e+', '0x1', '1e999', '-1e999', '1e400', '9007199254740993', '18446744073709551616',
  '1000000000000000000000', 'NaN', 'Infinity', '7'.repeat(400), '1_0', '1,'];
const badTexts = ['{"a":1,"a":2}', '{"a":1,"\\u0061":2}', '[1,]', '{"a":1,}', '[1 2]', '{"a" 1}', '{a:1}', "['a']", '[1}', 'tru', 'nulll', '{"k":1,"z":0,"k":3}'];
const badBytes = [[0xff], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0xe2, 0x82], [0xf0, 0x9f, 0x98], [0x80], [0xef, 0xbb, 0xbf], [0]];

/** Breaks a document somewhere; it may well stay valid. */
function damage(bytes) {
  const at = below(bytes.length + 1);
  const head = bytes.subarray(0, at);
  const tail = bytes.subarray(at);
  const join = (...parts) => Buffer.concat(parts.map((p) => Buffer.from(p)));
  switch (below(8)) {
    case 0:
      return head;
    case 1:
      return join(head, tail.subarray(1));
    case 2:
      return join(head, [pick([...'{}[]",:\\0e.- \n'].map((c) => c.charCodeAt(0)))], tail);
    case 3:
      return join(head, [below(256)], tail.subarray(1));
    case 4:
      return join(head, pick(badBytes), tail);
    case 5:
      return join(bytes, pick(['x', ' 1', '\u0000', ',', '\ufeff', ']', '}']));
    case 6:
      return join('\ufeff', bytes);
    default:
      return Buffer.from(`[${bytes.toString()},${pick(pick([badStrings, badNumbers, badTexts]))}]`);
  }
}

// ---- the verdict ----

const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const tokens = /"(?:[^"\\]|\\.)*"(\s*:)?|-?\d[\d.eE+-]*/g;

function lonely(s) {
  for (const c of s) {
    const point = c.codePointAt(0);
    if (point >= 0xd800 && point <= 0xdfff) {
      return true;
    }
  }
  return false;
}

function numberAllowed(text) {
  const v = Number(text);
  if (!Number.isFinite(v)) {
    return false;
  }
  return !/^-?\d+$/.test(text) || Math.abs(v) <= Number.MAX_SAFE_INTEGER || JSON.stringify(v) === text;
}

function countNames(value) {
  if (value === null || typeof value !== 'object') {
    return 0;
  }
  const inner = Object.values(value).reduce((n, v) => n + countNames(v), 0);
  return inner + (Array.isArray(value) ? 0 : Object.keys(value).length);
}

function verdict(bytes) {
  let text;
  let value;
  try {
    text = strict.decode(bytes);
    value = JSON.parse(text);
  } catch {
    return 'ERR';
  }
  let written = 0;
  for (const [token, colon] of text.matchAll(tokens)) {
    if (token[0] === '"') {
      written += colon === undefined ? 0 : 1;
      if (lonely(JSON.parse(colon === undefined ? token : token.slice(0, -colon.length)))) {
        return 'ERR';
      }
    } else if (!numberAllowed(token)) {
      return 'ERR';
    }
  }
  return written === countNames(value) ? canonicalize(value) : 'ERR';
}

// ---- output ----

const [count, folder] = [Number(process.argv[2]), process.argv[3]];
const documents = createWriteStream(join(folder, 'documents'));
const want = createWriteStream(join(folder, 'want'));
console.log(`json-diff: seed ${seed}`);
let refused = 0;
for (let i = 0; i < count; i++) {
  let bytes = Buffer.from(`${space(true)}${valueText(pick([0, 1, 3, 3, 4, 6]), chance(50))}${space(true)}`);
  if (chance(20)) {
    bytes = damage(bytes);
  }
  const line = verdict(bytes);
  refused += line === 'ERR' ? 1 : 0;
  documents.write(`${bytes.length}\n`);
  const room = documents.write(bytes);
  if (!want.write(`${line}\n`) || !room) {
    await Promise.all([documents, want].filter((s) => s.writableNeedDrain).map((s) => once(s, 'drain')));
  }
}
await Promise.all([documents, want].map((s) => new Promise((done) => s.end(done))));
console.log(`json-diff: ${count} documents made, ${refused} of them to be refused`);
