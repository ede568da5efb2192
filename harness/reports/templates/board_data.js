// The packed data of the board (base64 of raw deflate), unpacked when first needed.
async function unpacked(text) {
  const packed = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).arrayBuffer();
}
const unpackedJson = async (text) => JSON.parse(new TextDecoder().decode(await unpacked(text)));
const PLACES = { 8: Uint8Array, 16: Uint16Array, 32: Uint32Array };
const unpackedPlaces = async ({ bits, data }) => new PLACES[bits](await unpacked(data));

// Returns a function without arguments that computes its result once and keeps it.
function once(work) {
  let result;
  return () => (result ??= work());
}
const PACKED = DATA.queries;
const LOSSES = PACKED.kinds; // kinds of loss by their place; the first is "", no loss
const flags = (text) => Uint8Array.from(text, Number);

// All runs and queries: {values: Float32Array [R*Q], NaN if undefined; losses: Uint8Array [R*Q], places in LOSSES; ids;
// needs, multi_turn, public: Uint8Array [Q], 0 or 1}. Run r and query q are at r * Q + q. Also the packed form: {table: the
// distinct pairs [value or null, loss]; cells: the pair of query q and run r at q * R + r}.
const matrix = once(async () => {
  const { table } = PACKED.matrix, at = await unpackedPlaces(PACKED.matrix.cells);
  const Q = PACKED.ids.length, R = Q ? at.length / Q : 0;
  const value = Float32Array.from(table, ([one]) => one ?? NaN), loss = Uint8Array.from(table, ([, kind]) => kind);
  const values = new Float32Array(R * Q), losses = new Uint8Array(R * Q);
  for (let r = 0, to = 0; r < R; r += 1) for (let q = 0; q < Q; q += 1, to += 1) {
    const pair = at[q * R + r];
    values[to] = value[pair];
    losses[to] = loss[pair];
  }
  return { values, losses, table, cells: at, ids: PACKED.ids, ...Object.fromEntries(["needs", "multi_turn", "public"].map((name) =>
    [name, flags(PACKED[name])])) };
});
// The text of each query; null if unknown
const titles = once(() => unpackedJson(PACKED.titles));
// {name, values, at: for each query the place of its value} of each attribute
const attributes = once(() => Promise.all((PACKED.attributes ?? []).map(async ([name, values, at]) =>
  ({ name, values, at: await unpackedPlaces(at) }))));
// For each run [name of the signal, numbers of documents, thresholds between them]; null without a threshold
const gates = once(() => unpackedJson(PACKED.gates));

const BLOCKS = (PACKED.documents ?? []).map((text) => once(() => unpackedJson(text)));
async function documentAt(place) {
  const [id, title, text] = (await BLOCKS[Math.floor(place / PACKED.block)]())[place % PACKED.block];
  return { id, title, text };
}

// One query: {id, turns: [[role, text]] or null, relevant, of(run)}. Unknown values are null.
// `relevant()` lists {id, title, text, grade} of the relevant documents, highest grade first; null if labels are unknown.
// `of(run)` is null if the run's list is unknown, else an object:
//   searched: the searched text. signal: the gate's signal. count: the number of documents returned.
//   documents: [{rank, id, title, text, grade, score}]. full: whether these documents are from before the gate.
//   below: relevant documents further down, in the same form.
//
// One item: {id, texts: [[name, text]], said(run): the prediction in marked pieces, null if unknown}.
async function item(place) {
  const { texts, said } = await unpackedJson(PACKED.queries[place].about);
  return { id: PACKED.ids[place], texts, said: (run) => said[run] };
}
async function query(place) {
  const { about, lists, texts } = PACKED.queries[place];
  const [known, listed, searched] = await Promise.all([unpackedJson(about), unpackedPlaces(lists), unpackedPlaces(texts)]);
  const graded = known.grades && new Map(Object.entries(known.grades).map(([doc, grade]) => [Number(doc), grade]));
  const grade = (doc) => graded?.get(doc) ?? null;
  const one = async (doc, rank, score = null) => ({ ...await documentAt(doc), place: doc, rank, score, grade: grade(doc) });
  return {
    id: PACKED.ids[place], turns: known.turns,
    relevant: async () => graded && Promise.all([...graded].sort((a, b) => b[1] - a[1]).map(([doc]) => one(doc, null))),
    of: async (run) => {
      if (!listed[run]) return null;
      const [count, docs] = known.lists[listed[run] - 1], [at = null, signal = null, below = [], full = 0] = known.seen[run] ?? [];
      const scores = at === null ? [] : known.scores[at];
      return {
        searched: searched[run] ? known.texts[searched[run] - 1] : null, count, full: Boolean(full), signal,
        documents: await Promise.all(docs.map((doc, i) => one(doc, i + 1, scores[i]))),
        below: await Promise.all(below.map(([doc, rank]) => one(doc, rank))),
      };
    },
  };
}
