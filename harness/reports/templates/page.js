// Shared by all pages: elements, words, numbers, reports, listings. The page's own script follows.
"use strict";
const $ = (id) => document.getElementById(id);
const DATA = JSON.parse($("data")?.textContent ?? "{}"); // {} on pages that load their data later
const SVG = "http://www.w3.org/2000/svg";

// Elements. Their content is always text, never markup.
function make(tag, attributes = {}, ...inside) {
  const one = document.createElement(tag);
  return fill(one, attributes, inside);
}
function draw(tag, attributes = {}, ...inside) {
  return fill(document.createElementNS(SVG, tag), attributes, inside);
}
// Elements with Korean text get lang="ko", since Korean lines break differently.
const HANGUL = /[\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3]/;
function fill(one, attributes, inside) {
  if (inside.some((child) => typeof child === "string" && HANGUL.test(child))) one.setAttribute("lang", "ko");
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") Object.assign(one.style, value);
    else if (name.startsWith("on")) one.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) one.setAttribute(name, value);
  }
  one.append(...inside.filter((child) => child !== null && child !== undefined));
  return one;
}

// Words: a text, a name in WORDS, or {en, ko}. Pages are in English unless the reader chooses. `places` replaces {name} in
// a text.
const LANGUAGES = { en: "English", ko: "한국어" };
const PREFERRED = (navigator.languages ?? [navigator.language]).map((one) => one.slice(0, 2).toLowerCase()).find((one) => one in LANGUAGES) ?? "en";
let language = "en";
let reword = (text) => text; // a page may replace it to change every text
let WORDS = {}; // language -> name -> text, for pages with a file of texts
function say(words, places = null) {
  const found = typeof words === "string" ? WORDS[language]?.[words] ?? words : words[language];
  return reword(places ? found.replace(/\{(\w+)\}/g, (whole, name) => places[name] ?? whole) : found);
}

// Text for a screen reader: the last three announcements of one action.
let unsaid = [];
function announce(words) {
  if (!unsaid.length) {
    $("spoken").textContent = "";
    setTimeout(() => { $("spoken").textContent = unsaid.join(". "); unsaid = []; }, 100);
  }
  unsaid = [...unsaid, say(words)].slice(-3);
}

const dot = (colour) => make("span", { class: "dot", style: { background: colour } });
const number = (value, digits = 4) => (value === null || value === undefined ? "–" : value.toFixed(digits));
const grouped = (value) => value.toLocaleString("en-US");
const spaced = (name) => (name.includes("@") ? name : name.replaceAll("_", " ")); // measures keep their names
const many = (count) => `${grouped(count)} ${DATA.nouns[count === 1 ? 0 : 1]}`;

// A name that may break after each underscore in a narrow column.
const breakable = (name) => name.split(/(?<=_)/).flatMap((part, i) => (i ? [make("wbr"), part] : [part]));

// searchable: a text normalised for search. ordered: the order of two values, null last. ticks: round numbers between low
// and high, at most about `most`.
const searchable = (words) => words.normalize("NFC").toLowerCase();
function ordered(a, b, down) {
  const [one, other] = [a ?? null, b ?? null];
  if (one === null || other === null) return (one === null) - (other === null);
  const order = typeof one === "string" ? one.localeCompare(other, undefined, { numeric: true }) : one - other;
  return down ? -order : order;
}
function ticks(low, high, most) {
  const rough = (high - low) / Math.max(most, 1), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough), found = [];
  for (let n = Math.ceil(low / step); n * step <= high; n += 1) found.push(Number((n * step).toPrecision(6)));
  return found;
}
// Copies the text of an element. If the browser does not allow this, the text stays selected.
function copied(element) {
  getSelection().selectAllChildren(element);
  return document.execCommand("copy");
}

function tip(text) {
  return {
    onpointermove: (event) => {
      const box = $("tip");
      box.textContent = text;
      box.hidden = false;
      box.style.left = Math.min(event.clientX + 12, innerWidth - box.offsetWidth - 8) + "px";
      box.style.top = event.clientY + 14 + "px";
    },
    onpointerleave: () => { $("tip").hidden = true; },
  };
}

// The content of a cell that is a text, or a list of [text, mark], where a mark names the kind of an edit
const MEANS = { tp: "right correction", fp: "wrong correction", fn: "missed correction", fr: "needless correction" };
const pieces = (cell) => (Array.isArray(cell) ? cell : [[cell, ""]]).map(([text, mark]) =>
  mark ? make("mark", { class: mark, title: MEANS[mark] || mark }, text) : text);

function interval(...marks) {
  const line = (from, to, wide, colour) =>
    draw("line", { x1: 100 * from + "%", x2: 100 * to + "%", y1: 8, y2: 8, stroke: colour, "stroke-width": wide });
  const chart = draw("svg", { height: 16 }, line(0, 1, 1, "var(--line)"));
  for (const one of marks.filter((mark) => mark.low !== null).slice(0, 1)) chart.append(line(one.low, one.high, 6, "var(--plateau)"));
  for (const one of marks) chart.append(draw("line", { x1: 100 * one.mean + "%", x2: 100 * one.mean + "%", y1: 2, y2: 14,
    stroke: one.name.startsWith("oof/") ? "var(--oof)" : "var(--curve)", "stroke-width": 3 }));
  return fill(chart, tip(marks.map((one) => `${one.name} ${number(one.mean)}` + (one.low === null ? "" :
    `, 95 % interval ${number(one.low, 3)} – ${number(one.high, 3)}`) + `, ${many(one.n)}`).join("\n")), []);
}

// A table with a row for each of `measures`, whose `marks` are drawn; sentences about their intervals follow it.
function measured(columns, measures) {
  const colours = { "out of fold": "var(--oof)", "in sample": "var(--curve)" };
  const absent = (one) => make("td", { class: "why", colspan: columns.length + 2 }, "absent" + (one.why ? ": " + one.why : ""));
  const present = (one) => [...one.cells.map((value, i) => make("td", { class: "number", style: { color: colours[columns[i]] ?? "" } },
    number(value))), make("td", { class: "scale" }, interval(...one.marks)), make("td", { class: "number" }, grouped(one.n))];
  const row = (one) => make("tr", { class: one.marks.length ? null : "soft" }, make("td", { title: one.why || null },
    ...breakable(one.name)), ...(one.marks.length ? present(one) : [absent(one)]));
  return [make("div", { class: "wide" }, make("table", { class: "measures" },
    make("tr", {}, ...["", ...columns, "95 % interval", DATA.nouns[1]].map((title) => make("th", {}, title))), ...measures.map(row))),
  ...measures.filter((one) => one.marks.length && one.why).map((one) => make("div", { class: "soft number" }, `${one.name}: ${one.why}`))];
}

// The head of a run's page: facts, the score that ranks the run, and the measures.
function scored() {
  $("title").textContent = document.title = DATA.title || "Run";
  for (const [name, words] of DATA.facts) $("facts").append(make("dt", {}, name), make("dd", {}, words));
  $("notes").append(...DATA.notes.map((note) => make("div", { class: "note" }, note)));
  const first = DATA.ranked_by, soft = (words) => make("div", { class: "soft number" }, words);
  $("score").append(...(first ? [soft(`${first.name}, ${first.kind}` + (first.kind.endsWith("out of fold") ?
      ": nothing was learnt from the query's own label" : "")),
    make("div", { class: "big number" }, number(first.mean)),
    ...(first.raw ? [soft(first.estimated), soft(first.raw)] : [soft((first.low === null ? "" :
      `95 % interval ${number(first.low, 3)} – ${number(first.high, 3)}, `) + many(first.n))])] :
    [soft(`${DATA.objective} has no value`)]),
    ...measured(DATA.columns, DATA.measures));
}

// A row of a listing. A click, Enter or the space bar opens it.
const opening = (open, attributes, ...cells) => make("tr", { class: "row", tabindex: 0, "aria-expanded": "false", ...attributes,
  onclick: () => { if (getSelection().isCollapsed) open(); },
  onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); } } }, ...cells);

// The sections of a report, each with sentences and a table. A cell [value, low, high] is a difference, drawn on one axis
// for the whole table. Long parts are folded.
const LONG = 40, LINES = 6; // a table with more rows than LONG is folded; of a section's sentences, the first LINES stay open
function reportSections(sections) {
  const unfolding = (many, words, ...inside) => (many ? [make("details", {}, make("summary", {}, say(words)), ...inside)] : inside);
  const looks = (cell) => (cell.length < 9 || /[0-9]/.test(cell) && cell.length < 24 ? "figure" : null);
  const gap = ([value, low, high], most) => {
    const at = (end) => `${50 + (50 * end) / most}%`;
    const line = (from, to, wide, colour) => draw("line", { x1: at(from), x2: at(to), y1: 8, y2: 8, stroke: colour, "stroke-width": wide });
    return draw("svg", { height: 16, "aria-hidden": "true" }, line(-most, most, 1, "var(--line)"), line(low, high, 6, "var(--plateau)"),
      draw("line", { x1: at(0), x2: at(0), y1: 0, y2: 16, stroke: "var(--soft)" }),
      draw("circle", { cx: at(value), cy: 8, r: 4, fill: low > 0 || high < 0 ? "var(--curve)" : "var(--soft)" }));
  };
  const table = ({ title, header, rows }) => {
    if (!rows.length) return [];
    const most = Math.max(...rows.flat().filter(Array.isArray).flat().map(Math.abs), 1e-9);
    const cell = (one) => (Array.isArray(one) ? make("td", { class: "scale" }, gap(one, most)) : make("td", { class: looks(one) }, one));
    const whole = make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": title }, make("table", { class: "plain-table" },
      make("thead", {}, make("tr", {}, ...header.map((name) => (name ? make("th", { scope: "col" }, name) : make("td", {}))))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map(cell))))));
    return unfolding(rows.length > LONG, { en: `${grouped(rows.length)} rows`, ko: `${grouped(rows.length)}행` }, whole);
  };
  return sections.map((one) => {
    const lines = one.lines.map((line) => make("p", {}, line)), more = lines.length - LINES;
    return make("section", { class: "report", lang: "en" }, make("h2", {}, one.title), ...lines.slice(0, LINES),
      ...unfolding(more > 0, { en: `${more} more`, ko: `${more}개 더` }, ...lines.slice(LINES)), ...table(one));
  });
}
// Links to sections. titles: one for each section.
function contents(sections, titles) {
  const links = sections.map((one, i) => make("li", {}, make("button", { class: "link", onclick: () => one.scrollIntoView() }, titles[i])));
  return make("nav", { "aria-label": say({ en: "Contents", ko: "차례" }) }, make("ul", { class: "contents", lang: "en" }, ...links));
}

// A sortable table of the rows that pass `wants` and contain all typed words, a part at a time. On a phone, each row is a
// block of named cells. heads: the columns [name, title] of each cell of the header. value(row, name): the key to sort by,
// null last. text(row): the text to search. line(row): the row's element. sort: the first column to sort by.
// Returns {chips: a place for more tools; again(): to be called after `wants` or a value has changed; reveal(row): clears
// the search field, lists the row and returns its element}.
const PART = 100;
function listing(section, rows, { heads, value, text, line, wants, hint, sort = null }) {
  const state = { sort, down: false, words: [], limit: PART }, texts = new Map();
  const head = make("tr"), body = make("tbody"), found = make("div", { class: "soft" });
  const chips = make("span", { class: "tools", style: { margin: 0 } });
  const more = make("button", { class: "plain more", onclick: () => { state.limit += 10 * PART; list(); } }, "Show more");
  const has = (row, word) => {
    if (!texts.has(row)) texts.set(row, searchable(text(row)));
    return texts.get(row).includes(word);
  };
  const compare = (a, b) => ordered(value(a, state.sort), value(b, state.sort), state.down);
  const title = ([name, words]) => make("button", { class: state.sort === name ? "on" : null, onclick: () => {
    state.down = state.sort === name && !state.down;
    state.sort = name;
    list();
  } }, words + (state.sort === name ? (state.down ? " ↓" : " ↑") : ""));
  function sorted() {
    const mine = rows.filter((row) => wants(row) && state.words.every((word) => has(row, word)));
    return state.sort === null ? mine : mine.sort(compare);
  }
  function named(shown) {
    heads.forEach((columns, i) => { shown.children[i].dataset.head = columns.length > 1 ? "" : columns[0][1]; });
    return shown;
  }
  function list() {
    const mine = sorted();
    head.replaceChildren(...heads.map((columns) => make("th", { scope: "col",
      "aria-sort": columns.some(([name]) => name === state.sort) ? (state.down ? "descending" : "ascending") : null },
      ...columns.map(title))));
    body.replaceChildren(...mine.slice(0, state.limit).map((row) => named(line(row))));
    found.textContent = `${grouped(mine.length)} of ${many(rows.length)}`;
    more.hidden = mine.length <= state.limit;
  }
  const again = () => { state.limit = PART; list(); };
  const field = make("input", { type: "search", placeholder: hint, "aria-label": "filter",
    oninput: () => { state.words = searchable(field.value).split(/\s+/).filter(Boolean); again(); } });
  const reveal = (row) => {
    field.value = "";
    state.words = [];
    state.limit = Math.max(state.limit, sorted().indexOf(row) + 1);
    list();
    return body.children[sorted().indexOf(row)];
  };
  section.append(
    make("div", { class: "tools" }, field, chips, found),
    make("div", { class: "wide" }, make("table", { class: "rows" }, make("thead", {}, head), body)), more);
  list();
  return { chips, again, reveal };
}
