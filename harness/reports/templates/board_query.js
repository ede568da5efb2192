// An open query: its turns, and side by side the searches, lists and decisions of the selected runs. An open item of a
// text task: its texts, and side by side the predictions.

let queryPanel, queryMarks, itemPanel;
{
  // The words of a text, normalised for comparison
  const WORD = /[\p{L}\p{N}]+/gu;
  const WIDE_LETTER = /[\p{Script=Hangul}\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]/u;
  const NARROW = 4, WIDE_WORD = 2; // letters at the beginning that two words must share; WIDE_WORD in Korean
  const wordsOf = (text) => [...new Set(text.normalize("NFC").toLowerCase().match(WORD) ?? [])];
  // Returns how many letters at the beginning a word shares with any of the words; 0 if too few. Short words with digits
  // or in capitals must be equal.
  const short = (word) => /\d/.test(word) || word.length > 1 && word === word.toUpperCase() && word !== word.toLowerCase();
  function sharedStart(word, words) {
    const folded = word.toLowerCase(), least = WIDE_LETTER.test(folded) ? WIDE_WORD : NARROW;
    let most = 0;
    for (const other of words) {
      let i = 0;
      while (i < folded.length && folded[i] === other[i]) i += 1;
      if (i >= least || (i === folded.length && i === other.length && short(word))) most = Math.max(most, i);
    }
    return most;
  }
  // A text in pieces. The beginning of a word is marked if a word of the query begins in the same way.
  function markedText(text, words) {
    const pieces = [];
    let at = 0;
    text = text.normalize("NFC");
    for (const found of text.matchAll(WORD)) {
      const length = sharedStart(found[0], words);
      if (!length) continue;
      pieces.push(text.slice(at, found.index), make("mark", {}, text.slice(found.index, found.index + length)));
      at = found.index + length;
    }
    return [...pieces, text.slice(at)].filter((piece) => piece !== "");
  }

  queryMarks = { wordsOf, markedText };

  // The panel of a query. place: the place of the query. data: see `matrix()`. tools: buttons beside the title.
  queryPanel = async (place, data, tools) => {
    const one = await query(place), rules = await gates(), text = (await titles())[place];
    const relevant = await one.relevant();
    const runs = await Promise.all(selection.map(async (run) => [run, await one.of(run)]));
    const flags = [data.needs[place] ? { en: "needs retrieval", ko: "검색 필요" } : { en: "needs none", ko: "검색 불필요" },
      data.multi_turn[place] ? { en: "several turns", ko: "여러 턴" } : null,
      DATA.head.select_on === "public" ? (data.public[place] ? "public" : "private") : null].filter(Boolean).map(say);
    const who = { user: { en: "user", ko: "사용자" }, assistant: { en: "assistant", ko: "답변" }, system: { en: "system", ko: "시스템" } };
    return panel(one.id, text, tools,
      make("div", { class: "soft" }, flags.join(" · ")),
      one.turns?.length > 1 ? make("ol", { class: "turns" }, ...one.turns.map(([role, words]) => make("li", { class: role },
        make("span", { class: "soft" }, say(who[role] ?? role)), make("p", {}, words)))) : null,
      make("div", { class: `sides sides-${runs.length}` }, ...runs.map(([run, shown]) =>
        side(place, run, shown, { data, text, rule: rules[run], relevant }))),
      make("p", { class: "soft" }, say({ en: "Marked: the beginning of a word if a searched word begins in the same way, with at least two letters in Korean and four in other " +
        "scripts. The lists are those the runs wrote. If a gate was fitted on labels, values are out of fold and may differ from the list.",
      ko: "표시: 검색한 낱말과 앞부분이 같은 곳(한글 두 글자, 다른 문자는 네 글자 이상)과 대문자나 숫자로 된 같은 낱말. 목록은 기록된 그대로이고, 게이트를 라벨로 학습한 " +
        "실행의 값은 폴드 밖 값이므로 목록과 다를 수 있습니다." })));
  };
  const panel = (id, text, tools, ...inside) => make("section", { class: "query", id: "query", tabindex: -1, "aria-labelledby": "query-title" },
    make("div", { class: "query-head" },
      make("h2", { id: "query-title" }, make("span", { class: "id" }, id), " ", text ?? ""),
      make("div", { class: "tools" }, ...tools)), ...inside);
  itemPanel = async (place, data, tools) => {
    const one = await item(place), text = (await titles())[place];
    const side = (run) => make("article", { class: "side", "data-run": run }, ...head(place, run, data), make("p", { class: "said" },
      ...(pieces(one.said(run) ?? say({ en: "The text of this run is unknown.", ko: "이 실행의 글을 알 수 없습니다." })))));
    return panel(one.id, text, tools,
      ...one.texts.filter(([, words]) => words !== text).map(([name, words]) => make("p", { class: "said" }, make("span", { class: "soft" }, `${spaced(name)}: `), words)),
      make("div", { class: `sides sides-${selection.length}` }, ...selection.map(side)));
  };
  function head(place, run, data) {
    const at = run * data.ids.length + place, value = data.values[at];
    return [make("h3", {}, slot(run), " ", shortName(run)), make("div", { class: "value" },
      make("b", { class: "number" }, Number.isNaN(value) ? "–" : number(value)), lossPill(LOSSES[data.losses[at]]))];
  }
  function side(place, run, shown, { data, text, rule, relevant }) {
    const words = wordsOf(shown?.searched ?? text ?? "");
    const lines = shown ? [
      shown.searched && shown.searched !== text ? make("p", { class: "searched" }, make("span", { class: "soft" },
        say({ en: "searched: ", ko: "검색어: " })), shown.searched) : null,
      gateLine(shown, rule),
      ...documents(shown, words, relevant)] :
      [make("p", { class: "soft" }, say({ en: "The list of this run is unknown.", ko: "이 실행의 목록을 알 수 없습니다." }))];
    return make("article", { class: "side", "data-run": run }, ...head(place, run, data), ...lines);
  }
  const short5 = (value) => String(Number(value.toPrecision(5)));
  // The gate's signal and decision
  function gateLine({ signal, count, full, documents }, rule) {
    const decided = count ? say({ en: `${grouped(count)} returned`, ko: `${grouped(count)}개 반환` }) :
      full && documents.length ? say({ en: "all withheld", ko: "모두 막음" }) : say({ en: "none returned", ko: "반환 없음" });
    const [name, levels, thresholds] = rule ?? [null, [], []];
    const bounds = thresholds.map((one, i) => `${levels[i]}: ≥ ${short5(Number(one))}`).join(", ");
    const saw = signal === null ? null : `${name ?? say({ en: "signal", ko: "신호" })} ${short5(signal)}`;
    const set = bounds ? say({ en: `threshold ${thresholds.length > 1 ? bounds : short5(Number(thresholds[0]))}`,
      ko: `임계값 ${thresholds.length > 1 ? bounds : short5(Number(thresholds[0]))}` }) : null;
    return make("p", { class: "gate-line" }, make("span", { class: "soft" }, say({ en: "gate: ", ko: "게이트: " })),
      [saw, signal === null && name ? name : null, set, decided].filter(Boolean).join(" · "));
  }
  function documents(shown, words, relevant) {
    const listed = new Set([...shown.documents, ...shown.below].map((one) => one.place));
    const missing = shown.full ? (relevant ?? []).filter((one) => !listed.has(one.place)) :
      (relevant ?? []).filter((one) => !shown.documents.slice(0, shown.count).some((other) => other.place === one.place));
    const more = shown.count - shown.documents.length, SHOWN = 3;
    const absent = shown.full ? { en: "Relevant, but not retrieved", ko: "관련 있지만 찾지 못함" } :
      { en: "Relevant, but not returned", ko: "관련 있지만 반환되지 않음" };
    return [
      ...shown.documents.map((one, i) => card(one, words, i >= shown.count)),
      more > 0 ? make("p", { class: "soft" }, say({ en: `and ${grouped(more)} more`, ko: `외 ${grouped(more)}개` })) : null,
      shown.below.length ? make("h4", {}, say({ en: "Relevant, further down", ko: "더 아래에 있는 관련 문서" })) : null,
      ...shown.below.map((one) => card(one, words, true)),
      missing.length ? make("h4", {}, `${say(absent)} (${grouped(missing.length)})`) : null,
      ...missing.slice(0, SHOWN).map((one) => card(one, words, true)),
    ];
  }
  function card({ id, title, text, grade, rank, score }, words, left) {
    const about = [rank === null ? null : `${rank}.`, score === null ? null : short5(score)].filter(Boolean).join(" ");
    return make("div", { class: `card ${left ? "left" : ""} ${grade === null ? "" : "relevant"}` },
      make("div", { class: "card-head" }, make("span", { class: "number" }, about), make("span", { class: "id" }, id),
        grade === null ? null : make("span", { class: "grade" }, `✓ ${say({ en: "relevant", ko: "관련" })}${grade === 1 ? "" : ` ${grade}`}`),
        left && rank !== null ? make("span", { class: "soft" }, say({ en: "not returned", ko: "반환 안 함" })) : null),
      title ? make("b", {}, ...markedText(title, words)) : null,
      make("p", {}, ...(text === null ? [say({ en: "(text unknown)", ko: "(본문 없음)" })] : markedText(text, words))));
  }
}
