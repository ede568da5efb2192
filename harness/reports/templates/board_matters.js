// Tab *What matters*: how much each key that differs between runs moves the score, and how far a number can move.
if (DATA.matters) {
  const M = DATA.matters, ALL = M.groups.flatMap((group) => group.keys);
  const VALUES = DATA.runs.map((run) => run.value);
  const percent = (value) => (100 * value).toFixed(value < .0995 && value > 0 ? 1 : 0) + " %";
  const range = (share) => `${percent(share.low)} – ${percent(share.high)}`;
  const rounded = (text) => (text !== "" && Number.isFinite(Number(text)) ? String(Number(Number(text).toPrecision(4))) : text);
  const list = (words) => words.join(", ");
  const WHY = {
    only: { en: "no other key varies in these runs, so this key explains all of the variance", ko: "이 실행들에서는 이 키만 달라지므로 분산 전체가 이 키의 몫입니다" },
    runs: { en: "there are too few runs for so many keys", ko: "키의 수에 비해 실행이 너무 적습니다" },
    queries: { en: "too few queries have a value in every run", ko: "모든 실행에서 값이 있는 질의가 너무 적습니다" },
    mixed: { en: "these runs cannot tell the effect from the effects of other keys", ko: "이 실행들로는 다른 키의 효과와 구별할 수 없습니다" },
    same: { en: "all scores are the same", ko: "모든 점수가 같습니다" },
  };

  // ---- Importance
  function importance(group) {
    const keys = group.keys.filter((key) => key.alone);
    const title = group.runs < M.runs ? say({ en: `Importance among the ${runsOf(group.runs)} that have ${list(group.keys.map((key) => key.name))}`,
      ko: `${list(group.keys.map((key) => key.name))} 키가 있는 ${runsOf(group.runs)}에서의 중요도` }) : say({ en: "Importance", ko: "중요도" });
    const heads = { alone: say({ en: "share, 95 % interval", ko: "비율, 95 % 신뢰구간" }), total: say({ en: "with pairs", ko: "쌍 포함" }) };
    const table = keys.length ? make("table", { class: "matters" }, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, say({ en: "key", ko: "키" })),
      make("th", { scope: "col" }, say({ en: "share of the variance, 0 to 100 %", ko: "분산에서 차지하는 비율, 0 ~ 100 %" })), make("th", { scope: "col", class: "figure" }, heads.alone),
      group.paired ? make("th", { scope: "col", class: "more-figure" }, heads.total) : null)), make("tbody", {}, ...keys.map((key) => row(key, group, heads)))) : null;
    return card(title, null, keys.length ? lede(group) : null, table, points(group));
  }
  function lede(group) {
    const over = queriesOf(M.queries), spread = number(group.spread, 3);
    if (!group.beyond_chance) return make("p", { class: "lede" }, say({ en: `The scores of these runs differ no more than by chance over ${over}: it is unknown which key matters.`,
      ko: `${over}로 보면 이 실행들의 점수 차이는 우연과 구별되지 않습니다. 어떤 키가 중요한지 알 수 없습니다.` }));
    return make("p", { class: "lede" }, say({ en: `How much of the variance of ${M.metric} each key explains, over all tried values. Scores spread by ${spread} (standard deviation). The interval shows the shares to expect on other queries like these ${over}.`,
      ko: `시도한 값 전체에서 ${M.metric} 분산을 각 키가 얼마나 설명하는지 보여 줍니다. 점수의 표준편차는 ${spread}입니다. 신뢰구간은 이 ${over}와 비슷한 다른 질의에서 비율이 어디까지 달라질 수 있는지를 뜻합니다.` }));
  }
  function row(key, group, heads) {
    const { alone, total } = key, words = say({ en: `${key.name}: ${percent(alone.value)} of the variance, 95 % interval ${range(alone)}`, ko: `${key.name}: 분산의 ${percent(alone.value)}, 95 % 신뢰구간 ${range(alone)}` });
    const picture = draw("svg", { role: "img", "aria-label": words, ...tip(words) }, draw("line", { x1: 0, x2: "100%", y1: "50%", y2: "50%", stroke: "var(--line)" }),
      draw("rect", { x: 0, width: 100 * alone.value + "%", y: "22%", height: "56%", rx: 3, fill: "var(--curve)", opacity: .45 }),
      draw("line", { x1: 100 * alone.low + "%", x2: 100 * alone.high + "%", y1: "50%", y2: "50%", stroke: "var(--text)", "stroke-width": 2 }),
      ...[alone.low, alone.high].map((end) => draw("line", { x1: 100 * end + "%", x2: 100 * end + "%", y1: "28%", y2: "72%", stroke: "var(--text)", "stroke-width": 2 })));
    return make("tr", {}, make("th", { scope: "row" }, ...breakable(key.name), also(key)), make("td", {}, picture),
      make("td", { class: "figure number", "data-head": heads.alone }, make("b", {}, percent(alone.value)), " ", make("span", { class: "soft" }, range(alone))),
      group.paired ? make("td", { class: "more-figure number", "data-head": heads.total }, percent(total.value)) : null);
  }
  const also = (key) => key.also.length ? make("span", { class: "also" }, say({ en: `always changed together with ${list(key.also)}: the effects cannot be separated`, ko: `${list(key.also)} 키와 늘 함께 바뀌어 효과를 가를 수 없음` })) : null;
  // Limits of the numbers
  function points(group) {
    const said = [], known = group.keys.some((key) => key.alone);
    for (const pair of group.pairs) said.push({ en: `${pair.first} and ${pair.second} together explain ${percent(pair.share.value)} (${range(pair.share)}) more than the two keys separately: choose them together.`,
      ko: `${pair.first}, ${pair.second} 두 키의 상호작용이 각각의 몫 밖에서 ${percent(pair.share.value)}(${range(pair.share)})를 설명합니다. 함께 고르세요.` });
    if (known && !group.whole) said.push({ en: `Not every combination of values was tried: a least-squares model of ${group.paired ? "keys and pairs of keys" : "single keys"} fills in the missing ones. It cannot know what untried combinations would do.`,
      ko: `모든 값의 조합을 시도하지는 않았습니다. 나머지는 ${group.paired ? "키와 키의 쌍" : "각 키"}의 최소제곱 모형으로 대신하며, 시도하지 않은 조합에서 무엇이 달라질지는 알지 못합니다.` });
    if (known && group.rest.value >= .05) said.push({ en: `${percent(group.rest.value)} of the variance is explained by no key and no pair of keys.`, ko: `분산의 ${percent(group.rest.value)}는 어느 것으로도 설명되지 않습니다.` });
    for (const reason of new Set(group.keys.map((key) => key.reason).filter(Boolean))) {
      const names = list(group.keys.filter((key) => key.reason === reason).map((key) => key.name));
      said.push({ en: `No share for ${names}: ${WHY[reason].en}.`, ko: `${names}: ${WHY[reason].ko}.` });
    }
    if (group === M.groups[0] && M.left_out) said.push({ en: `Left out: ${queriesOf(M.left_out)} without a value in some run.`, ko: `어떤 실행에서 값이 없는 ${queriesOf(M.left_out)}는 뺐습니다.` });
    return said.length ? make("ul", { class: "points" }, ...said.map((one) => make("li", {}, say(one)))) : null;
  }

  // ---- Main effects, all on one scale
  const ends = ALL.flatMap((key) => key.levels.flatMap((one) => [one.low ?? one.mean, one.high ?? one.mean, one.mean]));
  const [LEAST, MOST] = [Math.min(...ends), Math.max(...ends)], MARGIN = .06 * (MOST - LEAST) || .01;
  const share = (value) => (value - LEAST + MARGIN) / (MOST - LEAST + 2 * MARGIN);
  const levelWords = (key, one) => `${key.name} ${rounded(one.value)}: ${number(one.mean)}` + (one.low === null ? "" : ` (${number(one.low, 3)} – ${number(one.high, 3)})`) + `, ${runsOf(one.runs)}, ` +
    say({ en: `best ${number(one.best)}`, ko: `최고 ${number(one.best)}` });
  function effect(key) {
    return make("figure", {}, make("h3", {}, ...breakable(key.name)), key.numeric && key.levels.length > 2 ? curve(key) : levels(key, true), key.plateau ? make("p", {}, plateau(key)) : null,
      key.numeric && key.levels.length > 2 ? make("details", {}, make("summary", {}, say({ en: "as a table", ko: "표로 보기" })), levels(key, false)) : null);
  }
  function levels(key, pictures) {
    const best = Math.max(...key.levels.map((one) => one.mean));
    return make("table", { class: "levels" }, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, say({ en: "value", ko: "값" })),
      make("th", { scope: "col", class: "scale" }, say({ en: "95 % interval", ko: "95 % 신뢰구간" })), make("th", { scope: "col", class: "mean" }, say({ en: "mean", ko: "평균" })))),
      make("tbody", {}, ...key.levels.map((one) => make("tr", {}, make("th", { scope: "row" }, rounded(one.value)),
        make("td", { class: "scale number" }, pictures ? dots(key, one) : one.low === null ? "–" : `${number(one.low, 3)} – ${number(one.high, 3)}`),
        make("td", { class: "mean number" }, one.mean === best ? make("b", {}, number(one.mean)) : number(one.mean))))));
  }
  function dots(key, one) {
    const words = levelWords(key, one);
    return draw("svg", { role: "img", "aria-label": words, ...tip(words) }, draw("line", { x1: 0, x2: "100%", y1: "50%", y2: "50%", stroke: "var(--line)" }),
      one.low === null ? null : draw("line", { x1: 100 * share(one.low) + "%", x2: 100 * share(one.high) + "%", y1: "50%", y2: "50%", stroke: "var(--curve)", "stroke-width": 3, opacity: .6 }),
      draw("circle", { cx: 100 * share(one.mean) + "%", cy: "50%", r: 4.5, fill: "var(--curve)" }));
  }
  function curve(key) {
    const WIDTH = 340, TALL = 170, LEFT = 46, GROUND = TALL - 24, count = key.levels.length;
    const x = (i) => LEFT + 12 + (WIDTH - LEFT - 24) * (count > 1 ? i / (count - 1) : .5), y = (value) => GROUND - share(value) * (GROUND - 8);
    const path = (points) => points.map(([i, value], n) => `${n ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    const band = [...key.levels.map((one, i) => [i, one.high ?? one.mean]), ...key.levels.map((one, i) => [i, one.low ?? one.mean]).reverse()];
    const best = key.levels.reduce((most, one, i) => (one.mean > key.levels[most].mean ? i : most), 0), every = Math.ceil(count / 7);
    const words = say({ en: `${key.name}: mean by value, from ${rounded(key.levels[0].value)} to ${rounded(key.levels.at(-1).value)}, the greatest ${number(key.levels[best].mean)} at ${rounded(key.levels[best].value)}`,
      ko: `${key.name}: 값별 평균, ${rounded(key.levels[0].value)}부터 ${rounded(key.levels.at(-1).value)}까지, 최댓값은 ${rounded(key.levels[best].value)}에서 ${number(key.levels[best].mean)}` });
    return draw("svg", { viewBox: `0 0 ${WIDTH} ${TALL}`, role: "img", "aria-label": words }, ...ticks(LEAST, MOST, 4).flatMap((one) => [
      draw("line", { x1: LEFT, x2: WIDTH, y1: y(one), y2: y(one), stroke: "var(--line)" }), draw("text", { x: LEFT - 6, y: y(one) + 4, "text-anchor": "end" }, String(one))]),
      draw("path", { d: path(band) + "Z", fill: "var(--curve)", opacity: .16 }), draw("path", { d: path(key.levels.map((one, i) => [i, one.mean])), fill: "none", stroke: "var(--curve)", "stroke-width": 2 }),
      ...key.levels.map((one, i) => draw("circle", { cx: x(i), cy: y(one.mean), r: i === best ? 5.5 : 3.5, fill: "var(--curve)", stroke: "var(--card)", ...tip(levelWords(key, one)) })),
      ...key.levels.map((one, i) => (i % every === 0 ? draw("text", { x: x(i), y: TALL - 6, "text-anchor": "middle" }, rounded(one.value.split(" – ")[0])) : null)));
  }
  function plateau(key) {
    const one = key.plateau, at = (place) => rounded(one.values[place]);
    const over = one.along === "average" ? say({ en: ", on average over the other keys", ko: "(다른 키에 대한 평균)" }) : say({ en: ", with all else as in the best run", ko: "(나머지는 최고 실행과 같음)" });
    const none = key.total?.low === 0 || (!key.total && !one.clear);
    if (none || !one.clear) return say({ en: `${none ? "No clear effect: from" : "From"} ${at(0)} to ${at(one.values.length - 1)}, scores differ no more than by chance${over}.`,
      ko: `${none ? "뚜렷한 효과 없음: " : ""}${at(0)}부터 ${at(one.values.length - 1)}까지의 차이는 우연과 구별되지 않습니다${over}.` });
    const below = number(one.below[one.beside]), beyond = one.at_end ? say({ en: ` ${at(one.best)} is the ${one.at_end} value tried: go beyond it.`, ko: ` 시도한 값 가운데 가장 ${one.at_end === "least" ? "작은" : "큰"} 값(${at(one.best)})입니다. 그 너머도 시도해 보세요.` }) :
      one.grows && one.best === one.values.length - 1 ? say({ en: " By construction, the measure rises with the key: larger values would show nothing.", ko: " 이 지표는 정의상 이 값과 함께 커지므로 그 너머를 시도할 이유는 되지 않습니다." }) : "";
    return (one.shape === "spike" ? say({ en: `Spike at ${at(one.best)} alone; ${at(one.beside)} is ${below} below${over}.`, ko: `뾰족함: ${at(one.best)}에서만 이 점수가 나옵니다. ${at(one.beside)}에서는 ${below} 낮습니다${over}.` }) :
      say({ en: `Plateau from ${at(one.low)} to ${at(one.high)}, best at ${at(one.best)}; ${at(one.beside)} is ${below} below${over}.`,
        ko: `고원: ${at(one.low)}부터 ${at(one.high)}까지 비슷하며 ${at(one.best)}에서 가장 좋습니다. ${at(one.beside)}에서는 ${below} 낮습니다${over}.` })) + beyond;
  }

  // ---- A heat map of any two keys
  const LEVELS = Object.fromEntries(ALL.map((key) => [key.name, key.levels.map((one) => rounded(one.value))]));
  let two = M.maps.length ? [M.maps[0].first, M.maps[0].second] : null;
  function cellsOf([down, across]) {
    const found = M.maps.find((one) => [one.first, one.second].every((name) => name === down || name === across));
    if (!found || found.first === down) return found?.means;
    return LEVELS[down].map((_, i) => found.means.map((line) => line[i]));
  }
  function heat() {
    const place = make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": say({ en: "Heat map", ko: "히트맵" }) });
    const names = [...new Set(M.maps.flatMap((one) => [one.first, one.second]))];
    const choice = (i, words) => make("label", {}, say(words), " ", make("select", { "aria-label": say(words), onchange: (event) => {
      const other = two[1 - i];
      two = i ? [two[0], event.target.value] : [event.target.value, two[1]];
      if (two[0] === two[1]) two[1 - i] = names.find((name) => name !== other && cellsOf(i ? [name, two[1]] : [two[0], name])) ?? two[1 - i];
      drawMap();
    } }, ...names.map((name) => make("option", { value: name }, name))));
    const selects = [choice(0, { en: "Down", ko: "세로" }), choice(1, { en: "Across", ko: "가로" })];
    function drawMap() {
      selects.forEach((label, i) => { label.querySelector("select").value = two[i]; });
      const cells = cellsOf(two);
      if (!cells) { place.replaceChildren(make("p", {}, say({ en: "No run has both keys.", ko: "두 키를 모두 가진 실행이 없습니다." }))); return; }
      const known = cells.flat().filter((one) => one !== null), [low, high] = [Math.min(...known), Math.max(...known)];
      const look = (one) => (one === null ? {} : { background: `color-mix(in srgb, var(--curve) ${(4 + 38 * (high > low ? (one - low) / (high - low) : .5)).toFixed(0)}%, var(--card))` });
      place.replaceChildren(make("table", { class: "heat" }, make("caption", { class: "soft" }, say({ en: `Mean ${M.metric} of the runs with both values; the best is framed.`, ko: `두 값을 가진 실행들의 ${M.metric} 평균. 가장 좋은 칸에 테두리가 있습니다.` })),
        make("thead", {}, make("tr", {}, make("th", { scope: "col" }, `${two[0]} ↓ ${two[1]} →`), ...LEVELS[two[1]].map((text) => make("th", { scope: "col" }, text)))),
        make("tbody", {}, ...cells.map((line, i) => make("tr", {}, make("th", { scope: "row" }, LEVELS[two[0]][i]),
          ...line.map((one) => make("td", { class: one === null ? "none" : one === high ? "best" : null, style: look(one) }, one === null ? "–" : number(one, 3))))))));
    }
    drawMap();
    return card(say({ en: "Any two keys", ko: "두 키 비교" }), null, make("div", { class: "tools" }, ...selects), place);
  }

  // ---- Parallel coordinates
  const TALL = 320, TOP = 26, CLOSEST = 120, WIDEST = 300, SPREAD = .06;
  const AXES = [...M.axes.map((one) => axisOf(one.name, one.numeric, DATA.runs.map((run) => run.params[one.name] ?? null))), axisOf(DATA.head.metric, true, VALUES)];
  // An axis has `places`, the height of each run from 0 at the bottom to 1 at the top, null without the key, and
  // `marks`, [[place, words]].
  function axisOf(name, numeric, texts) {
    const different = [...new Set(texts.filter((text) => text !== null))];
    if (!numeric) {
      const at = new Map(different.map((text, i) => [text, different.length > 1 ? 1 - i / (different.length - 1) : .5]));
      return { name, places: texts.map((text) => at.get(text) ?? null), marks: different.map((text) => [at.get(text), text]), options: different,
        spread: Math.min(SPREAD, .5 / different.length) };
    }
    const numbers = texts.map((text) => (text === null ? null : Number(text))), known = numbers.filter((one) => one !== null), [low, high] = [Math.min(...known), Math.max(...known)];
    const scale = low > 0 && high / low >= 100 ? Math.log : (one) => one, at = (one) => (high > low ? (scale(one) - scale(low)) / (scale(high) - scale(low)) : .5);
    const sorted = [...new Set(known)].sort((a, b) => a - b), shown = sorted.length <= 12 ? sorted : [low, ...ticks(low, high, 4).filter((one) => at(one) > .08 && at(one) < .92), high];
    const gaps = sorted.slice(1).map((one, i) => at(one) - at(sorted[i]));
    return { name, places: numbers.map((one) => (one === null ? null : at(one))), marks: shown.map((one) => [at(one), rounded(String(one))]), options: sorted.length <= 12 ? sorted.map(String) : null,
      spread: sorted.length <= 12 && texts !== VALUES ? Math.min(SPREAD, .5 * Math.min(...gaps)) : 0 };
  }
  const brushed = new Map(); // number of an axis -> the kept range of places, [from, to]
  const passes = (run) => [...brushed].every(([axis, [from, to]]) => AXES[axis].places[run] !== null && AXES[axis].places[run] >= from - 1e-9 && AXES[axis].places[run] <= to + 1e-9);
  const goal = AXES.at(-1).places, BOTTOM = AXES.some((axis) => axis.places.includes(null)) ? 44 : 18;
  let step = CLOSEST;
  const X = (axis) => 60 + axis * step, Y = (place) => (place === null ? TALL - 12 : TOP + (1 - place) * (TALL - TOP - BOTTOM));
  // Runs with the same value are spread a little by score, which keeps their lines apart.
  const height = (axis, run) => Y(axis.places[run] === null || axis.spread === 0 ? axis.places[run] : axis.places[run] + (goal[run] - .5) * axis.spread);
  const lineOf = (run) => AXES.map((axis, i) => `${i ? "L" : "M"}${X(i)} ${height(axis, run).toFixed(1)}`).join("");
  const runWords = (run) => `${shortName(run)}\n${DATA.head.metric} ${number(VALUES[run])}\n` + M.axes.map((one) => `${one.name} ${rounded(DATA.runs[run].params[one.name] ?? "–")}`).join("\n");

  function parallel(room) {
    step = Math.max(CLOSEST, Math.min(WIDEST, (room - 200) / (AXES.length - 1)));
    const over = draw("g", {}), ranges = draw("g", {}), passing = make("div", { "aria-live": "polite" });
    let at = null, drag = null;
    const wide = X(AXES.length - 1) + 90;
    // The lines are a separate layer: a moving highlight does not redraw them.
    const lines = draw("svg", { viewBox: `0 0 ${wide} ${TALL}`, class: "parallel under", "aria-hidden": "true" });
    const chart = draw("svg", { viewBox: `0 0 ${wide} ${TALL}`, class: "parallel over", tabindex: 0, role: "application", "aria-label": say({
      en: "Parallel coordinates: a line for each run, an axis for each key. Arrow up and down go through the runs by score; Enter selects one.",
      ko: "평행좌표: 실행마다 선 하나, 키마다 축 하나입니다. 위아래 화살표로 점수 순서대로 실행을 옮겨 다니고 Enter로 고릅니다." }) },
      over, ranges, ...AXES.flatMap((axis, i) => [draw("line", { x1: X(i), x2: X(i), y1: Y(1), y2: Y(0), class: "axis" }), draw("text", { x: X(i), y: 12, "text-anchor": "middle", class: "name" }, axis.name.length > 20 ? "…" + axis.name.slice(-19) : axis.name),
        ...axis.marks.map(([place, words]) => draw("text", { x: X(i) + 6, y: Y(place) + 4, stroke: "var(--card)", "stroke-width": 3, "paint-order": "stroke" }, words.length > 16 ? words.slice(0, 15) + "…" : words)),
        axis.places.includes(null) ? draw("text", { x: X(i) + 6, y: Y(null) + 4 }, "–") : null]));
    function highlight(run, said = false) {
      at = run;
      over.replaceChildren(...(run === null ? [] : [draw("path", { d: lineOf(run), stroke: "var(--text)", "stroke-width": 3 }), ...AXES.map((axis, i) => draw("circle", { cx: X(i), cy: height(axis, run), r: 4, fill: "var(--text)" }))]));
      if (said && run !== null) announce(runWords(run).replaceAll("\n", ", "));
    }
    function again() {
      const kept = DATA.runs.map((_, run) => run).filter(passes).reverse();
      lines.replaceChildren(...kept.map((run) => draw("path", { d: lineOf(run), stroke: `color-mix(in oklab, var(--curve) ${(100 * (goal[run] ?? 0)).toFixed(0)}%, var(--withheld))`, "stroke-width": 1.3, opacity: Math.max(.15, Math.min(.75, 60 / kept.length)) })));
      ranges.replaceChildren(...[...brushed].map(([axis, [from, to]]) => draw("rect", { x: X(axis) - 7, width: 14, y: Y(to) - 3, height: Y(from) - Y(to) + 6, rx: 3, class: "range" })));
      const best = kept.slice(-5).reverse();
      passing.replaceChildren(make("p", {}, say({ en: `${runsOf(kept.length)} of ${grouped(DATA.runs.length)}${best.length ? ", the best of them:" : "."}`, ko: `${grouped(DATA.runs.length)}개 중 ${runsOf(kept.length)}${best.length ? ", 그중 가장 좋은 실행:" : "."}` })),
        make("ol", { class: "passing" }, ...best.map((run) => make("li", {}, make("button", { class: "link", onclick: () => selection.toggle(run), onfocus: () => highlight(run), onblur: () => highlight(null) }, shortName(run)), " ", make("span", { class: "number" }, number(VALUES[run]))))));
      highlight(null);
      for (const [axis, select] of selects) select.value = brushed.has(axis) ? AXES[axis].options.findIndex((_, i) => String(brushed.get(axis)) === String(rangeOf(axis, i))) : "";
    }
    const rangeOf = (axis, option) => { const place = AXES[axis].marks[option][0]; return [place, place]; };
    const selects = AXES.flatMap((axis, i) => axis.options && i < AXES.length - 1 ? [[i, make("select", { onchange: (event) => {
      if (event.target.value === "") brushed.delete(i); else brushed.set(i, rangeOf(i, Number(event.target.value)));
      again();
    } }, make("option", { value: "" }, say({ en: "all", ko: "전체" })), ...axis.options.map((text, n) => make("option", { value: n }, rounded(text))))]] : []);
    // The place of the pointer in the units of the chart
    function pointed(event) {
      const box = chart.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * wide, y = (event.clientY - box.top) / box.height * TALL;
      const axis = Math.max(0, Math.min(AXES.length - 1, Math.round((x - X(0)) / step)));
      return { x, y, axis, near: Math.abs(x - X(axis)) < 16, place: Math.max(0, Math.min(1, 1 - (y - TOP) / (TALL - TOP - BOTTOM))) };
    }
    function nearest({ x, y }) {
      const left = Math.max(0, Math.min(AXES.length - 2, Math.floor((x - X(0)) / step))), part = (x - X(left)) / step;
      let found = null, least = 14; // units of the chart
      for (let run = 0; run < DATA.runs.length; run += 1) {
        if (!passes(run)) continue;
        const gap = Math.abs(height(AXES[left], run) * (1 - part) + height(AXES[left + 1], run) * part - y);
        if (gap < least) [found, least] = [run, gap];
      }
      return found;
    }
    const hint = tip("");
    chart.addEventListener("pointerdown", (event) => { const one = pointed(event); if (one.near && event.pointerType !== "touch") { drag = { axis: one.axis, from: one.place, moved: false }; chart.setPointerCapture(event.pointerId); } });
    chart.addEventListener("pointermove", (event) => {
      const one = pointed(event);
      if (drag) {
        drag.moved ||= Math.abs(one.place - drag.from) > .02;
        if (drag.moved) { brushed.set(drag.axis, [Math.min(one.place, drag.from), Math.max(one.place, drag.from)]); again(); }
        return;
      }
      const run = nearest(one);
      highlight(run);
      if (run === null) hint.onpointerleave(); else tip(runWords(run)).onpointermove(event);
    });
    chart.addEventListener("pointerleave", () => { highlight(null); hint.onpointerleave(); });
    chart.addEventListener("pointerup", (event) => {
      if (drag && !drag.moved) { brushed.delete(drag.axis); again(); } else if (!drag) { const run = nearest(pointed(event)); if (run !== null) selection.toggle(run); }
      drag = null;
    });
    chart.addEventListener("keydown", (event) => {
      const kept = DATA.runs.map((_, run) => run).filter(passes), step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step && kept.length) { event.preventDefault(); highlight(kept[Math.max(0, Math.min(kept.length - 1, at === null ? 0 : kept.indexOf(at) + step))], true); }
      if (event.key === "Enter" && at !== null) selection.toggle(at);
      if (event.key === "Escape") { brushed.clear(); again(); }
    });
    again();
    return card(say({ en: "All keys together", ko: "모든 키 함께 보기" }), say({ en: "drag along an axis to keep a range; click the axis to drop the range; click a line to select its run", ko: "축을 따라 끌면 그 범위만 남고, 축을 누르면 풀립니다. 선을 누르면 그 실행을 고릅니다" }),
      make("div", { class: "brushes" }, ...selects.map(([axis, select]) => make("label", {}, AXES[axis].name, select)),
        make("button", { class: "plain", onclick: () => { brushed.clear(); again(); } }, say({ en: "Keep all", ko: "모두 보기" }))),
      make("div", { class: "wide" }, make("div", { class: "layers", style: { width: wide + "px" } }, lines, chart)), passing);
  }

  tab("matters", { en: "What matters", ko: "무엇이 중요한가" }, (root) => {
    brushed.clear();
    root.append(...M.groups.map(importance), card(say({ en: "Effect of each value", ko: "값별 효과" }),
      say({ en: "means over the other keys, all on one scale; intervals are of the difference from the mean of the key", ko: "다른 키에 대한 평균이며 모두 같은 축척입니다. 신뢰구간은 그 키의 전체 평균과의 차이에 대한 것입니다" }),
      make("div", { class: "effects" }, ...ALL.map(effect))), ...(two ? [heat()] : []), parallel(root.clientWidth));
  });
}
