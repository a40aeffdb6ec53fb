// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0

// Charts in cards: a heading, a legend of our own that wraps instead of overlapping, the canvas, and its data as a table behind it.

const kRunColours = 8;
const kDashes = [[], [7, 4], [2, 3], [10, 3, 2, 3]];
const allCharts = [];

function cssValue(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

// The slot of a run is its place among those that are shown: eight colours, then the same with dashes.
function slotStyle(slot) {
  return {colour: cssValue(`--run${slot % kRunColours}`), dash: kDashes[Math.floor(slot / kRunColours) % kDashes.length]};
}

// Bars have no dashes: beyond eight they are paler, with an edge.
const kBarShades = ["", "73", "33", "00"];
function barStyle(slot) {
  const {colour} = slotStyle(slot);
  const shade = kBarShades[Math.floor(slot / kRunColours) % kBarShades.length];
  return {colour, fill: colour + shade, edge: shade === "" ? 0 : 1.5};
}

function swatch(colour, dash = [], filled = false, fill = colour) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("class", "swatch");
  svg.setAttribute("viewBox", "0 0 24 12");
  svg.setAttribute("aria-hidden", "true");
  const shape = document.createElementNS(space, filled ? "rect" : "line");
  const places = filled ? {x: 4, y: 1, width: 16, height: 10, rx: 2, fill, stroke: colour, "stroke-width": fill === colour ? 0 : 1.5}
                        : {x1: 0, x2: 24, y1: 6, y2: 6, stroke: colour, "stroke-width": 3, "stroke-dasharray": dash.join(" ")};
  for (const [name, value] of Object.entries(places)) shape.setAttribute(name, value);
  svg.append(shape);
  return svg;
}

function legendOf(entries) {
  return element("ul", {class: "legend"},
                 ...entries.map((entry) => element("li", {}, swatch(entry.colour, entry.dash, entry.filled, entry.fill), element("span", {}, entry.name))));
}

function axis(title, format, more = {}) {
  const muted = cssValue("--muted");
  return {
    type: "linear", title: {display: true, text: title, color: muted, font: {size: 12.5}}, border: {color: cssValue("--line")},
    grid: {color: cssValue("--grid"), borderColor: cssValue("--line")},
    ticks: {color: muted, maxRotation: 0, autoSkipPadding: 14, font: {size: 12}, callback: (value) => format(Number(value))}, ...more,
  };
}

// 1, 2 and 5 of each decade, of many decades only the 1, of very many only some of those. Round numbers where these are too far apart.
function logarithmicTicks(low, high) {
  const first = Math.floor(Math.log10(low) + 1e-9);
  const last = Math.ceil(Math.log10(high) - 1e-9);
  const every = Math.max(1, Math.ceil((last - first) / 8));
  const ticks = [];
  for (let power = first; power <= last; power += every) {
    for (const factor of last - first <= 4 ? [1, 2, 5] : [1]) ticks.push(Number(`${factor}e${power}`));
  }
  const inside = ticks.filter((tick) => tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9));
  return inside.length >= 2 ? inside : niceTicks(low, high, 4);
}

function logarithmicAxis(title, format, {low, high}) {
  const room = high > 2 * low ? 1.08 : 1.6;
  const made = axis(title, format, {type: "logarithmic", bounds: "data", min: low / room, max: high * room});
  made.ticks.autoSkip = false;
  made.afterBuildTicks = (scale) => { scale.ticks = logarithmicTicks(scale.min, scale.max).map((value) => ({value})); };
  return made;
}

function lineOptions(x, y, tooltip) {
  return {
    animation: false, responsive: true, maintainAspectRatio: false, parsing: false, normalized: true,
    interaction: {mode: "nearest", axis: "x", intersect: false},
    scales: {x, y},
    plugins: {legend: {display: false}, tooltip: {callbacks: tooltip}},
  };
}

function lineSet(name, style, points, more = {}) {
  const sparse = points.length <= 24;
  return {
    label: name, data: points, borderColor: style.colour, backgroundColor: style.colour, borderDash: style.dash, borderWidth: 2,
    pointRadius: sparse ? 2.5 : 0, pointHoverRadius: 4, tension: 0, spanGaps: true, clip: 6, ...more,
  };
}

// A part that fails leaves a sentence; the others stay.
function attempt(what, make) {
  try {
    return make();
  } catch (error) {
    console.error(error);
    return element("p", {class: "note problem"}, `${what} cannot be shown: ${error.message}`);
  }
}

// specification: {title, note, wide, build() → {configuration, legend, label, note, columns, rows} or null where there is nothing to draw}.
function chartCard(specification) {
  const head = element("div", {class: "card-head"}, element("h3", {}, specification.title));
  const canvas = element("canvas", {role: "img"});
  const table = element("details", {}, element("summary", {}, "Data as a table"));
  const holder = element("div", {class: "chart"}, canvas);
  const note = element("p", {class: "note"});
  const card = element("section", {class: specification.wide ? "card wide" : "card"}, head, holder, note, table);
  let chart = null;
  let built = null;
  let shown = "";
  const fillTable = () => {
    if (!table.open || built === null) return;
    const rows = built.rows();
    const content = JSON.stringify([built.columns, rows.length, rows.slice(0, kLongTable)]);
    if (content === shown) return;
    shown = content;
    keepingPlace(table, () => table.replaceChildren(table.firstChild, dataTable(built.columns, rows)));
  };
  table.addEventListener("toggle", fillTable);
  const draw = () => {
    const legend = built.legend.length > 0 ? legendOf(built.legend) : "";
    head.replaceChildren(element("h3", {}, built.title || specification.title), legend);
    canvas.setAttribute("aria-label", built.label);
    note.textContent = [specification.note, built.note].filter(Boolean).join(" ");
    note.hidden = note.textContent === "";
    if (built.height) holder.style.height = `${built.height}px`;
    if (chart !== null && chart.config.type !== built.configuration.type) {
      chart.destroy();
      chart = null;
    }
    if (chart === null) {
      chart = new Chart(canvas, built.configuration);
    } else {
      chart.data = built.configuration.data;
      chart.options = built.configuration.options;
      chart.update("none");
    }
    fillTable();
    return null;
  };
  const refresh = () => {
    card.querySelector(":scope > .problem")?.remove();
    const problem = attempt(specification.title, () => {
      built = specification.build();
      card.hidden = built === null;
      return built === null ? null : draw();
    });
    holder.hidden = table.hidden = problem !== null;
    if (problem !== null) {
      card.hidden = false;
      card.append(problem);
    }
  };
  allCharts.push({refresh, destroy: () => { if (chart !== null) chart.destroy(); }, resize: () => { if (chart !== null) chart.resize(); }});
  return card;
}

// Content that is made anew keeps which folds are open, how far boxes are scrolled, and the focus.
function keepingPlace(holder, replace) {
  const all = (selector) => [...holder.querySelectorAll(selector)];
  const focusable = "button, input, select, summary, [tabindex]";
  const open = all("details").map((each) => each.open);
  const places = all(".box").map((each) => [each.scrollLeft, each.scrollTop]);
  const focused = all(focusable).indexOf(document.activeElement);
  replace();
  all("details").forEach((each, i) => { if (open[i]) each.open = true; });
  all(".box").forEach((each, i) => { if (places[i]) [each.scrollLeft, each.scrollTop] = places[i]; });
  if (focused >= 0) all(focusable)[focused]?.focus({preventScroll: true});
}

function refreshCharts() {
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.color = cssValue("--muted");
  for (const chart of allCharts) chart.refresh();
}

function forgetCharts() {
  for (const chart of allCharts) chart.destroy();
  allCharts.length = 0;
}
