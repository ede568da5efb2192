// Tab *Report*: what was compared, in sentences, tables and figures.
if (DATA.sections.length) {
  const LONG = 40, LINES = 6; // rows of a table and sentences from which on they are folded
  const folded = (many, words, ...inside) => many ? [make("details", {}, make("summary", {}, words), ...inside)] : inside;
  const looks = (cell) => (cell.length < 9 || /[0-9]/.test(cell) && cell.length < 24 ? "figure" : null);
  const table = ({ title, header, rows }) => {
    if (!rows.length) return [];
    const whole = make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": title }, make("table", { class: "plain-table" },
      make("thead", {}, make("tr", {}, ...header.map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", { class: looks(cell) }, cell)))))));
    return folded(rows.length > LONG, say({ en: `${grouped(rows.length)} rows`, ko: `${grouped(rows.length)}행` }), whole);
  };
  const figure = (name) => make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": name },
    make("img", { alt: name, src: "data:image/png;base64," + DATA.figures[name] }));
  const section = (one) => {
    const lines = one.lines.map((line) => make("p", {}, line));
    return make("section", { lang: "en" }, make("h2", {}, one.title), ...lines.slice(0, LINES),
      ...folded(lines.length > LINES, say({ en: `${lines.length - LINES} more`, ko: `${lines.length - LINES}개 더` }), ...lines.slice(LINES)),
      ...one.figures.map(figure), ...table(one));
  };
  tab("report", { en: "Report", ko: "보고서" }, (root) => {
    const sections = DATA.sections.map(section);
    const links = sections.map((one, i) => make("li", {}, make("button", { class: "link", onclick: () => one.scrollIntoView() }, DATA.sections[i].title)));
    root.append(make("nav", { "aria-label": say({ en: "Contents", ko: "차례" }) }, make("ul", { class: "contents", lang: "en" }, ...links)), ...sections);
  });
}
