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

function swatch(colour, dash = [], filled = false) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("class", "swatch");
  svg.setAttribute("viewBox", "0 0 24 12");
  svg.setAttribute("aria-hidden", "true");
  const shape = document.createElementNS(space, filled ? "rect" : "line");
  const places = filled ? {x: 4, y: 1, width: 16, height: 10, rx: 2, fill: colour}
                        : {x1: 0, x2: 24, y1: 6, y2: 6, stroke: colour, "stroke-width": 3, "stroke-dasharray": dash.join(" ")};
  for (const [name, value] of Object.entries(places)) shape.setAttribute(name, value);
  svg.append(shape);
  return svg;
}

function legendOf(entries) {
  return element("ul", {class: "legend"},
                 ...entries.map((entry) => element("li", {}, swatch(entry.colour, entry.dash, entry.filled), element("span", {}, entry.name))));
}

function axis(title, format, more = {}) {
  const muted = cssValue("--muted");
  return {
    type: "linear", title: {display: true, text: title, color: muted, font: {size: 12.5}}, border: {color: cssValue("--line")},
    grid: {color: cssValue("--grid"), borderColor: cssValue("--line")},
    ticks: {color: muted, maxRotation: 0, autoSkipPadding: 14, font: {size: 12}, callback: (value) => format(Number(value))}, ...more,
  };
}

// Between the labelled powers of a logarithmic axis only 2 and 5 are labelled, as long as there are few decades.
function lossAxis(title, logarithmic) {
  const made = axis(title, (value) => number(value, 3));
  if (!logarithmic) return made;
  made.type = "logarithmic";
  made.ticks.callback = (value) => ([1, 2, 5].includes(Math.round(value / 10 ** Math.floor(Math.log10(value) + 1e-9))) ? number(value, 2) : "");
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

// specification: {title, note, wide, build() → {configuration, legend, label, columns, rows} or null where there is nothing to draw}.
function chartCard(specification) {
  const head = element("div", {class: "card-head"}, element("h3", {}, specification.title));
  const canvas = element("canvas", {role: "img"});
  const table = element("details", {}, element("summary", {}, "Data as a table"));
  const holder = element("div", {class: "chart"}, canvas);
  const card = element("section", {class: specification.wide ? "card wide" : "card"}, head, holder);
  if (specification.note) card.append(element("p", {class: "note"}, specification.note));
  card.append(table);
  let chart = null;
  let built = null;
  const fillTable = () => {
    if (!table.open || built === null) return;
    table.replaceChildren(table.firstChild, dataTable(built.columns, built.rows()));
  };
  table.addEventListener("toggle", fillTable);
  const refresh = () => {
    built = specification.build();
    card.hidden = built === null;
    if (built === null) return;
    head.replaceChildren(element("h3", {}, built.title || specification.title));
    if (built.legend.length > 0) head.append(legendOf(built.legend));
    canvas.setAttribute("aria-label", built.label);
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
  };
  allCharts.push({refresh, destroy: () => { if (chart !== null) chart.destroy(); }, resize: () => { if (chart !== null) chart.resize(); }});
  return card;
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
