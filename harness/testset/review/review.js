// The page of one reviewer: a pair at a time. A judgement waits in `pending` and is sent again until the server says
// that it is on disk; only then does it show as saved. Elements and words come from page.js.
import { marked, wordsOf } from "./marks.js";

const AHEAD = 6; // pairs whose texts are fetched in advance
const KEPT = 300; // most texts to keep
const LOOK = 5000; // ms between checks for judgements from other windows
const PATIENCE = [300, 1000, 2000, 4000]; // ms before a judgement is sent again
const UNKNOWN = "?";

// ---- state

let items = []; // {key, group, place, need}: everything to judge, in display order
let groups = []; // the items of each query
let adjudicates = false;
let byKey = new Map();
let shown = []; // the items that pass the filter
let current = null;
let revision = 0;
const saved = new Map(); // key -> value on disk
const pending = new Map(); // key -> value not yet on disk, in the order of pressing
const done = []; // {key, from}: the judgements that can be undone
const texts = new Map(); // key -> promise of its texts

const valueOf = (item) => (pending.has(item.key) ? pending.get(item.key) : saved.get(item.key) ?? null);
const skipped = (item) => !item.need && item.group[0].need && valueOf(item.group[0]) === 0;
const isOpen = (item) => valueOf(item) === null && !skipped(item);
const choices = (item) => (item.need ? [1, 0, UNKNOWN] : [0, 1, 2, 3, UNKNOWN]);
const nameOf = (value, need) =>
  value === null ? say("unjudged") : value === UNKNOWN ? say("unknown") : say(`${need ? "need" : "grade"}_${value}`);
const withNumber = (value, need) => (typeof value === "number" && !need ? `${value}, ` : "") + nameOf(value, need);

// ---- the server

async function ask(path, options = {}) {
  const answer = await fetch(`api/${path}`, { cache: "no-store", ...options });
  const content = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(content.error), { status: answer.status, value: content.value });
  return content;
}

let sending = false, failures = 0, refusal = null, sent = 0;

async function send() {
  if (sending || !pending.size) return;
  sending = true;
  const [key, value] = pending.entries().next().value;
  try {
    const body = JSON.stringify({ key, value, before: saved.get(key) ?? null });
    await ask("judgements", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    acknowledged(key, value);
    failures = 0;
    refusal = null;
  } catch (error) {
    if (error.status === 409) overtaken(key, value, error.value);
    else {
      refusal = error.status ? error.message : null;
      failures += 1;
    }
  }
  sent += 1;
  sending = false;
  state();
  if (pending.size) setTimeout(send, failures ? PATIENCE[Math.min(failures, PATIENCE.length) - 1] : 0);
}

function acknowledged(key, value) {
  saved.set(key, value);
  if (pending.get(key) === value) pending.delete(key);
  else if (pending.has(key)) requeue(key);
}

// Keep the value that was judged elsewhere, unless another value has been pressed here since.
function overtaken(key, value, theirs) {
  saved.set(key, theirs);
  if (pending.get(key) === value) pending.delete(key);
  notice(key, say("elsewhere", { value: withNumber(theirs, byKey.get(key).need) }));
}

function requeue(key) {
  const value = pending.get(key);
  pending.delete(key);
  pending.set(key, value);
}

// Fetch judgements from other windows. Ignore answers older than a judgement made here.
async function look() {
  if (pending.size || document.hidden) return;
  const before = sent;
  try {
    const news = await ask(`changes?since=${revision}`);
    if (before !== sent || pending.size) return;
    revision = news.revision;
    for (const [key, value] of Object.entries(news.values)) {
      if (value === (saved.get(key) ?? null)) continue;
      saved.set(key, value);
      if (current?.key === key) notice(key, say("came", { value: withNumber(value, current.need) }));
    }
    refusal = null;
    failures = 0;
  } catch (error) {
    refusal = error.status ? error.message : null;
    failures += 1;
  }
  state();
}

function text(item) {
  if (!texts.has(item.key)) fetchTexts([item]);
  return texts.get(item.key);
}

function fetchTexts(wanted) {
  const missing = wanted.filter((item) => !texts.has(item.key));
  if (!missing.length) return;
  const answer = ask(`texts?keys=${missing.map((item) => item.key).join(",")}`);
  for (const { key } of missing) {
    const one = answer.then((found) => found[key]);
    one.catch(() => texts.delete(key));
    texts.set(key, one);
  }
  for (const key of texts.keys()) {
    if (texts.size <= KEPT) break;
    texts.delete(key);
  }
}

// ---- judging

function judge(value) {
  if (!current || !choices(current).includes(value)) return;
  const item = current;
  put(item, value, true);
  announce(withNumber(value, item.need));
  const next = following(item);
  if (next) go(next);
  else render();
}

function put(item, value, remember) {
  const from = valueOf(item);
  if (from === value) return;
  if (remember) done.push({ key: item.key, from });
  notices.delete(item.key);
  pending.delete(item.key);
  if (value !== (saved.get(item.key) ?? null) || sending) pending.set(item.key, value);
  state();
  send();
}

// Undo the last judgement; after a reload, undo the judgement on display.
function undo() {
  const last = done.pop() ?? (current && valueOf(current) !== null ? { key: current.key, from: null } : null);
  if (!last) return announce(say("nothing_to_undo"));
  const item = byKey.get(last.key);
  put(item, last.from, false);
  announce(say("undone"));
  go(item);
}

// ---- moving

// The next unjudged item after this one, or else the first unjudged item.
function following(item) {
  const at = item ? shown.indexOf(item) : -1;
  return shown.slice(at + 1).find(isOpen) ?? shown.slice(0, at + 1).find(isOpen) ?? null;
}

function step(by) {
  if (!shown.length) return;
  const at = current ? shown.indexOf(current) : by > 0 ? -1 : shown.length;
  const to = at + by;
  if (to >= 0 && to < shown.length) go(shown[to]);
  else if (to >= shown.length && !shown.some(isOpen)) go(null);
}

function next() {
  go(following(current));
}

async function go(item) {
  current = item;
  const at = shown.indexOf(item);
  if (item) fetchTexts([item]);
  if (at >= 0) fetchTexts(shown.slice(at + 1, at + 1 + AHEAD));
  await render();
  if (current !== item) return;
  scrollTo(0, 0);
  if (item) announce(where(item));
}

const documents = (item) => item.group.filter((one) => !one.need);
const where = (item) =>
  [say("query_of", { i: item.place + 1, n: groups.length }), item.need ? say("need")
    : say("document_of", { i: documents(item).indexOf(item) + 1, n: documents(item).length })].join(", ");

let filtering = 0;

async function filter() {
  const turn = ++filtering, words = $("words").value.trim(), show = $("show").value, what = $("what").value;
  let among = null;
  if (words) {
    try {
      among = new Set((await ask(`found?words=${encodeURIComponent(words)}`)).keys);
    } catch (error) {
      $("found").textContent = say("failed", { why: error.message });
      return;
    }
  }
  if (turn !== filtering) return;
  const wanted = { all: () => true, open: isOpen, judged: (one) => valueOf(one) !== null, unknown: (one) => valueOf(one) === UNKNOWN };
  shown = items.filter((one) => (!among || among.has(one.key)) && wanted[show](one) && (what === "all" || one.need === (what === "need")));
  $("found").textContent = shown.length < items.length || words ? say("found", { n: shown.length, all: items.length }) : "";
  if (!current || !shown.includes(current)) await go(shown.find(isOpen) ?? shown[0] ?? null);
}

// ---- showing

const notices = new Map(); // key -> message about it
function notice(key, words) {
  notices.set(key, words);
  announce(words);
  if (current?.key === key) render();
}

let rendered = 0;

async function render() {
  const item = current, turn = ++rendered;
  state();
  $("footer").hidden = !item;
  if (!item) return ended();
  let found;
  try {
    const slow = setTimeout(() => turn === rendered && $("main").replaceChildren(whole(say("loading"))), 400);
    found = await text(item).finally(() => clearTimeout(slow));
  } catch (error) {
    if (turn !== rendered) return;
    const again = make("button", { class: "plain", onclick: render }, say("retry"));
    return $("main").replaceChildren(whole(say("failed", { why: error.message }), again));
  }
  if (turn !== rendered) return;
  $("main").replaceChildren(conversation(item, found), item.need ? need(found) : doc(item, found));
  buttons(item);
  state();
}

const whole = (first, ...rest) => make("section", { class: "whole" }, make("p", {}, first), ...rest.map((one) => make("p", { class: "soft" }, one)));

function ended() {
  const all = items.length && !items.some(isOpen);
  const [first, second] = !items.length ? ["empty"] : !shown.length ? ["none_found"] : all ? ["all_done", "all_done_more"] : ["none_found"];
  $("main").replaceChildren(whole(say(first), ...(second ? [say(second)] : [])));
  if (all && shown.length) announce(say(first));
}

function conversation(item, { turns }) {
  const last = turns.findLastIndex((turn) => turn.role === "user");
  const list = turns.map((turn, i) => make("li", { class: i === last ? "turn asked" : "turn" },
    turns.length > 1 ? make("small", {}, say(turn.role)) : null,
    make("p", {}, turn.content)));
  return make("section", { class: "conversation" },
    make("div", { class: "head" }, make("h1", {}, say(turns.length > 1 ? "conversation" : "query")),
      make("span", { class: "soft number" }, say("query_of", { i: item.place + 1, n: groups.length }))),
    make("ol", { class: "turns" }, ...list));
}

function doc(item, found) {
  const words = wordsOf(found.turns.filter((turn) => turn.role === "user").map((turn) => turn.content).join(" "));
  const show = (written) => marked(written, words).map(([piece, is]) => (is ? make("mark", {}, piece) : piece));
  const mine = documents(item);
  return make("section", {},
    make("div", { class: "head" }, make("h2", {}, say("document")),
      make("span", { class: "soft number" }, say("document_of", { i: mine.indexOf(item) + 1, n: mine.length }))),
    notices.has(item.key) ? make("p", { class: "note" }, notices.get(item.key)) : null,
    skipped(item) ? make("p", { class: "note" }, say("skipped")) : null,
    found.title ? make("p", { class: "title" }, ...show(found.title)) : null,
    make("p", { class: "text" }, ...show(found.text)),
    others(found, false));
}

function need(found) {
  return make("section", {},
    notices.has(current.key) ? make("p", { class: "note" }, notices.get(current.key)) : null,
    make("p", { class: "question" }, say("need")), make("p", {}, say("need_more")), others(found, true));
}

// What others have said; only adjudicators receive it.
function others({ given }, isNeed) {
  if (!given?.length) return null;
  return make("div", { class: "given" }, make("h2", {}, say("given")),
    make("ul", {}, ...given.map(({ judge: name, value }) => make("li", {}, `${name}: ${withNumber(value, isNeed)}`))));
}

function buttons(item) {
  const grade = (value) => {
    const name = value === UNKNOWN ? "unknown" : `${item.need ? "need" : "grade"}_${value}`;
    const about = `about_${value === UNKNOWN ? "unknown" : item.need ? `need_${value}` : value}`;
    return make("button", { class: "grade", type: "button", "data-value": value, title: say(about), "aria-keyshortcuts": keyOf(value),
      onclick: (event) => press(event, () => judge(value)) },
      make("kbd", { "aria-hidden": "true" }, keyOf(value)), make("b", {}, say(name)), make("small", {}, say(about)));
  };
  const focused = document.activeElement?.dataset?.value;
  $("grades").setAttribute("aria-label", say(item.need ? "need" : "grades"));
  $("grades").replaceChildren(...choices(item).map(grade));
  if (focused !== undefined) $("grades").querySelector(`[data-value="${focused}"]`)?.focus();
}

const keyOf = (value) => (value === UNKNOWN ? "x" : String(value));

// A click leaves the focus on the text, so the space bar scrolls instead of judging again.
function press(event, action) {
  if (event.detail) $("main").focus({ preventScroll: true });
  action();
}

// Update all that judgements change: the bar, the counts, the saved state, and the pressed button.
function state() {
  const open = items.filter(isOpen).length;
  const judged = items.filter((one) => valueOf(one) !== null).length;
  const finished = groups.filter((group) => !group.some(isOpen)).length;
  const all = judged + open;
  $("progress").setAttribute("aria-valuemax", all);
  $("progress").setAttribute("aria-valuenow", judged);
  $("progress").setAttribute("aria-valuetext", say("judged", { done: judged, all }));
  $("bar").style.width = `${all ? (100 * judged) / all : 0}%`;
  $("counts").textContent = `${say("judged", { done: judged, all })} · ${say("queries_done", { done: finished, all: groups.length })}`;
  saving();
  if (!current) return;
  const value = valueOf(current), waits = pending.has(current.key);
  const how = value === null && !waits ? null : make("span", { class: waits ? "waiting" : "certain" }, ` · ${say(waits ? "pending" : "done")}`);
  $("yours").replaceChildren(say("yours", { value: withNumber(value, current.need) }), ...(how ? [how] : []));
  for (const button of $("grades").children) {
    button.setAttribute("aria-pressed", button.dataset.value === String(value));
    button.classList.toggle("waiting", waits);
  }
}

function saving() {
  const n = pending.size, box = $("saved");
  const words = refusal ? say("refused", { n, why: refusal }) : failures ? say("unsaved", { n }) : n ? say("saving", { n }) : say("saved");
  if (box.textContent !== words) box.textContent = words;
  box.className = `saved${refusal || failures ? " lost" : n ? " waiting" : ""}`;
}

// ---- keys

const KEYS = {
  ArrowRight: () => step(1), ArrowLeft: () => step(-1), j: () => step(1), k: () => step(-1), n: next, u: undo, Backspace: undo,
  x: () => judge(UNKNOWN), "?": () => judge(UNKNOWN), "/": () => openFilter(true), h: () => openHelp(),
};

// The letter, digit or sign on a key, even if the keyboard writes Korean.
function meaning(event) {
  if (/^Digit[0-9]$|^Numpad[0-9]$/.test(event.code) && !event.shiftKey) return event.code.at(-1);
  if (/^[\x21-\x7e]$/.test(event.key)) return event.key.toLowerCase();
  return /^Key[A-Z]$/.test(event.code) ? event.code.at(-1).toLowerCase() : event.key;
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
  if (event.repeat && (event.key === "Enter" || event.key === " ") && event.target.closest("button")) return event.preventDefault();
  if (event.target.closest("input, select")) {
    if (event.key === "Escape") openFilter(false);
    return;
  }
  if (event.key === "Escape" && !$("filter").hidden) return openFilter(false);
  const name = meaning(event);
  const action = /^[0-3]$/.test(name) ? () => judge(Number(name)) : KEYS[name];
  if (!action) return;
  event.preventDefault();
  if (!event.repeat || name.startsWith("Arrow") || name === "j" || name === "k") action();
}

// ---- filter and help

function openFilter(open) {
  $("filter").hidden = !open;
  $("filter-open").setAttribute("aria-expanded", open);
  if (open) return $("words").focus();
  $("filter").reset();
  $("main").focus({ preventScroll: true });
}

function openHelp() {
  $("help").showModal();
}

function help() {
  const keys = [["0", "1", "2", "3", "key_grade"], ["1", "0", "key_need"], ["x", "?", "key_unknown"], ["u", "⌫", "key_undo"],
    ["←", "→", "k", "j", "key_move"], ["n", "key_next"], ["/", "key_filter"], ["h", "key_help"]];
  const row = (caps, ...words) => [make("dt", {}, ...caps.map((cap) => make("kbd", {}, cap))), make("dd", {}, ...words)];
  const scale = (name, value) => row([keyOf(value)], make("b", {}, say(name)), say(`about_${name.replace("grade_", "")}`));
  $("help").replaceChildren(
    make("form", { method: "dialog" }, make("button", { class: "plain" }, say("close"))),
    make("h2", { id: "help-title" }, say("how")),
    make("ul", {}, ...[adjudicates ? "how_adjudicate" : "how_blind", "how_last", "how_marks"].map((one) => make("li", {}, say(one)))),
    make("h2", {}, say("grades")),
    make("dl", { class: "table" }, ...[0, 1, 2, 3].flatMap((value) => scale(`grade_${value}`, value)), ...scale("unknown", UNKNOWN)),
    make("h2", {}, say("need")),
    make("dl", { class: "table" }, ...[1, 0].flatMap((value) => scale(`need_${value}`, value))),
    make("h2", {}, say("keys")),
    make("dl", { class: "table" }, ...keys.flatMap((one) => row(one.slice(0, -1), say(one.at(-1))))));
}

function furnish(reviewer) {
  document.documentElement.lang = language;
  document.title = `${say("title")} · ${reviewer}`;
  $("who").textContent = reviewer;
  $("progress").setAttribute("aria-label", say("title"));
  for (const [id, name] of [["filter-open", "filter"], ["help-open", "help"], ["show-label", "show"], ["what-label", "what"], ["clear", "clear"]])
    $(id).textContent = say(name);
  $("words").placeholder = say("filter_words");
  $("words").setAttribute("aria-label", say("filter_words"));
  const options = (id, names) => $(id).replaceChildren(...names.map((name) => make("option", { value: name }, say(`${id}_${name}`))));
  options("show", ["all", "open", "judged", "unknown"]);
  options("what", ["all", "need", "document"]);
  const move = (name, key, action) => make("button", { class: "plain", type: "button", onclick: (event) => press(event, action) },
    make("kbd", { "aria-hidden": "true" }, key), say(name));
  $("moves").replaceChildren(move("back", "←", () => step(-1)), move("forward", "→", () => step(1)), move("next", "n", next), move("undo", "u", undo));
  help();
}

function listen() {
  let typing = 0;
  document.addEventListener("keydown", pressed);
  $("filter-open").addEventListener("click", () => openFilter($("filter").hidden));
  $("help-open").addEventListener("click", openHelp);
  $("filter").addEventListener("submit", (event) => { event.preventDefault(); filter(); $("main").focus({ preventScroll: true }); });
  $("filter").addEventListener("reset", () => setTimeout(filter));
  $("words").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(filter, 250); });
  for (const id of ["show", "what"]) $(id).addEventListener("change", filter);
  addEventListener("beforeunload", (event) => { if (pending.size) event.preventDefault(); });
  document.addEventListener("visibilitychange", look);
  addEventListener("online", send);
  setInterval(look, LOOK);
}

async function start() {
  const [words, found] = await Promise.all([fetch("words.json").then((answer) => answer.json()), ask("items")]);
  [WORDS, language] = [words, PREFERRED];
  adjudicates = found.adjudicates;
  const needs = new Set(found.needs);
  groups = found.queries.map((keys, place) => {
    const group = [];
    for (const key of keys) group.push({ key, group, place, need: needs.has(key) });
    return group;
  });
  items = groups.flat();
  byKey = new Map(items.map((one) => [one.key, one]));
  for (const [key, value] of Object.entries(found.values)) saved.set(key, value);
  revision = found.revision;
  shown = items;
  furnish(found.reviewer);
  listen();
  await go(following(null));
  $("main").focus({ preventScroll: true });
}

start().catch((error) => { document.getElementById("main").textContent = error.message; });
