// values.mjs: the odd values that applications hand to SDKs.

export const seven = Array.from({ length: 7 }, (_, i) => `e${i}`)

export const odd = () => ({
  unicode: 'naïve café 日本語 😀 \u2028 \u0000 end', lone_surrogate: '\ud800x', quote: '"\\/\b\f\n\r\t', rtl: '\u202eabc',
  big_int: 9007199254740992, max_safe: 9007199254740991, beyond: 123456789012345680000000, minus_zero: -0,
  float: 0.1 + 0.2, tiny: 5e-324, nan: NaN, infinity: Infinity, missing: undefined, nothing: null, bool: true,
  empty: '', list: [1, undefined, null, NaN, { a: [] }], sparse: [, 1],
  date: new Date('2024-02-29T23:59:59.999Z'), like_a_date: '2024-13-45', nested: { a: { b: { c: [{ e: 'deep' }] } } },
  'dotted.key': 1, ключ: 'a key beyond ASCII', 'lone \udfff key': 1, __proto__key: 1, pattern: /x/g,
  map: new Map([[1, 2]]), url: new URL('http://e.example/a?b=c'),
})
