// The frame of a board: language, tabs, selected runs, keys. The file of a tab calls `tab` once if its part of DATA exists.
// Such a file is a block { … }, which keeps its names local.
//
// DATA.runs lists the runs, the best first. In all scripts, a run is its place in this list.

// ---- Words

language = PREFERRED;
const ITEMS = Boolean(DATA.head.task); // runs of a text task: items in place of queries, without losses, documents and gates
if (ITEMS) reword = (text) => Array.isArray(text) ? text.map(reword) : text.replace(/\ba query\b/g, "an item").replace(/\b([Qq])uer(y|ies)\b/g, (_, first, end) =>
  (first === "Q" ? "I" : "i") + (end === "y" ? "tem" : "tems")).replaceAll("질의", "항목");
const queriesOf = (count) => say({ en: `${grouped(count)} ${count === 1 ? "query" : "queries"}`, ko: `질의 ${grouped(count)}개` });
const runsOf = (count) => say({ en: `${grouped(count)} ${count === 1 ? "run" : "runs"}`, ko: `실행 ${grouped(count)}개` });
const signed = (value, digits = 4) => (value === 0 ? number(0, digits) : (value > 0 ? "+" : "−") + number(Math.abs(value), digits));
const KINDS = {
  "in sample": { en: "in sample", ko: "표본 내" },
  "out of fold": { en: "out of fold", ko: "폴드 밖" },
  public: { en: "public", ko: "public 질의" },
  "public, out of fold": { en: "public, out of fold", ko: "public 질의, 폴드 밖" },
  "held out": { en: "held out", ko: "따로 둔 질의" },
};
// What to say beside losses, if the values of some runs have another basis
const APART = (places) => places.some((place) => DATA.runs[place].kind.includes("out of fold")) ? make("p", { class: "soft" },
  say({ en: "Values are out of fold if something was learnt from labels. Losses are those of the lists that the runs wrote, so they may not add up to the values.",
    ko: "라벨로 배운 것이 있는 실행의 값은 폴드 밖에서 잰 값이고, 무엇이 잘못되었는지는 기록된 목록을 두고 말합니다. 그래서 둘을 더해도 맞지 않을 수 있습니다." })) : "";
// The kinds of loss by name. "" stands for no loss.
const LOSS = {
  "": { colour: "var(--right)", words: { en: "right", ko: "맞음" } },
  wrongly_returned: { colour: "var(--wrongly-returned)", words: { en: "wrongly returned", ko: "잘못 반환" } },
  wrongly_withheld: { colour: "var(--wrongly-withheld)", words: { en: "wrongly withheld", ko: "잘못 막음" } },
  not_found: { colour: "var(--not-found)", words: { en: "not found", ko: "찾지 못함" } },
  misranked: { colour: "var(--misranked)", words: { en: "misranked", ko: "순위가 낮음" } },
  not_found_or_misranked: { colour: "var(--not-found-or-misranked)",
    words: { en: "not found or misranked", ko: "찾지 못했거나 순위가 낮음" } },
};
const lossPill = (name) => (ITEMS ? null : make("span", { class: "pill" }, dot(LOSS[name].colour), say(LOSS[name].words)));

// ---- The selected runs: one to four places, in the order of selection

const MOST = 4;
const selection = Object.assign([], {
  listeners: new Set(),
  // The listener is called after each change of the selection, until its tab is shown again.
  onchange(listener) { this.listeners.add(listener); },
  set(places) {
    const wanted = [...new Set(places)].slice(0, MOST);
    if (!wanted.length || String(wanted) === String(this)) return;
    this.splice(0, this.length, ...wanted);
    drawChosen();
    for (const listener of this.listeners) listener();
    address();
  },
  toggle(place) {
    if (this.includes(place)) {
      if (this.length === 1) announce({ en: "One run stays selected.", ko: "실행 하나는 선택되어 있어야 합니다." });
      this.set(this.filter((one) => one !== place));
    } else if (this.length === MOST) {
      announce({ en: `${MOST} runs are already selected: remove one first.`, ko: `이미 ${MOST}개를 골랐습니다. 먼저 하나를 빼세요.` });
    } else this.set([...this, place]);
  },
});
const shortName = (place) => DATA.runs[place].short;
// A dot for a selected run, a ring for every other run.
function slot(place) {
  const at = selection.indexOf(place);
  return make("span", { class: "slot", style: at < 0 ? {} : { background: `var(--run-${at})`, borderColor: `var(--run-${at})` } });
}
function drawChosen() {
  $("chosen").setAttribute("aria-label", say({ en: "Selected runs", ko: "선택한 실행" }));
  $("chosen").replaceChildren(...selection.map((place) => {
    const remove = { en: `Remove ${shortName(place)}`, ko: `${shortName(place)} 빼기` };
    return make("span", { class: "picked", "data-run": place }, slot(place), make("span", { class: "name" }, shortName(place)),
      selection.length > 1 ? make("button", { class: "out", "aria-label": say(remove), title: say(remove), onclick: () => {
        selection.toggle(place);
        $("chosen").querySelector("button")?.focus();
      } }, "×") : null);
  }));
}

// A section with its title.
const card = (title, small, ...inside) => make("section", {}, make("h2", {}, title, " ", small ? make("small", {}, small) : null), ...inside);

// A menu to choose one run. onchange(place) is called after each choice.
function runChoice(label, place, onchange) {
  return make("select", { "aria-label": label, onchange: (event) => onchange(Number(event.target.value)) },
    ...DATA.runs.map((run, i) => make("option", { value: i, selected: i === place ? "" : null }, run.short)));
}

// A button that copies a text.
function copier(element) {
  return make("button", { class: "plain copy", onclick: (event) => {
    event.stopPropagation();
    announce(copied(element) ? { en: "Copied.", ko: "복사했습니다." } :
      { en: "Selected: copy it with Ctrl-C.", ko: "선택했습니다. Ctrl-C로 복사하세요." });
  } }, say({ en: "copy", ko: "복사" }));
}
function runId(place) {
  const code = make("code", {}, DATA.runs[place].id);
  return make("span", { class: "run-id" }, code, " ", copier(code));
}

// ---- Tabs

const TABS = [];
let current = null;
// Adds a tab. title: {en, ko}. show(root) fills an empty root when the tab is first opened and after a change of language.
// `show` may return a function that is called with the detail after the tab's name in the address. keys: [key, {en, ko},
// action] of each key that works while the tab is open.
function tab(name, title, show, keys = []) {
  const panel = make("div", { id: "panel-" + name, role: "tabpanel", "aria-labelledby": "tab-" + name, hidden: "" });
  const button = make("button", { id: "tab-" + name, role: "tab", "aria-controls": "panel-" + name, onclick: () => go(name),
    onkeydown: (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, Home: -TABS.indexOf(one), End: TABS.length - 1 - TABS.indexOf(one) }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      const next = TABS[(TABS.indexOf(one) + step + TABS.length) % TABS.length];
      go(next.name);
      next.button.focus();
    } });
  const one = { name, title, show, keys, panel, button, shown: null, detail: "" };
  TABS.push(one);
}
// Opens a tab. detail: passed to the tab's function, for example the id of a query.
function go(name, detail = "") {
  const one = TABS.find((other) => other.name === name) ?? TABS[0];
  current = one;
  for (const other of TABS) {
    other.button.setAttribute("aria-selected", other === one);
    other.button.tabIndex = other === one ? 0 : -1;
    other.panel.hidden = other !== one;
  }
  one.shown ??= one.show(one.panel) ?? (() => {});
  if (detail) one.shown(detail);
  address(detail || one.detail);
}

// The address names the open tab, its detail, and the selected runs: #queries/q0012?runs=0a1b2c3d,4e5f6a7b
const START = 8; // digits of an id in the address
// Writes the address. detail: the new detail of the open tab, which is kept until the tab changes it.
let written = null;
function address(detail = current?.detail) {
  if (!current) return;
  current.detail = detail;
  const runs = selection.map((place) => DATA.runs[place].id.slice(0, START)).join(",");
  written = `#${current.name}${detail ? "/" + encodeURIComponent(detail) : ""}?runs=${runs}`;
  if (location.hash !== written) location.replace(written);
}
function visit() {
  if (location.hash === written) return;
  const [, name, , detail = "", runs = ""] = /^#([\w-]*)(\/([^?]*))?(?:\?runs=(.*))?$/.exec(location.hash) ?? [];
  const places = (runs ?? "").split(",").map((start) => DATA.runs.findIndex((run) => start && run.id.startsWith(start)));
  selection.set(places.filter((place) => place >= 0));
  go(name, decodeURIComponent(detail ?? ""));
}

// ---- Keys

const KEYS = [
  ["?", { en: "this list of keys", ko: "단축키 목록" }, () => showKeys()],
  ["l", { en: "the other language", ko: "다른 언어로" }, () => speak(language === "en" ? "ko" : "en")],
];
const typing = (target) => target.matches("input, select, textarea") || target.isContentEditable;
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || $("keys").open) return;
  const place = Number(event.key) - 1;
  if (TABS[place]) { go(TABS[place].name); TABS[place].button.focus(); return; }
  const found = [...(current?.keys ?? []), ...KEYS].find(([key]) => key === event.key);
  if (!found?.[2]) return; // a key without an action is handled by an element of the page
  event.preventDefault();
  found[2](event);
});
function showKeys() {
  const row = ([key, words]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, say(words))];
  const group = (title, keys) => keys.length ? [make("h3", {}, title), make("dl", {}, ...keys.flatMap(row))] : [];
  $("keys").setAttribute("aria-labelledby", "keys-title");
  $("keys").replaceChildren(make("h2", { id: "keys-title" }, say({ en: "Keys", ko: "단축키" })),
    ...group(say(current.title), current.keys),
    ...group(say({ en: "Everywhere", ko: "어디서나" }), [...TABS.map((one, i) => [String(i + 1), one.title]),
      ["← →", { en: "on a tab: the tab before or after", ko: "탭에서 앞뒤 탭으로" }], ...KEYS]),
    make("button", { class: "plain", onclick: () => $("keys").close() }, say({ en: "Close", ko: "닫기" })));
  $("keys").showModal();
}

// ---- The start, and a change of language

function speak(name) {
  language = name;
  document.documentElement.lang = name;
  selection.listeners.clear();
  for (const one of TABS) {
    one.panel.replaceChildren();
    one.button.replaceChildren(say(one.title));
    one.shown = null;
  }
  frame();
  if (current) go(current.name, current.detail);
}
function frame() {
  const { head } = DATA;
  $("skip").textContent = say({ en: "Skip to the content", ko: "본문으로 건너뛰기" });
  const what = say({ en: "board of runs", ko: "실행 보드" });
  document.title = head.title || `${head.experiment} · ${what}`;
  $("title").replaceChildren(...(head.title ? [head.title] : [head.experiment, " ", make("small", { class: "soft" }, what)]));
  $("verdicts").hidden = !head.verdicts.length;
  $("verdicts").replaceChildren(...head.verdicts.map((one) => make("p", {}, one)));
  $("about").replaceChildren([head.metric, head.select_on === "public" ? say({ en: "chosen by the public queries", ko: "public 질의로 고름" }) :
    null, runsOf(DATA.runs.length), queriesOf(head.queries)].filter(Boolean).join(" · "));
  $("bar").setAttribute("aria-label", say({ en: "Views and selected runs", ko: "보기와 선택한 실행" }));
  $("tabs").setAttribute("aria-label", say({ en: "Views", ko: "보기" }));
  $("switches").replaceChildren(
    make("div", { class: "languages", role: "group", "aria-label": "Language · 언어" }, ...Object.entries(LANGUAGES).map(([name, words]) =>
      make("button", { lang: name, "aria-pressed": name === language, onclick: () => {
        speak(name);
        $("switches").querySelector("[aria-pressed=true]").focus();
      } }, words))),
    make("button", { class: "plain", "aria-label": say({ en: "Keys", ko: "단축키" }), onclick: showKeys }, make("kbd", {}, "?")));
  $("notes").replaceChildren(...head.notes.map((note) => make("div", {}, say(note))));
  drawChosen();
}
// Runs after all tabs exist.
function start() {
  $("tabs").append(...TABS.map((one) => one.button));
  $("main").append(...TABS.map((one) => one.panel));
  $("skip").addEventListener("click", (event) => {
    event.preventDefault(); // keep the address, which names the open tab
    $("main").focus();
  });
  selection.set([...new Set([DATA.leaderboard.recommended.run, 0, 1])].filter((place) => place in DATA.runs).slice(0, 2));
  speak(language);
  visit();
  addEventListener("hashchange", visit);
}
