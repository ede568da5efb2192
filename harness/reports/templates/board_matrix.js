// A matrix on a canvas: a row for each query, a column for each run, the best run first. If there are more cells than
// pixels, a pixel has the mean colour of its cells. One cell has the focus: arrow keys move the focus, and screen readers
// announce the cell.
//
// data: see `matrix()`. titles: the titles of the queries. said(query, run): the cell in words. open(query, run): called
// after a click or Enter. Returns {element, grid, show(order, options), focus(query)}. `show` lists the queries of `order`.
// options: {by: "loss" or "value", whole: whether all rows are visible, wide: whether columns are wide enough to click on}.
function cellMatrix(data, titles, said, open) {
  const R = DATA.runs.length, TOP = 20, ROW = 22, WIDE = 18, MOST_WIDE = 44;
  const state = { order: [], by: "loss", whole: false, wide: false, row: 0, run: 0 };
  const canvas = make("canvas", { "aria-hidden": "true" }), pen = canvas.getContext("2d", { alpha: false });
  const small = document.createElement("canvas"), smallPen = small.getContext("2d");
  const ring = make("div", { class: "ring", hidden: "" }), sizer = make("div", { class: "sizer" }, canvas, ring);
  const cell = make("div", { role: "gridcell", id: "cell" }), line = make("div", { role: "row" }, cell);
  const grid = make("div", { class: "cells", role: "grid", tabindex: 0, "aria-activedescendant": "cell", "aria-colcount": R },
    make("div", { class: "spoken" }, line), sizer);
  const readout = make("div", { class: "readout soft" });

  // ---- Colours
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const probe = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgb = (name) => {
    probe.fillStyle = style(name);
    probe.fillRect(0, 0, 1, 1);
    return probe.getImageData(0, 0, 1, 1).data;
  };
  let colours = null; // [pair * 3 + channel]
  function mixed() {
    const ground = rgb("--faint"), full = rgb("--curve"), none = rgb("--ground");
    const kinds = LOSSES.map((kind) => rgb(LOSS[kind].colour.slice(4, -1)));
    colours = new Uint8Array(data.table.length * 3);
    data.table.forEach(([value, kind], pair) => {
      const byLoss = [kinds[kind], kind ? .35 + .65 * Math.max(1 - value, 0) : .3], byValue = [full, .06 + .94 * value];
      const [ink, share] = value === null ? [none, 1] : state.by === "loss" ? byLoss : byValue;
      for (let i = 0; i < 3; i += 1) colours[pair * 3 + i] = ground[i] + (ink[i] - ground[i]) * share;
    });
  }

  // ---- Places in pixels
  const size = {};
  function measure() {
    const { clientWidth: wide, clientHeight: high } = grid;
    Object.assign(size, { wide, high, left: wide < 500 ? Math.min(110, wide / 3) : Math.min(340, wide * .36) });
    size.column = state.wide ? WIDE : Math.min((wide - size.left) / R, MOST_WIDE);
    if (!state.wide) size.left = wide - R * size.column; // with few runs, the titles of queries get more room
    size.row = state.whole ? (high - TOP) / Math.max(state.order.length, 1) : ROW;
    if (state.whole) size.row = Math.min(size.row, ROW);
    sizer.style.width = (state.wide ? size.left + R * size.column : wide) + "px";
    sizer.style.height = (state.whole ? high : TOP + state.order.length * size.row) + "px";
    const dots = devicePixelRatio || 1;
    if (canvas.width !== Math.round(wide * dots) || canvas.height !== Math.round(high * dots)) {
      canvas.width = Math.round(wide * dots);
      canvas.height = Math.round(high * dots);
      Object.assign(canvas.style, { width: wide + "px", height: high + "px" });
    }
  }
  function inSight() {
    const across = [grid.scrollLeft / size.column, (grid.scrollLeft + size.wide - size.left) / size.column];
    const down = [grid.scrollTop / size.row, (grid.scrollTop + size.high - TOP) / size.row];
    const [columns, rows] = [[across, R], [down, state.order.length]].map(([[from, to], most]) =>
      [Math.max(Math.floor(from), 0), Math.min(Math.ceil(to), most)]);
    return { columns, rows };
  }

  // ---- Drawing
  let waits = false;
  function redraw() {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => { waits = false; if (grid.isConnected && grid.clientWidth) paint(); });
  }
  function paint() {
    const dots = devicePixelRatio || 1, { columns: [firstRun, lastRun], rows: [first, last] } = inSight();
    const across = lastRun - firstRun, down = last - first, x = size.left + firstRun * size.column - grid.scrollLeft;
    const y = TOP + first * size.row - grid.scrollTop;
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    pen.textBaseline = "middle";
    pen.fillStyle = style("--card");
    pen.fillRect(0, 0, size.wide, size.high);
    if (across <= 0 || down <= 0) return;
    const bins = [Math.min(across, Math.ceil(across * size.column * dots)), Math.min(down, Math.ceil(down * size.row * dots))];
    small.width = bins[0];
    small.height = bins[1];
    smallPen.putImageData(means(firstRun, across, first, down, bins), 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.save();
    pen.beginPath();
    pen.rect(size.left, TOP, size.wide, size.high);
    pen.clip();
    pen.drawImage(small, x, y, across * size.column, down * size.row);
    gaps(x, y, across, down);
    pen.restore();
    labels(first, last, y);
    marks();
    place();
  }
  // Returns the mean colour of the cells in each of bins[0] * bins[1] pixels.
  function means(firstRun, across, first, down, [wide, high]) {
    const picture = smallPen.createImageData(wide, high), { cells } = data;
    const single = wide === across && high === down;
    for (let by = 0, to = 0; by < high; by += 1) {
      const rows = [first + Math.floor(by * down / high), first + Math.floor((by + 1) * down / high)];
      for (let bx = 0; bx < wide; bx += 1, to += 4) {
        const from = firstRun + Math.floor(bx * across / wide), until = firstRun + Math.floor((bx + 1) * across / wide);
        let [red, green, blue] = [0, 0, 0];
        for (let row = rows[0]; row < rows[1]; row += 1) {
          const start = state.order[row] * R;
          for (let run = from; run < until; run += 1) {
            const pair = cells[start + run] * 3;
            red += colours[pair];
            green += colours[pair + 1];
            blue += colours[pair + 2];
          }
        }
        const count = single ? 1 : (rows[1] - rows[0]) * (until - from);
        picture.data[to] = red / count;
        picture.data[to + 1] = green / count;
        picture.data[to + 2] = blue / count;
        picture.data[to + 3] = 255;
      }
    }
    return picture;
  }
  function gaps(x, y, across, down) {
    pen.fillStyle = style("--card");
    if (size.column >= 6) for (let i = 0; i <= across; i += 1) pen.fillRect(x + i * size.column - .5, y, 1, down * size.row);
    if (size.row >= 6) for (let i = 0; i <= down; i += 1) pen.fillRect(x, y + i * size.row - .5, across * size.column, 1);
  }
  function labels(first, last, y) {
    if (size.row < 14) return;
    const [soft, text] = [style("--soft"), style("--text")];
    pen.save();
    pen.beginPath();
    pen.rect(0, TOP, size.left - 8, size.high);
    pen.clip();
    for (let row = first; row < last; row += 1) {
      const query = state.order[row], at = y + (row - first + .5) * size.row;
      const roomy = size.left > 200 || !titles[query];
      if (roomy) {
        pen.font = "11px ui-monospace, Menlo, monospace";
        pen.fillStyle = soft;
        pen.fillText(data.ids[query].slice(0, 8), 2, at);
      }
      pen.font = "13px system-ui, 'Noto Sans KR', sans-serif";
      pen.fillStyle = text;
      pen.fillText((titles[query] ?? "").slice(0, 160), roomy ? 66 : 2, at);
    }
    pen.restore();
  }
  // Above the columns: the places of the runs if there is room, and the selected runs
  function marks() {
    pen.fillStyle = style("--card");
    pen.fillRect(0, 0, size.wide, TOP);
    if (size.column >= WIDE) {
      pen.font = "11px system-ui, sans-serif";
      pen.fillStyle = style("--soft");
      pen.textAlign = "center";
      const [first, last] = inSight().columns, middle = size.left + size.column / 2 - grid.scrollLeft;
      for (let run = first; run < last; run += 1) pen.fillText(run < 999 ? run + 1 : "…", middle + run * size.column, 6);
      pen.textAlign = "start";
      pen.fillStyle = style("--card");
      pen.fillRect(0, 0, size.left, TOP);
    }
    selection.forEach((run, i) => {
      const at = size.left + run * size.column - grid.scrollLeft, wide = Math.max(size.column - 1, 4);
      if (at + wide < size.left) return;
      pen.fillStyle = style(`--run-${i}`);
      pen.fillRect(at, TOP - 6, wide, 4);
    });
  }
  function place() {
    const there = document.activeElement === grid && state.order.length > 0;
    ring.hidden = !there;
    Object.assign(ring.style, { left: size.left + state.run * size.column + "px", top: TOP + state.row * size.row + "px",
      width: Math.max(size.column, 5) + "px", height: Math.max(size.row, 5) + "px" });
  }

  // ---- The cell that has the focus
  function step(down, across) {
    state.row = Math.min(Math.max(state.row + down, 0), Math.max(state.order.length - 1, 0));
    state.run = Math.min(Math.max(state.run + across, 0), R - 1);
    const at = { x: state.run * size.column, y: state.row * size.row };
    if (at.y < grid.scrollTop) grid.scrollTop = at.y;
    if (at.y + size.row > grid.scrollTop + size.high - TOP) grid.scrollTop = at.y + size.row - size.high + TOP;
    if (at.x < grid.scrollLeft) grid.scrollLeft = at.x;
    if (at.x + size.column > grid.scrollLeft + size.wide - size.left) grid.scrollLeft = at.x + size.column - size.wide + size.left;
    tell(true);
    place();
  }
  function tell(aloud) {
    const query = state.order[state.row];
    if (query === undefined) { cell.textContent = readout.textContent = ""; return; }
    const words = said(query, state.run);
    line.setAttribute("aria-rowindex", state.row + 1);
    cell.setAttribute("aria-colindex", state.run + 1);
    cell.textContent = readout.textContent = words;
    if (aloud) announce(words);
  }
  const PAGE = 10;
  const MOVES = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1], PageDown: [PAGE, 0], PageUp: [-PAGE, 0],
    Home: [0, -Infinity], End: [0, Infinity] };
  grid.addEventListener("keydown", (event) => {
    const move = MOVES[event.key], query = state.order[state.row];
    if (event.altKey || event.metaKey) return;
    if (move) step(...(event.ctrlKey && !move[0] ? [move[1], move[1]] : move));
    else if ((event.key === "Enter" || event.key === " ") && query !== undefined) open(query, state.run);
    else return;
    event.preventDefault();
  });
  grid.addEventListener("focus", () => { tell(true); place(); });
  grid.addEventListener("blur", place);

  // ---- The pointer
  function under(event) {
    const box = grid.getBoundingClientRect(), x = event.clientX - box.left - grid.clientLeft, y = event.clientY - box.top - grid.clientTop;
    const row = Math.floor((y - TOP + grid.scrollTop) / size.row), run = Math.floor((x - size.left + grid.scrollLeft) / size.column);
    if (y < TOP || x > size.wide || y > size.high || !(row in state.order)) return null;
    return { row, query: state.order[row], run: x < size.left ? null : run < R ? run : undefined };
  }
  grid.addEventListener("pointermove", (event) => {
    const found = under(event);
    if (!found) return;
    readout.textContent = found.run === null || found.run === undefined ? `${data.ids[found.query]} ${titles[found.query] ?? ""}` :
      said(found.query, found.run);
  });
  grid.addEventListener("pointerleave", () => tell(false));
  grid.addEventListener("click", (event) => {
    const found = under(event);
    if (!found) return;
    Object.assign(state, { row: found.row, run: found.run ?? state.run });
    tell(false);
    place();
    open(found.query, found.run ?? null);
  });
  grid.addEventListener("scroll", redraw, { passive: true });
  new ResizeObserver(() => { if (grid.clientWidth) { measure(); redraw(); } }).observe(grid);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { mixed(); redraw(); });

  function show(order, options) {
    const by = state.by, query = state.order[state.row];
    Object.assign(state, { order }, options);
    if (!colours || by !== state.by) mixed();
    state.row = Math.max(order.indexOf(query), 0);
    grid.setAttribute("aria-rowcount", order.length);
    grid.classList.toggle("whole", state.whole);
    if (grid.clientWidth) { measure(); redraw(); }
    tell(false);
  }
  function focus(query) {
    const row = state.order.indexOf(query);
    if (row >= 0) { state.row = row; step(0, 0); }
    grid.focus({ preventScroll: true });
  }
  selection.onchange(redraw);
  return { element: make("div", { class: "matrix-of-cells" }, grid, readout), grid, show, focus };
}
