// Tab *Two runs*: the difference of two runs, their settings, and the queries that decide.
if (DATA.runs.length > 1) {
  const PART = 12, FEW = 20; // queries listed at first; if fewer than FEW queries differ, the page warns of the interval
  const UNIT = 1e6; // values on this page have six decimals
  const PARTS = { all: { en: "all queries", ko: "모든 질의" }, public: { en: "public", ko: "public" }, private: { en: "private", ko: "private" } };
  const NAMES = ["--run-0", "--run-1"].map((name) => `var(${name})`);
  let part = DATA.head.select_on === "public" ? "private" : "all";

  const mark = (i) => make("span", { class: "slot", style: { background: NAMES[i], borderColor: NAMES[i] } });
  const p3 = (p) => (p < .0001 ? "p < 0.0001" : `p\u00a0=\u00a0${number(p, p < .01 ? 4 : 3)}`);

  // ---- The pair: the first two selected runs
  function pair() {
    const first = selection[0], second = selection[1] ?? (first === 0 ? 1 : 0);
    return [first, second];
  }
  const choosePair = (first, second) => selection.set([first, second, ...selection.slice(2).filter((one) => one !== first && one !== second)]);

  function heading(places, parts) {
    const [first, second] = places, label = [{ en: "First run", ko: "첫째 실행" }, { en: "Second run", ko: "둘째 실행" }];
    const choice = (i) => make("label", { class: "one" }, mark(i),
      runChoice(say(label[i]), places[i], (place) => {
        if (place === places[1 - i]) choosePair(second, first);
        else if (i) choosePair(first, place); else choosePair(place, second);
      }));
    const swap = { en: "Swap the two runs", ko: "두 실행 바꾸기" };
    return make("div", { class: "versus" }, choice(0), make("button", { class: "plain", "aria-label": say(swap), title: say(swap), onclick: () => {
      choosePair(second, first);
      document.querySelector(".versus button").focus();
    } }, "⇄"), choice(1), parts);
  }

  // ---- The verdict and the interval
  function verdict(places, found) {
    const [a, b] = places.map(shortName), sure = found.p <= .05, up = found.mean > 0;
    const [better, worse] = up ? [a, b] : [b, a];
    const plain = (value) => (value < 0 ? signed(value, 3) : number(value, 3));
    const ahead = number(Math.abs(found.mean)), size = `${ahead} (${plain(up ? found.low : -found.high)} – ${plain(up ? found.high : -found.low)})`;
    if (!found.n) return say({ en: "No query has a value in both runs.", ko: "두 실행 모두에 값이 있는 질의가 없습니다." });
    if (!found.wins && !found.losses) return say({ en: `${a} and ${b} have the same value on every query.`, ko: `${a}, ${b} 두 실행은 모든 질의에서 값이 같습니다.` });
    if (found.p === null) return say({ en: `${better} is ahead by ${ahead}.`, ko: `${better} 쪽이 ${ahead} 앞섭니다.` });
    return say(sure ? { en: `${better} is better than ${worse} by ${size}, ${p3(found.p)}.`,
      ko: `${better} 실행이 ${worse} 실행보다 ${size} 더 좋습니다(${p3(found.p)}).` } :
      { en: `${queriesOf(found.n)} do not tell ${a} and ${b} apart: ${better} is ahead by ${size}, ${p3(found.p)}.`,
        ko: `${queriesOf(found.n)}로는 ${a}, ${b} 두 실행의 우열을 가릴 수 없습니다. ${better} 쪽이 ${size} 앞섭니다(${p3(found.p)}).` });
  }
  // The result of `harness compare` for a pair on a part of the queries: {mean, low, high, p}; null if not on this page.
  const tests = once(() => unpackedJson(DATA.pairs));
  async function tested([first, second], among) {
    const one = (await tests())[among]?.find(([a, b]) => a === Math.min(first, second) && b === Math.max(first, second));
    if (!one) return null;
    const [mean, low, high, p] = one.slice(2);
    return first < second ? { mean, low, high, p } : { mean: -mean, low: -high, high: -low, p };
  }
  function limits(places, found) {
    const differ = found.wins + found.losses, runs = places.map((place) => DATA.runs[place].id.slice(0, START));
    if (found.p === null) return say({ en: `This page does not test these two runs. To test them: harness compare 'runs=[${runs}]'`,
      ko: `이 페이지는 이 두 실행을 검정하지 않았습니다. 검정하려면: harness compare 'runs=[${runs}]'` });
    const said = [say({ en: "The brackets contain the 95 % bootstrap interval of the mean difference. p is from the paired randomisation test of this pair alone, without correction for other pairs.",
      ko: "괄호 안은 평균 차이의 95 % 부트스트랩 신뢰구간입니다. p는 이 쌍만 본 짝지은 무작위화 검정의 값이며, 함께 살펴본 다른 쌍의 수를 감안해 보정하지 않았습니다." })];
    if (differ && differ < FEW) said.push(say({ en: `Only ${queriesOf(differ)} differ: trust p, not the interval.`,
      ko: `차이가 나는 질의가 ${differ}개뿐입니다. 신뢰구간보다 p를 믿으세요.` }));
    return said.join(" ");
  }
  // The interval on an axis that includes 0
  function intervalPicture({ low, high, mean }) {
    const TALL = 90, GROUND = TALL - 40, ends = [0, low, high], margin = .1 * (Math.max(...ends) - Math.min(...ends)) || .01;
    const [from, to] = [Math.min(...ends) - margin, Math.max(...ends) + margin], x = (value) => 100 * (value - from) / (to - from) + "%";
    const colour = NAMES[mean >= 0 ? 0 : 1], room = (0 - from) / (to - from);
    const words = say({ en: `Mean difference ${signed(mean)}, 95 % interval ${signed(low, 3)} to ${signed(high, 3)}`,
      ko: `평균 차이 ${signed(mean)}, 95 % 신뢰구간 ${signed(low, 3)} ~ ${signed(high, 3)}` });
    const side = (words, anchor, dx) => draw("text", { x: x(0), dx, y: 12, "text-anchor": anchor }, say(words));
    return draw("svg", { height: TALL, role: "img", "aria-label": words, class: "difference", ...tip(words) },
      draw("line", { x1: x(0), x2: x(0), y1: 18, y2: GROUND + 8, stroke: "var(--text)", "stroke-dasharray": "3 3" }),
      draw("line", { x1: x(low), x2: x(high), y1: GROUND, y2: GROUND, stroke: colour, "stroke-width": 5, "stroke-linecap": "round" }),
      draw("circle", { cx: x(mean), cy: GROUND, r: 7, fill: colour, stroke: "var(--card)", "stroke-width": 2 }),
      ...ticks(from, to, 6).flatMap((tick) => [draw("line", { x1: x(tick), x2: x(tick), y1: GROUND + 12, y2: GROUND + 16, stroke: "var(--soft)" }),
        draw("text", { x: x(tick), y: GROUND + 30, "text-anchor": "middle" }, signed(tick, 2))]),
      room > .35 ? side({ en: "← second run better", ko: "← 둘째 실행이 좋음" }, "end", -8) : null,
      room < .65 ? side({ en: "first run better →", ko: "첫째 실행이 좋음 →" }, "start", 8) : null);
  }

  // ---- Settings
  function settings(places) {
    const [one, other] = places.map((place) => DATA.runs[place].params), keys = Object.keys(one).filter((key) => one[key] !== other[key]);
    if (!keys.length) return make("p", { class: "soft" }, say({ en: "Both runs have the same settings.", ko: "두 실행의 설정이 같습니다." }));
    return make("table", { class: "settings" }, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, say({ en: "setting", ko: "설정" })),
      ...places.map((place, i) => make("th", { scope: "col" }, mark(i), " ", say([{ en: "first", ko: "첫째" }, { en: "second", ko: "둘째" }][i]))))),
      make("tbody", {}, ...keys.map((key) => make("tr", {}, make("th", { scope: "row" }, ...breakable(key)), make("td", {}, one[key] ?? "–"), make("td", {}, other[key] ?? "–")))));
  }

  // ---- Query by query
  function winsPicture(found) {
    const parts = [["wins", NAMES[0], { en: "first better", ko: "첫째가 좋음" }], ["ties", "var(--line)", { en: "equal", ko: "같음" }], ["losses", NAMES[1], { en: "second better", ko: "둘째가 좋음" }]];
    const share = (count) => `${grouped(count)} (${Math.round(100 * count / found.n)} %)`;
    return make("div", {}, make("div", { class: "stack", role: "img", "aria-label": parts.map(([name, , words]) => `${say(words)}: ${share(found[name])}`).join(", ") },
      ...parts.map(([name, colour, words]) => found[name] ? make("span", { style: { flex: `${found[name]} 0 0`, background: colour }, ...tip(`${say(words)}: ${share(found[name])}`) }) : null)),
      make("div", { class: "keys" }, ...parts.map(([name, colour, words]) => make("span", {}, dot(colour), say(words), make("b", { class: "number" }, share(found[name]))))));
  }
  // The differences of all queries side by side, the largest wins first
  function profile(differing) {
    const WIDTH = 1000, TALL = 150, n = differing.length, wide = WIDTH / n, most = Math.max(...differing.map((one) => Math.abs(one.gap))), y = (gap) => TALL / 2 - gap / most * (TALL / 2 - 4);
    const ordered = [...differing].sort((a, b) => b.gap - a.gap);
    return draw("svg", { viewBox: `0 0 ${WIDTH} ${TALL}`, preserveAspectRatio: "none", class: "profile", role: "img",
      "aria-label": say({ en: "Differences by query, largest wins of the first run on the left", ko: "값이 다른 질의의 차이, 첫째 실행이 크게 이긴 질의가 왼쪽" }) },
      ...ordered.map((one, i) => draw("rect", { x: i * wide, width: Math.max(wide - (wide > 4 ? 1 : 0), .5), y: Math.min(y(one.gap), TALL / 2), height: Math.abs(y(one.gap) - TALL / 2),
        fill: one.gap > 0 ? NAMES[0] : NAMES[1], class: "bar", onclick: () => go("queries", one.id), ...tip(`${one.id}\n${signed(one.gap, 3)}`) })),
      draw("line", { x1: 0, x2: WIDTH, y1: TALL / 2, y2: TALL / 2, stroke: "var(--soft)" }));
  }
  // Kinds of loss that only one of the two runs has
  function lossPicture(rows) {
    const kinds = LOSSES.map((name) => ({ name, fewer: rows.filter((one) => one.losses[1] === name && one.losses[0] !== name).length,
      more: rows.filter((one) => one.losses[0] === name && one.losses[1] !== name).length, both: rows.filter((one) => one.losses.every((other) => other === name)).length }))
      .filter((one) => one.name && one.fewer + one.more + one.both);
    if (!kinds.length) return make("p", { class: "soft" }, say({ en: "Neither run loses anything.", ko: "두 실행 모두 잃은 점수가 없습니다." }));
    const most = Math.max(...kinds.flatMap((one) => [one.fewer, one.more]), 1);
    const bar = (count, colour, left) => {
      const parts = [make("span", { class: "number" }, grouped(count)), make("span", { class: "beam", style: { width: `${65 * count / most}%`, background: colour } })];
      return make("td", { class: left ? "left" : "right" }, ...(left ? parts : parts.reverse()));
    };
    return make("table", { class: "gains" }, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, say({ en: "kind of loss", ko: "손실 종류" })), make("th", { scope: "col", class: "left" }, say({ en: "only the second", ko: "둘째만" })),
      make("th", { scope: "col", class: "right" }, say({ en: "only the first", ko: "첫째만" })), make("th", { scope: "col" }, say({ en: "both", ko: "둘 다" })))),
      make("tbody", {}, ...kinds.map((one) => make("tr", {}, make("th", { scope: "row" }, dot(LOSS[one.name].colour), " ", say(LOSS[one.name].words)), bar(one.fewer, LOSS[one.name].colour, true), bar(one.more, LOSS[one.name].colour, false),
        make("td", { class: "number" }, grouped(one.both))))));
  }
  function deciding(rows) {
    const ordered = [...rows].sort((a, b) => Math.abs(b.gap) - Math.abs(a.gap) || (a.id < b.id ? -1 : 1)), most = Math.abs(ordered[0]?.gap) || 1;
    const list = make("ol", { class: "deciding" });
    const more = make("button", { class: "plain more", onclick: () => add(10 * PART) }, say({ en: "Show more", ko: "더 보기" }));
    const one = (row) => make("li", {}, make("span", { class: "gauge", "aria-hidden": "true" }, make("span", { style: { width: `${50 * Math.abs(row.gap) / most}%`,
      left: row.gap > 0 ? "50%" : `${50 - 50 * Math.abs(row.gap) / most}%`, background: row.gap > 0 ? NAMES[0] : NAMES[1] } })),
      make("span", { class: "number gap" }, signed(row.gap, 3)), make("span", { class: "number soft values" }, row.values.map((value) => number(value, 3)).join(" · ")), make("div", { class: "what" }, make("button", { class: "link", onclick: () => go("queries", row.id) }, row.id),
        row.title ? make("span", { class: "title" }, row.title) : null), ITEMS ? null : make("span", { class: "kinds" }, lossPill(row.losses[0]), make("span", { class: "soft" }, say({ en: "against", ko: "대" })), lossPill(row.losses[1])));
    const add = (count) => {
      list.append(...ordered.slice(list.children.length, list.children.length + count).map(one));
      more.hidden = list.children.length >= ordered.length;
    };
    add(PART);
    return [list, more];
  }

  // ---- The tab
  async function show(root) {
    const places = pair(), [data, texts] = await Promise.all([matrix(), titles()]), Q = data.ids.length;
    const both = data.public.some((one) => one) && data.public.some((one) => !one);
    const among = [...data.ids.keys()].filter((q) => part === "all" || !both || Boolean(data.public[q]) === (part === "public"));
    const values = places.map((place) => Float64Array.from(among, (q) => data.values[place * Q + q]));
    const rows = among.map((q, i) => ({ id: data.ids[q], title: texts[q], values: values.map((one) => one[i]), gap: Math.round(UNIT * (values[0][i] - values[1][i])) / UNIT,
      losses: places.map((place) => LOSSES[data.losses[place * Q + q]]) })).filter((one) => !Number.isNaN(one.gap));
    const differing = rows.filter((one) => one.gap !== 0), n = rows.length, wins = rows.filter((one) => one.gap > 0).length;
    const mean = ITEMS ? DATA.runs[places[0]].value - DATA.runs[places[1]].value : rows.reduce((sum, one) => sum + one.gap, 0) / n, known = await tested(places, both ? part : "all") ?? { mean, low: null, high: null, p: null };
    const found = { ...known, n, wins, losses: differing.length - wins, ties: n - differing.length };
    const parts = both ? make("div", { class: "tools", role: "group", "aria-label": say({ en: "Which queries", ko: "어떤 질의로" }) }, ...Object.entries(PARTS).map(([name, words]) =>
      make("button", { class: "chip", "data-part": name, "aria-pressed": part === name, onclick: async () => {
        part = name;
        await show(root);
        root.querySelector(`[data-part=${name}]`).focus();
      } }, say(words)))) : null;
    root.replaceChildren(
      make("section", {}, heading(places, parts), make("p", { class: "verdict", "aria-live": "polite" }, verdict(places, found)),
        found.p === null ? null : intervalPicture(found), make("p", { class: "soft" }, limits(places, found))),
      make("div", { class: "pair" },
        card(say({ en: "Query by query", ko: "질의마다" }), queriesOf(found.n), winsPicture(found), differing.length ? profile(differing) : null),
        card(say({ en: "Settings that differ", ko: "서로 다른 설정" }), null, settings(places), ...places.map((place, i) => make("div", { class: "ids" }, mark(i), runId(place))))),
      ITEMS ? "" : card(say({ en: "Losses gained and lost", ko: "생긴 손실과 사라진 손실" }), say({ en: "the number of queries by kind of loss, in the lists that the runs wrote", ko: "기록된 목록에서 무엇이 잘못되었는지에 따른 질의 수" }), lossPicture(rows)),
      card(say({ en: "Queries that decide", ko: "우열을 가른 질의" }), say(ITEMS ? { en: "largest differences first; both values", ko: "차이가 큰 것부터, 두 실행의 값" } :
        { en: "largest differences first; both values, and the loss of each run", ko: "차이가 큰 것부터, 두 실행의 값과 무엇이 잘못되었는지" }),
        APART(places),
        ...(differing.length ? deciding(differing) : [make("p", { class: "soft" }, say({ en: "No query differs.", ko: "값이 다른 질의가 없습니다." }))])));
  }
  tab("pair", { en: "Two runs", ko: "두 실행" }, (root) => {
    root.append(make("p", { class: "soft" }, say({ en: "Reading the queries …", ko: "질의를 읽는 중 …" })));
    show(root);
    selection.onchange(() => show(root));
  }, [["s", { en: "swap the two runs", ko: "두 실행 바꾸기" }, () => choosePair(pair()[1], pair()[0])]]);
}
