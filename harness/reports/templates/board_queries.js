// Tab *Queries*: a matrix of queries and runs, the ceilings of a choice among runs, and each query in several runs.
{
  const state = { by: ITEMS ? "value" : "loss", sort: "spread", needs: "", turns: "", kind: null, solved: "", attribute: "", value: "", words: [], run: 0, whole: false, wide: false,
    limit: 25, open: null };
  const PART = 25;
  const R = DATA.runs.length, SOLVED = 1 - 1e-6;
  const NOTICES = {
    unread: (count, why) => ({ en: `Texts and relevant documents of ${runsOf(count)} are not shown: ${why}`,
      ko: `${runsOf(count)}의 본문과 관련 문서를 보일 수 없습니다: ${why}` }),
    unmarked: (count, why) => ({ en: `Relevant documents of ${runsOf(count)} are not marked: ${why}`,
      ko: `${runsOf(count)}의 관련 문서를 표시할 수 없습니다: ${why}` }),
    gone: (count, why) => ({ en: `The lists of ${runsOf(count)} are gone: ${why}`, ko: `${runsOf(count)}의 목록이 남아 있지 않습니다: ${why}` }),
    best: (count) => ({ en: `Scores, signals of gates and documents before the gate are shown only for the ${count} best runs.`,
      ko: `점수, 게이트 신호, 게이트 앞의 문서는 상위 ${count}개 실행만 보입니다.` }),
    items: (count) => ({ en: `Texts are shown for the ${grouped(count)} items that differ most.`, ko: `가장 크게 다른 항목 ${grouped(count)}개의 본문만 보입니다.` }),
    cut: (count) => ({ en: `Texts of ${grouped(count)} documents are left out, to keep this file small.`,
      ko: `파일을 작게 하려고 문서 ${grouped(count)}개의 본문은 뺐습니다.` }),
  };

  // ---- Numbers of each query over all runs
  function summed({ values, ids }) {
    const Q = ids.length, mean = new Float64Array(Q), spread = new Float64Array(Q), best = new Float64Array(Q).fill(NaN);
    const solvers = new Int32Array(Q), count = new Int32Array(Q), squares = new Float64Array(Q);
    for (let r = 0, at = 0; r < R; r += 1) for (let q = 0; q < Q; q += 1, at += 1) {
      const value = values[at];
      if (value !== value) continue;
      count[q] += 1;
      mean[q] += value;
      squares[q] += value * value;
      if (!(best[q] >= value)) best[q] = value;
      if (value >= SOLVED) solvers[q] += 1;
    }
    for (let q = 0; q < Q; q += 1) {
      mean[q] = count[q] ? mean[q] / count[q] : NaN;
      spread[q] = count[q] ? Math.round(1e6 * (squares[q] / count[q] - mean[q] ** 2)) : -1; // rounded, so that equal values stay in order
    }
    return { mean, spread, best, solvers, count };
  }
  const judged = (data, q) => DATA.head.select_on !== "public" || data.public[q];
  // Means over the n queries that decide the order. mine: of a run. most: of the best run on each query. pair: of the
  // better of this run and another run on each query, for the best other run.
  function ceilings(data, sums, run) {
    const Q = data.ids.length, own = data.values.subarray(run * Q, (run + 1) * Q);
    let [mine, most, n] = [0, 0, 0];
    const counted = [];
    for (let q = 0; q < Q; q += 1) if (judged(data, q) && own[q] === own[q]) {
      counted.push(q);
      mine += own[q];
      most += sums.best[q];
      n += 1;
    }
    let pair = { mean: -1, run: null };
    for (let r = 0; r < R; r += 1) {
      if (r === run) continue;
      let sum = 0;
      for (const q of counted) { const value = data.values[r * Q + q]; sum += value > own[q] ? value : own[q]; }
      if (sum / n > pair.mean) pair = { mean: sum / n, run: r };
    }
    return n ? { mine: mine / n, most: most / n, pair, n } : null;
  }

  // "others": solved by some run, not by the chosen one; "none": solved by no run; null otherwise.
  function bucket(data, sums, q) {
    if (!judged(data, q) || !sums.count[q]) return null;
    if (!sums.solvers[q]) return "none";
    return data.values[state.run * data.ids.length + q] < SOLVED ? "others" : null;
  }

  // ---- The listed queries, in order
  function chosen(data, sums, texts, attribute) {
    const Q = data.ids.length, kind = state.kind;
    const wants = [
      state.needs && ((q) => data.needs[q] === Number(state.needs === "yes")),
      state.turns && ((q) => data.multi_turn[q] === Number(state.turns === "several")),
      kind !== null && ((q) => data.losses[state.run * Q + q] === kind),
      attribute && state.value && ((q) => attribute.at[q] === Number(state.value)),
      state.solved && ((q) => bucket(data, sums, q) === state.solved),
      state.words.length && ((q) => state.words.every((word) => texts[q].includes(word))),
    ].filter(Boolean);
    const found = [];
    for (let q = 0; q < Q; q += 1) if (wants.every((one) => one(q))) found.push(q);
    if (state.sort === "spread") found.sort((a, b) => sums.spread[b] - sums.spread[a] || a - b);
    if (state.sort === "mean") found.sort((a, b) => (sums.mean[a] || 0) - (sums.mean[b] || 0) || a - b);
    return found;
  }

  const option = (value, words, now) => make("option", { value, selected: value === now ? "" : null }, say(words));
  const choice = (label, now, options, set) => make("label", { class: "choice" }, make("span", { class: "soft" }, say(label)),
    make("select", { onchange: (event) => set(event.target.value) }, ...options.map(([value, words]) => option(value, words, now))));
  const press = (on, words, act) => make("button", { class: "chip", "aria-pressed": on, onclick: act }, ...[words].flat());

  async function fill(root) {
    const [data, texts, known] = [await matrix(), await titles(), await attributes()], sums = summed(data), Q = data.ids.length;
    const searched = data.ids.map((id, q) => searchable(`${id} ${texts[q] ?? ""}`));
    const said = (q, run) => {
      const value = data.values[run * Q + q], loss = LOSS[LOSSES[data.losses[run * Q + q]]];
      return `${data.ids[q]} · ${shortName(run)}: ${Number.isNaN(value) ? "–" : number(value)}${ITEMS ? "" : `, ${say(loss.words)}`}`;
    };
    const cells = cellMatrix(data, texts, said, (q, run) => open(q, run));
    const panel = make("div"), lines = make("ol", { class: "lines" }), found = make("span", { class: "soft", role: "status" });
    const sliced = () => known.find((one) => one.name === state.attribute), means = make("div");
    const tools = make("div", { class: "tools" }), chips = make("div", { class: "tools" }), keys = make("div", { class: "keys" });
    const ceiling = make("section", { class: "ceiling" }), more = make("button", { class: "plain more", onclick: () => {
      state.limit += 4 * PART;
      list();
    } }, say({ en: "Show more", ko: "더 보기" }));
    let order = [];
    grid(cells.grid);

    function grid(element) {
      element.setAttribute("aria-label", say({ en: "Queries by runs: arrow keys move, Enter opens a query",
        ko: "질의와 실행: 화살표로 움직이고 Enter로 질의를 엽니다" }));
    }
    function again() {
      order = chosen(data, sums, searched, sliced());
      state.limit = PART;
      cells.show(order, { by: state.by, whole: state.whole, wide: state.wide });
      found.textContent = say({ en: `${grouped(order.length)} of ${queriesOf(Q)}`, ko: `${queriesOf(Q)} 가운데 ${grouped(order.length)}개` });
      drawTools();
      drawMeans();
      list();
    }
    const set = (name) => (value) => { state[name] = value; again(); };
    const field = make("input", { type: "search", placeholder: say({ en: "Words of the query, or its id", ko: "질의의 낱말이나 id" }),
      "aria-label": say({ en: "Search queries", ko: "질의 찾기" }),
      oninput: () => { state.words = searchable(field.value).split(/\s+/).filter(Boolean); again(); } });
    field.value = state.words.join(" ");

    function drawTools() {
      const focused = tools.contains(document.activeElement) || chips.contains(document.activeElement) ?
        [...tools.querySelectorAll("select, button"), ...chips.querySelectorAll("select, button")].indexOf(document.activeElement) : -1;
      tools.replaceChildren(
        choice({ en: "sorted by", ko: "정렬" }, state.sort, [["spread", { en: "disagreement between runs", ko: "실행 사이의 차이" }],
          ["mean", { en: "mean over runs, lowest first", ko: "실행 평균, 낮은 것부터" }], ["id", { en: "id", ko: "id" }]], set("sort")),
        ...(ITEMS ? [] : [choice({ en: "retrieval", ko: "검색" }, state.needs, [["", { en: "all", ko: "모두" }], ["yes", { en: "needed", ko: "필요" }],
          ["no", { en: "not needed", ko: "불필요" }]], set("needs")),
        choice({ en: "turns", ko: "턴" }, state.turns, [["", { en: "all", ko: "모두" }], ["one", { en: "one", ko: "하나" }],
          ["several", { en: "several", ko: "여럿" }]], set("turns")),
        ...drawAttribute(),
        press(state.by === "value", say({ en: "colour by value", ko: "값으로 색칠" }), () => set("by")(state.by === "loss" ? "value" : "loss"))]),
        press(state.whole, say({ en: "all rows at once", ko: "모든 행 한눈에" }), () => set("whole")(!state.whole)),
        R > 12 ? press(state.wide, say({ en: "wide columns", ko: "넓은 열" }), () => set("wide")(!state.wide)) : "");
      if (!ITEMS) drawLosses();
      keys.replaceChildren(...(state.by === "value" ? [make("span", {}, "0", make("span", { class: "scale-of-values" }), "1")] :
        LOSSES.filter((_, i) => data.table.some(([, kind]) => kind === i)).map((kind) =>
          make("span", {}, dot(LOSS[kind].colour), say(LOSS[kind].words)))),
        make("span", {}, say({ en: "a row for each query, a column for each run, the best run first",
          ko: "행은 질의, 열은 실행(가장 좋은 실행부터)" })), ITEMS ? "" : APART([...DATA.runs.keys()]));
      if (focused >= 0) [...tools.querySelectorAll("select, button"), ...chips.querySelectorAll("select, button")][focused]?.focus();
    }
    function drawAttribute() {
      const one = sliced(), all = ["", { en: "all", ko: "모두" }];
      if (!known.length) return [];
      const names = choice({ en: "attribute", ko: "속성" }, state.attribute, [["", { en: "none", ko: "없음" }], ...known.map(({ name }) => [name, name])],
        (name) => { state.value = ""; set("attribute")(name); });
      return one ? [names, choice(one.name, state.value, [all, ...one.values.map((value, i) => [String(i), value])], set("value"))] : [names];
    }
    // The mean of each selected run for each value of the chosen attribute
    function drawMeans() {
      const one = sliced(), Q = data.ids.length, runs = [...selection];
      if (!one) { means.replaceChildren(); return; }
      const row = (value, i) => {
        const mine = data.ids.map((_, q) => q).filter((q) => one.at[q] === i && judged(data, q));
        const mean = (run) => {
          const values = mine.map((q) => data.values[run * Q + q]).filter((found) => found === found);
          return values.length ? number(values.reduce((a, b) => a + b, 0) / values.length) : "–";
        };
        return make("tr", {}, make("td", {}, value), make("td", { class: "figure" }, grouped(mine.length)),
          ...runs.map((run) => make("td", { class: "figure" }, mean(run))));
      };
      means.replaceChildren(make("div", { class: "wide" }, make("table", { class: "plain-table" },
        make("thead", {}, make("tr", {}, make("th", { scope: "col" }, one.name), make("th", { scope: "col" }, say({ en: "queries", ko: "질의" })),
          ...runs.map((run) => make("th", { scope: "col" }, shortName(run))))), make("tbody", {}, ...one.values.map(row)))),
      make("p", { class: "soft" }, say({ en: `Mean ${DATA.head.metric} of the selected runs, not tested. harness compare with slices=[${one.name}] tests the differences.`,
        ko: `선택한 실행의 ${DATA.head.metric} 평균. 검정하지 않은 값입니다. 차이는 harness compare에 slices=[${one.name}]을 주면 검정합니다.` })));
    }
    function drawLosses() {
      const counts = new Int32Array(LOSSES.length);
      for (let q = 0; q < Q; q += 1) counts[data.losses[state.run * Q + q]] += 1;
      chips.replaceChildren(
        make("label", { class: "choice" }, make("span", { class: "soft" }, say({ en: "where", ko: "다음 실행에서" })),
          runChoice(say({ en: "The run whose losses are counted", ko: "손실을 셀 실행" }), state.run, (place) => { state.run = place; drawCeiling(); again(); })),
        make("span", { class: "soft" }, say({ en: "has", ko: "" })),
        ...LOSSES.map((_, i) => i).filter((i) => counts[i] || state.kind === i).map((i) => press(state.kind === i, [
          dot(LOSS[LOSSES[i]].colour), say(LOSS[LOSSES[i]].words), make("span", { class: "soft number" }, grouped(counts[i]))],
        () => set("kind")(state.kind === i ? null : i))));
    }

    // The queries of the matrix, in words
    function list() {
      lines.replaceChildren(...order.slice(0, state.limit).map((q) => make("li", {}, make("button", { class: "line", onclick: () => open(q, null) },
        make("span", { class: "id" }, data.ids[q]), make("span", { class: "what" }, texts[q] ?? ""),
        sliced() ? make("span", { class: "pill" }, sliced().values[sliced().at[q]]) : null,
        make("span", { class: "soft number" }, say({
          en: `mean ${number(sums.mean[q], 2)}, solved by ${grouped(sums.solvers[q])} of ${runsOf(sums.count[q])}`,
          ko: `평균 ${number(sums.mean[q], 2)}, 실행 ${grouped(sums.count[q])}개 중 ${grouped(sums.solvers[q])}개가 맞힘` })),
        ...selection.map((run) => make("span", { class: "pill", title: shortName(run) }, slot(run),
          ITEMS ? number(data.values[run * Q + q], 2) : dot(LOSS[LOSSES[data.losses[run * Q + q]]].colour)))))));
      more.hidden = order.length <= state.limit;
    }

    function drawCeiling() {
      const one = ceilings(data, sums, state.run), buckets = data.ids.map((_, q) => bucket(data, sums, q));
      const [others, none] = ["others", "none"].map((name) => buckets.filter((found) => found === name).length);
      const button = (name, count, words, why) => make("button", { class: "bucket", "aria-pressed": state.solved === name, onclick: () => {
        set("solved")(state.solved === name ? "" : name);
        drawCeiling();
        ceiling.querySelector(`[data-name=${name}]`).focus();
      }, "data-name": name }, make("b", { class: "number" }, grouped(count)), make("span", {}, say(words)), make("span", { class: "soft" }, say(why)));
      const name = shortName(state.run), fact = (value, words) => make("div", { class: "fact" }, make("b", { class: "number" }, value),
        make("span", { class: "soft" }, say(words)));
      ceiling.replaceChildren(
        make("h2", {}, say({ en: "Scores that the runs could reach together", ko: "실행들을 결합하면 점수가 어디까지 오를 수 있는가" })),
        make("div", { class: "facts-row" }, ...(one ? [
          fact(number(one.mine), { en: name, ko: name }),
          one.pair.run === null ? null : fact(number(one.pair.mean), { en: `with the better of this run and ${shortName(one.pair.run)} on each query`,
            ko: `질의마다 이 실행 또는 ${shortName(one.pair.run)} 가운데 나은 쪽을 고르면` }),
          fact(number(one.most), { en: `with the best of ${runsOf(R)} on each query`, ko: `질의마다 ${runsOf(R)} 중 가장 나은 것을 고르면` })] : [])),
        make("div", { class: "facts-row" },
          button("others", others, { en: "solved by some run, not by this one", ko: "이 실행은 못 맞히고 다른 실행은 맞힌 질의" },
            { en: "a fusion or a choice among the runs could gain these", ko: "결합하거나 골라 쓰면 얻을 수 있는 몫" }),
          button("none", none, { en: "solved by none", ko: "아무 실행도 맞히지 못한 질의" },
            { en: "these need something new", ko: "새로운 방법이 있어야 하는 몫" })),
        make("p", { class: "soft" }, `${DATA.head.metric}, `, say({ en: `mean of ${queriesOf(one?.n ?? 0)}. Solved means a value of 1. ` +
          "The choice among the runs knows the labels, so this is a ceiling, not a promise.", ko: `${queriesOf(one?.n ?? 0)}의 평균. 맞힘: 값이 1인 것. ` +
          "라벨을 알고 고른 것이므로 약속이 아니라 상한입니다." })));
    }

    // ---- A query that is open
    let asked = 0;
    async function drawPanel(focus) {
      const mine = asked += 1;
      if (state.open === null) { panel.replaceChildren(); return; }
      const at = order.indexOf(state.open), step = (by) => make("button", { class: "plain", disabled: order[at + by] === undefined ? "" : null,
        onclick: () => open(order[at + by], null) }, say(by < 0 ? { en: "← previous", ko: "← 이전" } : { en: "next →", ko: "다음 →" }));
      const shown = await (ITEMS ? itemPanel : queryPanel)(state.open, data, [step(-1), step(1), runPicker(),
        make("button", { class: "plain", onclick: close }, say({ en: "Close", ko: "닫기" }))]);
      if (mine !== asked) return;
      panel.replaceChildren(shown);
      if (focus) { shown.focus({ preventScroll: true }); shown.scrollIntoView({ block: "start" }); }
    }
    const runPicker = () => selection.length < MOST && R > selection.length ? make("select", { "aria-label": say({ en: "Add a run", ko: "실행 더하기" }),
      onchange: (event) => { if (event.target.value) selection.toggle(Number(event.target.value)); } },
      make("option", { value: "" }, say({ en: "add a run …", ko: "실행 더하기 …" })),
      ...DATA.runs.map((run, i) => selection.includes(i) ? null : make("option", { value: i }, run.short))) : "";
    function open(q, run) {
      if (q === undefined) return;
      state.open = q;
      if (run !== null && !selection.includes(run)) {
        changing = true;
        selection.set([...selection.slice(0, Math.max(selection.length - 1, 1)), run]);
        changing = false;
      }
      address(data.ids[q]);
      list();
      drawPanel(true);
    }
    function close() {
      const q = state.open;
      state.open = null;
      address("");
      drawPanel(false);
      cells.focus(q);
      cells.element.scrollIntoView({ block: "nearest" });
    }
    let changing = false;
    selection.onchange(() => { drawMeans(); if (!changing) { list(); drawPanel(false); } });
    moves = { open: (id) => { const q = data.ids.indexOf(id); if (q >= 0 && q !== state.open) open(q, null); }, close: () => state.open !== null && close(),
      next: (by) => { const at = order.indexOf(state.open); open(order[state.open === null ? 0 : at + by], null); } };

    const notices = PACKED.notices.map(([kind, count, why]) => make("div", {}, say(NOTICES[kind](count, why))));
    root.append(ITEMS ? "" : ceiling, panel, make("section", {}, make("h2", {}, say({ en: "Queries", ko: "질의" }), " ", make("small", {}, found)),
      make("div", { class: "tools" }, field), tools, chips, means, keys, cells.element,
      make("details", { class: "in-words" }, make("summary", {}, say({ en: "The same queries as a list", ko: "같은 질의를 목록으로" })), lines, more)),
      make("div", { class: "soft foot-notes" }, ...notices));
    if (!ITEMS) drawCeiling();
    again();
    if (state.open !== null) drawPanel(false);
  }

  let moves = null, waiting = null;
  tab("queries", { en: "Queries", ko: "질의" }, (root) => {
    moves = null;
    fill(root).then(() => { if (waiting) moves.open(waiting); waiting = null; });
    return (id) => { if (moves) moves.open(id); else waiting = id; };
  }, [
    ["j", { en: "next query", ko: "다음 질의" }, () => moves?.next(1)],
    ["k", { en: "previous query", ko: "이전 질의" }, () => moves?.next(-1)],
    ["Escape", { en: "close the query", ko: "질의 닫기" }, () => moves?.close()],
  ]);
}
