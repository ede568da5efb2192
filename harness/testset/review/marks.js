// Mark the query's words in a text. Marks depend on the two texts only.
const WORD = /[\p{L}\p{N}]+/gu, HANGUL = /[\uac00-\ud7a3]/;
const COMMON = new Set(("a an and are as at be by can did do does for from had has have how i in is it its me my of on or our " +
  "should tell that the their there these they this those to us was we were what when where which who whom whose why will with " +
  "would you your").split(" "));

const folded = (word) => word.normalize("NFC").toLowerCase();

// Whether two words have the same stem. Korean endings follow a stem that may be a number or a foreign word, so most of
// the shorter word must be a common beginning. Words of other scripts may differ in a few last letters. Numbers, and
// short words of other scripts, must be equal.
function akin(one, other) {
  if (one === other) return true;
  const shorter = Math.min(one.length, other.length), longer = Math.max(one.length, other.length);
  let same = 0;
  while (same < shorter && one[same] === other[same]) same++;
  const last = one[same - 1] ?? "", rests = [one[same], other[same]].filter(Boolean);
  if (HANGUL.test(one + other))
    return same >= 2 && same > shorter / 2 && (HANGUL.test(last) || rests.every((letter) => HANGUL.test(letter)));
  return !/\d/.test(last) && same >= 4 && longer - same <= 3;
}

// The query's words to mark: no single letters, no English function words.
export function wordsOf(query) {
  const words = (query.normalize("NFC").match(WORD) ?? []).map(folded);
  return [...new Set(words)].filter((word) => !COMMON.has(word) && (word.length > 1 || /\p{N}/u.test(word)));
}

// Split a text into pieces [piece, whether it is a word of the query].
export function marked(text, words) {
  const known = new Map(), pieces = [];
  let end = 0;
  for (const found of text.matchAll(WORD)) {
    const word = folded(found[0]);
    if (!known.has(word)) known.set(word, !COMMON.has(word) && words.some((one) => akin(one, word)));
    if (!known.get(word)) continue;
    if (found.index > end) pieces.push([text.slice(end, found.index), false]);
    pieces.push([found[0], true]);
    end = found.index + found[0].length;
  }
  if (end < text.length) pieces.push([text.slice(end), false]);
  return pieces;
}
