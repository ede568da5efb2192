// What the board's file carries packed, unpacked when it is first asked for: base64 of raw deflate.
async function unpacked(text) {
  const packed = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).arrayBuffer();
}
const unpackedJson = async (text) => JSON.parse(new TextDecoder().decode(await unpacked(text)));
const PLACES = { 8: Uint8Array, 16: Uint16Array, 32: Uint32Array };
const unpackedPlaces = async ({ bits, data }) => new PLACES[bits](await unpacked(data));

// A function without arguments that is called once, however often its result is asked for
function once(work) {
  let result;
  return () => (result ??= work());
}
const PACKED = DATA.queries;
const LOSSES = PACKED.kinds; // kinds of loss by their place; the first is "", no loss
const flags = (text) => Uint8Array.from(text, Number);

// Every run and query: {values: Float32Array [R*Q], NaN where undefined; losses: Uint8Array [R*Q], places in LOSSES; ids;
// needs, multi_turn, public: Uint8Array [Q], 0 or 1}. Run r and query q stand at r * Q + q.
const matrix = once(async () => {
  const { table, cells } = PACKED.matrix, at = await unpackedPlaces(cells);
  const Q = PACKED.ids.length, R = Q ? at.length / Q : 0;
  const value = Float32Array.from(table, ([one]) => one ?? NaN), loss = Uint8Array.from(table, ([, kind]) => kind);
  const values = new Float32Array(R * Q), losses = new Uint8Array(R * Q);
  for (let r = 0, to = 0; r < R; r += 1) for (let q = 0; q < Q; q += 1, to += 1) {
    const pair = at[q * R + r];
    values[to] = value[pair];
    losses[to] = loss[pair];
  }
  return { values, losses, ids: PACKED.ids, ...Object.fromEntries(["needs", "multi_turn", "public"].map((name) =>
    [name, flags(PACKED[name])])) };
});
