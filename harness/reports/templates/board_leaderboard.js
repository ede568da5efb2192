// Tab *Leaderboard*: every run with its interval and its cost, and the runs that are not told apart from the best.
{
  const PART = 100; // rows that are shown at first
  const BOARD = DATA.leaderboard, ROWS = BOARD.rows, PICK = BOARD.recommended;
  const state = { sort: "value", down: true, words: [], same: false, limit: PART };
  const runOf = (row) => DATA.runs[row.run];
  const has = (name) => ROWS.some((row) => (row[name] ?? null) !== null);
  const kinds = new Set(DATA.runs.map((run) => run.kind));
  const isSame = (row) => row.group !== "worse";
  const TELLING = DATA.head.select_on === "public" ? [...DATA.queries.public].filter((one) => one === "1").length : DATA.head.queries;
  const TESTED = ROWS.some((row) => row.group !== null);

  // ---- The scale that all intervals share, in percent of the picture's width
  const ends = DATA.runs.flatMap((run) => [run.low ?? run.value, run.high ?? run.value]).filter((one) => one !== null);
  const [least, most] = [Math.min(...ends), Math.max(...ends)], margin = .04 * (most - least) || .02;
  const at = (value) => 100 * (value - least + margin) / (most - least + 2 * margin);
  const TICKS = ticks(least - margin / 2, most + margin / 2, 4);
  const BEST = Math.max(...DATA.runs.map((run) => run.value ?? -Infinity));

  const COLUMNS = [
    { name: "value", title: () => DATA.head.metric, shown: true, down: true, of: (row) => runOf(row).value, cell: valueCell },
    { name: "ms", title: () => say({ en: "ms per query", ko: "질의당 ms" }), of: (row) => row.ms, cell: timeCell },
    { name: "mb", title: () => say({ en: "index MB", ko: "색인 MB" }), of: (row) => row.mb, cell: (row) => short(row.mb) },
    { name: "p95_ms", title: () => say({ en: "p95 ms under load", ko: "부하 p95 ms" }), of: (row) => row.p95_ms, cell: (row) => short(row.p95_ms) },
    { name: "qps", title: () => say({ en: "queries per second", ko: "초당 질의 수" }), down: true, of: (row) => row.qps, cell: (row) => short(row.qps) },
    { name: "public", title: () => "public", down: true, of: (row) => row.public, cell: (row) => partCell(row.public, row.public_rank) },
    { name: "private", title: () => "private", down: true, of: (row) => row.private, cell: (row) => partCell(row.private, row.private_rank) },
  ].filter((one) => one.shown || has(one.name));

  const WIDE = COLUMNS.length + (ITEMS ? 4 : 5); // cells of a row

  function short(value) {
    if (value === null || value === undefined) return "–";
    return value >= 100 ? grouped(Math.round(value)) : String(Number(value.toPrecision(2)));
  }
  function valueCell(row) {
    const run = runOf(row);
    return [number(run.value), kinds.size > 1 ? make("small", {}, say(KINDS[run.kind])) : null];
  }
  function partCell(value, rank) {
    return value === null ? "–" : [number(value), make("small", {}, say({ en: `rank ${rank}`, ko: `${rank}위` }))];
  }
  function timeCell(row) {
    return [short(row.ms), row.asks_model ? make("small", {}, say({ en: "+ a model's time", ko: "+ 모델 시간" })) : null];
  }
  const interval = ({ low, high }) => low === null ? say({ en: "no interval", ko: "신뢰구간 없음" }) :
    say({ en: `95 % interval ${number(low, 3)} – ${number(high, 3)}`, ko: `95 % 신뢰구간 ${number(low, 3)} – ${number(high, 3)}` });

  function picture(run, same) {
    if (run.value === null) return "–";
    const ink = same ? "var(--curve)" : "var(--soft)", middle = "50%";
    return draw("svg", { class: "interval", role: "img", "aria-label": `${number(run.value)}, ${interval(run)}`,
      ...tip(`${run.short}\n${DATA.head.metric} ${number(run.value)}, ${say(KINDS[run.kind])}\n${interval(run)}`) },
      ...TICKS.map((one) => draw("line", { x1: at(one) + "%", x2: at(one) + "%", y1: 0, y2: "100%", stroke: "var(--line)" })),
      draw("line", { x1: at(BEST) + "%", x2: at(BEST) + "%", y1: 0, y2: "100%", stroke: "var(--curve)", "stroke-dasharray": "3 3" }),
      run.low === null ? null : draw("line", { x1: at(run.low) + "%", x2: at(run.high) + "%", y1: middle, y2: middle, stroke: ink,
        "stroke-width": 3, "stroke-linecap": "round", opacity: .55 }),
      draw("circle", { cx: at(run.value) + "%", cy: middle, r: 4.5, fill: ink, stroke: "var(--card)", "stroke-width": 1.5 }));
  }
  const axis = () => draw("svg", { class: "axis", "aria-hidden": "true" }, ...TICKS.map((one) =>
    draw("text", { x: at(one) + "%", y: 12, "text-anchor": "middle" }, String(one))));

  // ---- The settings of a run that differ from the run above
  function differences(row, above) {
    if (!above) return [];
    if (above.run === row.run - 1) return row.changed.map((one) => [one.key, one.here, one.above]);
    const [mine, other] = [runOf(row).params, runOf(above).params];
    return Object.keys(mine).filter((key) => mine[key] !== other[key]).map((key) => [key, mine[key], other[key]]);
  }
  function changes(row, above) {
    const found = differences(row, above), LISTED = 4;
    const said = found.slice(0, LISTED).map(([key, now, before]) => make("span", { class: "change", ...tip(`${key}: ${now ?? "–"}\n${
      say({ en: "above", ko: "위 실행" })}: ${before ?? "–"}`) }, make("span", { class: "soft" }, key + " "), now ?? "–"));
    return make("div", { class: "changes" }, ...said, found.length > LISTED ? make("span", { class: "soft" }, `+${found.length - LISTED}`) : null);
  }

  // The number of queries with each kind of loss
  function lost(run) {
    const words = ([name, count]) => `${say(LOSS[name].words)}: ${grouped(count)}`, counts = Object.entries(run.losses);
    const right = DATA.head.queries - counts.reduce((sum, [, count]) => sum + count, 0), all = [...counts, ["", right]];
    return make("div", { class: "stack", role: "img", "aria-label": all.map(words).join(", "), ...tip(all.map(words).join("\n")) },
      ...all.map(([name, count]) => make("span", { style: { flex: `${count} 0 0`, background: name ? LOSS[name].colour : "var(--line)", display: count ? "" : "none" } })));
  }
  function legend() {
    const kinds = Object.keys(LOSS).filter((name) => name && DATA.runs.some((run) => run.losses[name]));
    return make("div", { class: "keys" }, ...kinds.map((name) => make("span", {}, dot(LOSS[name].colour), say(LOSS[name].words))));
  }

  function line(row, above) {
    const run = runOf(row), chosen = selection.includes(row.run);
    const box = make("input", { type: "checkbox", "aria-label": say({ en: `Select ${run.short}`, ko: `${run.short} 선택` }),
      onclick: (event) => event.stopPropagation(), onchange: () => { selection.toggle(row.run); box.checked = selection.includes(row.run); } });
    box.checked = chosen;
    const name = make("button", { class: "name", "aria-expanded": "false", onclick: () => open(row, shown, name) },
      run.short, row.run === PICK?.run ? make("span", { class: "badge" }, say({ en: "recommended", ko: "추천" })) : null);
    const shown = make("tr", { class: `run ${isSame(row) ? "same" : ""} ${chosen ? "is-chosen" : ""}`, "data-run": row.run },
      make("td", { class: "box" }, box), make("td", { class: "place number" }, String(row.run + 1)),
      make("th", { scope: "row" }, name, run.also ? make("small", { class: "also" }, run.also) : null, changes(row, above)), make("td", { class: "picture" }, picture(run, isSame(row))), ITEMS ? null : make("td", { class: "lost" }, lost(run)),
      ...COLUMNS.map((one) => make("td", { class: "number " + one.name, "data-head": one.title() }, ...[one.cell(row)].flat())));
    return shown;
  }
  function open(row, shown, name) {
    const next = shown.nextSibling, there = next?.dataset.of;
    if (there) next.remove(); else shown.after(make("tr", { "data-of": row.run }, make("td", { colspan: WIDE }, detail(row))));
    name.setAttribute("aria-expanded", !there);
  }
  function detail(row) {
    const run = runOf(row);
    const told = row.run === 0 ? say({ en: "the best on the board", ko: "보드에서 가장 좋은 실행" }) : row.p_holm === null ? null :
      say({ en: `against the best: p = ${number(row.p_holm, 4)} (Holm, ${DATA.leaderboard.pairs} pairs), ${number(row.p, 4)} for this pair alone`,
        ko: `가장 좋은 실행과 비교: p = ${number(row.p_holm, 4)}(Holm, ${DATA.leaderboard.pairs}쌍), 이 쌍만 보면 ${number(row.p, 4)}` });
    return make("div", { class: "opened" },
      make("div", { class: "soft" }, [`${DATA.head.metric} ${number(run.value)}, ${say(KINDS[run.kind])}`, interval(run), told].filter(Boolean).join(" · ")),
      make("dl", { class: "params" }, ...Object.entries(run.params).flatMap(([key, value]) => [make("dt", {}, key), make("dd", {}, value ?? "–")])),
      runId(row.run),
      make("div", { class: "tools" }, row.run === 0 ? null : make("button", { class: "plain", onclick: () => {
        selection.set([row.run, 0]);
        go("pair");
      } }, say({ en: "compare with the best", ko: "가장 좋은 실행과 비교" }))));
  }

  // ---- The list
  const banded = () => TESTED && state.sort === "value" && state.down;
  function listed() {
    const { of } = COLUMNS.find((one) => one.name === state.sort) ?? { of: (row) => runOf(row).short };
    const wanted = ROWS.filter((row) => (!state.same || isSame(row)) && state.words.every((word) => text(row).includes(word)));
    return wanted.sort((a, b) => {
      if (banded() && isSame(a) !== isSame(b)) return isSame(a) ? -1 : 1;
      return ordered(of(a), of(b), state.down) || a.run - b.run;
    });
  }
  const texts = new Map();
  function text(row) {
    if (!texts.has(row)) {
      const run = runOf(row);
      texts.set(row, searchable([run.short, run.name, run.also, run.id, ...Object.entries(run.params).map(([key, value]) => `${key}=${value}`)].join("\n")));
    }
    return texts.get(row);
  }
  // The heading of a group of rows that are sorted by the measure
  function heading(group, count) {
    const others = count - 1;
    const words = group ? { en: ["Not told apart from the best", others ? `${queriesOf(TELLING)} cannot tell the best run from ${
      others === 1 ? "this other run" : `these ${grouped(others)} others`} (paired randomisation tests, Holm-corrected, 5 %).` :
      "Every other run is told apart from the best (paired randomisation tests, Holm-corrected, 5 %)."],
    ko: ["가장 좋은 실행과 구별되지 않음", others ? `${queriesOf(TELLING)}로는 가장 좋은 실행과 다른 ${grouped(others)}개의 우열을 가릴 수 없습니다(짝지은 무작위화 검정, Holm 보정, 5 %).` :
      "다른 모든 실행은 가장 좋은 실행과 구별됩니다(짝지은 무작위화 검정, Holm 보정, 5 %)."] } :
      { en: ["Worse than the best", runsOf(count)], ko: ["가장 좋은 실행보다 뒤처짐", runsOf(count)] };
    const [title, sentence] = say(words);
    return make("tr", { class: `group ${group ? "same" : ""}` }, make("td", { colspan: WIDE }, make("b", {}, title), " ", make("span", { class: "soft" }, sentence)));
  }

  function table(root) {
    const body = make("tbody"), head = make("tr"), found = make("span", { class: "soft", role: "status" });
    const more = make("button", { class: "plain more", onclick: () => { state.limit += 10 * PART; list(); } },
      say({ en: "Show more", ko: "더 보기" }));
    const sorter = (name, title, down) => make("th", { scope: "col", class: name === "name" ? name : "number-head", "aria-sort": state.sort === name ? (state.down ? "descending" : "ascending") : null },
      make("button", { class: state.sort === name ? "on" : null, onclick: () => {
        state.down = state.sort === name ? !state.down : Boolean(down);
        state.sort = name;
        list();
        head.querySelector("button.on").focus();
      } }, title, make("span", { "aria-hidden": "true" }, state.sort === name ? (state.down ? " ↓" : " ↑") : "")));
    function list() {
      const mine = listed();
      head.replaceChildren(make("th", { class: "box" }, make("span", { class: "spoken" }, say({ en: "Select", ko: "선택" }))),
        make("th", { class: "place" }, "#"), sorter("name", say({ en: "Run, and differences from the run above", ko: "실행, 그리고 위 실행과 다른 설정" })),
        make("th", { class: "picture" }, make("span", { class: "spoken" }, say({ en: "95 % interval", ko: "95 % 신뢰구간" })), axis()),
        ...(ITEMS ? [] : [make("th", { class: "lost" }, say({ en: "what goes wrong", ko: "점수를 잃은 이유" }))]), ...COLUMNS.map((one) => sorter(one.name, one.title(), one.down)));
      const rows = [];
      mine.slice(0, state.limit).forEach((row, i) => {
        if (banded() && (!i || isSame(row) !== isSame(mine[i - 1]))) rows.push(heading(isSame(row), ROWS.filter((one) => isSame(one) === isSame(row)).length));
        rows.push(line(row, mine[i - 1]));
      });
      body.replaceChildren(...rows);
      found.textContent = mine.length === ROWS.length ? "" : say({ en: `${grouped(mine.length)} of ${runsOf(ROWS.length)}`, ko: `${runsOf(ROWS.length)} 중 ${grouped(mine.length)}개` });
      more.hidden = mine.length <= state.limit;
    }
    const again = () => { state.limit = PART; list(); };
    const filter = make("input", { type: "search", id: "filter", placeholder: say({ en: "Filter by names and settings, such as gate=auto", ko: "이름과 설정으로 거르기(예: gate=auto)" }),
      "aria-label": say({ en: "Filter runs", ko: "실행 거르기" }), value: state.words.join(" "),
      oninput: () => { state.words = searchable(filter.value).split(/\s+/).filter(Boolean); again(); } });
    const same = make("button", { class: "chip", "aria-pressed": state.same, onclick: () => {
      state.same = !state.same;
      same.setAttribute("aria-pressed", state.same);
      again();
    } }, say({ en: "not told apart from the best", ko: "가장 좋은 실행과 구별되지 않음" }), make("span", { class: "soft number" }, grouped(ROWS.filter(isSame).length)));
    root.append(make("section", {}, make("h2", {}, say({ en: "All runs", ko: "모든 실행" }), " ", make("small", {},
      say({ en: "dots are values, lines are 95 % intervals, and the dashed line is the best value", ko: "점은 값, 선은 95 % 신뢰구간, 점선은 가장 좋은 값" }))),
      make("div", { class: "tools" }, filter, TESTED ? same : null, found),
      legend(), ITEMS ? "" : APART([...DATA.runs.keys()]), make("table", { class: "board" }, make("thead", {}, head), body), more));
    body.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step || !event.target.closest("tr.run")) return;
      const rows = [...body.querySelectorAll("tr.run")], next = rows[rows.indexOf(event.target.closest("tr.run")) + step];
      event.preventDefault();
      next?.querySelector(event.target.matches("input") ? "input" : "button.name").focus();
    });
    selection.onchange(() => {
      for (const row of body.querySelectorAll("tr.run")) {
        const chosen = selection.includes(Number(row.dataset.run));
        row.classList.toggle("is-chosen", chosen);
        row.querySelector("input").checked = chosen;
      }
    });
    list();
  }

  // ---- The recommended run
  function pick(root) {
    const run = DATA.runs[PICK.run], row = ROWS.find((one) => one.run === PICK.run);
    const fact = (title, words) => make("div", { class: "fact" }, make("span", { class: "soft" }, title), make("b", { class: "number" }, ...[words].flat()));
    root.append(make("section", { class: "pick" },
      make("div", {}, make("div", { class: "soft" }, say({ en: "Recommended", ko: "추천하는 실행" })), make("h2", {}, run.short),
        make("p", {}, say(PICK.reason)), runId(PICK.run), make("ul", { class: "known" }, ...[...BOARD.facts, ...BOARD.notes].map((one) => make("li", {}, say(one))))),
      make("div", { class: "figures" }, fact(`${DATA.head.metric}, ${say(KINDS[run.kind])}`, number(run.value)),
        ...COLUMNS.slice(1).filter((one) => (one.of(row) ?? null) !== null).map((one) => fact(one.title(), [one.cell(row)].flat())),
        make("div", { class: "wide-picture" }, axis(), picture(run, true), make("div", { class: "soft number" }, interval(run))))));
  }

  tab("leaderboard", { en: "Leaderboard", ko: "순위표" }, (root) => {
    if (PICK) pick(root);
    table(root);
  }, [
    ["/", { en: "filter runs", ko: "실행 거르기" }, () => $("filter").focus()],
    ["↑ ↓", { en: "the run above or below", ko: "위아래 실행으로" }],
    ["Space", { en: "select the run, up to four", ko: "실행 선택(네 개까지)" }],
    ["Enter", { en: "on its name: the settings of the run", ko: "이름에서: 실행의 설정 보기" }],
  ]);
}
