"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

// Elements; what is said in them is always text, never markup.
function make(tag, attributes = {}, ...inside) {
  const one = document.createElement(tag);
  return fill(one, attributes, inside);
}
function draw(tag, attributes = {}, ...inside) {
  return fill(document.createElementNS(SVG, tag), attributes, inside);
}
// Pages are in English; an element that says something in Korean is marked, since Korean lines break elsewhere.
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
const dot = (colour) => make("span", { class: "dot", style: { background: colour } });
const number = (value, digits = 4) => (value === null || value === undefined ? "–" : value.toFixed(digits));
const grouped = (value) => value.toLocaleString("en-US");
const spaced = (name) => (name.includes("@") ? name : name.replaceAll("_", " ")); // measures keep their names
const many = (count) => `${grouped(count)} ${DATA.nouns[count === 1 ? 0 : 1]}`;

// A name that a narrow column may break after each underscore.
const breakable = (name) => name.split(/(?<=_)/).flatMap((part, i) => (i ? [make("wbr"), part] : [part]));

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

// A text, or one in pieces of which some bear the mark of an edit
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

// A table of rows in a section: it sorts by column and shows those rows that `wants` lets pass and in which each word
// typed occurs, a part at a time. heads: the columns [name, title] of each cell of the header. value(row, name): what
// is sorted, null last; text(row): what is searched; line(row): the row's element. sort: the column they stand in.
// Returns a place for more tools, `again` to be called when `wants` or a value has changed, and `reveal`, which empties the
// field, lists a row that `wants` lets pass, and returns its element. On a phone each row is a block of named cells.
const PART = 100;
function listing(section, rows, { heads, value, text, line, wants, hint, sort = null }) {
  const state = { sort, down: false, words: [], limit: PART }, texts = new Map();
  const head = make("tr"), body = make("tbody"), found = make("div", { class: "soft" });
  const chips = make("span", { class: "tools", style: { margin: 0 } });
  const more = make("button", { class: "plain more", onclick: () => { state.limit += 10 * PART; list(); } }, "Show more");
  const folded = (words) => words.normalize("NFC").toLowerCase();
  const has = (row, word) => {
    if (!texts.has(row)) texts.set(row, folded(text(row)));
    return texts.get(row).includes(word);
  };
  const compare = (a, b) => {
    const [one, other] = [value(a, state.sort) ?? null, value(b, state.sort) ?? null];
    if (one === null || other === null) return (one === null) - (other === null);
    const order = typeof one === "string" ? one.localeCompare(other, undefined, { numeric: true }) : one - other;
    return state.down ? -order : order;
  };
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
    oninput: () => { state.words = folded(field.value).split(/\s+/).filter(Boolean); again(); } });
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
