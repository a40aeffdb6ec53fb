// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0

// The loss around the paths that runs took through the space of weights, as a map: filled contours on a logarithmic scale, a colour bar,
// and the paths.

// Viridis at nine places: even in lightness, and readable without red and green.
const kViridis = [[68, 1, 84], [71, 45, 123], [59, 82, 139], [44, 114, 142], [33, 145, 140], [40, 174, 128], [94, 201, 98], [173, 220, 48], [253, 231, 37]];

function viridis(at) {
  const place = Math.min(Math.max(at, 0), 1) * (kViridis.length - 1);
  const low = Math.min(Math.floor(place), kViridis.length - 2);
  return kViridis[low].map((value, i) => Math.round(value + (place - low) * (kViridis[low + 1][i] - value)));
}

const kLevels = 14;
const kFineEnough = 150;

// What both drawings of a landscape need: heights (logarithms where losses allow it), their range, a finer grid, the levels.
function prepareLandscape(landscape) {
  const values = landscape.grid.flat().concat(landscape.trajectories.flatMap((path) => path.points.map((point) => point.loss))).filter(isNumber);
  const range = extremes(values) ?? {low: 0, high: 0};
  const logarithmic = range.low > 0;
  const height = (value) => (isNumber(value) ? (logarithmic ? Math.log10(value) : value) : NaN);
  const lossAt = (value) => (logarithmic ? 10 ** value : value);
  const low = height(range.low);
  const high = height(range.high);
  const span = high > low ? high - low : 1;
  const grid = landscape.grid.map((row) => row.map(height));
  const times = Math.max(1, Math.floor(kFineEnough / Math.max(grid.length, grid[0].length)));
  const fine = finer(grid, times);
  const levels = Array.from({length: kLevels + 1}, (_, i) => low + span * i / kLevels);
  return {
    landscape, grid, low, high: low + span, span, height, lossAt, fine, times, logarithmic, levels, contours: levels.slice(1, -1).map((level) => contourLines(fine, level)),
    extent: {x: [landscape.x[0], landscape.x[landscape.x.length - 1]], y: [landscape.y[0], landscape.y[landscape.y.length - 1]]},
  };
}

// Catmull-Rom between four neighbours; straight where one of them is missing.
function between(a, b, c, d, t) {
  if (Number.isNaN(a) || Number.isNaN(d)) return b + t * (c - b);
  return b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
}

function finerRow(row, times) {
  const result = [];
  for (let i = 0; i + 1 < row.length; ++i) {
    for (let k = 0; k < times; ++k) {
      const t = k / times;
      result.push(between(row[i - 1] ?? 2 * row[i] - row[i + 1], row[i], row[i + 1], row[i + 2] ?? 2 * row[i + 1] - row[i], t));
    }
  }
  result.push(row[row.length - 1]);
  return result;
}

function transposed(rows) { return rows[0].map((_, i) => rows.map((row) => row[i])); }
function finer(grid, times) {
  const along = (row) => finerRow(row, times);
  return times === 1 ? grid : transposed(transposed(grid.map(along)).map(along));
}

// Round numbers, about so many, inside a range.
function niceTicks(low, high, wanted) {
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}

// Lines of one height through the finer grid, in units of its cells, joined to paths.
function contourLines(grid, level) {
  const segments = [];
  for (let row = 0; row + 1 < grid.length; ++row) {
    for (let column = 0; column + 1 < grid[row].length; ++column) {
      const heights = [grid[row][column], grid[row][column + 1], grid[row + 1][column + 1], grid[row + 1][column]];
      const below = heights.filter((height) => height < level).length;
      if (below === 0 || below === 4 || heights.some(Number.isNaN)) continue;
      const corners = [[column, row], [column + 1, row], [column + 1, row + 1], [column, row + 1]];
      const crossings = [];
      for (let i = 0; i < 4; ++i) {
        const j = (i + 1) % 4;
        if ((heights[i] < level) === (heights[j] < level)) continue;
        const t = (level - heights[i]) / (heights[j] - heights[i]);
        crossings.push([corners[i][0] + t * (corners[j][0] - corners[i][0]), corners[i][1] + t * (corners[j][1] - corners[i][1])]);
      }
      for (let i = 0; i + 1 < crossings.length; i += 2) segments.push([crossings[i], crossings[i + 1]]);
    }
  }
  return joinSegments(segments);
}

function joinSegments(segments) {
  const key = ([x, y]) => `${x.toFixed(5)},${y.toFixed(5)}`;
  const ends = new Map();
  segments.forEach((segment, i) => segment.forEach((point) => ends.set(key(point), [...(ends.get(key(point)) || []), i])));
  const used = new Array(segments.length).fill(false);
  const follow = (from) => {
    const path = [];
    for (let at = from;;) {
      const next = (ends.get(key(at)) || []).find((i) => !used[i]);
      if (next === undefined) return path;
      used[next] = true;
      at = key(segments[next][0]) === key(at) ? segments[next][1] : segments[next][0];
      path.push(at);
    }
  };
  const paths = [];
  segments.forEach((segment, i) => {
    if (used[i]) return;
    used[i] = true;
    paths.push([...follow(segment[0]).reverse(), segment[0], segment[1], ...follow(segment[1])]);
  });
  return paths;
}

// A canvas of this many CSS pixels, sharp on any screen, with a context in those pixels.
function sized(canvas, width, height) {
  const ratio = Math.max(window.devicePixelRatio || 1, 1);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  context.textBaseline = "middle";
  return context;
}

function textWidth(canvas, text) {
  const context = canvas.getContext("2d");
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return context.measureText(text).width;
}

// Map and surface stand side by side, and are of one height.
function plotHeight(width) { return Math.round(Math.min(Math.max(width * 0.82, 290), 600)); }

// The colour of a path is that of its run, where the page shows it too.
function pathStyles(landscape) {
  const shown = shownRuns();
  const used = new Set(shown.map((run) => run.slot));
  let next = 0;
  return landscape.trajectories.map((path) => {
    const run = runAt(path.name) ?? shown.find((each) => each.name === path.name);
    if (run?.slot !== undefined) return slotStyle(run.slot);
    while (used.has(next)) ++next;
    return slotStyle(next++);
  });
}

function axisNames(landscape) {
  return [0, 1].map((i) => {
    const part = landscape.explained_variance?.[i];
    return `principal component ${i + 1}${isNumber(part) ? ` (${percent(part, 1)} of the variance)` : ""}`;
  });
}

function drawContour(canvas, prepared) {
  const {landscape, extent} = prepared;
  const width = canvas.parentElement.clientWidth;
  const narrow = width < 480;
  const ticks = {x: niceTicks(...extent.x, narrow ? 4 : 7), y: niceTicks(...extent.y, 6)};
  // Room for the longest label and the name beside it.
  const longest = (values, digits) => Math.ceil(extremes(values.map((value) => textWidth(canvas, number(value, digits)))).high);
  const left = longest(ticks.y, 3) + 9 + 24;
  const labels = longest(prepared.levels.map(prepared.lossAt), 2);
  const right = 12 + (narrow ? 10 : 14) + 5 + labels + 20;
  const inner = width - left - right;
  const innerHeight = plotHeight(width) - 62;
  const context = sized(canvas, width, innerHeight + 62);
  const top = 10;
  const px = (x) => left + inner * (x - extent.x[0]) / (extent.x[1] - extent.x[0]);
  const py = (y) => top + innerHeight * (extent.y[1] - y) / (extent.y[1] - extent.y[0]);
  drawFill(context, prepared, {left, top, inner, innerHeight});
  context.save();
  context.beginPath();
  context.rect(left, top, inner, innerHeight);
  context.clip();
  const place = (point) => [px(point.x), py(point.y)];
  const lines = drawContourLines(context, prepared, {left, top, inner, innerHeight});
  drawPaths(context, landscape, place);
  const crossed = landscape.trajectories.flatMap((path) => pointsAlong(path.points.map(place)));
  const taken = [];
  for (const {path, text} of lines) labelPath(context, path, text, taken, crossed, {left, top, inner, innerHeight});
  context.restore();
  drawFrame(context, prepared, {left, top, inner, innerHeight, px, py, narrow, ticks});
  drawColourBar(context, prepared, {x: left + inner + 12, top, height: innerHeight, narrow, labels});
}

// Bands of one colour between the levels, at the resolution of the screen.
function drawFill(context, prepared, {left, top, inner, innerHeight}) {
  const ratio = context.getTransform().a;
  const columns = Math.round(inner * ratio);
  const rows = Math.round(innerHeight * ratio);
  const image = context.createImageData(columns, rows);
  const {fine, low, span} = prepared;
  const colours = Array.from({length: kLevels}, (_, i) => viridis((i + 0.5) / kLevels));
  for (let j = 0; j < rows; ++j) {
    const v = (fine.length - 1) * (1 - (j + 0.5) / rows);
    const row = Math.min(Math.floor(v), fine.length - 2);
    for (let i = 0; i < columns; ++i) {
      const u = (fine[0].length - 1) * (i + 0.5) / columns;
      const column = Math.min(Math.floor(u), fine[0].length - 2);
      const s = u - column;
      const t = v - row;
      const height = (1 - t) * ((1 - s) * fine[row][column] + s * fine[row][column + 1]) + t * ((1 - s) * fine[row + 1][column] + s * fine[row + 1][column + 1]);
      if (Number.isNaN(height)) continue;
      const colour = colours[Math.min(Math.max(Math.floor(kLevels * (height - low) / span), 0), kLevels - 1)];
      const at = 4 * (j * columns + i);
      image.data[at] = colour[0];
      image.data[at + 1] = colour[1];
      image.data[at + 2] = colour[2];
      image.data[at + 3] = 255;
    }
  }
  context.putImageData(image, Math.round(left * ratio), Math.round(top * ratio));
}

function drawContourLines(context, prepared, {left, top, inner, innerHeight}) {
  const {fine, levels, lossAt, contours} = prepared;
  const place = ([x, y]) => [left + inner * x / (fine[0].length - 1), top + innerHeight * (1 - y / (fine.length - 1))];
  const labels = [];
  context.lineWidth = 0.8;
  levels.slice(1, -1).forEach((level, i) => {
    const paths = contours[i].map((path) => path.map(place));
    context.strokeStyle = "rgba(255, 255, 255, 0.45)";
    for (const path of paths) {
      context.beginPath();
      path.forEach(([x, y], k) => (k === 0 ? context.moveTo(x, y) : context.lineTo(x, y)));
      context.stroke();
    }
    const longest = paths.sort((a, b) => b.length - a.length)[0];
    if (i % 2 === 1 && longest && longest.length > 30) labels.push({path: longest, text: number(lossAt(level), 2)});
  });
  return labels;
}

// Places along a polyline, near enough to each other that no label fits between them.
function pointsAlong(points) {
  const places = points.slice(0, 1);
  for (let i = 1; i < points.length; ++i) {
    const [[x, y], [u, v]] = [points[i - 1], points[i]];
    const pieces = Math.min(Math.max(1, Math.ceil(Math.hypot(u - x, v - y) / 8)), 200);
    for (let k = 1; k <= pieces; ++k) places.push([x + (u - x) * k / pieces, y + (v - y) * k / pieces]);
  }
  return places;
}

// At the place along the line that is inside the frame, off the paths, and farthest from the labels that are there.
const kHalfLabel = 20;
function labelPath(context, path, text, taken, crossed, {left, top, inner, innerHeight}) {
  let best = null;
  for (let i = 4; i + 4 < path.length; i += 4) {
    const [x, y] = path[i];
    if (x < left + 26 || x > left + inner - 26 || y < top + 14 || y > top + innerHeight - 14) continue;
    if (crossed.some(([u, v]) => Math.hypot(u - x, v - y) < kHalfLabel)) continue;
    const distance = Math.min(200, ...taken.map(([u, v]) => Math.hypot(u - x, v - y)));
    if (best === null || distance > best.distance) best = {i, distance};
  }
  if (best === null || best.distance < 44) return;
  const [x, y] = path[best.i];
  taken.push([x, y]);
  let angle = Math.atan2(path[best.i + 4][1] - path[best.i - 4][1], path[best.i + 4][0] - path[best.i - 4][0]);
  if (angle > Math.PI / 2) angle -= Math.PI;
  if (angle < -Math.PI / 2) angle += Math.PI;
  context.save();
  context.translate(x, y);
  context.rotate(angle);
  context.textAlign = "center";
  context.font = context.font.replace("12px", "11px");
  context.lineWidth = 3;
  context.strokeStyle = "rgba(0, 0, 0, 0.55)";
  context.strokeText(text, 0, 0);
  context.fillStyle = "#ffffff";
  context.fillText(text, 0, 0);
  context.restore();
}

// A light edge around each line keeps it apart from every colour below it. The start is a ring, the end a disc.
function drawPaths(context, landscape, place) {
  const styles = pathStyles(landscape);
  landscape.trajectories.forEach((path, i) => {
    const points = path.points.map(place);
    if (points.length === 0) return;
    const trace = () => {
      context.beginPath();
      points.forEach(([x, y], k) => (k === 0 ? context.moveTo(x, y) : context.lineTo(x, y)));
    };
    context.lineJoin = "round";
    context.lineCap = "round";
    trace();
    context.strokeStyle = "rgba(255, 255, 255, 0.95)";
    context.lineWidth = 5;
    context.stroke();
    trace();
    context.strokeStyle = styles[i].colour;
    context.lineWidth = 2.6;
    context.lineCap = styles[i].dash.length > 0 ? "butt" : "round";
    context.setLineDash(styles[i].dash);
    context.stroke();
    context.setLineDash([]);
    // A dot for each snapshot, where they do not crowd.
    let [fromX, fromY] = points[0];
    for (const [x, y] of points.slice(1, -1)) {
      if (Math.hypot(x - fromX, y - fromY) < 14) continue;
      disc(context, x, y, 3, styles[i].colour, "#ffffff", 0.8);
      [fromX, fromY] = [x, y];
    }
    disc(context, ...points[0], 5, "#ffffff", styles[i].colour, 2.6);
    disc(context, ...points[points.length - 1], 6, styles[i].colour, "#ffffff", 2);
  });
}

function disc(context, x, y, radius, fill, edge, width) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fillStyle = fill;
  context.fill();
  context.lineWidth = width;
  context.strokeStyle = edge;
  context.stroke();
}

function drawFrame(context, prepared, {left, top, inner, innerHeight, px, py, narrow, ticks}) {
  const {landscape} = prepared;
  const names = axisNames(landscape);
  context.strokeStyle = cssValue("--line");
  context.lineWidth = 1;
  context.strokeRect(left + 0.5, top + 0.5, inner - 1, innerHeight - 1);
  context.fillStyle = cssValue("--muted");
  context.textAlign = "center";
  for (const tick of ticks.x) {
    context.fillRect(px(tick), top + innerHeight, 1, 5);
    context.fillText(number(tick, 3), px(tick), top + innerHeight + 15);
  }
  context.fillText(narrow ? names[0].replace("principal component", "component") : names[0], left + inner / 2, top + innerHeight + 38, inner + left);
  context.textAlign = "right";
  for (const tick of ticks.y) {
    context.fillRect(left - 5, py(tick), 5, 1);
    context.fillText(number(tick, 3), left - 9, py(tick));
  }
  context.save();
  context.translate(11, top + innerHeight / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.fillText(narrow ? names[1].replace("principal component", "component") : names[1], 0, 0, innerHeight);
  context.restore();
}

function drawColourBar(context, prepared, {x, top, height, narrow, labels}) {
  const {levels, lossAt, landscape, logarithmic} = prepared;
  const thickness = narrow ? 10 : 14;
  for (let i = 0; i < kLevels; ++i) {
    const [red, green, blue] = viridis((i + 0.5) / kLevels);
    context.fillStyle = `rgb(${red}, ${green}, ${blue})`;
    context.fillRect(x, top + height * (1 - (i + 1) / kLevels), thickness, height / kLevels + 0.7);
  }
  context.fillStyle = cssValue("--muted");
  context.textAlign = "left";
  levels.forEach((level, i) => {
    if (i % 2 === 0) context.fillText(number(lossAt(level), 2), x + thickness + 5, Math.min(Math.max(top + height * (1 - i / kLevels), top + 6), top + height - 6));
  });
  context.save();
  context.translate(x + thickness + 5 + labels + 12, top + height / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.fillText(`${landscape.loss || "loss"}${logarithmic ? " (logarithmic)" : ""}`, 0, 0, height);
  context.restore();
}

function landscapeParts(landscape) {
  const prepared = prepareLandscape(landscape);
  const legend = element("div", {});
  const map = element("canvas", {role: "img", "aria-label": landscapeLabel("Map", landscape)});
  const surface = element("canvas", {role: "img", tabindex: "0", class: "turns", "aria-label":
    `${landscapeLabel("Surface", landscape)} Drag to turn it, or use the arrow keys.`});
  const paint = surfacePainter(surface, prepared);
  const refresh = () => {
    const styles = pathStyles(landscape);
    legend.replaceChildren(legendOf(landscape.trajectories.map((path, i) => ({name: path.name, ...styles[i]}))));
    drawContour(map, prepared);
    paint();
  };
  allCharts.push({refresh, destroy: () => {}, resize: refresh});
  const table = element("details", {}, element("summary", {}, "Data as a table"));
  table.addEventListener("toggle", () => {
    if (!table.open || table.children.length > 1) return;
    const small = (value) => number(value, 4);
    table.append(dataTable([{name: "run"}, {name: "step", format: count}, {name: "epoch", format: small}, {name: "x", format: small}, {name: "y", format: small},
                            {name: "loss", format: loss}, {name: "accuracy", format: percent}],
      landscape.trajectories.flatMap((path) => path.points.map((point) => [path.name, point.step, point.epoch, point.x, point.y, point.loss, point.accuracy]))));
  });
  const note = `The plane through the weights in which the paths spread most, found by principal components; at each of its points the ${landscape.loss || "loss"}` +
    `${isNumber(landscape.samples) ? ` over ${count(landscape.samples)} samples` : ""}. Rings mark where paths begin, discs where they end.` +
    (landscape.grid.flat().some((value) => !isNumber(value)) ? " Where nothing is drawn the loss is not finite." : "");
  return element("section", {class: "part landscape"}, element("div", {class: "part-head"}, element("h2", {}, titleOf("Landscape", data.landscapes, landscape, "Landscape of the loss")), legend),
    element("div", {class: "cards"},
      element("section", {class: "card"}, element("div", {class: "card-head"}, element("h3", {}, "Map")), element("div", {class: "plot"}, map)),
      element("section", {class: "card"}, element("div", {class: "card-head"}, element("h3", {}, "Surface"), element("span", {class: "note"}, "drag to turn")),
              element("div", {class: "plot"}, surface), element("p", {class: "note"}, "Paths are drawn at their true loss, which the plane need not have."))),
    element("p", {class: "note"}, note), table);
}

function landscapeLabel(kind, landscape) {
  const ends = landscape.trajectories.map((path) => `${path.name}: from ${loss(path.points[0]?.loss)} to ${loss(path.points[path.points.length - 1]?.loss)}`);
  return `${kind} of the ${landscape.loss || "loss"} with ${count(landscape.trajectories.length)} paths. ${ends.join("; ")}.`;
}
